"""Iceberg's table metadata as a whole: read, changed and swapped in, for what no other call can mend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lake.jvm import JavaTable, package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def metadata_json(spark: SparkSession, table: JavaTable) -> str:
    """Return a table's metadata as JSON."""
    return package(spark, "org.apache.iceberg").TableMetadataParser.toJson(table.operations().current())


def set_schema(spark: SparkSession, table: JavaTable, schema: int) -> None:
    """Make one of a table's schemas the present one."""
    operations = table.operations()
    now = operations.current()
    builder = package(spark, "org.apache.iceberg").TableMetadata.buildFrom(now)
    operations.commit(now, builder.setCurrentSchema(schema).build())


def replace_metadata(spark: SparkSession, table: JavaTable, text: str) -> None:
    """Swap in other metadata, if the table's are still those that `table` has."""
    operations = table.operations()
    operations.commit(operations.current(), package(spark, "org.apache.iceberg").TableMetadataParser.fromJson(text))
