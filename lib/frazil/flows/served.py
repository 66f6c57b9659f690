"""Has the declared warehouses refreshed after commits, and records in `ops.served` what they serve.

Nothing of this can fail a batch: each error is logged, recorded, or shown at the end of the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.config.warehouses import Warehouse, declared
from frazil.errors import FrazilError, log
from frazil.flows.workbook import Workbook
from frazil.lake import jvm

if TYPE_CHECKING:
    from frazil.results import TableResult
    from frazil.warehouses.family import LakeTable
    from frazil.warehouses.refresh import Refresher, Seen, State

WRITE_S = 60.0
"""Seconds between two writes of `ops.served`; a kill loses at most what was seen since the last."""


def refreshing(run: Callable[[Workbook], list[TableResult]]) -> Callable[[Workbook], list[TableResult]]:
    """Make a flow's `run` refresh the declared warehouses after its commits."""

    @wraps(run)
    def with_warehouses(book: Workbook) -> list[TableResult]:
        found = declared(book.settings)
        if not found:
            return run(book)
        with _watching(book, list(found.values())):
            return run(book)

    return with_warehouses


@contextmanager
def _watching(book: Workbook, warehouses: list[Warehouse]) -> Iterator[None]:
    watch = _Watch(book, warehouses)
    book.on_commit = watch.committed
    try:
        yield
    finally:
        del book.on_commit
        watch.end()


class _Watch:
    """The refreshers of a run. Their modules are imported at the first commit."""

    def __init__(self, book: Workbook, warehouses: list[Warehouse]):
        self.book, self.warehouses = book, warehouses
        self._refreshers: list[Refresher] | None = None
        self._lock, self._seen, self._written = threading.Lock(), [], time.monotonic()

    def committed(self, spec: TableSpec) -> None:
        """Have a table refreshed by those that read it."""
        from frazil.warehouses.family import LakeTable

        try:
            for refresher in self._all():
                if refresher.w.reads(spec.source):
                    refresher.committed(LakeTable(spec.source, spec.target))
        except Exception:
            log.warning("warehouses are not refreshed", exc_info=True)

    def _all(self) -> list[Refresher]:
        from frazil.warehouses.family import family
        from frazil.warehouses.refresh import Refresher

        with self._lock:
            if self._refreshers is None:
                self._refreshers = []
                for w in self.warehouses:
                    try:
                        family(w)
                    except FrazilError as e:
                        self.book.progress(f"{e.problem}: it is not refreshed; {e.cure}")
                    else:
                        self._refreshers.append(Refresher(w, self._newest, self._record))
            return self._refreshers

    def _newest(self, table: LakeTable) -> State:
        from frazil.warehouses.refresh import State

        jvm.use(self.book.spark)
        name = self.book.name(self.book.specs[table.source])
        return State(*jvm.newest_state(jvm.load_table(self.book.spark, name)))

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
            ledger.add_served(self.book, [row_of(s, self.book) for s in seen])

    def end(self) -> None:
        """Wait for the refreshers, each as long as it may take; say what is not served yet."""
        try:
            refreshers = self._refreshers or []
            for refresher in refreshers:
                refresher.end()
            for refresher in refreshers:
                if left := refresher.join():
                    name, env = refresher.w.name, self.book.settings.env
                    again = f"run frazil warehouse refresh --env {env} --warehouse {name}"
                    self.book.progress(f"{name} does not serve the newest state of {', '.join(left)} yet: {again}")
            self._write()
        except Exception:
            log.warning("what warehouses serve was not recorded", exc_info=True)


def row_of(seen: Seen, book: Workbook) -> tuple:
    """Return what was seen as a row of `ops.served`, in the order of its columns."""
    new, name = seen.newest, book.name(book.specs[seen.table])
    snapshot = new.snapshot if seen.status == "served" else seen.served.snapshot
    metadata = seen.served.metadata or (new.metadata if seen.status == "served" else "")
    return (seen.warehouse, name, new.snapshot, new.committed_ms, snapshot, metadata, seen.status, seen.why, seen.at_ms)
