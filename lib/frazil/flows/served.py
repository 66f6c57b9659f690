"""Has the declared warehouses refreshed after commits, and records in `ops.served` what they serve.

Nothing of this can fail a batch: each error is logged, recorded, or shown at the end of the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from frazil.config.query_engines import ENGINES, UPGRADE
from frazil.config.spec import TableSpec
from frazil.config.warehouses import Warehouse, declared
from frazil.errors import FrazilError, log, many
from frazil.flows.workbook import Workbook
from frazil.lake import jvm, pyiceberg_catalog
from frazil.report.chart_style import span

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from frazil.results import TableResult
    from frazil.warehouses.family import LakeTable
    from frazil.warehouses.refresh import Seen, State

MARGIN_H, UNKNOWN_H = 0.02, 87_600.0
"""Hours that are added to the age of a served state, and those that keep all if the state is not known."""
WRITE_S = 60.0
"""Seconds between two writes of `ops.served`; a kill loses at most what was seen since the last."""


def refreshing(run: Callable[[Workbook], list[TableResult]]) -> Callable[[Workbook], list[TableResult]]:
    """Make a flow's `run` refresh the declared warehouses after its commits."""

    @wraps(run)
    def with_warehouses(book: Workbook) -> list[TableResult]:
        found = declared(book.settings)
        if not found:
            return run(book)
        watch = _Watch(book, list(found.values()))
        book.on_commit = watch.committed
        try:
            return run(book)
        finally:
            del book.on_commit
            watch.end()

    return with_warehouses


class _Watch:
    """The refreshers of a run."""

    def __init__(self, book: Workbook, warehouses: list[Warehouse]):
        from frazil.warehouses.family import family
        from frazil.warehouses.refresh import Refresher

        self.book, self.warehouses = book, warehouses
        self._lock, self._seen, self._written = threading.Lock(), [], time.monotonic()
        self._refreshers: list[Refresher] = []
        for w in warehouses:
            try:
                family(w)
            except FrazilError as e:
                book.progress(f"{e.problem}: it is not refreshed; {e.cure}")
            else:
                self._refreshers.append(Refresher(w, self._newest, self._record))

    def committed(self, spec: TableSpec) -> None:
        """Have a table refreshed by those that read it."""
        from frazil.warehouses.family import LakeTable

        try:
            for refresher in self._refreshers:
                if refresher.w.reads(spec.source):
                    refresher.committed(LakeTable(spec.source, spec.target))
        except Exception:
            log.warning("warehouses are not refreshed", exc_info=True)

    def _newest(self, table: LakeTable) -> State:
        from frazil.warehouses.family import family
        from frazil.warehouses.refresh import State

        jvm.use(self.book.spark)
        there = jvm.load_table(self.book.spark, self.book.name(self.book.specs[table.source]))
        if any(hasattr(family(w), "PINNED") and w.reads(table.source) for w in self.warehouses):
            jvm.keep_metadata_files(there)
        return State(*jvm.newest_state(there))

    def _record(self, seen: Seen) -> None:
        with self._lock:
            self._seen.append(seen)
        if time.monotonic() - self._written > WRITE_S:
            self._write()

    def _write(self) -> None:
        from frazil.flows import ledger

        with self._lock:
            seen, self._seen, self._written = self._seen, [], time.monotonic()
        if seen:
            jvm.use(self.book.spark)
            ledger.add_served(self.book, [row_of(s, self.book) for s in seen])

    def end(self) -> None:
        """Wait for the refreshers, each as long as it may take; say what is not served yet."""
        try:
            for refresher in self._refreshers:
                refresher.end()
            for refresher in self._refreshers:
                if left := refresher.join():
                    name, env = refresher.w.name, self.book.settings.env
                    again = f"run frazil warehouse refresh --env {env} --warehouse {name}"
                    self.book.progress(f"{name} does not serve the newest state of {', '.join(left)} yet: {again}")
            self._write()
        except Exception:
            log.warning("what warehouses serve was not recorded", exc_info=True)


@dataclass(frozen=True)
class Held:
    """What maintenance keeps of a table for warehouses: states since `keep_hours` ago, and metadata files. `why`: for whom."""

    keep_hours: float = 0.0
    metadata: tuple[str, ...] = ()
    why: str = ""


def held(book: Workbook, spec: TableSpec) -> Held:
    """Return what the declared warehouses still serve of a table and maintenance must therefore keep."""
    readers = {n for n, w in declared(book.settings).items() if w.reads(spec.source)}
    if not readers:
        return Held()
    from frazil.flows import ledger

    name, keep, why = book.name(spec), 0.0, []
    found = [r for r in ledger.holders(book, name) if r.warehouse in readers]
    table = jvm.load_table(book.spark, name) if found else None
    for r in found:
        snapshot = r.snapshot_id or _snapshot_of(book, name, r.metadata)
        there = table.snapshot(snapshot) if snapshot else None
        if there and snapshot == table.currentSnapshot().snapshotId():
            continue
        if snapshot and not there:
            continue  # it is gone: nothing can be kept
        keep = max(keep, (time.time() - there.timestampMillis() / 1000) / 3600 + MARGIN_H if there else UNKNOWN_H)
        state = f"snapshot {snapshot}" if snapshot else r.metadata
        why.append(f"warehouse {r.warehouse} serves {state} since {r.since:%Y-%m-%d %H:%M:%S}")
    return Held(keep, tuple(r.metadata for r in found if r.metadata), "; ".join(why))


def _snapshot_of(book: Workbook, name: str, metadata: str) -> int | None:
    """Return the snapshot of a metadata file that the table's log still names."""
    from frazil.warehouses.refresh import place

    log_of = book.spark.table(f"{name}.metadata_log_entries").collect()
    return next((r.latest_snapshot_id for r in log_of if place(r.file) == place(metadata)), None)


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
        from frazil.warehouses.family import LakeTable, family

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


def require_no_stop(book: Workbook, spec: TableSpec, old: int) -> None:
    """Raise WarehouseError if making a table again in a newer format than `old` stops the refreshes of a warehouse that has it."""
    from frazil.warehouses.apply import record_of
    from frazil.warehouses.family import WarehouseError

    for w in declared(book.settings).values() if old < book.format_version else ():
        made = record_of(w, book.folder).tables
        has = spec.source in made or (w.entries.linked and made)
        if has and w.reads(spec.source) and ENGINES[w.entries.engine].limits == UPGRADE:
            it = f"--env {w.env} --warehouse {w.name}" + ("" if w.entries.linked else f" --table {spec.source}")
            raise WarehouseError(
                f"{book.name(spec)} would be made again as format v{book.format_version}, which stops the refreshes of warehouse '{w.name}'",
                f"name the engine that needs v{old} in query_engines again; or run frazil warehouse undo {it}, then 00_setup, then "
                f"frazil warehouse apply {it}",
            )


def row_of(seen: Seen, book: Workbook) -> tuple:
    """Return what was seen as a row of `ops.served`, in the order of its columns."""
    new, name = seen.newest, book.name(book.specs[seen.table])
    snapshot = new.snapshot if seen.status == "served" else seen.served.snapshot
    metadata = seen.served.metadata or (new.metadata if seen.status == "served" else "")
    return (seen.warehouse, name, new.snapshot, new.committed_ms, snapshot, metadata, seen.status, seen.why, seen.at_ms)
