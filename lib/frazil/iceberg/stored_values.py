"""Values that changes lack, and the table has: a partial row takes them from the place where its row is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.core.latest import Latest
from frazil.core.partial_rows import Filled
from frazil.errors import FrazilError
from frazil.iceberg.file_threads import each
from frazil.iceberg.locate import Finder, Found, locate
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


def with_stored_values(table: LakeTable, finder: Finder, partial: Filled, metadata: TableMetadata) -> pa.Table:
    """Return rows with the values that they lack, by the columns of some metadata. Raises NoStoredRowError for rows that are nowhere."""
    if partial.lost.any():
        raise NoStoredRowError(table.name, np.flatnonzero(partial.lost))
    rows, lacking = partial.rows, {name: mask for name, mask in partial.missing.items() if mask.any()}
    if not lacking:
        return rows
    places = np.flatnonzero(np.any([*lacking.values()], axis=0))
    found = locate(table, finder, partial.stored.take(pa.array(places)))
    found = [replace(f, n=places[f.n]) for f in found]
    if len(missing := np.setdiff1d(places, _numbers(found))):
        raise NoStoredRowError(table.name, missing)
    whole = schema_to_pyarrow(metadata.schema())
    stored = _stored(table, found, len(rows), pa.schema([whole.field(name) for name in lacking]))
    for name, mask in lacking.items():
        values = pc.if_else(pa.array(mask), stored[name], rows[name])
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows


def with_columns_of_others(table: LakeTable, metadata: TableMetadata, latest: Latest, found: list[Found]) -> pa.Table:
    """Return the rows of a batch with the columns that they know nothing of: a stored row keeps its values, a new key has none."""
    rows, whole = latest.rows, schema_to_pyarrow(metadata.schema())
    schema = pa.schema([field for field in whole if field.name not in rows.column_names])
    if not len(schema):
        return rows
    stored = _stored(table, found, len(latest.deleted), schema).filter(pa.array(~latest.deleted))
    for field in schema:
        rows = rows.append_column(field, stored[field.name])
    return rows


def _stored(table: LakeTable, found: list[Found], count: int, schema: pa.Schema) -> pa.Table:
    """Return the stored row of each of `count` keys, of nulls if none was found."""
    read = each(lambda f: rows_at(table.io, f.file, f.position, schema), found, table.metadata.location)
    at, numbers = np.full(count, -1), _numbers(found)
    at[numbers] = np.arange(len(numbers))
    return pa.concat_tables([schema.empty_table(), *read]).take(pa.array(at, mask=at < 0))


def _numbers(found: list[Found]) -> np.ndarray:
    return np.concatenate([np.empty(0, int), *(f.n for f in found)])
