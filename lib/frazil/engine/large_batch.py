"""A large batch of change files as a Spark job.

Tasks read and type the files, exchange blocks by key, and keep the last change per key. `message_blocks` does the same
with messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.bad_rows import SHOWN
from frazil.core.changes import Changes
from frazil.dms.endpoint import SourceTable
from frazil.dms.file_layout import CHANGE_PHASE
from frazil.dms.listing import DmsObject, SourceError
from frazil.engine.collapsed_batch import Collapsed, Tally, Wanted, bounds, every_of, with_stored_keys
from frazil.engine.kept_batch import (
    BUCKET_BITS,
    KeptBatch,
    fact_row,
    kept_rows,
    moved_rows,
    moving_of_bucket,
    passed_rows,
    schema_of,
)
from frazil.engine.load_files import groups_of
from frazil.engine.read_files import FileToRead, ReadPlan, plan_files, read_changes
from frazil.engine.row_form import (
    BLOCK_SCHEMA,
    PASSED,
    RowForm,
    bucket_of_each_partition,
    from_blocks,
    in_batches,
    to_blocks,
)
from frazil.errors import FrazilError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LEAST_GROUP = 8 << 20
"""Minimum bytes of change files that one task reads."""
BUCKET_BYTES = 48 << 20
"""Approximate bytes of change files whose rows one task orders."""
FACT = -1
"""The bucket of a task's facts about its files; all others contain rows."""


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


