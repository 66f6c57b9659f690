"""Writes tables without a key: a multiset gains and loses copies of whole rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.config.sql import identifier
from frazil.lake import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def apply_net(spark: SparkSession, target: str, net: DataFrame, spec: TableSpec, summary: dict[str, str]) -> None:
    """Add and remove copies of rows (`after`, `net`) in `target` (a branch); the last commit carries the summary.

    SQL cannot delete just one of n equal rows. So all copies of a row that loses some are deleted, and the remaining
    number is inserted again. The number before is read from the previous snapshot. A row that does not exist loses
    nothing.
    """
    name, branch = target.rsplit(".branch_", 1)
    gone, gains = "frazil_gone_" + summary["frazil.batch"], "frazil_gains_" + summary["frazil.batch"]
    columns = ", ".join(map(identifier, spec.names))
    same = " AND ".join(f"t.{identifier(c)} <=> s.after.{identifier(c)}" for c in spec.names)
    net.where("net < 0").createOrReplaceTempView(gone)
    net.where("net > 0").createOrReplaceTempView(gains)
    copies = f"SELECT after, cast(net AS int) AS copies FROM {gains}"
    try:
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
    finally:
        spark.catalog.dropTempView(gone)
        spark.catalog.dropTempView(gains)
