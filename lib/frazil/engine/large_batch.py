"""A large batch of change files as a Spark job.

Tasks read and type the files, exchange blocks by key, and keep the last change per key. `message_blocks` does the same
with messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frazil.config.columns import Column
from frazil.config.spec import TableSpec
from frazil.core.bad_rows import SHOWN
from frazil.core.changes import Changes
from frazil.core.key_numbers import key_numbers
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.file_layout import CHANGE_PHASE
from frazil.dms.listing import DmsObject, SourceError
from frazil.engine.collapsed_batch import (
    PLACE,
    Collapsed,
    Wanted,
    as_micros,
    bounds,
    lake_columns,
    merge_rows,
    micros_sql,
)
from frazil.engine.load_files import groups_of
from frazil.engine.read_counts import Tally, every_of
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes
from frazil.engine.read_plan import plan_files
from frazil.engine.shuffle import BLOCK_SCHEMA, bucket_of_each_partition, from_blocks, to_blocks
from frazil.errors import FrazilError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LEAST_GROUP = 8 << 20
"""Minimum bytes of change files that one task reads."""
BUCKET_BYTES = 48 << 20
"""Approximate bytes of change files whose rows one task orders."""
PASSED = "P"
"""The operation of a row whose key other rows only passed."""
FACT = -1
"""The bucket of a task's facts about its files; all others contain rows."""
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class BatchFiles:
    """The files of a batch, and how they are read. Every `every`-th change counts for the delays."""

    files: list[FileToRead]
    read: ReadPlan
    wanted: Wanted
    every: int = 1

    @property
    def form(self) -> RowForm:
        """The columns of its rows."""
        return RowForm(self.read.spec, self.wanted.places)


@dataclass(frozen=True)
class RowForm:
    """The columns of a batch's rows: `fact`, `op`, `key0` …, the lake's `c0` …, and `PLACE` if places are wanted."""

    spec: TableSpec
    places: bool = False


