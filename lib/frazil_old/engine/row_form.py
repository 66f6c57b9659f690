"""The rows of a large batch: their columns in tasks, and blocks of them.

All changes of a key are brought together: Spark shuffles blocks of Arrow by bucket, and no row enters the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from frazil_old.config.lake_types import lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.time_sql import is_time, micros_type
from frazil_old.core.changes import PLACE, in_file
from frazil_old.core.key_changes import EVENT_PLACE, events
from frazil_old.core.key_numbers import key_hashes
from frazil_old.core.latest_per_key import Latest, last_events
from frazil_old.core.types import arrow_of, arrow_type
from frazil_old.engine.collapsed_batch import as_micros, lake_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


ROWS_AT_ONCE = 1 << 16


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

        columns = [(f"c{i}", arrow_of(micros_type(lake_type(c)))) for i, c in enumerate(self.spec.columns)]
        place = [(PLACE[0], pa.int32()), (PLACE[1], pa.int64())] if self.places else []
        return pa.schema([("op", pa.string()), *columns, *place])

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
        """Return rows of this form with times as times, also in `stored_key0` …, the keys under which rows are stored."""
        columns = {f"c{i}": column for i, column in enumerate(self.spec.columns)}
        columns |= {f"stored_key{i}": self.spec.column(name) for i, name in enumerate(self.spec.key)}
        for place, name in enumerate(rows.column_names):
            if name in columns and is_time(lake_type(columns[name])):
                rows = rows.set_column(place, name, rows[name].cast(arrow_type(columns[name])))
        return rows


def in_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts of at most `ROWS_AT_ONCE`, none of which is empty: Spark takes an empty one for the end."""
    for batch in rows.combine_chunks().to_batches(ROWS_AT_ONCE):
        if batch.num_rows:
            yield batch


BLOCK_SCHEMA = "bucket int, block binary"
NUMBERS_TRIED = 64
"""How many numbers are tried for each partition, so that each gets one."""


def to_blocks(changes: pa.RecordBatch, file_order: int, spec: TableSpec, buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yield the events of a file's changes as one block of Arrow for each bucket of keys.

    A changed key is split first, as its old and its new key may belong to different buckets.
    """
    import numpy as np
    import pyarrow as pa

    steps = in_file(events(pa.Table.from_batches([changes]), spec), file_order)
    bucket = (key_hashes(steps, spec) % np.uint64(buckets)).astype("int32")
    order = np.argsort(bucket, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(bucket[order])) + 1):
        if len(places):
            yield int(bucket[places[0]]), packed(steps.take(pa.array(places)))


def from_blocks(blocks: Iterable[bytes], spec: TableSpec) -> Latest:
    """Return the last event per key of one bucket's blocks, which may come in any order.

    Its moving events have the columns of EVENT_PLACE, too: others of the same rows may be in other buckets.
    """
    import numpy as np
    import pyarrow as pa

    tables = [pa.ipc.open_stream(block).read_all() for block in blocks]
    steps = pa.concat_tables(tables, promote_options="default")
    keys = [steps[name].to_numpy() for name in reversed(EVENT_PLACE)]
    steps = steps.take(pa.array(np.lexsort(keys)))
    latest = last_events(steps, spec)
    if (moving := latest.moving) is None:
        return latest
    for name in PLACE:
        moving = moving.append_column(name, steps[name].take(moving["event"].combine_chunks()))
    return replace(latest, moving=moving)


def packed(rows: pa.Table) -> bytes:
    """Return rows as one block."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def bucket_of_each_partition(spark: SparkSession, partitions: int) -> list[int]:
    """Return, for each partition of `repartition(partitions, "bucket")`, the smallest number that Spark puts there."""
    numbers = f"sequence(0, {NUMBERS_TRIED * partitions - 1})"
    (places,) = spark.sql(f"SELECT transform({numbers}, n -> pmod(hash(n), {partitions}))").first()
    return [places.index(partition) for partition in range(partitions)]
