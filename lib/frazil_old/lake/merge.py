"""Writes a batch with one MERGE INTO, or the load of a whole table. Works on any cluster.

A table without a key may be a multiset, which gains and loses copies of whole rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier, literal
from frazil_old.lake import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@contextmanager
def as_view(spark: SparkSession, rows: DataFrame) -> Iterator[str]:
    """Yield the name by which SQL finds these rows during the block."""
    view = f"frazil_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        spark.catalog.dropTempView(view)


def bound(value: Any) -> str | None:
    """Return a SQL literal, or None if a literal might not mean the same value: then the MERGE has no bounds."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, str) and not set(value) & set("'\\"):  # 3.5 and 4.1 escape these differently
        return f"'{value}'"
    return None


def bounds_sql(spec: TableSpec) -> tuple[str, str]:
    """Return the SQL of the least and the greatest first key of a batch; null for types without a literal (`bound`)."""
    kind = lake_type(spec.column(spec.key[0])) if spec.key else ""
    if not kind.startswith(("int", "bigint", "decimal", "string")):
        return "null", "null"
    first = f"after.{identifier(spec.key[0])}"
    return f"min({first})", f"max({first})"


def merge_sql(
    target: str,
    view: str,
    spec: TableSpec,
    bounds: tuple[Any, Any] = (None, None),
    partial: bool = False,
    spread: bool = False,
) -> str:
    """Return the MERGE of a collapsed batch (`op`, `after`) into a table; `partial`: columns named in `missing` keep their values.

    `bounds` are the least and the greatest first key: Iceberg can prune files by literals in ON. `spread`: the batch has
    the keys of the stored rows as columns `key0` and so on. It may already be partitioned by them. Spark does not see that
    for a field of `after`, and would partition it again.
    """

    def value(name: str) -> str:
        kept = partial and name not in spec.key
        new = f"s.after.{identifier(name)}"
        return (
            f"CASE WHEN array_contains(s.missing, {literal(name)}) THEN t.{identifier(name)} ELSE {new} END"
            if kept
            else new
        )

    on = [
        f"t.{identifier(k)} = {f's.key{i}' if spread else f's.after.{identifier(k)}'}" for i, k in enumerate(spec.key)
    ]
    low, high = map(bound, bounds)
    if low is not None and high is not None:
        on.append(f"t.{identifier(spec.key[0])} BETWEEN {low} AND {high}")
    columns = [identifier(c) for c in spec.names]
    return (
        f"MERGE INTO {target} t USING {view} s ON {' AND '.join(on)} "
        f"WHEN MATCHED AND s.op = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{identifier(c)} = {value(c)}' for c in spec.names)} "
        f"WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.after.{c}' for c in columns)})"
    )


def merge(
    spark: SparkSession,
    target: str,
    batch: DataFrame,
    spec: TableSpec,
    summary: dict[str, str],
    bounds: tuple[Any, Any],
) -> None:
    """Merge a collapsed batch into `target` (a branch) in one commit that carries the summary."""
    from pyspark.sql import functions as F

    counts = [F.count(name).alias(name) for name in ("missing", "stored_key") if name in batch.columns]
    found = batch.agg(*counts).first().asDict() if counts else {}
    partial, moved = bool(found.get("missing")), bool(found.get("stored_key"))
    batch = _by_stored_keys(spark, target, batch, spec) if moved else batch
    try:
        with as_view(spark, batch) as view:
            statement = merge_sql(target, view, spec, bounds, partial, "key0" in batch.columns)
            jvm.sql_with_commit_properties(spark, statement, summary)
    finally:
        if moved:
            jvm.release(batch)


def _by_stored_keys(spark: SparkSession, target: str, batch: DataFrame, spec: TableSpec) -> DataFrame:
    """Return a batch in which `key0` … are the keys of the stored rows to change: the old ones of rows whose keys changed.

    So a row keeps its id, and values that the batch does not carry. They are null where a row took the stored one of
    that key along. A row that is stored under the new key of another one is deleted.
    """
    from pyspark.sql import functions as F

    def key(row: str, name: str) -> Column:
        return F.struct(*[F.col(f"{row}{identifier(k)}").alias(k) for k in spec.key]).alias(name)

    wanted = batch.where("stored_key is not null").select("stored_key").distinct()
    stored = spark.table(target).select(key("", "stored_key")).join(F.broadcast(wanted), "stored_key", "left_semi")
    old, taken = (stored.select(F.col("stored_key").alias(name)) for name in ("old", "taken"))
    batch = batch.withColumn("own", key("after.", "own")).join(
        F.broadcast(old), F.col("stored_key") == F.col("old"), "left"
    )
    batch = batch.join(F.broadcast(taken), F.col("own") == F.col("taken"), "left")
    free = F.when(F.col("taken").isNull(), F.col("own"))
    rest = ["after", *[name for name in ("missing",) if name in batch.columns]]
    changed = batch.select("op", *rest, F.coalesce("old", free).alias("key"))
    replaced = batch.where("old is not null and taken is null").select(
        F.lit("D").alias("op"), *rest, F.col("own").alias("key")
    )
    keys = [F.col(f"key.{identifier(k)}").alias(f"key{i}") for i, k in enumerate(spec.key)]
    return changed.union(replaced).select("op", *rest, *keys).localCheckpoint()


def insert(spark: SparkSession, target: str, rows: DataFrame, summary: dict[str, str]) -> None:
    """Add rows to `target` (a table or a branch) in one commit that carries the summary."""
    columns = ", ".join(identifier(c) for c in rows.columns)
    with as_view(spark, rows) as view:
        jvm.sql_with_commit_properties(spark, f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {view}", summary)


def replace_rows(spark: SparkSession, target: str, rows: DataFrame, summary: dict[str, str], empty_first: bool) -> None:
    """Write a table's load to `target` (a branch), replacing its rows if `empty_first`; the last commit carries the summary."""
    if empty_first:
        spark.sql(f"DELETE FROM {target}")
    insert(spark, target, rows, summary)


def apply_net(spark: SparkSession, target: str, net: DataFrame, spec: TableSpec, summary: dict[str, str]) -> None:
    """Add and remove copies of rows (`after`, `net`) in `target` (a branch); the last commit carries the summary.

    SQL cannot delete just one of n equal rows. So all copies of a row that loses some are deleted, and the remaining
    number is inserted again. The number before is read from the previous snapshot. A row that does not exist loses
    nothing.
    """
    name, branch = target.rsplit(".branch_", 1)
    columns = ", ".join(map(identifier, spec.names))
    same = " AND ".join(f"t.{identifier(c)} <=> s.after.{identifier(c)}" for c in spec.names)
    with as_view(spark, net.where("net < 0")) as gone, as_view(spark, net.where("net > 0")) as gains:
        copies = f"SELECT after, cast(net AS int) AS copies FROM {gains}"
        if not spark.table(gone).isEmpty():
            before = jvm.load_table(spark, name).snapshot(branch).snapshotId()
            copies += (
                f" UNION ALL SELECT s.after, cast(count(*) + first(s.net) AS int) FROM {name} VERSION AS OF {before} t "
                f"JOIN {gone} s ON {same} GROUP BY s.after"
            )
            spark.sql(f"MERGE INTO {target} t USING {gone} s ON {same} WHEN MATCHED THEN DELETE")
        inserted = (
            f"SELECT after.* FROM (SELECT after, explode(array_repeat(1, copies)) FROM ({copies}) WHERE copies > 0)"
        )
        jvm.sql_with_commit_properties(spark, f"INSERT INTO {target} ({columns}) {inserted}", summary)
