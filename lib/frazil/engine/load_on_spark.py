"""The files of a table as a Spark job: each task reads some of them; their rows stay outside the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from frazil.dms.listing import SourceError
from frazil.engine.read_plan import FileToRead, ReadPlan
from frazil.engine.write_rows import WritePlan, Written, write_files
from frazil.errors import FrazilError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Groups = Sequence[Sequence[FileToRead]]


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
