"""A large batch of change files as a Spark job.

Tasks read and type the files, exchange blocks by key, and keep the last change per key. `message_blocks` does the same
with messages.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.core.changes import Changes
from frazil_old.dms.endpoint import SourceTable
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.file_order import in_order
from frazil_old.dms.listing import DmsObject
from frazil_old.engine.collapsed_batch import Collapsed, Tally, Wanted, bounds
from frazil_old.engine.kept_batch import (
    KeptBatch,
    kept_rows,
    moved_rows,
    moving_of_bucket,
    report_row,
    rows_here,
    schema_of,
    transient_key_rows,
)
from frazil_old.engine.latency_sketch import every_of
from frazil_old.engine.read_files import FileToRead, plan_files, read_changes
from frazil_old.engine.row_form import BLOCK_SCHEMA, RowForm, bucket_of_each_partition, from_blocks, to_blocks
from frazil_old.engine.tasks import ReadFailure, groups_of, of_groups, values_of
from frazil_old.errors import FrazilError
from frazil_old.lake.small_frames import collect_arrow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LEAST_GROUP = 8 << 20
"""Minimum bytes of change files that one task reads."""
BUCKET_BYTES = 48 << 20
"""Approximate bytes of change files whose rows one task orders."""
REPORT = -1
"""The bucket of what tasks report of their files; all others contain rows."""


def collapse_files(spark: SparkSession, table: SourceTable, files: Sequence[DmsObject], wanted: Wanted) -> Collapsed:
    """Return the last change per key of change files, and their bad rows: the rows in the driver, or a frame.

    Spark keeps the frame. Raises FrazilError for a file that cannot be read.
    """
    ordered = in_order(files)
    planned, read = plan_files(table, ordered, CHANGE_PHASE)
    size, cores, most_bad = sum(f.size for f in files), spark.sparkContext.defaultParallelism, wanted.most_bad
    groups = groups_of(planned, [f.size for f in ordered], cores, LEAST_GROUP)
    partitions = max(cores, size // BUCKET_BYTES)
    every, buckets = every_of(size), bucket_of_each_partition(spark, partitions)

    def blocks_of(group: Sequence[FileToRead]) -> Iterator[pa.RecordBatch]:
        for file in group:
            parts = ((changes, file.order, file.written_at_s) for changes in read_changes(file, read))
            try:
                yield from counted_blocks(parts, read.spec, buckets, Tally(most_bad, every))
            except FrazilError as error:
                yield _report(ReadFailure(file.order, error.problem, error.cure))

    blocks = of_groups(spark, groups, blocks_of, BLOCK_SCHEMA)
    return replace(collapse_blocks(blocks, RowForm(read.spec, wanted.places), partitions, wanted), files=planned)


def collapse_blocks(read: DataFrame, form: RowForm, partitions: int, wanted: Wanted) -> Collapsed:
    """Return the last change per key of a frame of `counted_blocks`, whose buckets are those of `partitions`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    ordered = ordering(form, with_keys=not wanted.rows_in_driver)
    job = read.repartition(partitions, "bucket").mapInArrow(ordered, from_arrow_schema(schema_of(form)))
    if wanted.rows_in_driver:
        return collapsed_rows(collect_arrow(job), form, wanted)
    kept, found = KeptBatch(job.persist(), form, partitions), None
    try:
        reports, keys, ends = kept.reports()
        kept = replace(kept, stored_keys=moved_rows(_moving(reports), form))
        frames = {"frame": kept.rows(), "transient_keys": kept.transient_keys(), "release": kept.frame.unpersist}
        found = _with_reports(reports, wanted, keys=keys, bounds=ends, kept=kept, **frames)
        return found
    finally:
        if found is None:
            kept.frame.unpersist()


def collapsed_rows(found: pa.Table, form: RowForm, wanted: Wanted) -> Collapsed:
    """Return the result of `ordering` tasks whose blocks are in this process."""
    import pyarrow.compute as pc

    reports, blocks = values_of(found["report"].drop_null().to_pylist()), found.filter(pc.is_valid(found["block"]))
    rows = rows_here(blocks.filter(pc.is_valid(blocks["n"])), form, moved_rows(_moving(reports), form))
    transient = rows_here(blocks.filter(pc.is_null(blocks["n"])), form)
    ends = bounds(rows, form.spec)
    return _with_reports(reports, wanted, rows=rows, keys=len(rows), bounds=ends, transient_keys=transient)


# --- what tasks do


def counted_blocks(
    parts: Iterable[tuple[Changes, int, float | np.ndarray]], spec: TableSpec, buckets: Sequence[int], tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Yield good changes as blocks by bucket, then their tally.

    Each part is some changes, their place in the order, and when DMS wrote them.
    """
    for changes, order, written_at_s in parts:
        tally.add(order, changes, written_at_s)
        blocks = to_blocks(changes.rows, order, spec, len(buckets))
        if rows := [(buckets[bucket], block) for bucket, block in blocks]:
            yield _rows_of(rows)
    yield _report(tally)


def _report(report: Any) -> pa.RecordBatch:
    return _rows_of([(REPORT, pickle.dumps(report))])


def _rows_of(rows: list[tuple[int, bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    buckets, blocks = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(buckets, pa.int32()), pa.array(blocks, pa.binary())], ["bucket", "block"]
    )


def ordering(form: RowForm, with_keys: bool) -> Callable:
    """Return the function of an ordering task: from the blocks of its buckets to rows of `kept_batch.schema_of`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: dict[int, list[bytes]] = {}
        for batch in batches:
            for bucket, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                if bucket == REPORT:
                    yield report_row(block.as_py(), form)
                else:
                    blocks.setdefault(bucket, []).append(block.as_buffer())
        for bucket in list(blocks):
            latest = from_blocks(blocks.pop(bucket), form.spec)
            rows, transient = form.rows_of(latest.rows), form.rows_of(latest.transient_keys)
            moving = moving_of_bucket(bucket, latest, rows, form)
            yield report_row(pickle.dumps(_BucketReport(latest.out_of_sequence, len(transient), moving)), form)
            yield from kept_rows(bucket, rows, form, with_keys)
            yield from transient_key_rows(transient, form)

    return run


@dataclass(frozen=True)
class _BucketReport:
    """What a task reports of a bucket: two counts, and its `moving_of_bucket`."""

    out_of_sequence: int
    transient_keys: int
    moving: pa.Table | None


def _moving(reports: Iterable[Any]) -> list[pa.Table]:
    return [of.moving for of in reports if isinstance(of, _BucketReport) and of.moving is not None]


def _with_reports(reports: list[Any], wanted: Wanted, **found: Any) -> Collapsed:
    """Return a batch with its combined reports."""
    tally = Tally(wanted.most_bad).with_parts(report for report in reports if isinstance(report, Tally))
    of_buckets = [report for report in reports if isinstance(report, _BucketReport)]
    order = (sum(report.out_of_sequence for report in of_buckets), sum(report.transient_keys for report in of_buckets))
    return Collapsed(tally.counts_and_delays(*order), bad=tally.bad, **found)
