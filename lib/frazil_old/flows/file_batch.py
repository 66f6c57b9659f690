"""A batch of changes before it is applied: which pending files make one, what it is called, and how it is read."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from frazil_old.config.settings import CdcMergeSettings
from frazil_old.config.spec import TableSpec
from frazil_old.dms.file_columns import first_alike
from frazil_old.dms.file_integrity import FileWatch
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.pending_changes import classify
from frazil_old.dms.position import Position, after_changes
from frazil_old.dms.source_errors import EndpointError
from frazil_old.engine import small_batch
from frazil_old.engine.collapsed_batch import Collapsed, Wanted
from frazil_old.flows.tasks_or_here import digests_of
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm
from frazil_old.lake.lane_choice import BatchToWrite
from frazil_old.lake.stored_applied_files import Update
from frazil_old.lake.tables import TableState


class Batch(ABC):
    """Changes that are applied together."""

    files: tuple[DmsObject, ...] = ()
    watch: FileWatch | None = None

    @property
    @abstractmethod
    def size(self) -> dict[str, int]:
        """Return the numbers of files, messages and bytes, for the snapshot summary."""

    @abstractmethod
    def position_after(self, batch: str) -> Position:
        """Return the table's position after the batch of this id."""

    @abstractmethod
    def collapse(self, wanted: Wanted) -> Collapsed:
        """Return the last change per key. Without a key: the net copies of each row, or each change of messages as a row."""

    def require_unchanged(self) -> None:
        """Raise SourceError for a file that has changed since it was listed; messages never change."""
        if self.watch:
            self.watch.require_unchanged()

    def record(self, batch: str) -> dict[str, str]:
        """Return the properties that record which files the batch of this id applied."""
        return {}


class FileBatch(Batch):
    """Change files of one table, a part of those `listed`. Once they are read, they must still be as listed."""

    def __init__(
        self, book: Workbook, spec: TableSpec, base: TableState, files: Sequence[DmsObject], listed: TableObjects
    ):
        self.book, self.spec, self.base, self.listed = book, spec, base, listed
        self.files = tuple(files)
        self.watch = FileWatch(self.files, spec.source, digests_of(book, self.files))
        self.update: Update | None = None
        """The update of the record of applied files, to be finished after the commit."""

    @property
    def size(self) -> dict[str, int]:
        """Return the numbers of files and bytes."""
        return size_of(self.files)

    def position_after(self, batch: str) -> Position:
        """Return the table's position after these files."""
        return after_changes(self.base.position, self.files, batch)

    def collapse(self, wanted: Wanted) -> Collapsed:
        """Return the last change per key: this process reads a small batch, Spark's tasks a large one."""
        table = self.book.source_table(self.spec)
        is_small = small_batch.are_small(self.files) or small_batch.must_be_small(self.spec, self.book.endpoint)
        if is_small or wanted.read_here:
            return small_batch.collapse_files(table, self.files, wanted)
        from frazil_old.engine import large_batch

        return large_batch.collapse_files(self.book.spark, table, self.files, wanted)

    def record(self, batch: str) -> dict[str, str]:
        """Return the properties that record which files the batch of this id applied."""
        base, taken = self.base, {o.name for o in self.files}
        found = classify(self.listed.changes, base.position, base.record, time.time())
        awaited = [o.name for o in (*found.late, *found.pending) if o.name not in taken]
        table = jvm.load_table(self.book.spark, self.book.name(self.spec))
        self.update = Update(table, base.record, batch, (*self.listed.loads, *self.listed.changes), awaited)
        self.update.changes(base.position, self.files, self.watch.contents(), self.listed)
        return self.update.properties


def size_of(files: Sequence[DmsObject]) -> dict[str, int]:
    """Return the numbers of files and bytes, as in `Batch.size`."""
    return {"files": len(files), "bytes": sum(f.size for f in files)}


def megabytes(size: dict[str, int]) -> float:
    """Return the MB of a batch of this `size`; a message counts as 500 bytes."""
    return size.get("bytes", 500 * size.get("messages", 0)) / 1e6


def require_whole_rows(book: Workbook, spec: TableSpec) -> None:
    """Raise EndpointError for a table without a key whose rows may be partial."""
    if not spec.key and book.endpoint.no_sup_value is not None:
        raise EndpointError(
            f"{spec.source} has no key, and under UseCsvNoSupValue its rows may be partial: nothing shows what they lack",
            "have the source log whole rows and switch UseCsvNoSupValue off, or name a key in the spec",
        )


def take_batch(pending: list[DmsObject], max_bytes: int, max_files: int) -> list[DmsObject]:
    """Return the first pending objects that fit the limits, at least one."""
    taken, size = [], 0
    for o in pending[:max_files]:
        # Within a batch the order is that of names.
        if taken and (size + o.size > max_bytes or o.name < taken[-1].name):
            break
        taken.append(o)
        size += o.size
    return taken


def next_batch(book: Workbook, spec: TableSpec, pending: list[DmsObject]) -> list[DmsObject]:
    """Return the first pending files that make one batch: within its limits, and with the same columns."""
    return first_alike(book.source_table(spec), within_limits(book, spec, pending))


def within_limits(book: Workbook, spec: TableSpec, pending: list[DmsObject], start: int = 0) -> list[DmsObject]:
    """Return the first pending files from `start` on within a batch's limits: parameters, and what this process may read."""
    s = book.settings if isinstance(book.settings, CdcMergeSettings) else CdcMergeSettings()
    read_here = book.tasks_fail or small_batch.must_be_small(spec, book.endpoint)
    most_mb = min(s.max_batch_mb, small_batch.MOST_MB) if read_here else s.max_batch_mb
    return take_batch(pending[start : start + s.max_batch_files], most_mb << 20, s.max_batch_files)


def to_write(book: Workbook, spec: TableSpec, size: dict[str, int], files: Sequence[DmsObject] = ()) -> BatchToWrite:
    """Return what chooses the lane of a batch of this `size`; rows of `files` may lack columns under UseCsvNoSupValue."""
    partial = spec.has_missing_columns or bool(files) and book.endpoint.no_sup_value is not None
    return BatchToWrite(megabytes(size), files, partial)
