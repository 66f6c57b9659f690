"""Row deltas: new rows as data files, old rows as deleted ones, in one change. The cost grows with the batch alone."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from frazil.core.latest import Latest
from frazil.iceberg.columns import ColumnPlan, Evolved, evolved
from frazil.iceberg.commits import Change
from frazil.iceberg.data_files import DataFileWriter, by_partition, write_files
from frazil.iceberg.doubled_keys import DoubledInLoadError, doubled, named
from frazil.iceberg.key_hashes import key_numbers
from frazil.iceberg.key_segments import Rows, Segments
from frazil.iceberg.live_files import ROW_ID, LiveFile
from frazil.iceberg.locate import Finder, Found, locate, require_unique_keys
from frazil.iceberg.stored_values import with_columns_of_others, with_stored_values
from frazil.iceberg.table import LakeTable

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def write_batch(table: LakeTable, finder: Finder, latest: Latest, plan: ColumnPlan | None = None) -> Change:
    """Write the files of a batch for the table's present state. Nobody sees them before their swap.

    By the `plan` its columns change with the batch. Raises NoStoredRowError if rows lack values that the table has not, and
    DoubledKeyError if others doubled a key.
    """
    columns = evolved(table, plan)
    if latest.partial:
        latest = replace(latest, rows=with_stored_values(table, finder, latest.partial, columns.metadata))
    require_unique_keys(table, finder)
    found = locate(table, finder, latest.keys)
    latest = replace(latest, rows=with_columns_of_others(table, columns.metadata, latest, found))
    with ThreadPoolExecutor(1) as pool:  # two files, which an object store takes at once
        vectors = pool.submit(table.vectors.write, table.metadata, [(f.file, BitMap64(f.position)) for f in found])
        files = _write_rows(table, columns.metadata, finder, latest, found)
    deletes, replaced = vectors.result()
    change = Change("row delta", files, deletes, remove_deletes=replaced, rows=_rows_afterwards(table, latest, found))
    return replace(change, columns=columns.steps, properties=columns.properties, looked=True)


def _rows_afterwards(table: LakeTable, latest: Latest, found: list[Found]) -> int | None:
    """Return how many rows are live after a batch; None if deletes may name a row twice, or others did not count."""
    total = table.head.summary if table.head else {"total-records": "0"}
    doubled_deletes = table.metadata.format_version < 3 or any(not d.of for f in found for d in f.file.deletes)
    if doubled_deletes or "total-records" not in total:
        return None
    before = int(total["total-records"]) - int(total.get("total-position-deletes", 0))
    return before - sum(len(f.n) for f in found) + len(latest.rows)


def write_rows(table: LakeTable, kind: str, rows: Iterable[pa.Table], plan: ColumnPlan | None = None) -> Change:
    """Write rows that find no stored ones: `append` them, or `replace` all rows of the table, as a load does.

    By the `plan` its columns change with them. Raises DoubledInLoadError if two rows have one key.
    """
    columns = evolved(table, plan)
    return change_of(table, kind, write_files(columns.metadata, table.io, rows), columns)


def change_of(table: LakeTable, kind: str, files: list[LiveFile], columns: Evolved) -> Change:
    """Return the change that brings new files, which tasks may have written. Raises DoubledInLoadError."""
    if places := doubled(table, files + ([*table.live_files.values()] if kind == "append" else [])):
        problem = f"{table.name}: rows of the load have the same key ({named(table, places)})"
        cure = "correct key in the spec; or load the table again if a load was written twice"
        raise DoubledInLoadError(problem, cure)
    change = Change(kind, files, anew=kind == "replace", looked=True)
    return replace(change, columns=columns.steps, properties=columns.properties)


def _write_rows(
    table: LakeTable, metadata: TableMetadata, finder: Finder, latest: Latest, found: list[Found]
) -> list[LiveFile]:
    """Write the new rows. On format v3 a row keeps its row id; segments get to know the new files even before they are live."""
    kept, rows, keys = np.flatnonzero(~latest.deleted), latest.rows, key_numbers(latest.keys.columns)
    lineage: tuple[str, ...] = ()
    row_id = np.full(len(latest.deleted), -1)
    if metadata.format_version >= 3:
        for f in found:
            row_id[f.n] = f.row_id
        lineage = (ROW_ID,)
        rows = rows.append_column(ROW_ID, pa.array(row_id[kept], mask=row_id[kept] < 0))
    files = []
    for partition, numbers in by_partition(metadata, rows):
        writer = DataFileWriter(metadata, table.io, partition, lineage)
        writer.write(rows.take(numbers))
        for file in writer.close():
            mine, numbers = np.split(numbers, [file.rows])
            of_keys = kept[mine]
            if isinstance(finder, Segments):
                ids = row_id[of_keys] if lineage else None
                finder.add(Rows(file.path, [k[of_keys] for k in keys], row_id=ids))
            files.append(file)
    return files
