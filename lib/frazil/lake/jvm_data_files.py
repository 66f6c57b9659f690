"""Iceberg's Java API for data files that were written outside it: from JSON to a commit on a branch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from frazil.lake.jvm import AT_ONCE, JavaTable, chained, for_each, java_class, java_list, load_table, package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JACKSON = "org.apache.iceberg.shaded.com.fasterxml.jackson"


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
    invoke = package(spark, "java.lang.invoke")
    public, kind = invoke.MethodHandles.publicLookup(), invoke.MethodType.methodType
    parser, file, of = (
        java_class(spark, f"org.apache.iceberg.{c}") for c in ("ContentFileParser", "ContentFile", "PartitionSpec")
    )
    takes = java_list(spark, [java_class(spark, f"{_JACKSON}.databind.JsonNode"), of])
    parse = public.findStatic(parser, "fromJson", kind(file, takes))
    given = spark.sparkContext._gateway.new_array(package(spark, "java.lang").Object, 1)
    given[0] = spec
    add = kind(package(spark, "java.lang").Boolean.TYPE, java_class(spark, "java.lang.Object"))
    parse = invoke.MethodHandles.insertArguments(parse, 1, given)
    return chained(spark, "java.util.function.Consumer", parse, public.bind(found, "add", add))


def put(
    spark: SparkSession, branch: str, entries: list[dict[str, Any]], summary: dict[str, str], replace: bool = False
) -> None:
    """Add data files to `catalog.namespace.table.branch_<name>` in one snapshot; with `replace` they replace all others."""
    name, ref = branch.rsplit(".branch_", 1)
    table = load_table(spark, name)
    append(spark, table, ref, from_json(spark, table, entries), summary, replace)


def append(
    spark: SparkSession, table: JavaTable, branch: str, files: Any, summary: dict[str, str], replace: bool = False
) -> None:
    """Add files to a branch in one snapshot; with `replace` they replace all others."""
    update = table.newOverwrite() if replace else table.newAppend()
    if replace:
        update.overwriteByRowFilter(package(spark, "org.apache.iceberg.expressions").Expressions.alwaysTrue())
    interface, method = ("OverwriteFiles", "addFile") if replace else ("AppendFiles", "appendFile")
    for_each(spark, files, update, method, (f"org.apache.iceberg.{interface}", "org.apache.iceberg.DataFile"))
    for key, value in summary.items():
        update.set(key, value)
    update.toBranch(branch).commit()
