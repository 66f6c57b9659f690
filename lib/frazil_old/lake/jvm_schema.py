"""Iceberg's schemas and their evolution, through the Java API: columns by field id, allowed promotions, and changes.

`Table.updateSchema()` collects changes and commits them as one new schema; names in it are those before the change. Where
no other call repairs a table, its metadata are read, changed and swapped in as a whole.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil_old.lake.data_file_writer import Partitioning
from frazil_old.lake.jvm import JavaTable, package

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


AUTO_COLUMNS = "frazil.auto-columns"
"""Table property: the columns that were added because files carry them, as a JSON list of names."""
MASKED = "frazil.masked"
"""Table property: the ids of the columns that hold hashes, as a JSON list; tables of earlier versions lack it."""
CONTROL_EVENTS = "frazil.schema-events"
"""Table property: the column changes from a stream's control records, oldest first: `[add, name, type]`, `[rename, old, new]`, `[type, name, old, new]`."""
RENAMED = "renamed"
"""An event there, `[renamed, old, new]`: the table was created with a column under its new name, and another one under the old."""
_FORMER = {AUTO_COLUMNS: "frazil.learnt", CONTROL_EVENTS: "frazil.told"}
"""Their names in tables of earlier versions. They are read; the next write of the property removes them."""
_ICEBERG = {"bigint": "long", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
_SPARK = {v: k for k, v in _ICEBERG.items()}


@dataclass(frozen=True)
class Field:
    """A column of an Iceberg table: `id` survives renames; `type` is the Spark SQL type."""

    id: int
    name: str
    type: str
    required: bool = False
    comment: str = ""


def _fields(spark: SparkSession, schema: Any) -> list[Field]:
    """Read a schema in one call, as its JSON: a call per property of each column would take a second for a wide table."""
    columns = json.loads(package(spark, "org.apache.iceberg").SchemaParser.toJson(schema))["fields"]
    return [Field(c["id"], c["name"], _spark_type(c["type"]), c["required"], c.get("doc") or "") for c in columns]


def _spark_type(kind: str | dict[str, Any]) -> str:
    """Return the Spark SQL type of a type in a schema's JSON; of a nested type only `struct`, `list` or `map`."""
    return kind["type"] if isinstance(kind, dict) else _SPARK.get(kind, kind.replace(", ", ","))


def fields(spark: SparkSession, table: JavaTable) -> list[Field]:
    """Return a table's present columns."""
    return _fields(spark, table.schema())


def ever(spark: SparkSession, table: JavaTable) -> dict[int, list[Field]]:
    """Return the columns of each of the table's schemas, by schema id, oldest first."""
    schemas = table.schemas()
    return {key: _fields(spark, schemas.get(key)) for key in json.loads(schemas.keySet().toString())}


def ids(spark: SparkSession, table: JavaTable) -> dict[str, int]:
    """Return the field id of each present column."""
    columns = json.loads(package(spark, "org.apache.iceberg").SchemaParser.toJson(table.schema()))["fields"]
    return {c["name"]: c["id"] for c in columns}


def laid_out_by(spark: SparkSession, table: JavaTable) -> set[int]:
    """Return the ids of the columns by which the table is partitioned or sorted."""
    ice = package(spark, "org.apache.iceberg")
    texts = ice.PartitionSpecParser.toJson(table.spec()), ice.SortOrderParser.toJson(table.sortOrder())
    return {f["source-id"] for part in texts for f in json.loads(part)["fields"]}


def _partition_entries(spark: SparkSession, table: JavaTable) -> list[dict[str, Any]]:
    """Return the fields of a table's partition spec, in Iceberg's JSON form."""
    return json.loads(package(spark, "org.apache.iceberg").PartitionSpecParser.toJson(table.spec()))["fields"]


def partition_fields(spark: SparkSession, table: JavaTable) -> list[tuple[int, str, str]]:
    """Return field id, transform (`day`, `bucket[16]`, …) and source column of each partition field of new files."""
    found = _partition_entries(spark, table)
    names = {i: n for n, i in ids(spark, table).items()} if found else {}
    return [(f["field-id"], f["transform"], names[f["source-id"]]) for f in found]


def partitioning(spark: SparkSession, table: JavaTable) -> Partitioning:
    """Return how new files are partitioned."""
    iceberg = package(spark, "org.apache.iceberg")
    texts = iceberg.PartitionSpecParser.toJson(table.spec()), iceberg.SchemaParser.toJson(table.schema())
    return Partitioning.of(*texts)


def odd_partitions(spark: SparkSession, table: JavaTable) -> list[str]:
    """Return the names of partition fields with non-ASCII characters."""
    return [f["name"] for f in _partition_entries(spark, table) if not f["name"].isascii()]


def lost_partitions(spark: SparkSession, table: JavaTable) -> list[str]:
    """Return the names of partition fields of format v1 whose source column was dropped."""
    return [f["name"] for f in _partition_entries(spark, table) if f["source-id"] not in ids(spark, table).values()]


def ascii_partitions(spark: SparkSession, table: JavaTable) -> None:
    """Rename partition fields with non-ASCII characters: manifests are Avro, and not every Avro reader accepts such names."""
    if odd := odd_partitions(spark, table):
        taken, update = {*ids(spark, table)}, table.updateSpec()
        for name in odd:
            # Iceberg replaces characters that Avro does not allow in the same way.
            new = re.sub(r"[^\x00-\x7f]", lambda c: f"_x{ord(c[0]):X}", name)
            while new in taken:
                new += "_"
            taken.add(new)
            update.renameField(name, new)
        update.commit()


def property_text(table: JavaTable, name: str) -> str:
    """Return the text of a property of this module, also under its former name; empty if the table has none."""
    properties = table.properties()
    return properties.get(name) or properties.get(_FORMER[name]) or ""


def auto_columns(table: JavaTable) -> list[str]:
    """Return the columns that were added because files carry them."""
    return json.loads(property_text(table, AUTO_COLUMNS) or "[]")


def control_events(table: JavaTable) -> list[list[str]]:
    """Return the column changes from control records."""
    return json.loads(property_text(table, CONTROL_EVENTS) or "[]")


def _type(spark: SparkSession, kind: str) -> Any:
    """Return Iceberg's type for a Spark type; `fromPrimitiveString` reads `decimal(12, 2)` and the like."""
    return package(spark, "org.apache.iceberg.types").Types.fromPrimitiveString(_ICEBERG.get(kind, kind))


def promotes(spark: SparkSession, old: str, new: str) -> bool:
    """Return whether Iceberg can promote a column from one type to another without rewriting a file."""
    check = package(spark, "org.apache.iceberg.types").TypeUtil.isPromotionAllowed
    return old == new or check(_type(spark, old), _type(spark, new))


def change(
    spark: SparkSession, table: JavaTable, steps: list[tuple], notes: Callable[[dict[str, int]], dict[str, str]]
) -> None:
    """Commit schema changes in one metadata swap, with the table properties that `notes(its new field ids)` returns.

    A step is `(kind, name, *more)`: `("add", name, type, comment, after or "")`, `("rename", old, new)`, `("widen",
    name, type)`, `("comment", name, text)`, `("drop", name)`. Names are those before the change.
    """
    tx = table.newTransaction()
    update = tx.updateSchema()
    for kind, name, *more in steps:
        if kind == "add":
            new, comment, after = more
            update.addColumn(name, _type(spark, new), comment or None)
            update.moveAfter(name, after) if after else update.moveFirst(name)
        elif kind == "rename":
            update.renameColumn(name, *more)
        elif kind == "widen":
            update.updateColumn(name, _type(spark, *more))
        elif kind == "comment":
            update.updateColumnDoc(name, *more)
        elif kind == "drop":
            update.deleteColumn(name)
    update.commit()
    for name, value in notes(ids(spark, tx.table())).items():
        update = tx.updateProperties().set(name, value)
        if name in _FORMER:
            update.remove(_FORMER[name])
        update.commit()
    tx.commitTransaction()


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
