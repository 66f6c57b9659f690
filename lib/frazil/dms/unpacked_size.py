"""The unpacked size of files: the content of a `.gz` or Parquet file may be a thousand times its own size."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from frazil.dms.damaged_files import refused_if_damaged
from frazil.dms.listing import DmsObject
from frazil.dms.storage import chunks, is_s3, read

if TYPE_CHECKING:
    import pyarrow as pa

GZIP_MOST = 1032
"""The maximum compression factor of gzip."""
ROWS = 10_000
"""Rows of a Parquet file that are read together."""


def unpacked_bytes(files: Iterable[DmsObject], most: int) -> int | None:
    """Return the size of the rows of files in bytes, counted until it exceeds `most`; None if no file is packed.

    Files too small to hold more than `most` are not unpacked: a small batch costs nothing. Raise SourceError for a
    damaged file.
    """
    files = list(files)
    packed = [f for f in files if f.is_parquet or f.name.endswith(".gz")]
    if not packed or (not any(f.is_parquet for f in packed) and sum(f.size for f in packed) * GZIP_MOST <= most):
        return None
    total = sum(f.size for f in files if f not in packed)
    for file in packed:
        for size in _sizes(file):
            total += size
            if total > most:
                return total
    return total


def _sizes(file: DmsObject) -> Iterator[int]:
    with refused_if_damaged(file.path):
        yield from _parquet(file) if file.is_parquet else map(len, chunks(file.path))


def _parquet(file: DmsObject) -> Iterator[int]:
    """Yield the bytes of a Parquet file's values, batch by batch; texts stay dictionary-encoded meanwhile."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place: Any = io.BytesIO(read(file.path)) if is_s3(file.path) else file.path
    with pq.ParquetFile(place) as whole:
        texts = [f.name for f in whole.schema_arrow if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
    if is_s3(file.path):
        place.seek(0)
    with pq.ParquetFile(place, read_dictionary=texts) as whole:
        for batch in whole.iter_batches(batch_size=ROWS):
            yield sum(_bytes(column) for column in batch.columns)


def _bytes(column: pa.Array) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return column.nbytes
    lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
    return pc.sum(lengths).as_py() or 0
