"""A table's files as data files, each row as it is: read and typed by the core, in this process or in Spark's tasks.

Where Spark has to write the data files, the rows are a frame. Nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil_old.config.lake_types import OPERATION_COLUMNS, lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier
from frazil_old.config.time_sql import from_micros, micros_type
from frazil_old.core.bad_rows import SHOWN
from frazil_old.dms.endpoint import SourceTable
from frazil_old.dms.file_integrity import FileWatch
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.file_order import in_order
from frazil_old.dms.listing import DmsObject
from frazil_old.engine.collapsed_batch import Tally, as_micros
from frazil_old.engine.latency_sketch import every_of
from frazil_old.engine.read_files import FileToRead, ReadPlan, plan_files, read_changes
from frazil_old.engine.tasks import Groups, groups_of, of_groups, results_of_groups
from frazil_old.engine.write_rows import WritePlan, Written, lake_rows, write_files
from frazil_old.lake import jvm, jvm_data_files, merge
from frazil_old.lake.jvm_data_files import why_spark_writes
from frazil_old.lake.small_frames import of_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from frazil_old.lake.jvm import JavaTable


IN_PROCESS = 32 << 20
"""Maximum bytes of load files that this process reads itself.

A Spark job takes a second to start, with a Python process for each core.
"""


@dataclass(frozen=True)
class FilesToWrite:
    """Load files (phase 0) or change files (phase 1) of a table; up to `most_bad` bad rows of each file are kept.

    `read_here`: this process reads them, however large they are.
    """

    source: SourceTable
    files: Sequence[DmsObject]
    phase: int = LOAD_PHASE
    most_bad: int = SHOWN
    read_here: bool = False


def write_data_files(spark: SparkSession, table: JavaTable, given: FilesToWrite) -> Written:
    """Write the good rows of files as data files of a table, each row as it is, or return them as a frame for Spark.

    Raises FrazilError for a file that cannot be read; the error names it.
    """
    files = in_order(given.files) if given.phase == CHANGE_PHASE else given.files
    planned, read = plan_files(given.source, files, given.phase)
    size = sum(f.size for f in files)
    write = write_plan(spark, table, given.most_bad, every_of(size))
    groups = groups_of(planned, [f.size for f in files], spark.sparkContext.defaultParallelism)
    is_here = given.read_here or size <= IN_PROCESS
    if why_spark_writes(table):
        if is_here:
            return frame_here(spark, planned, read, write)
        return frame_by_tasks(spark, groups, read, write)
    if is_here:
        return Written(*write_files(planned, read, write), planned)
    return write_in_tasks(spark, groups, read, write)


def put(
    spark: SparkSession, branch: str, written: Written, summary: dict[str, str], watch: FileWatch, replace: bool = False
) -> None:
    """Add what was written to a branch, or let Spark write it there; with `replace` it replaces all other rows.

    Spark reads the files again: raise SourceError unless they are still as listed (`watch`).
    """
    if written.frame is None:
        jvm_data_files.put(spark, branch, written.entries, summary, replace)
    else:
        merge.replace_rows(spark, branch, written.frame, summary, empty_first=replace)
        watch.require_unchanged()


def write_plan(spark: SparkSession, table: JavaTable, most_bad: int = SHOWN, every: int = 1) -> WritePlan:
    """Return what a task needs to write data files of a table."""
    metadata, storage = jvm.metadata_json(spark, table), jvm_data_files.storage_properties(table)
    return WritePlan(metadata, storage, most_bad, every)


def delete_written(table: JavaTable, written: Written) -> None:
    """Delete data files that nothing will reference."""
    for entry in written.entries:
        table.io().deleteFile(entry["file-path"])


def write_in_tasks(spark: SparkSession, groups: Groups, read: ReadPlan, write: WritePlan) -> Written:
    """Write the rows of files as data files of a table, a task for each group of files. Nothing is committed."""
    results = results_of_groups(spark, groups, lambda files: write_files(files, read, write))
    entries = [entry for of_group, _ in results for entry in of_group]
    tally = Tally(write.most_bad).with_parts(tally for _, tally in results)
    return Written(entries, tally, [file for group in groups for file in group])


def frame_by_tasks(spark: SparkSession, groups: Groups, read: ReadPlan, write: WritePlan) -> Written:
    """Return the good rows of files as a frame. Tasks read the files twice: for the figures, then for the rows."""
    figures = results_of_groups(spark, groups, lambda files: _count_rows(files, read, write))
    kinds = ", ".join(f"c{i} {micros_type(kind)}" for i, (_, kind) in enumerate(_columns(read.spec)))
    rows = of_groups(spark, groups, lambda files: _rows_of(files, read, Tally()), kinds)
    files = [file for group in groups for file in group]
    return Written([], Tally(write.most_bad).with_parts(figures), files, _named(rows, read.spec))


def frame_here(spark: SparkSession, files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Written:
    """Return the good rows of a few files as a frame, read by this process; no frame if there are none."""
    import pyarrow as pa

    tally = Tally(write.most_bad, write.every)
    rows = list(_rows_of(files, read, tally))
    frame = _named(of_arrow(spark, pa.Table.from_batches(rows)), read.spec) if rows else None
    return Written([], tally, files, frame)


def _count_rows(files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Tally:
    tally = Tally(write.most_bad, write.every)
    for _ in _rows_of(files, read, tally):
        pass
    return tally


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
