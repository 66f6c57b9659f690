"""The rows of a table's files as a frame, for tables whose data files Spark has to write: sorted ones, ORC, other places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from frazil.config.lake_types import OPERATION_COLUMNS, lake_type
from frazil.config.spec import TableSpec
from frazil.config.sql import identifier
from frazil.core.time_sql import from_micros, micros_type
from frazil.engine.collapsed_batch import as_micros
from frazil.engine.load_on_spark import Groups, of_tasks
from frazil.engine.read_counts import Tally
from frazil.engine.read_files import read_changes
from frazil.engine.read_plan import FileToRead, ReadPlan
from frazil.engine.write_rows import WritePlan, Written, lake_rows
from frazil.lake.small_frames import of_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def by_tasks(spark: SparkSession, groups: Groups, read: ReadPlan, write: WritePlan) -> Written:
    """Return the good rows of files as a frame. Tasks read the files twice: for the figures, then for the rows."""
    figures = of_tasks(spark, groups, lambda files: _count(files, read, write).to_dict())
    kinds = ", ".join(f"c{i} {micros_type(kind)}" for i, (_, kind) in enumerate(_columns(read.spec)))
    rows = spark.range(0, len(groups), 1, len(groups)).mapInArrow(_reading(groups, read), kinds)
    files = [file for group in groups for file in group]
    return Written([], Tally.together(figures), files, _named(rows, read.spec))


def in_process(spark: SparkSession, files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Written:
    """Return the good rows of a few files as a frame, read by this process."""
    import pyarrow as pa

    tally = Tally(write.most_bad, write.every)
    rows = list(_rows_of(files, read, tally))
    return Written([], tally, files, _named(of_arrow(spark, pa.Table.from_batches(rows)), read.spec))


def _count(files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Tally:
    tally = Tally(write.most_bad, write.every)
    for _ in _rows_of(files, read, tally):
        pass
    return tally


def _reading(groups: Groups, read: ReadPlan) -> Callable:
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
