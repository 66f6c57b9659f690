"""A large batch as a Spark job: each task reads its files, types them and writes data files; rows never enter the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.changes import BadRow
from frazil.core.masks import masked
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SHOWN = 20
"""Bad rows of one file that come to the driver with their reason; all are counted."""


@dataclass(frozen=True)
class WritePlan:
    """The table that tasks write to: its metadata as JSON, and the properties by which PyIceberg opens its storage."""

    metadata: str
    io_properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """What a job wrote: data files as Iceberg's JSON has them, and how many rows were good and bad, with the first bad ones by file."""

    entries: list[dict[str, Any]]
    good: int = 0
    bad: int = 0
    first_bad: dict[int, list[BadRow]] = field(default_factory=dict)


def load_files(spark: SparkSession, files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Written:
    """Write the rows of load files as data files of a table, a task for each file. Nothing is committed."""
    job = spark.range(0, len(files), 1, len(files)).mapInArrow(load_task(list(files), read, write), "result string")
    results = [json.loads(row.result) for row in job.collect()]
    return _together(results)


def _together(results: list[dict[str, Any]]) -> Written:
    return Written(
        [entry for r in results for entry in r["entries"]],
        sum(r["good"] for r in results),
        sum(r["bad"] for r in results),
        {r["file"]: [BadRow(**b) for b in r["first_bad"]] for r in results if r["bad"]},
    )


def load_task(files: list[FileToRead], read: ReadPlan, write: WritePlan) -> Callable:
    """Return the function of a task: it takes the numbers of its files and gives one JSON text for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = _load_file(files[number], read, write) | {"file": number}
                yield pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})

    return run


def _load_file(file: FileToRead, read: ReadPlan, write: WritePlan) -> dict[str, Any]:
    writer = _writer(write)
    good, bad, first = 0, 0, []
    for changes in read_changes(file, read):
        writer.write(lake_rows(changes.rows, read.spec))
        good += changes.rows.num_rows
        bad += len(changes.bad)
        first += changes.bad[: SHOWN - len(first)]
    return {"entries": writer.close(), "good": good, "bad": bad, "first_bad": [asdict(b) for b in first]}


def _writer(write: WritePlan) -> Any:
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil

    from frazil.lake.data_files import DataFileWriter

    metadata = TableMetadataUtil.parse_raw(write.metadata)
    return DataFileWriter(metadata, load_file_io(write.io_properties, metadata.location))


def lake_rows(rows: pa.RecordBatch, spec: TableSpec) -> pa.RecordBatch:
    """Return the columns of changes as the lake has them: by name, masked where the spec says so."""
    import pyarrow as pa

    columns = [masked(c, rows[f"new_{i}"]) for i, c in enumerate(spec.columns)]
    return pa.RecordBatch.from_arrays(columns, spec.names)
