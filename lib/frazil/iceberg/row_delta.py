"""Row deltas: new rows as data files, old rows as deleted ones, in one change. The cost grows with the batch alone."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from frazil.core.latest import Latest
from frazil.iceberg.data_files import ROW_ID, DataFileWriter, by_partition
from frazil.iceberg.key_hashes import key_numbers
from frazil.iceberg.key_segments import Rows, Segments
from frazil.iceberg.live_files import LiveFile
from frazil.iceberg.locate import Found, locate
from frazil.iceberg.stored_values import with_stored_values
from frazil.iceberg.swap import Change
from frazil.iceberg.table import LakeTable


def write_batch(table: LakeTable, segments: Segments | None, latest: Latest) -> Change:
    """Write the files of a batch for the table's present state. Nobody sees them before their swap.

    Raises NoStoredRowError if rows lack values that the table has not.
    """
    rows = with_stored_values(table, segments, latest.partial) if latest.partial else latest.rows
    latest = replace(latest, rows=rows, partial=None)
    keys = latest.keys.select(table.key)
    found = locate(table, segments, keys)
    with ThreadPoolExecutor(1) as pool:  # two files, which an object store takes at once
        vectors = pool.submit(table.vectors.write, table.metadata, [(f.file, BitMap64(f.position)) for f in found])
        files = _write_rows(table, segments, latest, key_numbers(keys.columns), found)
    deletes, replaced = vectors.result()
    left = _rows_afterwards(table, latest, found)
    return Change("row delta", add=files, add_deletes=deletes, remove_deletes=replaced, rows=left)


def _rows_afterwards(table: LakeTable, latest: Latest, found: list[Found]) -> int | None:
    """Return how many rows are live after a batch; None on format v2, whose deletes may name a row twice."""
    if table.metadata.format_version < 3:
        return None
    total = table.head.summary if table.head else {}
    before = int(total.get("total-records", 0)) - int(total.get("total-position-deletes", 0))
    return before - sum(len(f.n) for f in found) + len(latest.rows)


def write_rows(table: LakeTable, kind: str, rows: Iterable[pa.Table]) -> Change:
    """Write rows that find no stored ones: `append` them, or `replace` all rows of the table, as a load does."""
    writers: dict[str, DataFileWriter] = {}
    for some in rows:
        for partition, numbers in by_partition(table.metadata, some):
            place = str(partition)
            if place not in writers:
                writers[place] = DataFileWriter(table.metadata, table.io, partition)
            writers[place].write(some.take(numbers))
    return Change(kind, add=[file for writer in writers.values() for file in writer.close()])


def _write_rows(
    table: LakeTable, segments: Segments | None, latest: Latest, keys: list[np.ndarray], found: list[Found]
) -> list[LiveFile]:
    """Write the new rows. On format v3 a row keeps its row id; segments get to know the new files even before they are live."""
    kept, rows = np.flatnonzero(~latest.deleted), latest.rows
    lineage: tuple[str, ...] = ()
    row_id = np.full(len(latest.deleted), -1)
    if table.metadata.format_version >= 3:
        for f in found:
            row_id[f.n] = f.row_id
        lineage = (ROW_ID,)
        rows = rows.append_column(ROW_ID, pa.array(row_id[kept], mask=row_id[kept] < 0))
    files = []
    for partition, numbers in by_partition(table.metadata, rows):
        writer = DataFileWriter(table.metadata, table.io, partition, lineage)
        writer.write(rows.take(numbers))
        for file in writer.close():
            mine, numbers = np.split(numbers, [file.rows])
            of_keys = kept[mine]
            if segments is not None:
                ids = row_id[of_keys] if lineage else None
                segments.add(Rows(file.path, [k[of_keys] for k in keys], row_id=ids))
            files.append(file)
    return files
