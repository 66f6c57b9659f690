"""The merge lane: one MERGE INTO per table and batch, and the load of a whole table. Portable to any cluster."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.lake import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _literal(value: Any) -> str | None:
    """Return a SQL literal, or None where one would not be sure to mean the value: then the MERGE goes without bounds."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, str) and not set(value) & set(
        "'\\$"
    ):  # quotes are escaped differently by 3.5 and 4.1; ${…} is substituted
        return f"'{value}'"
    return None


def merge_sql(target: str, view: str, spec: TableSpec, low: Any = None, high: Any = None) -> str:
    """Return the MERGE of a collapsed batch (`op`, `after`) into a table.

    `low` and `high` bound the first key column: literals in ON are what Iceberg can prune files by.
    """
    on = [f"t.`{k}` = s.after.`{k}`" for k in spec.key]
    bounds = (_literal(low), _literal(high))
    if None not in bounds:
        on.append(f"t.`{spec.key[0]}` BETWEEN {bounds[0]} AND {bounds[1]}")
    columns = [f"`{c}`" for c in spec.names]
    return (
        f"MERGE INTO {target} t USING {view} s ON {' AND '.join(on)} "
        f"WHEN MATCHED AND s.op = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{c} = s.after.{c}' for c in columns)} "
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
    view = "frazil_batch_" + summary["frazil.batch"]
    batch.createOrReplaceTempView(view)
    try:
        jvm.sql_with_commit_properties(spark, merge_sql(target, view, spec, *bounds), summary)
    finally:
        spark.catalog.dropTempView(view)


def replace_rows(spark: SparkSession, target: str, rows: DataFrame, summary: dict[str, str], empty_first: bool) -> None:
    """Write a table's load to `target` (a branch), over what is there if `empty_first`; the last commit carries the summary."""
    view = "frazil_load_" + summary["frazil.batch"]
    rows.createOrReplaceTempView(view)
    try:
        if empty_first:
            spark.sql(f"DELETE FROM {target}")
        columns = ", ".join(f"`{c}`" for c in rows.columns)
        jvm.sql_with_commit_properties(spark, f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {view}", summary)
    finally:
        spark.catalog.dropTempView(view)
