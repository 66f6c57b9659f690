"""Figure: how fast a backlog of change files is applied, beside bare Spark that reads, keeps the last change and runs one MERGE."""

from __future__ import annotations

import resource
import time

from bench._lake import Changes, fill, lake
from frazil.flows.cdc import run as merge


def _bare(world, table: str, paths: list[str]) -> float:
    """CSV → last row per key by file and row → one MERGE; no position, no check, casts that make null of what does not fit."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    columns = ["id", "cust", "qty", "price", "amount", "placed", "status", "note"]
    kinds = ["bigint", "int", "int", "decimal(12,2)", "decimal(12,2)", "timestamp_ntz", "string", "string"]
    began = time.perf_counter()
    rows = world.spark.read.schema("op string, at string, " + ", ".join(f"{c} string" for c in columns)).csv(paths)
    typed = rows.select(
        "op", *[F.expr(f"try_cast({c} as {k})").alias(c) for c, k in zip(columns, kinds, strict=True)],
        F.col("_metadata.file_name").alias("file"), F.monotonically_increasing_id().alias("row"),
    )  # fmt: skip
    newest = Window.partitionBy("id").orderBy(F.col("file").desc(), F.col("row").desc())
    typed.withColumn("n", F.row_number().over(newest)).where("n = 1").createOrReplaceTempView("bare")
    world.spark.sql(
        f"MERGE INTO {world.name(table)} t USING bare s ON t.id = s.id WHEN MATCHED AND s.op = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{c} = s.{c}' for c in columns)} WHEN NOT MATCHED AND s.op <> 'D' THEN "
        f"INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{c}' for c in columns)})"
    )
    return time.perf_counter() - began


def run(quick: bool = False) -> list[dict]:
    """Drain the same backlog twice: by Frazil with its defaults, and by bare Spark."""
    rows, files, per_file = (200_000, 10, 10_000) if quick else (1_000_000, 50, 100_000)
    total = files * per_file
    with lake() as world:
        for table in ("warm", "ours", "bare"):
            fill(world, table, rows if table != "warm" else 1000, 10 if table != "warm" else 1)
        Changes(1000).write(world, "warm", 500)
        world.merged(tables=["public.warm"])
        for table in ("ours", "bare"):
            changes = Changes(rows, seed=5)
            for _ in range(files):
                changes.write(world, table, per_file)
        bare = _bare(world, "bare", [str(f) for f in (world.root / "source/public/bare").glob("2*.csv")])
        began = time.perf_counter()
        (done,) = merge(world.book(tables=["public.ours"], lane="auto", max_batch_mb=1024))
        ours = time.perf_counter() - began
        assert done.status == "merged" and done.counts["changes"] == total, done
        same = [
            world.spark.table(world.name(t)).selectExpr("count(*)", "bit_xor(xxhash64(*))").first()
            for t in ("ours", "bare")
        ]
        assert same[0] == same[1], same
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = f"{total:,} changes in {files} CSV files, uniform keys, on {rows:,} rows, {done.counts['batches']} batches; Python's peak {peak:.0f} MB, Spark 3 GB"
    return [
        {"name": "drain_changes_per_s", "value": round(total / ours), "unit": "1/s", "conditions": told},
        {"name": "drain_bare_spark_per_s", "value": round(total / bare), "unit": "1/s", "conditions": f"{told}; baseline: CSV, window, one MERGE, no safety"},
    ]  # fmt: skip
