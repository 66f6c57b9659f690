"""Iceberg's Java API for data files that were written outside it: from JSON to a commit on a branch."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil_old.config.paths import local_path
from frazil_old.dms.storage import endpoint_url
from frazil_old.lake.jvm import AT_ONCE, Handles, JavaTable, for_each, load_table, package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JACKSON = "org.apache.iceberg.shaded.com.fasterxml.jackson"
PLAIN = ("boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "binary")
"""Iceberg's types whose values Arrow reads and writes as Spark does; decimals are too."""


def why_not_pyiceberg(table: JavaTable) -> str:
    """Return why PyIceberg cannot write data files of a table as Spark does; empty: it can."""
    properties = table.properties()
    form, places = properties.get("write.format.default"), properties.get("write.location-provider.impl")
    if form not in (None, "parquet") or places:
        return "its data files are not written in the usual way"
    location = table.location()
    is_known = local_path(location) is not None or location.startswith(("s3://", "s3a://"))
    if is_known and not re.search("[?#%]", location):  # a URI escapes these characters
        return ""
    return "its location is none that PyIceberg writes to as Spark does"


def why_by_iceberg(spark: SparkSession, table: JavaTable) -> str:
    """Return why only Spark can rewrite data files of a table without a change of a value; empty: Arrow can, too."""
    if reason := why_not_pyiceberg(table):
        return reason
    if table.properties().get("schema.name-mapping.default"):
        return "its data files may lack field ids"
    fields = json.loads(package(spark, "org.apache.iceberg").SchemaParser.toJson(table.schema()))["fields"]
    for field in fields:
        kind = field["type"]
        is_plain = isinstance(kind, str) and (kind in PLAIN or kind.startswith("decimal"))
        if not is_plain or "initial-default" in field:
            return f"column {field['name']} has a default or the type {kind if isinstance(kind, str) else kind['type']}"
    return ""


def storage_properties(table: JavaTable) -> dict[str, str]:
    """Return how PyIceberg opens a table's storage: as the catalog says, at the S3 endpoint that the environment names.

    Credentials from the catalog are included; others are found where AWS's libraries look for them.
    """
    found = {k: v for k, v in dict(table.io().properties()).items() if k.startswith(("s3.", "client."))}
    return ({"s3.endpoint": endpoint_url()} if endpoint_url() else {}) | found


class ScanTasks:
    """Makes a table's scan tasks from Iceberg's JSON: one call then gives a data file, a partition or many delete files."""

    def __init__(self, spark: SparkSession, table: JavaTable):
        self._ice, self._table = package(spark, "org.apache.iceberg"), table
        self._schema = json.loads(self._ice.SchemaParser.toJson(table.schema()))
        self._specs: dict[int, Any] = {}

    def of(self, file: dict[str, Any], deletes: Sequence[dict[str, Any]] = ()) -> Any:
        """Return the scan task of a data file and its delete files."""
        number = file["spec-id"]
        if number not in self._specs:
            text = self._ice.PartitionSpecParser.toJson(self._table.specs().get(number))
            self._specs[number] = json.loads(text)
        task = {
            "task-type": "file-scan-task", "schema": self._schema, "spec": self._specs[number], "data-file": file,
            "start": 0, "length": file["file-size-in-bytes"], "delete-files": list(deletes),
        }  # fmt: skip
        return self._ice.ScanTaskParser.fromJson(json.dumps(task), True)


def from_json(spark: SparkSession, table: JavaTable, entries: list[dict[str, Any]]) -> Any:
    """Return data files as a Java list, including metrics and partitions."""
    found = package(spark, "java.util").ArrayList()
    mapper = package(spark, f"{_JACKSON}.databind").ObjectMapper()
    for number in dict.fromkeys(entry["spec-id"] for entry in entries):
        each = _adding(spark, table.specs().get(number), found)
        mine = [entry for entry in entries if entry["spec-id"] == number]
        for start in range(0, len(mine), AT_ONCE):
            mapper.readTree(json.dumps(mine[start : start + AT_ONCE])).forEach(each)
    return found


def _adding(spark: SparkSession, spec: Any, found: Any) -> Any:
    """Return a Java Consumer that adds the data file of a JSON node, of this partition spec, to a list."""
    handles, iceberg = Handles(spark), "org.apache.iceberg"
    node, file, of = f"{_JACKSON}.databind.JsonNode", f"{iceberg}.ContentFile", f"{iceberg}.PartitionSpec"
    parse = handles.given(handles.static(f"{iceberg}.ContentFileParser", "fromJson", file, node, of), 1, spec)
    add = handles.bound(found, "add", "boolean", "java.lang.Object")
    return handles.as_lambda("java.util.function.Consumer", handles.chained(parse, add))


