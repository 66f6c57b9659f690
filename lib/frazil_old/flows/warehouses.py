"""Sets up the declared warehouses, refreshes them and reads back what they serve, between runs and without Spark.

Each warehouse fails alone: its error is a row, and the others are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from frazil_old.config.query_engines import unread
from frazil_old.config.spec import TableSpec
from frazil_old.config.timestamps import clock
from frazil_old.config.warehouses import Warehouse, declared
from frazil_old.errors import FrazilError
from frazil_old.flows import warehouse_lateness, warehouse_refresh
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.results import TableResult
from frazil_old.warehouses.apply import MADE_EARLIER, apply, parts, record_of
from frazil_old.warehouses.connect import connected
from frazil_old.warehouses.family import LakeTable, Made, WarehouseError, family
from frazil_old.warehouses.refresher import Seen, State, failed, look

if TYPE_CHECKING:
    from pyiceberg.table import Table


def specs_of(book: Workbook, w: Warehouse) -> list[TableSpec]:
    """Return the specs of the tables that a warehouse reads."""
    specs = [s for s in book.specs.values() if not s.problem and w.reads(s.source)]
    if not specs:
        raise WarehouseError(f"warehouse '{w.name}' reads none of the tables", "correct its entry `tables`")
    return specs


def tables_of(book: Workbook, w: Warehouse) -> list[LakeTable]:
    """Return the tables that a warehouse reads; if it is bound to metadata files, with these, and only those in the lake."""
    specs = specs_of(book, w)
    if not getattr(family(w), "PINNED", False) or w.entries.account:
        return [LakeTable(s.source, s.target) for s in specs]
    found = [(s, _in_lake(book, w, s.target)) for s in specs]
    return [LakeTable(s.source, s.target, table.metadata_location) for s, table in found if table]


def _in_lake(book: Workbook, w: Warehouse, target: str) -> Table | None:
    """Return a table, or None if the lake has none, and say so."""
    try:
        return pyiceberg_catalog.get_table(book.catalog, target)
    except pyiceberg_catalog.CatalogError as e:
        book.progress(f"{w.name}: {e.problem}; {e.cure}")
        return None


def look_at(book: Workbook, w: Warehouse, tables: Sequence[LakeTable], refresh: bool) -> list[Seen]:
    """Return and record what a warehouse serves of each table; with `refresh` after a refresh."""
    found: list[Seen] = []
    with closing(connected(w)) as connection:
        for t in tables:
            if not (table := _in_lake(book, w, t.target)):
                continue
            if not (now := table.current_snapshot()):
                book.progress(f"{w.name}: {t.target} has no rows yet")
                continue
            state = State(now.snapshot_id, now.timestamp_ms, table.metadata_location)
            try:
                found.append(look(w, connection, t, state, refresh))
            except FrazilError as e:
                found.append(failed(w, t, state, e.problem))
    rows = [warehouse_refresh.row_of(seen, book) for seen in found]
    if rows:
        pyiceberg_catalog.append(book.catalog, book.settings.ops_namespace, pyiceberg_catalog.SERVED, rows)
    return found


def _each(book: Workbook, of: Callable[[Warehouse, list[LakeTable]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of all declared warehouses; of one with an error a row with the status `failed`."""
    rows: list[dict[str, Any]] = []
    for w in declared(book.settings).values():
        try:
            if not (tables := tables_of(book, w)):
                raise WarehouseError("none of its tables is in the lake", "run 00_setup first")
            found = of(w, tables)
        except FrazilError as e:
            found = [{"status": "failed", "why": f"{e.problem}; {e.cure}"}]
        rows += [{"warehouse": w.name, **row} for row in found]
    return rows


def overview(book: Workbook) -> list[dict[str, Any]]:
    """Return a row per declared warehouse: what it is, how many tables it reads, and when it sees a commit."""

    def row(w: Warehouse, tables: list[LakeTable]) -> list[dict[str, Any]]:
        module = family(w)
        by_itself = w.entries.refresh == "auto" or w.entries.linked
        sees = "when it refreshes by itself" if by_itself else "at the next query"
        sees = "after a refresh" if module.refresh(w, tables[0]) else sees
        versions = {t.target: pyiceberg_catalog.get_table(book.catalog, t.target).format_version for t in tables}
        cannot = [t for t, version in versions.items() if unread(version, [w.entries.engine])]
        why = f"cannot read format v3 of {', '.join(cannot)}" if cannot else ""
        return [{"engine": w.entries.engine, "tables": len(tables), "sees_a_commit": sees, "why": why}]

    return _each(book, row)


