"""A table's part of the messages of a read as a collapsed batch: in this process, or by Spark's tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import SHOWN
from frazil_old.core.changes import PLACE, Changes, in_file, no_changes
from frazil_old.core.latest_per_key import net_rows
from frazil_old.engine.collapsed_batch import (
    OPERATION_SOURCES,
    Collapsed,
    Tally,
    Wanted,
    as_micros,
    lake_columns,
    merge_rows,
)
from frazil_old.engine.large_batch import BUCKET_BYTES, collapse_blocks, counted_blocks
from frazil_old.engine.latency_sketch import BYTES_A_CHANGE
from frazil_old.engine.message_blocks import Blocks, PartReading, of_table
from frazil_old.engine.row_form import BLOCK_SCHEMA, ROWS_AT_ONCE, RowForm, bucket_of_each_partition
from frazil_old.engine.small_batch import collapse_net, collapse_rows, collapsed_columns, numbered
from frazil_old.engine.tasks import values_of
from frazil_old.lake.small_frames import collect_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MOST = 8000
"""Spark reads more messages than this, on all cores."""


def collapse_part(blocks: Blocks, reading: PartReading, count: int, wanted: Wanted) -> Collapsed:
    """Return the last change per key of a table's part with about `count` changes; without a key, every one.

    The rows are in the driver, or in a frame that Spark keeps. A small part is collapsed in this process.
    """
    from pyspark.sql import DataFrame

    mine = of_table(blocks, reading.part)
    if not isinstance(mine, DataFrame) or wanted.read_here or count < MOST:
        blocks = collect_arrow(mine) if isinstance(mine, DataFrame) else mine
        tally = Tally(wanted.most_bad, reading.every)
        rows = numbered(reading.changes_of(iter(blocks.to_batches())), reading.spec, tally)
        return _of_messages(rows.sort_by([(name, "ascending") for name in PLACE]), reading, wanted, tally)
    if reading.spec.policy != "key":
        return replace(_each_row_by_tasks(mine, reading, wanted), files=reading.partitions)
    spark = blocks.sparkSession
    cores = spark.sparkContext.defaultParallelism
    partitions = max(cores, count * BYTES_A_CHANGE // BUCKET_BYTES)
    read = changes_of_part(blocks, reading, bucket_of_each_partition(spark, partitions), wanted.most_bad)
    found = collapse_blocks(read, RowForm(reading.spec, wanted.places), partitions, wanted)
    return replace(found, files=reading.partitions)


def _of_messages(rows: pa.Table, reading: PartReading, wanted: Wanted, tally: Tally) -> Collapsed:
    """Collapse changes in their order in this process."""
    spec = reading.spec
    if spec.policy == "key":
        found = collapse_rows(rows, spec, wanted, tally)
    elif spec.policy == "multiset" and not reading.part.loads:
        found = collapse_net(rows, spec, wanted, tally)
    else:
        every = _each_as_row(rows, spec, [*reading.order])
        found = Collapsed(tally.counts_and_delays(), len(every), tally.bad, rows=every)
    return replace(found, files=reading.partitions)


def _each_as_row(changes: pa.Table, spec: TableSpec, names: Sequence[str]) -> pa.Table:
    """Return every change as a row, with `OPERATION_SOURCES` if the table keeps them; `names` are those of partitions, in order."""
    import pyarrow as pa

    rows = collapsed_columns(changes, spec, ())
    if spec.policy == "append":
        of = pa.array(names, pa.string()).take(changes[PLACE[0]].combine_chunks())
        for name in OPERATION_SOURCES:
            rows = rows.append_column(name, of if name == "object" else changes[name].combine_chunks())
    return rows


def changes_of_part(
    blocks: DataFrame, reading: PartReading, buckets: Sequence[int], most_bad: int = SHOWN
) -> DataFrame:
    """Return the frame of a part's changes, typed and in blocks by bucket."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from counted_blocks(reading.changes_of(batches), reading.spec, buckets, Tally(most_bad, reading.every))

    return of_table(blocks, reading.part).mapInArrow(run, BLOCK_SCHEMA)


def _each_row_by_tasks(blocks: DataFrame, reading: PartReading, wanted: Wanted) -> Collapsed:
    """Return every change of a table without a key, or what they add to and remove from a multiset, as a frame."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = _rows_of(Changes(no_changes(reading.spec)), 0, reading).schema

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        tally = Tally(wanted.most_bad, reading.every)
        for changes, order, built in reading.changes_of(batches):
            tally.add(order, changes, built)
            yield from _rows_of(changes, order, reading).to_batches(ROWS_AT_ONCE)
        yield pa.RecordBatch.from_pylist([{"report": pickle.dumps(tally)}], schema)

    kept = blocks.mapInArrow(run, from_arrow_schema(schema)).persist()
    try:
        reports = values_of(row.report for row in kept.where("report is not null").select("report").collect())
    except Exception:
        kept.unpersist()
        raise
    rows = merge_rows(kept.where("report is null").drop("report"), reading.spec)
    tally = Tally(wanted.most_bad).with_parts(reports)
    if "net" in rows.columns:
        rows = rows.groupBy("after").agg(F.sum("net").alias("net"))
    return Collapsed(tally.counts_and_delays(), tally.rows, tally.bad, frame=rows, release=kept.unpersist)


def _rows_of(changes: Changes, order: int, reading: PartReading) -> pa.Table:
    """Return the rows of some changes, times as microseconds, and `report`, which is null."""
    import pyarrow as pa

    spec, table = reading.spec, pa.Table.from_batches([changes.rows])
    if spec.policy == "multiset" and not reading.part.loads:
        net = net_rows(table, spec)
        rows = pa.table({**lake_columns(net, spec), "net": net["net"].combine_chunks()})
    else:
        rows = _each_as_row(in_file(table, order), spec, [*reading.order])
    for i, column in enumerate(rows.columns):
        rows = rows.set_column(i, rows.column_names[i], as_micros(column))
    return rows.append_column("report", pa.nulls(len(rows), pa.binary()))
