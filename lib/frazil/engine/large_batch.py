"""A large batch of change files as a Spark job.

Tasks read and type the files, exchange blocks by key, and keep the last change per key. `message_blocks` does the same
with messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from frazil.config.columns import Column
from frazil.config.spec import TableSpec
from frazil.core.changes import Changes
from frazil.core.key_numbers import key_numbers
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import CHANGE_PHASE
from frazil.dms.newest import moment
from frazil.dms.objects import DmsObject
from frazil.engine.collapsed import Ages, Collapsed, bounds, lake_columns, merge_rows, micros_sql, operations
from frazil.engine.exchange import BLOCK_SCHEMA, from_blocks, to_blocks
from frazil.engine.file_plan import plan_files
from frazil.engine.load import groups_of
from frazil.engine.partitions import bucket_of_each_partition
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LEAST_GROUP = 8 << 20
"""Minimum bytes of change files that one task reads."""
BUCKET_BYTES = 48 << 20
"""Approximate bytes of change files whose rows one task orders."""
SAMPLED = 250_000
"""About this many changes count for the quantiles of delays; of n times as many, every n-th."""
BYTES_A_CHANGE = 64
FACT = -1
"""The bucket of a task's facts about its files; all others contain rows."""
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class BatchFiles:
    """The files of a batch: what each holds, and when DMS wrote it. Every `every`-th change counts for the delays."""

    files: list[FileToRead]
    written_at_s: dict[int, float]
    read: ReadPlan
    every: int = 1


