"""The ledger of commits, rebuilt from what rides in the snapshot summaries: it can neither lose nor double a commit."""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from frazil.flows.workbook import Workbook
from frazil.lake.tables import TableError

COUNTS = "changes long, I long, U long, D long, keys long, out_of_sequence long, files long, bytes long"
SKETCH = "v int, n long, picked_up long, age array<long>, dms array<long>"


def commits(book: Workbook, hours: float = 0.0) -> DataFrame:
    """Return one row per commit of changes of every table, oldest first; `hours` > 0 takes only the last ones.

    Times are epoch milliseconds. `latency_ms`, `age_ms` (until picked up) and `dms_ms` (until DMS wrote) are
    the quantiles (`latency.QUANTILES`) since the source commit over the commit's changes; null where DMS writes no timestamp column. Commits whose snapshot has expired are not told of.
    """
    frames = [
        book.spark.table(f"{book.name(spec)}.snapshots").select(
            F.lit(spec.source).alias("table"), "committed_at", "snapshot_id", "summary"
        )
        for spec in book.specs.values()
        if book.exists(spec)
    ]
    if not frames:
        raise TableError("none of the tables exists", "run 00_setup first")
    told = reduce(DataFrame.unionAll, frames).where("summary['frazil.kind'] = 'changes'")
    if hours > 0:
        told = told.where(
            F.col("committed_at") >= F.expr(f"current_timestamp() - interval {round(hours * 3600)} seconds")
        )
    return (
        told.select(
            "table", "snapshot_id", F.unix_millis("committed_at").alias("committed_ms"),
            F.from_json(F.expr("summary['frazil.counts']"), COUNTS).alias("c"),
            F.from_json(F.expr("summary['frazil.latency']"), SKETCH).alias("s"),
        )
        .select(
            "table", "snapshot_id", "committed_ms", F.col("c.changes").alias("changes"), F.col("c.files").alias("files"),
            F.col("s.picked_up").alias("picked_up_ms"),
            F.col("s.age").alias("age_ms"), F.col("s.dms").alias("dms_ms"),
            F.expr("if(size(s.age) > 0, transform(s.age, a -> committed_ms - s.picked_up + a), null)").alias("latency_ms"),
        )
        .orderBy("committed_ms")
    )  # fmt: skip


def history(book: Workbook, table: str, newest: int = 5) -> list[dict[str, Any]]:
    """Return the newest snapshots of a source table's lake table, loads and maintenance included, one row each."""
    if not book.exists(book.specs[table]):
        return []
    snapshots = (
        book.spark.table(f"{book.name(book.specs[table])}.snapshots").orderBy(F.desc("committed_at")).limit(newest)
    )
    return [
        {
            "committed": r.committed_at.strftime("%Y-%m-%d %H:%M:%S"), "kind": r.summary.get("frazil.kind", r.operation),
            "rows_added": int(r.summary.get("added-records", 0)), "batch": r.summary.get("frazil.batch", "–"),
        }
        for r in snapshots.collect()
    ]  # fmt: skip
