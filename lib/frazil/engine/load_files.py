"""A table's files as data files, each row as it is: read and typed by the core, in this process or in Spark's tasks.

Where Spark has to write the data files, the rows are a frame. Nothing is committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from frazil.config.lake_types import OPERATION_COLUMNS, lake_type
from frazil.config.spec import TableSpec
from frazil.config.sql import identifier
from frazil.core.bad_rows import SHOWN
from frazil.core.time_sql import from_micros, micros_type
from frazil.dms.endpoint import SourceTable
from frazil.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.listing import DmsObject, SourceError
from frazil.engine.collapsed_batch import Tally, as_micros, every_of
from frazil.engine.read_files import FileToRead, ReadPlan, plan_files, read_changes
from frazil.engine.write_rows import WritePlan, Written, lake_rows, write_files
from frazil.errors import FrazilError
from frazil.lake import jvm, jvm_data_files, merge
from frazil.lake.small_frames import of_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from frazil.lake.jvm import JavaTable


IN_PROCESS = 32 << 20
"""Maximum bytes of load files that this process reads itself.

A Spark job takes a second to start, with a Python process for each core.
"""
LEAST_GROUP, MOST_GROUP = 32 << 20, 256 << 20
"""Approximate bytes of files that one task reads.

Each task writes its own data file: fewer bytes make small files, more make slow tasks.
"""


def why_spark_writes(table: JavaTable) -> str:
    """Return why Spark has to write this table's data files; empty: PyIceberg writes them."""
    return "the table is sorted" if table.sortOrder().isSorted() else jvm_data_files.why_not_pyiceberg(table)


@dataclass(frozen=True)
class FilesToWrite:
    """Load files (phase 0) or change files (phase 1) of a table; up to `most_bad` bad rows of each file are kept.

    `in_process`: this process reads them, however large they are.
    """

    source: SourceTable
    files: Sequence[DmsObject]
    phase: int = LOAD_PHASE
    most_bad: int = SHOWN
    in_process: bool = False


def write_data_files(spark: SparkSession, table: JavaTable, given: FilesToWrite) -> Written:
    """Write the good rows of files as data files of a table, each row as it is, or return them as a frame for Spark.

    Raises FrazilError for a file that cannot be read; the error names it.
    """
    files = sorted(given.files, key=lambda f: f.name) if given.phase == CHANGE_PHASE else given.files
    planned, read = plan_files(given.source, files, given.phase)
    size = sum(f.size for f in files)
    write = write_plan(spark, table, given.most_bad, every_of(size))
    groups = groups_of(planned, [f.size for f in files], spark.sparkContext.defaultParallelism)
    is_here = given.in_process or size <= IN_PROCESS
    if why_spark_writes(table):
        if is_here:
            return frame_here(spark, planned, read, write)
        return frame_by_tasks(spark, groups, read, write)
    if is_here:
        return write_files(planned, read, write)
    return write_in_tasks(spark, groups, read, write)


def put(spark: SparkSession, branch: str, written: Written, summary: dict[str, str], replace: bool = False) -> None:
    """Add what was written to a branch, or let Spark write it there; with `replace` it replaces all other rows."""
    if written.frame is None:
        jvm_data_files.put(spark, branch, written.entries, summary, replace)
    else:
        merge.replace_rows(spark, branch, written.frame, summary, empty_first=replace)


def write_plan(spark: SparkSession, table: JavaTable, most_bad: int = SHOWN, every: int = 1) -> WritePlan:
    """Return what a task needs to write data files of a table."""
    metadata, storage = jvm.metadata_json(spark, table), jvm_data_files.storage_properties(table)
    return WritePlan(metadata, storage, most_bad, every)


