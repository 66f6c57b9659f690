"""The ids of rows (`_row_id`, format v3): a changed row keeps its own, and a new row gets one by its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil_old.lake.data_file_writer import ROW_ID
from frazil_old.lake.row_delta_files import NewFile

if TYPE_CHECKING:
    import numpy as np
    from pyarrow import Table


def with_row_ids(rows: Table, row_ids: np.ndarray | None) -> Table:
    """Return rows with the ids that they keep, null for new rows; without that column if the table has no ids."""
    import pyarrow as pa

    rows = rows.drop_columns([c for c in rows.column_names if c.startswith("stored_key_number")])
    return rows if row_ids is None else rows.append_column(ROW_ID, pa.array(row_ids, mask=row_ids < 0))


def with_new_ids(rows: Table, row_ids: np.ndarray, first: list[int], written: list[NewFile]) -> Table:
    """Return committed rows with all their ids: those of new rows are their file's first one plus the position."""
    import numpy as np
    import pyarrow as pa

    new, start = np.full(rows.num_rows, -1, np.int64), 0  # deleted rows come last
    for number, file in zip(first, written, strict=True):
        new[start : start + file.rows] = np.arange(number, number + file.rows)
        start += file.rows
    at = rows.column_names.index(ROW_ID)
    return rows.set_column(at, ROW_ID, pa.array(np.where(row_ids >= 0, row_ids, new)))