def collapse_files(
    spark: SparkSession,
    spec: TableSpec,
    sent: tuple[Endpoint, Mappings],
    files: Sequence[DmsObject],
    wanted: Wanted,
) -> Collapsed:
    """Return the last change per key of change files, and their bad rows: the rows in the driver, or a frame.

    Spark keeps the frame. Raises FrazilError for a file that cannot be read.
    """
    in_order = sorted(files, key=lambda f: f.name)
    planned, read = plan_files(spec, *sent, in_order, CHANGE_PHASE)
    size = sum(f.size for f in files)
    batch = BatchFiles(planned, read, wanted, every_of(size))
    partitions = max(spark.sparkContext.defaultParallelism, size // BUCKET_BYTES)
    blocks = _read(spark, batch, [f.size for f in in_order], partitions)
    return replace(collapse_blocks(blocks, batch.form, partitions, wanted), files=planned)


def collapse_blocks(read: DataFrame, form: RowForm, partitions: int, wanted: Wanted) -> Collapsed:
    """Return the last change per key of a frame of `counted_blocks`, whose buckets are those of `partitions`."""
    from frazil.lake.row_locator import arrow

    job = read.repartition(partitions, "bucket").mapInArrow(collapsing(form), _schema(form))
    if wanted.in_driver:
        return collapsed_rows(arrow(job), form, wanted)
    kept, found = job.persist(), None
    try:
        facts, keys, ends = _facts_of(kept, form.spec)
        conditions = (f"op <> '{PASSED}'", f"op = '{PASSED}'")
        frame, passed = (merge_rows(kept.where(condition), form.spec) for condition in conditions)
        found = _with_facts(facts, wanted, frame=frame, keys=keys, bounds=ends, passed=passed, release=kept.unpersist)
        return found
    finally:
        if found is None:
            kept.unpersist()


def collapsed_rows(found: pa.Table, form: RowForm, wanted: Wanted) -> Collapsed:
    """Return the result of `collapsing` tasks whose rows are in this process."""
    rows, passed, facts = _in_driver(found, form.spec)
    return _with_facts(facts, wanted, rows=rows, keys=rows.num_rows, bounds=bounds(rows, form.spec), passed=passed)


def _read(spark: SparkSession, batch: BatchFiles, sizes: Sequence[int], partitions: int) -> DataFrame:
    """Return the frame of a batch's changes in blocks, in the buckets of `partitions`."""
    groups = groups_of(batch.files, sizes, spark.sparkContext.defaultParallelism, LEAST_GROUP)
    buckets = bucket_of_each_partition(partitions)
    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(_reading(groups, batch, buckets), BLOCK_SCHEMA)


def _schema(form: RowForm) -> str:
    from frazil.config.lake_types import lake_type

    def kind(column: Column) -> str:
        return "bigint" if lake_type(column).startswith("timestamp") else lake_type(column)

    columns = [f"c{i} {kind(c)}" for i, c in enumerate(form.spec.columns)]
    keys = [f"key{i} bigint" for i in range(_count_of_numbers(form.spec))]
    place = [f"{PLACE[0]} int", f"{PLACE[1]} bigint"] if form.places else []
    return ", ".join(["fact string", "op string", *keys, *columns, *place])


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
    parts = ((changes, file.order, file.written_at_s) for changes in read_changes(file, batch.read))
    try:
        yield from counted_blocks(parts, batch.read.spec, batch.every, buckets, batch.wanted.most_bad)
    except FrazilError as error:  # its class would not survive the way to the driver
        yield _fact({"error": [file.order, error.problem, error.cure]})


def counted_blocks(
    parts: Iterable[tuple[Changes, int, float | np.ndarray]],
    spec: TableSpec,
    every: int,
    buckets: Sequence[int],
    most_bad: int = SHOWN,
) -> Iterator[pa.RecordBatch]:
    """Yield good changes as blocks by bucket, then a fact about all of them.

    Each part is some changes, their place in the order, and when DMS wrote them.
    """
    tally = Tally(most_bad, every)
    for changes, order, written_at_s in parts:
        tally.add(order, changes, written_at_s)
        blocks = to_blocks(changes.rows, order, spec, len(buckets))
        if rows := [(buckets[bucket], block) for bucket, block in blocks]:
            yield _rows_of(rows)
    yield _fact(tally.to_dict())


def _fact(fact: dict[str, Any]) -> pa.RecordBatch:
    return _rows_of([(FACT, json.dumps(fact).encode())])


def _rows_of(rows: list[tuple[int, bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    buckets, blocks = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(buckets, pa.int32()), pa.array(blocks, pa.binary())], ["bucket", "block"]
    )


def collapsing(form: RowForm) -> Callable:
    """Return the function of an ordering task.

    It takes the blocks of its buckets, and returns rows in the form of `_schema` and facts.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: dict[int, list[bytes]] = {}
        for batch in batches:
            for bucket, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                if bucket == FACT:
                    yield _fact_row(block.as_py().decode(), form)
                else:
                    blocks.setdefault(bucket, []).append(block.as_buffer())
        for bucket in list(blocks):
            latest = from_blocks(blocks.pop(bucket), form.spec)
            order = {"out_of_sequence": latest.out_of_sequence, "passed": len(latest.passed)}
            yield _fact_row(json.dumps(order), form)
            yield from _lake_rows(latest.rows, form)
            if len(latest.passed):
                yield from _lake_rows(_marked(latest.passed), form)

    return run


def _fact_row(text: str, form: RowForm) -> pa.RecordBatch:
    import pyarrow as pa

    schema = _empty(form).schema
    return pa.RecordBatch.from_pylist([{"fact": text}], schema=schema)


def _marked(passed: pa.Table) -> pa.Table:
    """Return keys that rows only passed, with PASSED as their operation."""
    import pyarrow as pa

    place = passed.schema.get_field_index("op")
    return passed.set_column(place, "op", pa.array([PASSED] * len(passed), pa.string()))


def _lake_rows(latest: pa.Table, form: RowForm) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    spec = form.spec
    columns = lake_columns(latest, spec)
    numbers = key_numbers([columns[f"c{spec.names.index(k)}"] for k in spec.key]) if _count_of_numbers(spec) else []
    arrays = [pa.nulls(len(latest), pa.string()), latest["op"].combine_chunks(), *map(pa.array, numbers)]
    arrays += [as_micros(column) for column in columns.values()]
    names = ["fact", "op", *[f"key{i}" for i in range(len(numbers))], *columns]
    if form.places:
        arrays, names = [*arrays, *(latest[name].combine_chunks() for name in PLACE)], [*names, *PLACE]
    yield from pa.Table.from_arrays(arrays, names).to_batches(ROWS_AT_ONCE)


def _empty(form: RowForm) -> pa.Table:
    import pyarrow as pa

    from frazil.core.types import arrow_type

    spec = form.spec
    kinds = [pa.string() if c.mask else arrow_type(c) for c in spec.columns]
    columns = [(f"c{i}", pa.int64() if pa.types.is_timestamp(kind) else kind) for i, kind in enumerate(kinds)]
    keys = [(f"key{i}", pa.int64()) for i in range(_count_of_numbers(spec))]
    place = [(PLACE[0], pa.int32()), (PLACE[1], pa.int64())] if form.places else []
    return pa.schema([("fact", pa.string()), ("op", pa.string()), *keys, *columns, *place]).empty_table()


# --- what the driver makes of it


def _in_driver(found: pa.Table, spec: TableSpec) -> tuple[pa.Table, pa.Table, list[dict[str, Any]]]:
    """Return a batch's rows, with typed times, the keys that rows only passed, and its facts."""
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
    has_passed = pc.equal(rows["op"], PASSED)
    return rows.filter(pc.invert(has_passed)).combine_chunks(), rows.filter(has_passed), facts


def _facts_of(kept: DataFrame, spec: TableSpec) -> tuple[list[dict[str, Any]], int, tuple[Any, Any]]:
    """Run the job of a batch; return its facts, the number of keys, and the bounds of the first key.

    The bounds are None if no literal can express them.
    """
    from pyspark.sql import functions as F

    first = f"c{spec.names.index(spec.key[0])}"
    kind = dict(kept.dtypes)[first]
    can_be_bound = kind.startswith(("int", "bigint", "decimal", "string")) and first not in micros_sql(spec)
    ends = (F.min(first), F.max(first)) if can_be_bound else (F.lit(None), F.lit(None))
    count = F.count_if(F.col("op") != PASSED)
    texts, keys, low, high = kept.agg(F.collect_list("fact"), count, *ends).first()
    return [json.loads(text) for text in texts], keys, (low, high)


def _with_facts(facts: list[dict[str, Any]], wanted: Wanted, **found: Any) -> Collapsed:
    """Return a batch with its combined facts."""
    if errors := sorted(f["error"] for f in facts if "error" in f):
        raise SourceError(errors[0][1], errors[0][2])
    tally = Tally.together(f for f in facts if "good" in f)
    order = {name: sum(f.get(name, 0) for f in facts) for name in ("out_of_sequence", "passed")}
    return Collapsed(tally.seen(wanted.quantiles) | order, bad=tally.bad, **found)
