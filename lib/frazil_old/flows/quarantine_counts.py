"""What waits in the quarantine, and what became of its rows: read without Spark where the catalog allows it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from frazil_old.config.settings import Settings
from frazil_old.errors import FrazilError, many
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.lake.quarantine_columns import OPEN, UNREADABLE

NO_TABLE = "no table"
"""The table's name for a message that names none."""


def known_records(settings: Settings) -> list[dict[str, Any]] | None:
    """Return the present state of each quarantined row; None if only Spark can read the catalog."""
    try:
        return pyiceberg_catalog.records(pyiceberg_catalog.ops_table(settings, "quarantine"))
    except FrazilError:
        return None


def _records(book: Workbook) -> list[dict[str, Any]]:
    if (found := known_records(book.settings)) is not None:
        return found
    from frazil_old.lake import quarantine_table

    return quarantine_table.records(book.spark, book.ops("quarantine"))


def _is_ours(book: Workbook, record: dict[str, Any]) -> bool:
    """Return whether a record is of a table with a spec here, or of this stream: environments may share the quarantine."""
    if record["table_name"] is None:
        return record["path"].startswith(tuple(book.message_paths))
    spec = book.specs.get(record["table_name"])
    return spec is not None and record["target"] in (None, spec.target)


def waiting_of(book: Workbook, records: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of rows that wait, by source table."""
    return dict(Counter(r["table_name"] for r in records if r["status"] in OPEN and _is_ours(book, r)))


def unreadable_of(book: Workbook, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that name no table and were not discarded, in order of place."""
    lost = (r for r in records if r["status"] == UNREADABLE and _is_ours(book, r))
    return sorted(lost, key=lambda r: (r["path"], int(r["row_no"])))


def waiting(book: Workbook) -> dict[str, int] | None:
    """Return the number of waiting rows in the quarantine, by table; None if only Spark can find out.

    That includes rows of a killed run that have not been settled yet.
    """
    try:
        table = pyiceberg_catalog.ops_table(book.settings, "quarantine")
        left_over = table is not None and len(table.refs()) > 1
        return None if left_over else waiting_of(book, pyiceberg_catalog.records(table))
    except FrazilError:
        return None


def rows_by_status(book: Workbook) -> list[dict[str, Any]]:
    """Return the status of all rows that were ever quarantined: one row per table and status."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for r in _records(book):
        if _is_ours(book, r):
            table = r["table_name"] or f"{NO_TABLE}: {r['id'].rsplit(':', 2)[0]}"
            groups.setdefault((table, r["status"]), []).append(r)
    return [
        {
            "table": table, "status": status, "rows": len(rows), "since": f"{min(r['set_aside_at'] for r in rows):%Y-%m-%d %H:%M:%S}",
            "last_change": f"{max(r['changed_at'] for r in rows):%Y-%m-%d %H:%M:%S}",
        }
        for (table, status), rows in sorted(groups.items())
    ]  # fmt: skip


def unreadable(book: Workbook) -> list[dict[str, Any]]:
    """Return the quarantined messages that name no table, in order of place."""
    return unreadable_of(book, _records(book))


def newly_unreadable(book: Workbook, since: float) -> str:
    """Report messages without a table that were quarantined after `since`.

    Empty: none exist, or only Spark can find out.
    """
    rows = unreadable_of(book, known_records(book.settings) or [])
    return many_unreadable([r for r in rows if r["set_aside_at"].timestamp() >= since])


def waiting_in_words(book: Workbook) -> str:
    """Return how many rows of which tables, and messages without one, wait in the quarantine; empty: nothing waits."""
    records = known_records(book.settings) or []
    rows, lost = waiting_of(book, records), many_unreadable(unreadable_of(book, records))
    parts = [f"{many(count, 'row')} of {name}" for name, count in sorted(rows.items())]
    return ", ".join([*parts, *([lost] if lost else [])])


def many_unreadable(rows: list[dict[str, Any]]) -> str:
    """Return how many messages name no table, and where the first is; empty if none exist."""
    if not rows:
        return ""
    return f"{many(rows, 'message')} naming no table, from {rows[0]['path']} offset {rows[0]['row_no']} on"