def collapse_files(
    spark: SparkSession,
    spec: TableSpec,
    sent: tuple[Endpoint, Mappings],
    files: Sequence[DmsObject],
    quantiles: Sequence[float],
    to_driver: bool,
) -> Collapsed | None:
    """Return the last change per key of change files: the rows in the driver, or as a frame that Spark keeps.

    None if Spark's reader has to judge them: for a bad row, a key that a row only passed, or no row at all. Raises
    FrazilError for a file that cannot be read.
    """
    in_order = sorted(files, key=lambda f: f.name)
    planned, read = plan_files(spec, *sent, in_order, CHANGE_PHASE)
    written = {p.order: moment(f.name).replace(tzinfo=UTC).timestamp() for p, f in zip(planned, in_order, strict=True)}
    size = sum(f.size for f in files)
    batch = BatchFiles(planned, written, read, max(1, size // BYTES_A_CHANGE // SAMPLED))
    sizes = [f.size for f in in_order]
    partitions = max(spark.sparkContext.defaultParallelism, size // BUCKET_BYTES)
    return collapse_blocks(_read(spark, batch, sizes, partitions), spec, partitions, quantiles, to_driver)


def collapse_blocks(
    read: DataFrame, spec: TableSpec, partitions: int, quantiles: Sequence[float], to_driver: bool
) -> Collapsed | None:
    """Return the last change per key of a frame of `counted_blocks`, whose buckets are those of `partitions`."""
    from frazil.lake.locator import arrow

    job = read.repartition(partitions, "bucket").mapInArrow(collapsing(spec), _schema(spec))
    if to_driver:
        return collapsed_rows(arrow(job), spec, quantiles)
    kept, found = job.persist(), None
    try:
        facts, keys, ends = _facts_of(kept, spec)
        frame = merge_rows(kept.where("op is not null"), spec)
        found = _told(facts, quantiles, frame=frame, keys=keys, bounds=ends, release=kept.unpersist)
        return found
    finally:
        if found is None:
            kept.unpersist()


def collapsed_rows(found: pa.Table, spec: TableSpec, quantiles: Sequence[float]) -> Collapsed | None:
    """Return the result of `collapsing` tasks whose rows are in this process."""
    rows, facts = _in_driver(found, spec)
    return _told(facts, quantiles, rows=rows, keys=rows.num_rows, bounds=bounds(rows, spec))


def _read(spark: SparkSession, batch: BatchFiles, sizes: Sequence[int], partitions: int) -> DataFrame:
    """Return the frame of a batch's changes in blocks, in the buckets of `partitions`."""
    groups = groups_of(batch.files, sizes, spark.sparkContext.defaultParallelism, LEAST_GROUP)
    buckets = bucket_of_each_partition(partitions)
    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(_reading(groups, batch, buckets), BLOCK_SCHEMA)


def _schema(spec: TableSpec) -> str:
    from frazil.changes.types import lake_type

    def kind(column: Column) -> str:
        return "bigint" if lake_type(column).startswith("timestamp") else lake_type(column)

    columns = [f"c{i} {kind(c)}" for i, c in enumerate(spec.columns)]
    keys = [f"key{i} bigint" for i in range(_count_of_numbers(spec))]
    return ", ".join(["fact string", "op string", *keys, *columns])


def _count_of_numbers(spec: TableSpec) -> int:
    """Return how many numbers represent a key in the key index; none if only Spark has them."""
    import pyarrow as pa

    from frazil.core.key_numbers import has_numbers
    from frazil.core.types import arrow_type

    if not has_numbers(spec):
        return 0
    kinds = [pa.string() if spec.column(k).mask else arrow_type(spec.column(k)) for k in spec.key]
    return len(key_numbers([pa.array([], kind) for kind in kinds]))


# --- what tasks do


def _reading(groups: Sequence[Sequence[FileToRead]], batch: BatchFiles, buckets: Sequence[int]) -> Callable:
    """Return the function of a reading task.

    It takes numbers of groups, and returns blocks of rows by bucket and a fact for each file.
    """

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some.column(0).to_pylist():
                for file in groups[number]:
                    yield from _blocks_of(file, batch, buckets)

    return run


def _blocks_of(file: FileToRead, batch: BatchFiles, buckets: Sequence[int]) -> Iterator[pa.RecordBatch]:
    written = batch.written_at_s[file.order]
    parts = ((changes, file.order, written) for changes in read_changes(file, batch.read))
    return counted_blocks(parts, batch.read.spec, batch.every, buckets)


def counted_blocks(
    parts: Iterable[tuple[Changes, int, float | np.ndarray]], spec: TableSpec, every: int, buckets: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield changes as blocks by bucket, then a fact about all of them; only a fact once one is bad.

    Each part is some changes, their place in the order, and when DMS wrote them.
    """
    ages, counts = Ages(every), {"changes": 0, "bad": 0, "I": 0, "U": 0, "D": 0}
    for changes, order, written_at_s in parts:
        if changes.bad:
            yield _rows_of([(FACT, json.dumps({"bad": len(changes.bad)}).encode())])
            return
        ages.add(changes.rows, written_at_s)
        counts["changes"] += changes.rows.num_rows
        for op, count in operations(changes.rows["op"]).items():
            counts[op] += count
        blocks = to_blocks(changes.rows, order, spec, len(buckets))
        if rows := [(buckets[bucket], block) for bucket, block in blocks]:
            yield _rows_of(rows)
    yield _rows_of([(FACT, json.dumps(counts | {"ages": ages.to_dict()}).encode())])


def _rows_of(rows: list[tuple[int, bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    buckets, blocks = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(buckets, pa.int32()), pa.array(blocks, pa.binary())], ["bucket", "block"]
    )


def collapsing(spec: TableSpec) -> Callable:
    """Return the function of an ordering task.

    It takes the blocks of its buckets, and returns rows in the form of `_schema` and facts.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: dict[int, list[bytes]] = {}
        for batch in batches:
            for bucket, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                if bucket == FACT:
                    yield _fact_row(block.as_py().decode(), spec)
                else:
                    blocks.setdefault(bucket, []).append(block.as_buffer())
        for bucket in list(blocks):
            latest = from_blocks(blocks.pop(bucket), spec)
            yield _fact_row(json.dumps({"out_of_sequence": latest.out_of_sequence, "passed": latest.reused}), spec)
            yield from _lake_rows(latest.rows, spec)

    return run


def _fact_row(text: str, spec: TableSpec) -> pa.RecordBatch:
    import pyarrow as pa

    schema = _empty(spec).schema
    return pa.RecordBatch.from_pylist([{"fact": text}], schema=schema)


def _lake_rows(latest: pa.Table, spec: TableSpec) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    columns = lake_columns(latest, spec)
    numbers = key_numbers([columns[f"c{spec.names.index(k)}"] for k in spec.key]) if _count_of_numbers(spec) else []
    arrays = [pa.nulls(len(latest), pa.string()), latest["op"].combine_chunks(), *map(pa.array, numbers)]
    arrays += [_as_micros(column) for column in columns.values()]
    names = ["fact", "op", *[f"key{i}" for i in range(len(numbers))], *columns]
    yield from pa.Table.from_arrays(arrays, names).to_batches(ROWS_AT_ONCE)


def _empty(spec: TableSpec) -> pa.Table:
    import pyarrow as pa

    from frazil.core.types import arrow_type

    kinds = [pa.string() if c.mask else arrow_type(c) for c in spec.columns]
    columns = [(f"c{i}", pa.int64() if pa.types.is_timestamp(kind) else kind) for i, kind in enumerate(kinds)]
    keys = [(f"key{i}", pa.int64()) for i in range(_count_of_numbers(spec))]
    return pa.schema([("fact", pa.string()), ("op", pa.string()), *keys, *columns]).empty_table()


def _as_micros(column: pa.Array) -> pa.Array:
    """Return times as microseconds: Spark would shift them by its session's zone."""
    import pyarrow as pa

    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


# --- what the driver makes of it


def _in_driver(found: pa.Table, spec: TableSpec) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Return the rows of a batch, with typed times, and its facts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from frazil.core.types import arrow_type

    facts = [json.loads(text) for text in found["fact"].drop_null().to_pylist()]
    rows = found.filter(pc.is_valid(found["op"])).drop_columns(["fact"]).combine_chunks()
    for i, column in enumerate(spec.columns):
        kind = arrow_type(column)
        if pa.types.is_timestamp(kind) and not column.mask:
            place = rows.schema.get_field_index(f"c{i}")
            rows = rows.set_column(place, f"c{i}", rows[f"c{i}"].cast(kind))
    return rows, facts


def _facts_of(kept: DataFrame, spec: TableSpec) -> tuple[list[dict[str, Any]], int, tuple[Any, Any]]:
    """Run the job of a batch; return its facts, the number of keys, and the bounds of the first key.

    The bounds are None if no literal can express them.
    """
    from pyspark.sql import functions as F

    first = f"c{spec.names.index(spec.key[0])}"
    kind = dict(kept.dtypes)[first]
    can_be_bound = kind.startswith(("int", "bigint", "decimal", "string")) and first not in micros_sql(spec)
    ends = (F.min(first), F.max(first)) if can_be_bound else (F.lit(None), F.lit(None))
    texts, keys, low, high = kept.agg(F.collect_list("fact"), F.count("op"), *ends).first()
    return [json.loads(text) for text in texts], keys, (low, high)


def _told(facts: list[dict[str, Any]], quantiles: Sequence[float], **found: Any) -> Collapsed | None:
    """Return a batch with its combined facts, or None if Spark's reader has to judge it."""
    totals = {
        name: sum(f.get(name, 0) for f in facts)
        for name in ("changes", "bad", "I", "U", "D", "out_of_sequence", "passed")
    }
    if totals["bad"] or totals["passed"] or not totals["changes"]:
        return None
    ages = Ages.together([f["ages"] for f in facts if "ages" in f])
    return Collapsed(seen=totals | ages.points(quantiles), **found)
