"""Has the declared warehouses refreshed after commits, and records in `ops.served` what they serve.

Nothing of this can fail a batch: each error is logged, recorded, or shown at the end of the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

from frazil_old.config.query_engines import ENGINES, UPGRADE
from frazil_old.config.spec import TableSpec
from frazil_old.config.warehouses import Warehouse, declared
from frazil_old.errors import FrazilError, log
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm

if TYPE_CHECKING:
    from frazil_old.results import TableResult
    from frazil_old.warehouses.family import LakeTable
    from frazil_old.warehouses.refresher import Seen, State

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
        from frazil_old.warehouses.family import family
        from frazil_old.warehouses.refresher import Refresher

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
        from frazil_old.warehouses.family import LakeTable

        try:
            for refresher in self._refreshers:
                if refresher.w.reads(spec.source):
                    refresher.committed(LakeTable(spec.source, spec.target))
        except Exception:
            log.warning("warehouses are not refreshed", exc_info=True)

    def _newest(self, table: LakeTable) -> State:
        from frazil_old.warehouses.family import family
        from frazil_old.warehouses.refresher import State

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
        from frazil_old.flows import ledger

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


def require_no_stop(book: Workbook, spec: TableSpec, old: int) -> None:
    """Raise WarehouseError if making a table again in a newer format than `old` stops the refreshes of a warehouse that has it."""
    from frazil_old.warehouses.apply import record_of
    from frazil_old.warehouses.family import WarehouseError

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
