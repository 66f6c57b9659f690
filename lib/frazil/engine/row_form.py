"""The columns of a large batch's rows between Spark's tasks and the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from frazil.config.lake_types import lake_type
from frazil.config.spec import TableSpec
from frazil.core.time_sql import is_time
from frazil.engine.collapsed_batch import PLACE, as_micros, lake_columns

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1 << 16
PASSED = "P"
"""The operation of a row whose key other rows only passed."""


@dataclass(frozen=True)
class RowForm:
    """The columns of a batch's rows: `op`, the lake's `c0` …, and `PLACE` if places are wanted.

    Times are microseconds, as Spark would shift them by its session's zone.
    """

    spec: TableSpec
    places: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        import pyarrow as pa

        columns = [(f"c{i}", self._kind(name)) for i, name in enumerate(self.spec.names)]
        place = [(PLACE[0], pa.int32()), (PLACE[1], pa.int64())] if self.places else []
        return pa.schema([("op", pa.string()), *columns, *place])

    def _kind(self, name: str) -> pa.DataType:
        import pyarrow as pa

        from frazil.core.types import arrow_type

        column = self.spec.column(name)
        if is_time(lake_type(column)):
            return pa.int64()
        return pa.string() if column.mask else arrow_type(column)

    @cached_property
    def with_facts(self) -> pa.Schema:
        """The Arrow schema of the rows, with a column `fact`."""
        import pyarrow as pa

        return pa.schema([("fact", pa.string()), *self.schema])

    @property
    def key_columns(self) -> list[str]:
        """The names of the key's columns, `c0` …, in the order of the key."""
        return [f"c{self.spec.names.index(name)}" for name in self.spec.key]

    def rows_of(self, latest: pa.Table) -> pa.Table:
        """Return the last changes per key in this form."""
        import pyarrow as pa

        columns = lake_columns(latest, self.spec)
        arrays = [latest["op"].combine_chunks(), *map(as_micros, columns.values())]
        if self.places:
            arrays += [latest[name].combine_chunks() for name in PLACE]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def typed(self, rows: pa.Table) -> pa.Table:
        """Return rows of this form with times as times."""
        from frazil.core.types import arrow_type

        for i, column in enumerate(self.spec.columns):
            if is_time(lake_type(column)):
                place = rows.schema.get_field_index(f"c{i}")
                rows = rows.set_column(place, f"c{i}", rows[f"c{i}"].cast(arrow_type(column)))
        return rows


def in_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts of at most `ROWS_AT_ONCE`, none of which is empty: Spark takes an empty one for the end."""
    for batch in rows.combine_chunks().to_batches(ROWS_AT_ONCE):
        if batch.num_rows:
            yield batch
