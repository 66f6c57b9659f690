"""The proof that a rewrite changed nothing: old and new rows are compared, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class ChangedRowsError(Exception):
    """New files do not have exactly the rows of the old ones."""


def require_same_rows(one: Iterator[pa.RecordBatch], other: Iterator[pa.RecordBatch]) -> None:
    """Raise ChangedRowsError unless both have the same rows in the same order, bit by bit."""
    ours, theirs, count = _Rows(one), _Rows(other), 0
    while True:
        size = min(ours.fill(), theirs.fill())
        if not size:
            break
        if not _bits(ours.take(size)).equals(_bits(theirs.take(size))):
            raise ChangedRowsError(f"a row among {size:,} after the first {count:,} is not the same")
        count += size
    if ours.fill() or theirs.fill():
        raise ChangedRowsError(f"only {count:,} rows are in both old and new files")


class _Rows:
    """Rows that come in batches, to be taken in any number."""

    def __init__(self, batches: Iterator[pa.RecordBatch]):
        self.batches, self.batch, self.at = batches, None, 0

    def fill(self) -> int:
        """Return how many rows can be taken together; 0: there are no more."""
        while self.batch is None or self.at == self.batch.num_rows:
            self.batch, self.at = next(self.batches, None), 0
            if self.batch is None:
                return 0
        return self.batch.num_rows - self.at

    def take(self, count: int) -> pa.RecordBatch:
        """Take some of the rows that `fill` counted."""
        self.at += count
        return self.batch.slice(self.at - count, count)


def _bits(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with reals as whole numbers of the same bits: not-a-number is unequal to itself."""
    import pyarrow as pa

    whole = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    arrays = [column.view(whole[column.type]) if column.type in whole else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)
