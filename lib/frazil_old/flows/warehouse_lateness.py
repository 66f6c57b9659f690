"""How late warehouses are: what they were last seen to serve, compared with the tables."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from frazil_old.config.warehouses import Warehouse, declared
from frazil_old.errors import many
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.report.chart_style import span

if TYPE_CHECKING:
    from pyiceberg.table import Table


def late(book: Workbook) -> list[tuple[str, str, str]]:
    """Return a table, a problem and its cure for each warehouse that serves too old a state or refreshes no more."""
    found = []
    warehouses = declared(book.settings)
    if not warehouses:
        return []
    looks = pyiceberg_catalog.served(book.settings)
    last, shown = _newest(looks), _newest(r for r in looks if r["snapshot_id"] or r["metadata"])
    for w in warehouses.values():
        cure = f"frazil warehouse refresh --env {w.env} --warehouse {w.name}"
        for spec in (s for s in book.specs.values() if not s.problem and w.reads(s.source)):
            try:
                table = pyiceberg_catalog.get_table(book.catalog, spec.target)
            except pyiceberg_catalog.CatalogError:
                continue  # the table's own line says so
            of = (w.name, book.name(spec))
            if problem := _late(w, table, last.get(of), shown.get(of)):
                found.append((spec.source, f"warehouse {w.name} {problem}", cure))
    return found


def _newest(looks: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the newest look at each table of each warehouse, of looks in order."""
    return {(look["warehouse"], look["name"]): look for look in looks}


def position_in(table: Table, snapshot: int | None, metadata: str) -> tuple[Any, list[Any]]:
    """Return the entry of a table's log for what a warehouse serves (None: it is not there), and the newer entries."""
    served = snapshot or pyiceberg_catalog.snapshot_of(table, metadata)
    log_of = table.history()
    at = max((i for i, entry in enumerate(log_of) if entry.snapshot_id == served), default=-1)
    return log_of[at] if at >= 0 else None, log_of[at + 1 :]


def seconds_late(newer: list[Any]) -> float:
    """Return for how many seconds the first of the states that are not served has been there; 0 if there is none."""
    return time.time() - newer[0].timestamp_ms / 1000 if newer else 0.0


def _late(w: Warehouse, table: Table, row: dict[str, Any] | None, shown: dict[str, Any] | None) -> str:
    """Return how late a warehouse is, above its limits; empty if it is not, or shows nothing.

    `row` is the last look, and `shown` the last that showed a state: a look that failed does not change what is served.
    """
    if row and row["status"] in ("unknown", "stopped"):
        return f"refreshes no more: {row['why']}" if row["status"] == "stopped" else ""
    if row is None:
        from frazil_old.warehouses.family import LakeTable, family

        if not family(w).read_back(w, LakeTable("", ".".join(table.name()))):
            return ""
    _, newer = position_in(table, shown["snapshot_id"] if shown else None, shown["metadata"] if shown else "")
    seconds, e = seconds_late(newer), w.entries
    if len(newer) <= e.max_late_commits and seconds <= e.max_late_s:
        return ""
    what = (
        f"is late by {many(newer, 'commit')} and {span(seconds)}, limits {e.max_late_commits} and {span(e.max_late_s)}"
    )
    last = f"{row['status']}{': ' + row['why'] if row['why'] else ''}" if row else "it was never looked at"
    return f"{what}; last seen: {last}"