def put(
    spark: SparkSession, branch: str, entries: list[dict[str, Any]], summary: dict[str, str], replace: bool = False
) -> None:
    """Add data files to `catalog.namespace.table.branch_<name>` in one snapshot; with `replace` they replace all others."""
    name, ref = branch.rsplit(".branch_", 1)
    table = load_table(spark, name)
    update = table.newOverwrite() if replace else table.newAppend()
    if replace:
        update.overwriteByRowFilter(package(spark, "org.apache.iceberg.expressions").Expressions.alwaysTrue())
    interface, method = ("OverwriteFiles", "addFile") if replace else ("AppendFiles", "appendFile")
    types = f"org.apache.iceberg.{interface}", "org.apache.iceberg.DataFile"
    for_each(spark, from_json(spark, table, entries), update, method, types)
    for key, value in summary.items():
        update.set(key, value)
    update.toBranch(ref).commit()


_PARQUET = "org.apache.iceberg.shaded.org.apache.parquet"


def _no_file(spec_id: int, partition: Any) -> dict[str, Any]:
    """Return a data file in JSON for a scan task of which only the partition or the delete files are wanted."""
    file = {"spec-id": spec_id, "content": "DATA", "file-path": "-", "file-format": "PARQUET",
            "file-size-in-bytes": 1, "record-count": 1}  # fmt: skip
    return file if partition is None else file | {"partition": partition}


def new_location(table: JavaTable, name: str) -> str:
    """Return the table's location for a new file of that name."""
    return table.locationProvider().newDataLocation(name)


def store(spark: SparkSession, table: JavaTable, local: str, location: str) -> None:
    """Copy a local file to its location, over what an attempt left there, through the table's own file access."""
    out = table.io().newOutputFile(location).createOrOverwrite()
    try:
        package(spark, "java.nio.file").Files.copy(package(spark, "java.io").File(local).toPath(), out)
    finally:
        out.close()


def data_file(spark: SparkSession, table: JavaTable, location: str, partition: dict | None) -> tuple[Any, Any]:
    """Return the DataFile of a Parquet file, with the metrics of its footer, and its partition as a scan task's JSON has it."""
    ice, there = package(spark, "org.apache.iceberg"), table.io().newInputFile(location)
    metrics = _metrics(spark, table, there)
    # Not `withInputFile`: it gives a local file a name with a scheme, unlike all others of its table.
    builder = ice.DataFiles.builder(table.spec()).withPath(location).withFileSizeInBytes(there.getLength())
    builder = builder.withFormat("parquet").withMetrics(metrics)
    if partition is None:
        return builder.build(), None
    task = ScanTasks(spark, table).of(_no_file(table.spec().specId(), partition))
    shown = json.loads(ice.ScanTaskParser.toJson(task))["data-file"].get("partition")
    return builder.withPartition(task.file().partition()).build(), shown


def _metrics(spark: SparkSession, table: JavaTable, file: Any) -> Any:
    """Return the column metrics in a Parquet file's footer.

    For each file `fileMetrics` would read all of Hadoop's settings from its jars again. That takes 10 ms, and a local
    file does not need it.
    """
    wanted = package(spark, "org.apache.iceberg").MetricsConfig.forTable(table)
    footers, path = package(spark, "org.apache.iceberg.parquet").ParquetUtil, local_path(file.location())
    if not path:
        return footers.fileMetrics(file, wanted)
    plain = package(spark, f"{_PARQUET}.conf").PlainParquetConfiguration()
    options = package(spark, _PARQUET).ParquetReadOptions.builder(plain).build()
    here = package(spark, f"{_PARQUET}.io").LocalInputFile(package(spark, "java.io").File(path).toPath())
    reader = package(spark, f"{_PARQUET}.hadoop").ParquetFileReader.open(here, options)
    try:
        return footers.footerMetrics(reader.getFooter(), package(spark, "java.util.stream").Stream.empty(), wanted)
    finally:
        reader.close()


def write_file(spark: SparkSession, table: JavaTable, location: str, write) -> int:
    """Let `write(path)` write a file, and store it at the location; return its size."""
    path = local_path(location)
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write(path)
        return os.path.getsize(path)
    with tempfile.NamedTemporaryFile() as temporary:
        write(temporary.name)
        store(spark, table, temporary.name, location)
        return os.path.getsize(temporary.name)


def why_spark_writes(table: JavaTable) -> str:
    """Return why Spark has to write this table's data files; empty: PyIceberg writes them."""
    return "the table is sorted" if table.sortOrder().isSorted() else why_not_pyiceberg(table)
