"""Work on groups of files in Spark's tasks, and what tasks return to the driver: Python's own values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from frazil_old.dms.source_errors import SourceError
from frazil_old.engine.read_files import FileToRead
from frazil_old.errors import FrazilError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LEAST_GROUP, MOST_GROUP = 32 << 20, 256 << 20
"""Approximate bytes of files that one task reads.

Each task writes its own data file: fewer bytes make small files, more make slow tasks.
"""
Groups = Sequence[Sequence[FileToRead]]
"""Files to read, in a group for each task."""


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


def of_groups(
    spark: SparkSession, groups: Groups, work: Callable[[Sequence[FileToRead]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return the rows that `work` yields for each group of files, in a task for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(groups[number])

    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(run, schema)


def results_of_groups(spark: SparkSession, groups: Groups, work: Callable[[Sequence[FileToRead]], Any]) -> list[Any]:
    """Return what `work` returns for each group of files, in a task for each.

    Raises SourceError for a file that cannot be read.
    """

    def run(group: Sequence[FileToRead]) -> Iterator[pa.RecordBatch]:
        try:
            result = work(group)
        except FrazilError as error:
            result = ReadFailure(group[0].order, error.problem, error.cure)
        yield _row(result)

    return _collected(of_groups(spark, groups, run, "result binary"))


def results_of(rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Any]) -> list[Any]:
    """Return what `work` returns for the rows of each task."""
    return _collected(rows.mapInArrow(lambda batches: iter([_row(work(batches))]), "result binary"))


def _row(result: Any) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})


def _collected(results: DataFrame) -> list[Any]:
    return values_of(row.result for row in results.collect())


@dataclass(frozen=True, order=True)
class ReadFailure:
    """Why a task cannot read a file, by its place in the order: an error's class would not survive the way to the driver."""

    order: int
    problem: str
    cure: str


def values_of(pickled: Iterable[bytes]) -> list[Any]:
    """Return the values of tasks; raise SourceError for the first file that cannot be read."""
    values = [pickle.loads(value) for value in pickled]
    if failures := [value for value in values if isinstance(value, ReadFailure)]:
        first = min(failures)
        raise SourceError(first.problem, first.cure)
    return values