def collapse_files(spark: SparkSession, table: SourceTable, files: Sequence[DmsObject], wanted: Wanted) -> Collapsed:
    """Return the last change per key of change files, and their bad rows: the rows in the driver, or a frame.

    Spark keeps the frame. Raises FrazilError for a file that cannot be read.
    """
    in_order = sorted(files, key=lambda f: f.name)
    planned, read = plan_files(table, in_order, CHANGE_PHASE)
    size = sum(f.size for f in files)
    batch = BatchFiles(planned, read, wanted, every_of(size))
    partitions = max(spark.sparkContext.defaultParallelism, size // BUCKET_BYTES)
    blocks = _read(spark, batch, [f.size for f in in_order], partitions)
    return replace(collapse_blocks(blocks, batch.form, partitions, wanted), files=planned)


def collapse_blocks(read: DataFrame, form: RowForm, partitions: int, wanted: Wanted) -> Collapsed:
    """Return the last change per key of a frame of `counted_blocks`, whose buckets are those of `partitions`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from frazil.lake.row_locator import arrow

    exchanged = read.repartition(partitions, "bucket")
    if wanted.in_driver:
        return collapsed_rows(
            arrow(exchanged.mapInArrow(collapsing(form), from_arrow_schema(form.with_facts))), form, wanted
        )
    job = exchanged.mapInArrow(_keeping(form), from_arrow_schema(schema_of(form)))
    kept, found = KeptBatch(job.persist(), form, partitions), None
    try:
        facts, keys, ends = kept.facts()
        kept = replace(kept, old_keys=moved_rows(_moving(facts), form))
        of_frame = {"frame": kept.rows(), "kept": kept, "passed": kept.passed(), "release": kept.frame.unpersist}
        found = _with_facts(facts, wanted, keys=keys, bounds=ends, **of_frame)
        return found
    finally:
        if found is None:
            kept.frame.unpersist()


def collapsed_rows(found: pa.Table, form: RowForm, wanted: Wanted) -> Collapsed:
    """Return the result of `collapsing` tasks whose rows are in this process."""
    rows, passed, facts = _in_driver(found, form)
    return _with_facts(facts, wanted, rows=rows, keys=rows.num_rows, bounds=bounds(rows, form.spec), passed=passed)


def _read(spark: SparkSession, batch: BatchFiles, sizes: Sequence[int], partitions: int) -> DataFrame:
    """Return the frame of a batch's changes in blocks, in the buckets of `partitions`."""
    groups = groups_of(batch.files, sizes, spark.sparkContext.defaultParallelism, LEAST_GROUP)
    buckets = bucket_of_each_partition(partitions)
    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(_reading(groups, batch, buckets), BLOCK_SCHEMA)


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
    """Return the function of an ordering task whose rows the driver collects.

    It takes the blocks of its buckets, and returns rows, with a column `fact` for what the task reports.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for bucket, found in _latest_of(batches, form):
            if bucket == FACT:
                yield pa.RecordBatch.from_pylist([{"fact": found}], schema=form.with_facts)
                continue
            for some in found:
                empty = pa.nulls(len(some), pa.string())
                yield from in_batches(some.add_column(0, "fact", empty))

    return run


def _keeping(form: RowForm) -> Callable:
    """Return the function of an ordering task whose rows Spark keeps, in the columns of `kept_batch.schema_of`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, found in _latest_of(batches, form):
            if bucket == FACT:
                yield fact_row(found, form)
                continue
            rows, passed = found
            yield from kept_rows(bucket, rows, form)
            yield from passed_rows(passed, form)

    return run


def _latest_of(batches: Iterator[pa.RecordBatch], form: RowForm) -> Iterator[tuple[int, Any]]:
    """Yield FACT and the text of each fact; each bucket, and its rows and those of keys that were only passed."""
    import pyarrow as pa

    blocks: dict[int, list[bytes]] = {}
    for batch in batches:
        for bucket, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if bucket == FACT:
                yield FACT, block.as_py().decode()
            else:
                blocks.setdefault(bucket, []).append(block.as_buffer())
    for bucket in list(blocks):
        latest = from_blocks(blocks.pop(bucket), form.spec)
        rows, passed = form.rows_of(latest.rows), form.rows_of(latest.passed)
        fact = {"out_of_sequence": latest.out_of_sequence, "passed": len(passed), "bucket": bucket, "rows": len(rows)}
        yield FACT, json.dumps(fact | {"moving": moving_of_bucket(bucket, latest, rows, form)})
        operation = pa.array([PASSED] * len(passed), pa.string())
        yield bucket, (rows, passed.set_column(0, "op", operation))


# --- what the driver makes of it


def _in_driver(found: pa.Table, form: RowForm) -> tuple[pa.Table, pa.Table, list[dict[str, Any]]]:
    """Return a batch's rows, with typed times, the keys that rows only passed, and its facts."""
    import pyarrow.compute as pc

    facts = [json.loads(text) for text in found["fact"].drop_null().to_pylist()]
    rows = form.typed(found.filter(pc.is_valid(found["op"])).drop_columns(["fact"]).combine_chunks())
    has_passed = pc.equal(rows["op"], PASSED)
    latest = rows.filter(pc.invert(has_passed)).combine_chunks()
    return _with_old_keys(latest, facts, form), rows.filter(has_passed), facts


def _with_old_keys(rows: pa.Table, facts: list[dict[str, Any]], form: RowForm) -> pa.Table:
    """Add the keys under which rows are stored, if keys changed; the facts of buckets are in the order of the rows."""
    moved = moved_rows(_moving(facts), form)
    if moved is None:
        return rows
    counts = [(f["bucket"] << BUCKET_BITS, f["rows"]) for f in facts if "rows" in f]
    numbers = [first + i for first, count in counts for i in range(count)]
    place = {n: i for i, n in enumerate(numbers)}
    before = dict(zip(moved["n"].to_pylist(), moved["before"].to_pylist(), strict=True))
    return with_stored_keys(rows, [place[before[n]] if n in before else None for n in numbers], form.spec)


def _moving(facts: Iterable[dict[str, Any]]) -> list[str]:
    return [fact["moving"] for fact in facts if fact.get("moving")]


def _with_facts(facts: list[dict[str, Any]], wanted: Wanted, **found: Any) -> Collapsed:
    """Return a batch with its combined facts."""
    if errors := sorted(f["error"] for f in facts if "error" in f):
        raise SourceError(errors[0][1], errors[0][2])
    tally = Tally.together(f for f in facts if "good" in f)
    order = {name: sum(f.get(name, 0) for f in facts) for name in ("out_of_sequence", "passed")}
    return Collapsed(tally.seen(wanted.quantiles) | order, bad=tally.bad, **found)
