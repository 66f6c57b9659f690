"""Parquet as DMS writes it: rows of a file in blocks of a bounded size, from any row on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.core.rows import FETCH_AGAIN, Rows, UnreadableFileError
from frazil.engine.batch_limits import Measure

BLOCK = 16 << 20
"""The bytes that the rows of a block have in memory; a longer row makes its block longer."""
MOST_ROWS, SAMPLE = 1 << 16, 256


@contextmanager
def damage_named(where: str) -> Iterator[None]:
    """Raise UnreadableFileError for what is wrong with the bytes of a file; errors of the storage pass."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        if isinstance(error, ConnectionError | TimeoutError) or getattr(error, "errno", None):
            raise
        raise UnreadableFileError(f"{where}: a damaged Parquet file", FETCH_AGAIN) from None


@dataclass(frozen=True)
class Reader:
    """Reads some columns of a file; `where` names it in errors."""

    names: Sequence[str]
    where: str

    def read(self, file: BinaryIO, begin: int = 0, end: int | None = None, size: int = BLOCK) -> Iterator[Rows]:
        """Yield the rows after row `begin`, to row `end`. Raises UnreadableFileError if the file is damaged."""
        with damage_named(self.where):
            source = pq.ParquetFile(file, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            counts = np.array([source.metadata.row_group(n).num_rows for n in range(source.num_row_groups)], int)
            last, ends = source.metadata.num_rows if end is None else end, np.cumsum(counts)
            groups = np.flatnonzero((ends > begin) & (ends - counts < last)).tolist()
            done = int(counts[: groups[0]].sum()) if groups else 0
            at_once = _rows_at_once(source, groups, self.names, size)
            for batch in source.iter_batches(at_once, groups, [*self.names], use_threads=False):
                skipped = max(0, begin - done)
                own = batch.slice(skipped, max(0, last - done - skipped)).select([*self.names])
                if len(own):
                    yield rows_of(own, done + skipped + 1)
                done += len(batch)


def _rows_at_once(source: pq.ParquetFile, groups: list[int], names: Sequence[str], size: int) -> int:
    """Return how many rows have about some size in memory: some are read, as the footer counts a repeated text once."""
    by_footer = int(np.clip(size / row_width(source), 1, MOST_ROWS))
    if not groups or source.metadata.num_rows <= SAMPLE:
        return by_footer
    few = next(source.iter_batches(min(SAMPLE, by_footer), groups, [*names], use_threads=False))
    return int(np.clip(size / max(1, few.nbytes / len(few)), 1, by_footer))


def rows_of(batch: pa.RecordBatch, first: int) -> Rows:
    """Return a batch as rows, the first of which has a number. The bytes of a row are an Arrow stream of it alone."""

    def raw(number: int) -> bytes:
        one, out = batch.take(pa.array([number - first])), pa.BufferOutputStream()  # other streams are slow
        with pa.ipc.new_stream(out, one.schema, options=pa.ipc.IpcWriteOptions()) as stream:
            stream.write_batch(one)
        return out.getvalue().to_pybytes()

    return Rows(batch, np.arange(first, first + len(batch)), (), raw)


def row_width(source: pq.ParquetFile) -> float:
    """Return the bytes that a row has in memory by the file's footer; texts that a dictionary repeats have more."""
    metadata = source.metadata
    fixed = sum(map(type_width, source.schema_arrow.types))
    stored = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
    return fixed + stored / max(1, metadata.num_rows)


def type_width(kind: pa.DataType) -> float:
    """Return the bytes that each value of a type has in memory, beside those of a text."""
    return kind.bit_width / 8 if pa.types.is_primitive(kind) else 4.0


def measure(file: BinaryIO, where: str) -> Measure:
    """Return the rows of a file, and their width, by its footer."""
    with damage_named(where):
        source = pq.ParquetFile(file)
    return Measure(source.metadata.num_rows, row_width(source))
