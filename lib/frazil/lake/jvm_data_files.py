"""Iceberg's Java API for data files that were written outside it: from JSON to a commit on a branch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from frazil.lake.jvm import JavaTable, load_table, package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def from_json(spark: SparkSession, table: JavaTable, entries: list[dict[str, Any]]) -> list[Any]:
    """Return data files as Java objects, including metrics and partitions."""
    tasks = ScanTasks(spark, table)
    return [tasks.of(entry).file() for entry in entries]


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
