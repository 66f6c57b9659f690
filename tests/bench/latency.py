"""Figure of latency: the notebook over 100,000 commits, Spark's start included."""

from __future__ import annotations

import time

from bench._lake import figure, lake, python, seconds, workspace
from frazil_old.engine.latency_sketch import OF_FILES, QUANTILES
from frazil_old.flows import ledger
from frazil_old.flows.workbook import Workbook
from frazil_old.lake.tables import create_namespaces


def fill(book: Workbook, count: int) -> None:
    """Write `count` made-up commits of the last 24 hours into the ledger, with sketches as real ones."""
    names = [book.name(s) for s in book.specs.values()]

    def points(at: tuple, base: str, spread: str) -> str:
        values = ", ".join(f"cast({base} + {spread} * {q / (1.12 - q)}D as bigint)" for q in at)
        return f"concat('[', concat_ws(',', {values}), ']')"

    began = time.time() - 86400
    book.spark.range(count).selectExpr(
        "id", f"array({', '.join(map(repr, names))})[cast(id % {len(names)} as int)] name", f"{began} + id * {86400 / count} + rand(1) * 2 at",
        "rand(2) r", "cast(1500 * (0.7 + r) as bigint) work", "cast(20 + r * 400 as bigint) n", "cast(3000 * r as bigint) wait",
    ).selectExpr(
        "name", "id + 1000000 snapshot_id", "id + 999999 parent_id", "timestamp_millis(cast(at * 1000 as bigint)) committed_at",
        "'overwrite' operation",
        f"""map('frazil.kind', 'changes', 'frazil.counts', concat('{{"changes":', n, ',"I":1,"U":2,"D":0,"keys":', n, ',"files":2,"bytes":9000}}'),
            'frazil.latency', concat('{{"v":2,"n":', n, ',"picked_up":', cast(at * 1000 - work as bigint), ',"read":', work div 2,
            ',"age":', {points(QUANTILES, "500 + wait", "1500")}, ',"dms":', {points(QUANTILES, "200", "1500")},
            ',"land":', {points(OF_FILES, "120", "30")}, ',"wait":', {points(OF_FILES, "wait", "200")}, '}}')) summary""",
    ).createOrReplaceTempView("made_up")  # fmt: skip
    create_namespaces(book.spark, [book.ops("commits")])
    book.spark.sql(f"CREATE TABLE IF NOT EXISTS {book.ops('commits')} ({ledger._COMMITS}) USING iceberg")
    book.spark.sql(f"INSERT INTO {book.ops('commits')} SELECT * FROM made_up")


def run(quick: bool = False) -> list[dict]:
    """Write commits of two tables into the ledger, and run the notebook by papermill (quick: 2,000 commits)."""
    commits = 2_000 if quick else 100_000
    with lake() as world:
        for table in ("t", "u"):
            world.table(table).source.load(table, (1, "a"))
        world.loaded()
        fill(world.book("latency"), commits)
        workspace(world)
        notebook = [f"{world.root}/{name}.ipynb" for name in ("notebooks/04_latency", "out")]
        took = seconds(lambda: python(world, "papermill", *notebook, "-k", "python3", "-p", "env", "w"))
    told = f"{commits:,} commits of 2 tables over 24 h in the ledger, by papermill, Spark's start included, local[2]"
    return [figure("latency_notebook_100k_s", took, "s", told, 1)]
