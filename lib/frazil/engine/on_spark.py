"""A large load as a Spark job: each task reads its files, types them and writes data files; rows never enter the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from frazil.dms.objects import SourceError
from frazil.engine.read_files import FileToRead, ReadPlan
from frazil.engine.write_rows import WritePlan, Written, write_files
from frazil.errors import FrazilError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def load_files(
    spark: SparkSession, groups: Sequence[Sequence[FileToRead]], read: ReadPlan, write: WritePlan
) -> Written:
    """Write the rows of load files as data files of a table, a task for each group of files. Nothing is committed."""
    job = spark.range(0, len(groups), 1, len(groups)).mapInArrow(load_task(groups, read, write), "result string")
    results = [json.loads(row.result) for row in job.collect()]
    if errors := sorted(result["error"] for result in results if "error" in result):
        raise SourceError(errors[0][1], errors[0][2])
    return Written.together(results, [file for group in groups for file in group])


def load_task(groups: Sequence[Sequence[FileToRead]], read: ReadPlan, write: WritePlan) -> Callable:
    """Return the function of a task: from the numbers of its groups to one JSON text for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    result = write_files(groups[number], read, write).to_dict()
                except FrazilError as error:  # its class would not survive the way to the driver
                    result = {"error": [groups[number][0].order, error.problem, error.cure]}
                yield pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})

    return run
