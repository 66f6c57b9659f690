"""Iceberg's table metadata as a whole: read, changed and swapped in, to repair what no other call can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lake.jvm import JavaTable, package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def metadata_json(spark: SparkSession, table: JavaTable) -> str:
    """Return a table's metadata as JSON."""
    return package(spark, "org.apache.iceberg").TableMetadataParser.toJson(table.operations().current())


def set_schema(spark: SparkSession, table: JavaTable, schema: int) -> None:
    """Make one of a table's schemas the current one."""
    operations = table.operations()
    now = operations.current()
    builder = package(spark, "org.apache.iceberg").TableMetadata.buildFrom(now)
    operations.commit(now, builder.setCurrentSchema(schema).build())


def replace_metadata(spark: SparkSession, table: JavaTable, text: str) -> None:
    """Replace the table's metadata, if it is still as loaded in `table`."""
    operations = table.operations()
    operations.commit(operations.current(), package(spark, "org.apache.iceberg").TableMetadataParser.fromJson(text))
