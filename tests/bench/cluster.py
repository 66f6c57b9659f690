"""Figures of a cluster: large batches on executors that are processes of their own.

Everything that tasks do grows with a cluster. What this process and its JVM hold and do does not, so it has to be little.
All is on one machine (Spark's `local-cluster`). So its figures are CPU seconds and memory, and no wall times.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil

from bench._lake import Changes, figure, fill, lake, lane_of, merge, peak_mb

EXECUTOR_MB = 2048


def _used(work: Callable[[], object]) -> tuple[float, float, float]:
    """Return what a piece of work used: CPU seconds of the driver and of all processes, and the MB at most of this process and its JVM."""
    me = psutil.Process()
    driver = (me, *(p for p in me.children() if p.name() == "java"))
    assert len(driver) == 2, driver

    def cpu_s() -> list[float]:
        return [sum(sum(p.cpu_times()[:2]) for p in some) for some in (driver, (me, *me.children(recursive=True)))]

    for process in driver:
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak starts again at the present size
    before = cpu_s()
    work()
    own, every = (after - b for after, b in zip(cpu_s(), before, strict=True))
    return own, every, sum(peak_mb(process.pid) for process in driver)


def _batches(executors: int, rows: int, sizes: list[int], per_file: int) -> list[tuple[float, float, float]]:
    """Apply batches of these numbers of changes to a table of so many rows; return what each used."""
    used = []
    with lake(f"local-cluster[{executors},1,{EXECUTOR_MB}]") as world:
        fill(world, "t", rows, 20)
        book, changes = world.book(lane="scan", max_batch_mb=4096), Changes(rows, seed=7)
        for size in sizes:
            for _ in range(size // per_file):
                changes.write(world.source, "t", per_file)
            used.append(_used(lambda: merge(book)))
            assert lane_of(world, "t") == "scan", world.said
            print(f"  {executors} executors, {size:,} changes: {used[-1]}", flush=True)
    return used


def run(quick: bool = False) -> list[dict]:
    """Apply batches on one executor and on three, and one of ten times as many changes."""
    rows, small, per_file = (1_000_000, 100_000, 10_000) if quick else (20_000_000, 1_000_000, 100_000)
    _, (_, one, _) = _batches(1, rows, [small, small], per_file)
    _, (_, three, mb), (driver, large, large_mb) = _batches(3, rows, [small, small, small * 10], per_file)
    told = f"{rows:,} rows, executors of one core and {EXECUTOR_MB} MB on one machine, after one batch to warm up"
    return [
        figure("cluster_cpu_overhead", three / one, "×", f"{small:,} changes on three executors ({three:.1f} CPU s) and on one ({one:.1f}); {told}"),
        figure("driver_cpu_share", driver / large, "ratio", f"{small * 10:,} changes on three executors, {large:.0f} CPU s in all; {told}", 3),
        figure("driver_rss_growth", large_mb / mb, "×", f"{small * 10:,} changes ({large_mb:,.0f} MB at most) and {small:,} ({mb:,.0f}); {told}"),
    ]  # fmt: skip
