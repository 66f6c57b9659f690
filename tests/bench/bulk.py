"""Figures of a large batch into a large table: the row delta after a scan of the keys, beside a MERGE of the same files."""

from __future__ import annotations

import time
from statistics import median

import psutil

from bench._lake import Changes, fill, lake, link_files
from frazil_old.flows.cdc import run as merge
from frazil_old.lake import lane_choice


def _cpu_s() -> float:
    """Return the CPU seconds so far of this process, the JVM, and the Python processes of Spark's tasks."""
    me = psutil.Process()
    times = [p.cpu_times() for p in (me, *me.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def _timed(book) -> tuple[float, float]:
    """Apply what a table's new files hold, in one batch; return the seconds, and the CPU seconds."""
    began, cpu = time.perf_counter(), _cpu_s()
    (done,) = merge(book)
    assert done.status == "merged" and done.counts["batches"] == 1, done
    return time.perf_counter() - began, _cpu_s() - cpu


def run(quick: bool = False) -> list[dict]:
    """Apply the same files by turns with `lane: auto`, which scans, and with `lane: merge`, each to a table of its own."""
    rows, files, per_file, repeats = (1_000_000, 10, 10_000, 1) if quick else (20_000_000, 10, 100_000, 3)
    lane_choice.MOST_MB = 1
    timed: dict[str, list[tuple[float, float]]] = {"scan": [], "merge": []}
    with lake() as world:
        fill(world, "files", 1, 1)
        for lane in timed:
            fill(world, lane, rows, 20)
        books = {
            lane: world.book(lane=ask, tables=[f"public.{lane}"], max_batch_mb=1024)
            for lane, ask in (("scan", "auto"), ("merge", "merge"))
        }
        changes = Changes(rows, seed=7)
        for turn in range(repeats + 1):
            for _ in range(files):
                changes.write(world, "files", per_file)
            for lane, book in books.items():
                link_files(world, lane, "files")
                timed[lane].append(_timed(book))
                assert world.history(lane)[0].summary()["frazil.lane"] == lane, world.said
            print(
                f"  turn {turn}: " + ", ".join(f"{n} {t[-1][0]:.1f} s, CPU {t[-1][1]:.1f} s" for n, t in timed.items()),
                flush=True,
            )
        sums = [world.spark.table(world.name(n)).selectExpr("count(*)", "bit_xor(xxhash64(*))").first() for n in timed]
        assert sums[0] == sums[1], sums
    told = f"{files * per_file:,} changes in {files} CSV files into {rows:,} rows; median of {repeats} by turns after one to warm up"
    (wall, cpu), (wall_merge, cpu_merge) = ([median(each) for each in zip(*t[1:], strict=True)] for t in timed.values())
    return [
        {"name": "bulk_batch_s", "value": round(wall, 1), "unit": "s", "conditions": told},
        {"name": "bulk_vs_merge", "value": round(wall / wall_merge, 2), "unit": "×", "conditions": told},
        {"name": "bulk_cpu_vs_merge", "value": round(cpu / cpu_merge, 2), "unit": "×", "conditions": told},
    ]  # fmt: skip
