"""Batches of files: as many as fit the memory that a batch may have. A file that is larger than that is cut between rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import msgspec

from frazil.dms.applied import MOST_FILES
from frazil.dms.file_names import base_name, order_of
from frazil.dms.position import Position
from frazil.dms.storage import DmsFile


@dataclass(frozen=True)
class Measure:
    """How many rows a file has, and the bytes of a row in memory. A Parquet footer has both; the size of a CSV file limits them."""

    rows: int
    width: float

    def memory(self, begin: int) -> float:
        """Return the bytes of the rows after row `begin`."""
        return max(0, self.rows - begin) * self.width


@dataclass(frozen=True)
class FileBatch:
    """Files with the same columns, in order: their rows after row `begin` of the first one, to row `end` of the last one.

    `end` is None if the last file is read to its end. `left` are the files that wait for later batches.
    """

    files: tuple[DmsFile, ...]
    left: tuple[DmsFile, ...]
    begin: int = 0
    end: int | None = None

    def position_after(self, position: Position, last: str) -> Position:
        """Return the position once the batch is applied; `last` is the path of its last file, below the table's folder.

        A late file, which a person accepted, is one more batch, and leaves the place as it is.
        """
        counted = msgspec.structs.replace(position, batch=position.batch + 1)
        if order_of(self.files[-1].path) < order_of(position.last):
            return counted
        return msgspec.structs.replace(counted, last=last, rows=self.end)


def next_batch(
    files: Sequence[DmsFile],
    position: Position,
    columns: Callable[[DmsFile], Hashable],
    measure: Callable[[DmsFile], Measure],
    most: tuple[int, int],
) -> FileBatch:
    """Return the first files that are one batch after a position, of those that are pending.

    A batch ends where the columns change, or at the most bytes: `most` says how many of files, and how many in memory. A
    late file is a batch of its own and is never cut: a position has no place for a part of it.
    """
    is_late = order_of(files[0].path) < order_of(position.last)
    begin = (position.rows or 0) if files[0].name == base_name(position.last) else 0
    taken, size, memory, (most_size, most_memory) = 0, 0, 0.0, most
    for number, file in enumerate(files):
        size += file.size
        if number and (is_late or number == MOST_FILES or size > most_size or columns(file) != columns(files[0])):
            break
        memory += measure(file).memory(0 if number else begin)
        if number and memory > most_memory:
            break
        taken = number + 1
    end = None
    if taken == 1 and not is_late and (large := measure(files[0])).memory(begin) > most_memory:
        end = begin + max(1, int(most_memory // large.width))
    return FileBatch(tuple(files[:taken]), tuple(files[taken:]), begin, end)
