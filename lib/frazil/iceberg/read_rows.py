"""Reads rows of data files by field id: all live ones in their order, or those at some positions. Rows have the ids that they inherit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.iceberg.key_segments import names_by_id
from frazil.iceberg.live_files import LAST_UPDATED, ROW_ID

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyroaring import BitMap64

    from frazil.iceberg.live_files import LiveFile

MOST_ROWS, BLOCK = 1 << 16, 32 << 20
"""Rows, and bytes by the file's footer, that are read at once."""


def live_rows(io: FileIO, file: LiveFile, dead: BitMap64, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a data file that are not deleted, in the types of a schema."""
    gone, first = np.array(dead.to_array(), np.int64), 0
    with io.new_input(file.path).open() as source:
        parquet = pq.ParquetFile(source)
        width = sum(parquet.metadata.row_group(n).total_byte_size for n in range(parquet.num_row_groups))
        at_once = int(np.clip(BLOCK * file.rows / max(1, width), 1, MOST_ROWS))
        names = _names(parquet, schema)
        for batch in parquet.iter_batches(at_once, columns=[n for n in names if n], use_threads=False):
            positions = np.arange(first, first + len(batch))
            start, end = np.searchsorted(gone, [first, first + len(batch)])
            alive = np.ones(len(batch), bool)
            alive[gone[start:end] - first] = False
            yield _typed(batch, names, schema, file, positions).filter(pa.array(alive))
            first += len(batch)


def rows_at(io: FileIO, file: LiveFile, positions: np.ndarray, schema: pa.Schema) -> pa.Table:
    """Return the rows of a data file at some positions, in their order, in the types of a schema."""
    with io.new_input(file.path).open() as source:
        parquet = pq.ParquetFile(source)
        counts = np.array([parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)])
        starts = np.cumsum([0, *counts])
        of = np.searchsorted(starts, positions, "right") - 1
        groups, nth = np.unique(of, return_inverse=True)
        names = _names(parquet, schema)
        read = parquet.read_row_groups(groups.tolist(), [n for n in names if n], use_threads=False)
    places = pa.array(positions - starts[of] + np.cumsum([0, *counts[groups]])[nth])
    return _typed(read.take(places), names, schema, file, positions)


def _names(parquet: pq.ParquetFile, schema: pa.Schema) -> Sequence[str | None]:
    """Return the names of a schema's fields in a data file, by their ids; None: the file is older than the field."""
    names = names_by_id(parquet.schema_arrow)
    return [names.get(int(field.metadata[b"PARQUET:field_id"])) for field in schema]


def _typed(
    rows: pa.Table | pa.RecordBatch, names: Sequence[str | None], schema: pa.Schema, file: LiveFile, at: np.ndarray
) -> pa.Table:
    """Return rows in the types of a schema, with what they inherit by their positions `at`."""
    columns = []
    for name, field in zip(names, schema, strict=True):
        values = rows[name].cast(field.type) if name else pa.nulls(len(at), field.type)
        if field.name == ROW_ID and file.first_row_id is not None:
            values = pc.coalesce(values, pa.array(file.first_row_id + at))
        columns.append(pc.fill_null(values, file.sequence) if field.name == LAST_UPDATED else values)
    return pa.Table.from_arrays(columns, schema=schema)
