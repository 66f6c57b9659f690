"""A batch of changes: the files of a table, or its messages, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.dms.changed_while_read import FileWatch
from frazil.dms.endpoint import EndpointError
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
from frazil.lake.tables import Base

if TYPE_CHECKING:
    from frazil.lake.jvm import JavaTable


@dataclass(frozen=True)
class Batch:
    """Changes from files or a stream, to apply together.

    `after(batch id)` returns the position after them. `size` holds the files, messages and bytes for the snapshot
    summary.
    """

    after: Callable[[str], Position]
    size: dict[str, int]
    collapse: Callable[[Wanted], Collapsed]
    """Returns the last change per key. Without a key: the net copies of each row, or each change of messages as a row."""
    write: Callable[[JavaTable, int, bool], Written] | None = None
    """Writes the changes in files, each as a row, as data files of the table.

    Takes how many bad rows of each file are kept, and whether this process reads them in any case.
    """
    files: tuple[DmsObject, ...] = ()
    require_unchanged: Callable[[], None] = lambda: None
    """Raises SourceError for a file that has changed since it was listed."""
    why_large: str = ""
    """Why the driver may not collect its rows, however few MB it has."""
    record: Callable[[str], dict[str, str]] = lambda batch: {}
    """Takes the batch's id; returns the properties that record which files were applied."""

    @property
    def megabytes(self) -> float:
        """Return the size of the batch in MB."""
        return self.size_mb(self.size)

    @staticmethod
    def size_mb(size: dict[str, int]) -> float:
        """Return the MB of a batch of this `size`; a message counts as 500 bytes."""
        return size.get("bytes", 500 * size.get("messages", 0)) / 1e6


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


def of_files(
    book: Workbook, spec: TableSpec, base: Base, files: list[DmsObject], there: TableObjects, clear: list[Update]
) -> Batch:
    """Return the batch made of change files, a part of those that are `there`.

    Whatever to clean up after its commit is added to `clear`. Once the files are read, they must still be as listed.
    """
    if not spec.key and book.endpoint.no_sup_value is not None:
        raise EndpointError(
            f"{spec.source} has no key, and under UseCsvNoSupValue its rows may be partial: nothing shows what they lack",
            "have the source log whole rows and switch UseCsvNoSupValue off, or name a key in the spec",
        )
    reading = FileWatch(files, spec.source)
    small = small_batch.are_small(files) or small_batch.must_be_small(spec, book.endpoint)

    def record(batch: str) -> dict[str, str]:
        taken = {o.name for o in files}
        awaited = [o.name for o in there.changes if o.name > base.position.last and o.name not in taken]
        table = jvm.load_table(book.spark, book.name(spec))
        update = Update(table, base.record, batch, (*there.loads, *there.changes), awaited)
        clear.append(update.changes(base.position, files, reading.contents(), there))
        return update.properties

    def collapse(wanted: Wanted) -> Collapsed:
        sent = book.endpoint, book.mappings
        if small or wanted.in_process:
            return small_batch.collapse_files(spec, sent, files, wanted)
        from frazil.engine import large_batch

        return large_batch.collapse_files(book.spark, spec, sent, files, wanted)

    def write(table: JavaTable, most_bad: int, in_process: bool) -> Written:
        given = FilesToWrite(spec, files, CHANGE_PHASE, most_bad, in_process)
        return write_data_files(book.spark, table, given, (book.endpoint, book.mappings))

    return Batch(
        lambda batch: after_changes(base.position, files, batch),
        {"files": len(files), "bytes": sum(f.size for f in files)},
        collapse,
        write,
        tuple(files),
        reading.require_unchanged,
        record=record,
    )
