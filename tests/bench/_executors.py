"""Figures of large batches on executors that are processes of their own, by Spark's `local-cluster`.

All are on one machine. So its figures are CPU seconds and memory, and no wall times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench._lake import Changes, fill, lake, stop_spark
from frazil_old.flows.cdc import run as merge
from helpers import World

EXECUTOR_MB, PER_FILE = 2048, 100_000


@dataclass(frozen=True)
class Used:
    """What a batch used: CPU seconds of the driver and of all processes, and the driver's memory at most."""

    driver_cpu_s: float
    cpu_s: float
    driver_mb: float
    python_mb: float


class _Driver:
    """This process and its JVM; all other processes below it belong to executors."""

    def __init__(self) -> None:
        me = psutil.Process()
        self.own = (me, *(p for p in me.children() if p.name() == "java"))
        assert len(self.own) == 2, self.own

    def cpu_s(self) -> tuple[float, float]:
        """Return the CPU seconds so far of the driver, and of the driver and its executors."""
        below = self.own[0].children(recursive=True)
        own, every = (sum(sum(p.cpu_times()[:2]) for p in some) for some in (self.own, (self.own[0], *below)))
        return own, every

    def measured(self, work) -> Used:
        """Return what a piece of work uses."""
        for process in self.own:
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak starts again at the present size
        before = self.cpu_s()
        work()
        after, peaks = self.cpu_s(), [_peak_mb(process) for process in self.own]
        return Used(after[0] - before[0], after[1] - before[1], sum(peaks), peaks[0])


def _peak_mb(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@contextmanager
def _on_executors(count: int) -> Iterator[World]:
    """A lake whose session has that many executors of one core."""
    before = os.environ.get("FRAZIL_MASTER")
    stop_spark()
    os.environ["FRAZIL_MASTER"] = f"local-cluster[{count},1,{EXECUTOR_MB}]"
    try:
        with lake() as world:
            yield world
            stop_spark()
    finally:
        os.environ.pop("FRAZIL_MASTER") if before is None else os.environ.update(FRAZIL_MASTER=before)


def _batches(executors: int, rows: int, sizes: list[int], per_file: int) -> list[Used]:
    """Apply batches of these numbers of changes to a table of so many rows; return what each used."""
    used = []
    with _on_executors(executors) as world:
        fill(world, "t", rows, 20)
        book, changes = world.book(lane="scan", tables=["public.t"], max_batch_mb=4096), Changes(rows, seed=7)
        driver = _Driver()
        for size in sizes:
            for _ in range(size // per_file):
                changes.write(world, "t", per_file)

            def batch() -> None:
                (done,) = merge(book)
                assert done.status == "merged" and done.counts["batches"] == 1, done

            used.append(driver.measured(batch))
            summary = world.history("t")[0].summary()
            assert summary["frazil.lane"] == "scan", world.said
            print(f"  {executors} executors, {size:,} changes: {used[-1]}", flush=True)
    return used


def run(quick: bool = False) -> list[dict]:
    """Apply batches on one executor and on three, and a batch of ten times as many changes."""
    rows, small, per_file = (1_000_000, 100_000, 10_000) if quick else (20_000_000, 1_000_000, PER_FILE)
    one = _batches(1, rows, [small, small], per_file)[-1]
    _, three, large = _batches(3, rows, [small, small, small * 10], per_file)
    told = f"{rows:,} rows, executors of one core and {EXECUTOR_MB} MB on one machine, after one batch to warm up"
    return [
        {"name": "cluster_cpu_overhead", "value": round(three.cpu_s / one.cpu_s, 2), "unit": "×",
         "conditions": f"{small:,} changes on three executors ({three.cpu_s:.1f} CPU s) and on one ({one.cpu_s:.1f}); {told}"},
        {"name": "driver_cpu_share", "value": round(large.driver_cpu_s / large.cpu_s, 3), "unit": "ratio",
         "conditions": f"{small * 10:,} changes on three executors, {large.cpu_s:.0f} CPU s in all; {told}"},
        {"name": "driver_rss_growth", "value": round(large.driver_mb / three.driver_mb, 2), "unit": "×",
         "conditions": f"{small * 10:,} changes ({large.driver_mb:,.0f} MB at most, of which Python {large.python_mb:,.0f}) and {small:,} ({three.driver_mb:,.0f}, {three.python_mb:,.0f}); {told}"},
    ]  # fmt: skip
