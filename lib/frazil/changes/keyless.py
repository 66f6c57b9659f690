"""Changes of tables without a key: every change as a separate row, or what a batch adds to and removes from a multiset."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def appended(changes: DataFrame, row: str = "", good_only: bool = False) -> DataFrame:
    """Return every change as a row of the table's columns and `OPERATION_COLUMNS`. Nothing is merged, repeats are kept.

    `row`: SQL of the row's number in its file; by default rows are counted, including bad ones.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = F.expr(row) if row else F.row_number().over(Window.partitionBy("object").orderBy("block", "row_no"))
    columns = {"_op": "op", "_commit_ts": "commit_ts", "_seq": "change_seq", "_object": "object"}
    rows = changes.withColumn("_row", place.cast("int"))
    return (rows.where("bad is null") if good_only else rows).select(
        "after.*", *[F.col(c).alias(name) for name, c in columns.items()], "_row"
    )


def net_rows(changes: DataFrame) -> DataFrame:
    """Return the distinct rows of a batch (`after`) and the copies it adds of each (`net`; negative: removes).

    An update removes its old row and adds its new one; if the changes of a row cancel out, `net` is 0.
    """
    from pyspark.sql import functions as F

    def step(row: str, count: int):
        return F.struct(F.col(row).alias("after"), F.lit(count).alias("n"))

    steps = F.when(F.col("op") == "U", F.array(step("before", -1), step("after", 1)))
    steps = steps.when(F.col("op") == "D", F.array(step("after", -1))).otherwise(F.array(step("after", 1)))
    each = changes.select(F.explode(steps).alias("s")).select("s.*")
    return each.groupBy("after").agg(F.sum("n").alias("net"))