def groups_of(
    files: Sequence[FileToRead], sizes: Sequence[int], cores: int, least: int = LEAST_GROUP
) -> list[list[FileToRead]]:
    """Return files in a group for each task, of `least` bytes or more.

    The largest comes first; each joins the smallest group so far.
    """
    total = sum(sizes)
    wanted = max(min(cores, total // least), total // MOST_GROUP, 1)
    groups: list[list[FileToRead]] = [[] for _ in range(min(wanted, len(files)))]
    by_bytes = [(0, number) for number in range(len(groups))]
    for size, file in sorted(zip(sizes, files, strict=True), key=lambda pair: -pair[0]):
        there, smallest = by_bytes[0]
        groups[smallest].append(file)
        heapreplace(by_bytes, (there + size, smallest))
    return groups


def delete_written(table: JavaTable, written: Written) -> None:
    """Delete data files that nothing will reference."""
    for entry in written.entries:
        table.io().deleteFile(entry["file-path"])


Groups = Sequence[Sequence[FileToRead]]
"""Files to read, in a group for each task."""


def write_in_tasks(spark: SparkSession, groups: Groups, read: ReadPlan, write: WritePlan) -> Written:
    """Write the rows of files as data files of a table, a task for each group of files. Nothing is committed."""
    results = of_tasks(spark, groups, lambda files: write_files(files, read, write).to_dict())
    return Written.together(results, [file for group in groups for file in group])


def of_tasks(
    spark: SparkSession, groups: Groups, work: Callable[[Sequence[FileToRead]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what `work` returns for each group of files, in a task for each; JSON must be able to hold it.

    Raises SourceError for a file that cannot be read.
    """
    job = spark.range(0, len(groups), 1, len(groups)).mapInArrow(_task(groups, work), "result string")
    results = [json.loads(row.result) for row in job.collect()]
    if errors := sorted(result["error"] for result in results if "error" in result):
        raise SourceError(errors[0][1], errors[0][2])
    return results


def _task(groups: Groups, work: Callable[[Sequence[FileToRead]], dict[str, Any]]) -> Callable:
    """Return the function of a task: from the numbers of its groups to one JSON text for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    result = work(groups[number])
                except FrazilError as error:  # its class would not survive the way to the driver
                    result = {"error": [groups[number][0].order, error.problem, error.cure]}
                yield pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})

    return run


def frame_by_tasks(spark: SparkSession, groups: Groups, read: ReadPlan, write: WritePlan) -> Written:
    """Return the good rows of files as a frame. Tasks read the files twice: for the figures, then for the rows."""
    figures = of_tasks(spark, groups, lambda files: _count_rows(files, read, write).to_dict())
    kinds = ", ".join(f"c{i} {micros_type(kind)}" for i, (_, kind) in enumerate(_columns(read.spec)))
    rows = spark.range(0, len(groups), 1, len(groups)).mapInArrow(_reading_rows(groups, read), kinds)
    files = [file for group in groups for file in group]
    return Written([], Tally.together(figures), files, _named(rows, read.spec))


def frame_here(spark: SparkSession, files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Written:
    """Return the good rows of a few files as a frame, read by this process."""
    import pyarrow as pa

    tally = Tally(write.most_bad, write.every)
    rows = list(_rows_of(files, read, tally))
    return Written([], tally, files, _named(of_arrow(spark, pa.Table.from_batches(rows)), read.spec))


def _count_rows(files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Tally:
    tally = Tally(write.most_bad, write.every)
    for _ in _rows_of(files, read, tally):
        pass
    return tally


def _reading_rows(groups: Groups, read: ReadPlan) -> Callable:
    """Return the function of a task: from the numbers of its groups to the rows of their files."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _rows_of(groups[number], read, Tally())

    return run


def _rows_of(files: Sequence[FileToRead], read: ReadPlan, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files as `c0` …, with times as microseconds: Spark would shift them by its session's zone."""
    import pyarrow as pa

    names = [name for name, _ in _columns(read.spec)]
    for file in files:
        for changes in read_changes(file, read):
            tally.add(file.order, changes, file.written_at_s)
            columns = lake_rows(changes.rows, read.spec, names, file.path).columns
            columns = [*map(as_micros, columns)]
            yield pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])


def _columns(spec: TableSpec) -> list[tuple[str, str]]:
    """Return the names and the Spark types of the columns of a table's rows."""
    more = [(name, kind) for name, (kind, _) in OPERATION_COLUMNS.items()] if spec.policy == "append" else []
    return [(column.name, lake_type(column)) for column in spec.columns] + more


def _named(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Return rows under their own names, with times."""
    columns = enumerate(_columns(spec))
    return rows.selectExpr(*[f"{from_micros(kind, f'c{i}')} as {identifier(name)}" for i, (name, kind) in columns])
