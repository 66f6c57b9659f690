"""Iceberg's Java API for data files that were written outside it: from JSON to a commit on a branch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from frazil.lake.jvm import JavaTable, load_table, package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def from_json(spark: SparkSession, table: JavaTable, entries: list[dict[str, Any]]) -> list[Any]:
    """Return data files of the table's current partition spec as Java objects, including metrics and partitions."""
    ice = package(spark, "org.apache.iceberg")
    schema = json.loads(ice.SchemaParser.toJson(table.schema()))
    specs: dict[int, Any] = {}
    found = []
    for entry in entries:
        number = entry["spec-id"]
        specs[number] = specs.get(number) or json.loads(ice.PartitionSpecParser.toJson(table.specs().get(number)))
        task = {
            "task-type": "file-scan-task", "schema": schema, "spec": specs[number], "data-file": entry,
            "start": 0, "length": entry["file-size-in-bytes"], "delete-files": [],
        }  # fmt: skip
        found.append(ice.ScanTaskParser.fromJson(json.dumps(task), True).file())
    return found


def put(
    spark: SparkSession, branch: str, entries: list[dict[str, Any]], summary: dict[str, str], replace: bool = False
) -> None:
    """Add data files to `catalog.namespace.table.branch_<name>` in one snapshot; with `replace` they replace all others."""
    name, ref = branch.rsplit(".branch_", 1)
    table = load_table(spark, name)
    append(spark, table, ref, from_json(spark, table, entries), summary, replace)


def append(
    spark: SparkSession, table: JavaTable, branch: str, files: list[Any], summary: dict[str, str], replace: bool = False
) -> None:
    """Add files to a branch in one snapshot; with `replace` they replace all others."""
    update = table.newOverwrite() if replace else table.newAppend()
    if replace:
        update.overwriteByRowFilter(package(spark, "org.apache.iceberg.expressions").Expressions.alwaysTrue())
    for file in files:
        (update.addFile if replace else update.appendFile)(file)
    for key, value in summary.items():
        update.set(key, value)
    update.toBranch(branch).commit()
