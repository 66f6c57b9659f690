"""A table's files as data files, each row as it is: read and typed by the core, in this process or in Spark's tasks.

Where Spark has to write the data files, the rows are a frame. Nothing is committed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from frazil.config.paths import local_path
from frazil.config.spec import TableSpec
from frazil.core.bad_rows import SHOWN
from frazil.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.listing import DmsObject
from frazil.dms.source_table import SourceTable
from frazil.dms.storage import endpoint_url
from frazil.engine.read_counts import every_of
from frazil.engine.read_plan import FileToRead, plan_files
from frazil.engine.write_rows import WritePlan, Written, write_elsewhere, write_files
from frazil.lake import jvm_data_files, merge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
    if table.sortOrder().isSorted():
        return "the table is sorted"
    properties = table.properties()
    form, places = properties.get("write.format.default"), properties.get("write.location-provider.impl")
    if form not in (None, "parquet") or places:
        return "its data files are not written in the usual way"
    return "" if _is_plain(table.location()) else "its location is none that PyIceberg writes to as Spark does"


def _is_plain(location: str) -> bool:
    """Return whether PyIceberg reads a location as Spark does: a folder or S3, with no characters that a URI escapes."""
    known = local_path(location) is not None or location.startswith(("s3://", "s3a://"))
    return known and not re.search("[?#%]", location)


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
        from frazil.engine import row_frame

        if is_here:
            return row_frame.in_process(spark, planned, read, write)
        return row_frame.by_tasks(spark, groups, read, write)
    if is_here:
        return write_files(planned, read, write)
    from frazil.engine.load_on_spark import write_in_tasks

    return write_in_tasks(spark, groups, read, write)


def put(spark: SparkSession, branch: str, written: Written, summary: dict[str, str], replace: bool = False) -> None:
    """Add what was written to a branch, or let Spark write it there; with `replace` it replaces all other rows."""
    if written.frame is None:
        jvm_data_files.put(spark, branch, written.entries, summary, replace)
    else:
        merge.replace_rows(spark, branch, written.frame, summary, empty_first=replace)


def write_plan(spark: SparkSession, table: JavaTable, most_bad: int = SHOWN, every: int = 1) -> WritePlan:
    """Return what a task needs to write data files of a table."""
    from frazil.lake.jvm import package

    to_json = package(spark, "org.apache.iceberg").TableMetadataParser.toJson
    return WritePlan(to_json(table.operations().current()), storage_properties(table), most_bad, every)


def write_sample(
    spark: SparkSession, table: JavaTable, spec: TableSpec, rows: pa.Table, folder: str
) -> list[dict[str, Any]]:
    """Write rows as data files of a table, but into a local folder; return them in Iceberg's JSON form."""
    return write_elsewhere(rows, spec, write_plan(spark, table), folder)


def storage_properties(table: JavaTable) -> dict[str, str]:
    """Return how PyIceberg opens a table's storage: as the catalog says, at the S3 endpoint that the environment names.

    Credentials from the catalog are included; others are found where AWS's libraries look for them.
    """
    found = {k: v for k, v in dict(table.io().properties()).items() if k.startswith(("s3.", "client."))}
    return ({"s3.endpoint": endpoint_url()} if endpoint_url() else {}) | found


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
