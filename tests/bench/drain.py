"""Figure: how fast a backlog of change files is applied, beside bare Spark that reads, keeps the last change and runs one MERGE."""

from __future__ import annotations

import resource
import time
from statistics import median

from bench._lake import Changes, fill, lake, link_files
from frazil_old.flows.cdc import run as merge


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
    """Drain the same backlog by Frazil with its defaults, and by bare Spark, by turns, each time into a new table."""
    rows, files, per_file, repeats = (200_000, 10, 10_000, 1) if quick else (1_000_000, 50, 100_000, 3)
    total, ours, bare = files * per_file, [], []
    with lake() as world:
        turns = range(repeats + 1)
        for table in ("files", *(f"{kind}{turn}" for turn in turns for kind in ("ours", "bare"))):
            fill(world, table, rows if table != "files" else 1, 10 if table != "files" else 1)
        changes = Changes(rows, seed=5)
        for _ in range(files):
            changes.write(world, "files", per_file)
        for turn in turns:
            bare.append(_bare(world, f"bare{turn}", link_files(world, f"bare{turn}", "files")))
            link_files(world, f"ours{turn}", "files")
            book = world.book(tables=[f"public.ours{turn}"], lane="auto", max_batch_mb=1024)
            began = time.perf_counter()
            (done,) = merge(book)
            ours.append(time.perf_counter() - began)
            assert done.status == "merged" and done.counts["changes"] == total, done
            same = [
                world.spark.table(world.name(f"{kind}{turn}")).selectExpr("count(*)", "bit_xor(xxhash64(*))").first()
                for kind in ("ours", "bare")
            ]
            assert same[0] == same[1], same
            print(f"  ours {ours[-1]:.1f} s, bare Spark {bare[-1]:.1f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = f"{total:,} changes in {files} CSV files, uniform keys, on {rows:,} rows, {done.counts['batches']} batches; median of {repeats} by turns after one to warm up; Python's peak {peak:.0f} MB, Spark 3 GB"
    a, b = (total / median(timed[1:]) for timed in (ours, bare))
    return [
        {"name": "drain_changes_per_s", "value": round(a), "unit": "1/s", "conditions": told},
        {"name": "drain_bare_spark_per_s", "value": round(b), "unit": "1/s", "conditions": f"{told}; baseline: CSV, window, one MERGE, no safety"},
        {"name": "drain_vs_bare", "value": round(a / b, 2), "unit": "×", "conditions": told},
    ]  # fmt: skip