def needs(book: Workbook) -> list[dict[str, Any]]:
    """Return rows of what each warehouse needs, in order: a step of people, an entry of a file, or a statement each."""
    return _each(
        book, lambda w, tables: [{"when": k, "what": text} for k, all_ in parts(w, tables).items() for text in all_]
    )


def set_up(book: Workbook, only_plans: bool) -> list[dict[str, Any]]:
    """Make what the warehouses lack; return a row per object. With `only_plans` connect to none of them."""

    def rows(w: Warehouse, tables: list[LakeTable]) -> list[dict[str, Any]]:
        record, found = record_of(w, book.folder), []

        def say(m: Made, what: str) -> None:
            found.append({"object": m.what, "name": m.name, "status": what})

        if only_plans or not family(w).DRIVER:
            earlier = {m.drop for m in record.read()}
            for m in family(w).made(w, tables):
                say(m, MADE_EARLIER if m.drop in earlier else "to be made, if it is not there")
            return found
        with closing(connected(w)) as connection:
            try:
                apply(w, tables, connection, record, say)
            except FrazilError as e:
                found.append({"status": "failed", "why": f"{e.problem}; {e.cure}"})
        return found

    return _each(book, rows)


def looks(book: Workbook, refresh: bool) -> list[dict[str, Any]]:
    """Return a row per warehouse and table: what is served, the lake's newest snapshot, and how late that is."""

    def rows(w: Warehouse, tables: list[LakeTable]) -> list[dict[str, Any]]:
        if not family(w).DRIVER:
            return []
        return [_row(book, seen) for seen in look_at(book, w, tables, refresh)]

    return _each(book, rows)


def _row(book: Workbook, seen: Seen) -> dict[str, Any]:
    table = pyiceberg_catalog.get_table(book.catalog, book.specs[seen.table].target)
    at, newer = warehouse_lateness.position_in(table, seen.served.snapshot, seen.served.metadata)
    known = seen.status != "unknown" and at is not None
    behind = {"commits_late": len(newer), "late_s": round(warehouse_lateness.seconds_late(newer), 1)} if known else {}
    return {
        "table": seen.table, "status": seen.status, "serves": _state(at.snapshot_id, at.timestamp_ms) if at else "–",
        "newest": _state(seen.newest.snapshot, seen.newest.committed_ms), "commits_late": None, "late_s": None, **behind,
        "why": seen.why,
    }  # fmt: skip


def _state(snapshot: int, committed_ms: int) -> str:
    """Name a snapshot by the time of its commit and the end of its id."""
    return f"{clock(committed_ms)[5:19]} …{snapshot % 10_000:04}".replace(" ", "\N{NO-BREAK SPACE}")


def history(book: Workbook, hours: float = 24.0) -> list[dict[str, Any]]:
    """Return a row per state that a declared warehouse was seen to serve in the last hours, and per look that found it late.

    `late_s` is the time from the lake's commit to that look. Of several looks at a served state the first counts.
    """
    names = {book.name(spec): spec.source for spec in book.specs.values()}
    found: dict[tuple, dict[str, Any]] = {}
    for r in pyiceberg_catalog.served(book.settings) if (there := declared(book.settings)) else ():
        w, at = r["warehouse"], r["seen_at"]
        if w in there and r["name"] in names and r["committed_at"]:
            late_s, ok = (at - r["committed_at"]).total_seconds(), r["status"] == "served"
            state = (w, r["name"], r["newest_id"])
            row = {"warehouse": w, "table": names[r["name"]], "seen_at": at, "late_s": late_s, "served": ok}
            found.setdefault(state if ok else (*state, at), row)
    newest = max((r["seen_at"] for r in found.values()), default=None)
    return [r for r in found.values() if (newest - r["seen_at"]).total_seconds() <= hours * 3600]


def results(*found: list[dict[str, Any]]) -> list[TableResult]:
    """Return the last result of each table of each warehouse; of a warehouse that failed as a whole one result."""
    last = {
        f"{r['warehouse']}: {r['table']}" if r.get("table") else r["warehouse"]: r
        for rows in found
        for r in rows
        if r["status"] == "failed" or r.get("table")
    }
    return [TableResult(name, r["status"], r.get("why", "")) for name, r in last.items()]
