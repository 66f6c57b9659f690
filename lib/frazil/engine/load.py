"""A table's files as data files, each row as it is: read and typed by the core, in this process or in Spark's tasks.

Nothing is committed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from frazil.config.paths import local_path
from frazil.config.spec import TableSpec
from frazil.core.bad_rows import SHOWN
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.objects import DmsObject
from frazil.dms.storage import endpoint_url
from frazil.engine.file_plan import plan_files
from frazil.engine.read_files import FileToRead
from frazil.engine.tally import every_of
from frazil.engine.write_rows import WritePlan, Written, write_elsewhere, write_files

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


def why_not(table: JavaTable) -> str:
    """Return why the core does not write this table's data files yet; empty if it does."""
    if not all(find_spec(name) for name in ("pyarrow", "pyiceberg")):
        return "pyarrow or pyiceberg is not installed"
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

    spec: TableSpec
    files: Sequence[DmsObject]
    phase: int = LOAD_PHASE
    most_bad: int = SHOWN
    in_process: bool = False


def write_data_files(
    spark: SparkSession, table: JavaTable, given: FilesToWrite, sent: tuple[Endpoint, Mappings]
) -> Written:
    """Write the good rows of files as data files of a table, each row as it is.

    Raises FrazilError for a file that cannot be read; the error names it.
    """
    files = sorted(given.files, key=lambda f: f.name) if given.phase == CHANGE_PHASE else given.files
    planned, read = plan_files(given.spec, *sent, files, given.phase)
    size = sum(f.size for f in files)
    write = _write_plan(spark, table, given.most_bad, every_of(size))
    if given.in_process or size <= IN_PROCESS:
        return write_files(planned, read, write)
    from frazil.engine.on_spark import load_files

    sizes = [f.size for f in files]
    return load_files(spark, groups_of(planned, sizes, spark.sparkContext.defaultParallelism), read, write)


def _write_plan(spark: SparkSession, table: JavaTable, most_bad: int = SHOWN, every: int = 1) -> WritePlan:
    from frazil.lake.jvm import package

    to_json = package(spark, "org.apache.iceberg").TableMetadataParser.toJson
    return WritePlan(to_json(table.operations().current()), storage_properties(table), most_bad, every)


def write_sample(
    spark: SparkSession, table: JavaTable, spec: TableSpec, rows: pa.Table, folder: str
) -> list[dict[str, Any]]:
    """Write rows as data files of a table, but into a local folder; return them in Iceberg's JSON form."""
    return write_elsewhere(rows, spec, _write_plan(spark, table), folder)


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
    bytes_of = [0] * len(groups)
    for size, file in sorted(zip(sizes, files, strict=True), key=lambda pair: -pair[0]):
        smallest = bytes_of.index(min(bytes_of))
        groups[smallest].append(file)
        bytes_of[smallest] += size
    return groups


def delete_written(table: JavaTable, written: Written) -> None:
    """Delete data files that nothing will reference."""
    for entry in written.entries:
        table.io().deleteFile(entry["file-path"])
