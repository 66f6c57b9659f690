"""A batch of changes: the files of a table, or its messages, and how they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.dms.endpoint import EndpointError
from frazil.dms.file_checks import FileWatch
from frazil.dms.file_layout import CHANGE_PHASE
from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.position import Position, after_changes
from frazil.engine import small_batch
from frazil.engine.collapsed_batch import Collapsed, Wanted
from frazil.engine.load_files import FilesToWrite, write_data_files
from frazil.engine.write_rows import Written
from frazil.flows.workbook import Workbook
from frazil.lake import jvm
from frazil.lake.applied_files_store import Update
from frazil.lake.tables import TableState

if TYPE_CHECKING:
    from frazil.lake.jvm import JavaTable


class Batch(ABC):
    """Changes that are applied together."""

    files: tuple[DmsObject, ...] = ()

    @property
    @abstractmethod
    def size(self) -> dict[str, int]:
        """Return the numbers of files, messages and bytes, for the snapshot summary."""

    @property
    def megabytes(self) -> float:
        """Return the size of the batch in MB."""
        return megabytes(self.size)

    @abstractmethod
    def position_after(self, batch: str) -> Position:
        """Return the table's position after the batch of this id."""

    @abstractmethod
    def collapse(self, wanted: Wanted) -> Collapsed:
        """Return the last change per key. Without a key: the net copies of each row, or each change of messages as a row."""

    @abstractmethod
    def require_unchanged(self) -> None:
        """Raise SourceError for a file that has changed since it was listed."""

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
        self.watch = FileWatch(self.files, spec.source)
        self.updates: list[Update] = []
        """Updates of the record of applied files, to be finished after the commit."""

    @property
    def size(self) -> dict[str, int]:
        """Return the numbers of files and bytes."""
        return {"files": len(self.files), "bytes": sum(f.size for f in self.files)}

    def position_after(self, batch: str) -> Position:
        """Return the table's position after these files."""
        return after_changes(self.base.position, self.files, batch)

    def collapse(self, wanted: Wanted) -> Collapsed:
        """Return the last change per key: this process reads a small batch, Spark's tasks a large one."""
        table = self.book.source_table(self.spec)
        is_small = small_batch.are_small(self.files) or small_batch.must_be_small(self.spec, self.book.endpoint)
        if is_small or wanted.in_process:
            return small_batch.collapse_files(table, self.files, wanted)
        from frazil.engine import large_batch

        return large_batch.collapse_files(self.book.spark, table, self.files, wanted)

    def write_rows(self, table: JavaTable, most_bad: int, in_process: bool) -> Written:
        """Write each change as a row into data files of the table.

        `most_bad`: how many bad rows of each file are kept. `in_process`: this process reads the files in any case.
        """
        files = FilesToWrite(self.book.source_table(self.spec), self.files, CHANGE_PHASE, most_bad, in_process)
        return write_data_files(self.book.spark, table, files)

    def require_unchanged(self) -> None:
        """Raise SourceError for a file that has changed since it was listed."""
        self.watch.require_unchanged()

    def record(self, batch: str) -> dict[str, str]:
        """Return the properties that record which files the batch of this id applied."""
        base, taken = self.base, {o.name for o in self.files}
        awaited = [o.name for o in self.listed.changes if o.name > base.position.last and o.name not in taken]
        table = jvm.load_table(self.book.spark, self.book.name(self.spec))
        update = Update(table, base.record, batch, (*self.listed.loads, *self.listed.changes), awaited)
        self.updates.append(update.changes(base.position, self.files, self.watch.contents(), self.listed))
        return update.properties

    def clean_up(self) -> None:
        """Delete segments of the record of applied files that the batch, which is committed, has replaced."""
        for update in self.updates:
            update.done()


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
