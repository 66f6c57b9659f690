"""Figure: how fast a backlog of change files is applied, beside bare Spark that reads, keeps the last change and runs one MERGE."""

from __future__ import annotations

from statistics import median

from bench._lake import NAMES, TYPES, Changes, checksum, figure, fill, lake, link_files, seconds, timed, upsert


def _bare(world, table: str, paths: list[str]) -> None:
    """CSV → last row per key by file and row → one MERGE; no position, no check, casts that make null of what does not fit."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = world.session.read.schema("op string, at string, " + ", ".join(f"{c} string" for c in NAMES)).csv(paths)
    typed = rows.select(
        "op", *[F.expr(f"try_cast({c} as {t})").alias(c) for c, t in zip(NAMES, TYPES, strict=True)],
        F.col("_metadata.file_name").alias("file"), F.monotonically_increasing_id().alias("row"),
    )  # fmt: skip
    newest = Window.partitionBy("id").orderBy(F.col("file").desc(), F.col("row").desc())
    typed.withColumn("n", F.row_number().over(newest)).where("n = 1").createOrReplaceTempView("bare")
    world.session.sql(upsert(world.name(table), "bare"))


def run(quick: bool = False) -> list[dict]:
    """Drain the same backlog by Frazil with its defaults, and by bare Spark, by turns, each time into a new table."""
    rows, files, per_file, repeats = (200_000, 10, 10_000, 1) if quick else (1_000_000, 50, 100_000, 3)
    total, ours, bare = files * per_file, [], []
    with lake() as world:
        fill(world, "files", 1, 1)
        for turn in range(repeats + 1):
            fill(world, f"ours{turn}", rows, 10)
            fill(world, f"bare{turn}", rows, 10)
        changes = Changes(rows, seed=5)
        for _ in range(files):
            changes.write(world.source, "files", per_file)
        for turn in range(repeats + 1):
            paths = link_files(world, f"bare{turn}", "files")
            bare.append(seconds(lambda: _bare(world, f"bare{turn}", paths)))  # noqa: B023
            link_files(world, f"ours{turn}", "files")
            counts, took = timed(world, "merge", f"ours{turn}", max_batch_mb=1024)
            ours.append(took)
            assert counts["changes"] == total, counts
            assert checksum(world, f"ours{turn}") == checksum(world, f"bare{turn}")
            print(f"  ours {ours[-1]:.1f} s, bare Spark {bare[-1]:.1f} s", flush=True)
    told = f"{total:,} changes in {files} CSV files, uniform keys, on {rows:,} rows, {counts['batches']} batches; median of {repeats} by turns after one to warm up; Spark 3 GB"
    a, b = (total / median(timed[1:]) for timed in (ours, bare))
    return [
        figure("drain_changes_per_s", a, "1/s", told, 0),
        figure("drain_bare_spark_per_s", b, "1/s", f"{told}; baseline: CSV, window, one MERGE, no safety", 0),
        figure("drain_vs_bare", a / b, "×", told),
    ]
