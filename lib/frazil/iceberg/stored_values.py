"""Values that changes lack, and the table has: a partial row takes them from the place where its row is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.core.latest import Latest
from frazil.core.partial_rows import Filled
from frazil.errors import FrazilError
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.locate import Found, locate
from frazil.iceberg.read_rows import rows_at
from frazil.iceberg.table import LakeTable

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


class NoStoredRowError(FrazilError, code="no-stored-row"):
    """A change lacks values, and the row that has them is not in the table. Load the table again, or log whole rows at the source."""

    def __init__(self, name: str, places: np.ndarray):
        super().__init__(f"{name}: {len(places)} rows lack values, and are not stored", "load the table again")
        self.places = places
        """The places of such rows among those of the batch."""


def with_stored_values(
    table: LakeTable, segments: Segments | None, partial: Filled, metadata: TableMetadata
) -> pa.Table:
    """Return rows with the values that they lack, by the columns of some metadata. Raises NoStoredRowError for rows that are nowhere."""
    lacks = np.any([*partial.missing.values()], axis=0)
    if partial.lost.any():
        raise NoStoredRowError(table.name, np.flatnonzero(partial.lost))
    places = np.flatnonzero(lacks)
    if not len(places):
        return partial.rows
    found = locate(table, segments, partial.stored.take(pa.array(places)))
    number = np.concatenate([f.n for f in found]) if found else np.empty(0, np.int64)
    if len(number) < len(places):
        raise NoStoredRowError(table.name, np.delete(places, number))
    whole = schema_to_pyarrow(metadata.schema())
    schema = pa.schema([whole.field(name) for name, mask in partial.missing.items() if mask.any()])
    stored = _stored(table, found, schema)
    at = np.full(len(lacks), -1)
    at[places[number]] = np.arange(len(number))
    rows = partial.rows
    for name in schema.names:
        mask = pa.array(partial.missing[name])
        values = stored[name].take(pa.array(at, mask=at < 0))
        rows = rows.set_column(rows.column_names.index(name), name, pc.if_else(mask, values, rows[name]))
    return rows


def with_columns_of_others(table: LakeTable, metadata: TableMetadata, latest: Latest, found: list[Found]) -> pa.Table:
    """Return the rows of a batch with the columns that they know nothing of: a stored row keeps its values, a new key has none."""
    rows, whole = latest.rows, schema_to_pyarrow(metadata.schema())
    schema = pa.schema([field for field in whole if field.name not in rows.column_names])
    if not len(schema):
        return rows
    stored = _stored(table, found, schema)
    at = np.full(len(latest.deleted), -1)
    at[np.concatenate([np.empty(0, int), *(f.n for f in found)])] = np.arange(len(stored))
    kept = at[~latest.deleted]
    for field in schema:
        rows = rows.append_column(field, stored[field.name].take(pa.array(kept, mask=kept < 0)))
    return rows


def _stored(table: LakeTable, found: list[Found], schema: pa.Schema) -> pa.Table:
    """Return the found rows, in their order."""
    read = each(lambda f: rows_at(table.io, f.file.path, f.position, schema), found, table.metadata.location)
    return pa.concat_tables([schema.empty_table(), *read])
