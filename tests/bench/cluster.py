"""Figures of a cluster: large batches on executors that are processes of their own, and a driver whose table has 100,000 data files.

Everything that tasks do grows with a cluster. What this process and its JVM hold and do does not, so it has to be little.
All is on one machine (Spark's `local-cluster`). So its figures are CPU seconds and memory, and no wall times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import psutil

from bench._lake import Changes, figure, fill, lake, merge, peak_mb, seconds
from frazil_old.config.paths import local_path
from frazil_old.config.settings import FullLoadSettings, MaintenanceSettings
from frazil_old.flows import full_load, maintenance
from frazil_old.flows.plan import plan
from frazil_old.lake.index_sync import Locator
from helpers import World

EXECUTOR_MB, ROWS = 2048, 10
"""`ROWS` of each data file; file n has those with the ids from 10 n on."""


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
                changes.write(world, "t", per_file)
            used.append(_used(lambda: merge(book)))
            summary = world.history("t")[0].summary()
            assert summary["frazil.lane"] == "scan", world.said
            print(f"  {executors} executors, {size:,} changes: {used[-1]}", flush=True)
    return used


def _entries(world: World, table: str, files: int) -> Iterator[dict]:
    """Write that many small data files below a table's folder; yield each in Iceberg's JSON form."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(local_path(world.iceberg(table).location()), "data")
    folder.mkdir(exist_ok=True)
    fields = [pa.field(n, k, metadata={b"PARQUET:field_id": str(i).encode()}) for i, (n, k) in enumerate((("id", pa.int64()), ("v", pa.string())), 1)]  # fmt: skip
    for number in range(1, files + 1):
        ids, path = range(number * ROWS, (number + 1) * ROWS), folder / f"{number:06d}.parquet"
        pq.write_table(pa.table([pa.array(ids), pa.array(["v"] * ROWS)], schema=pa.schema(fields)), path)
        low, high = (i.to_bytes(8, "little").hex().upper() for i in (ids[0], ids[-1]))
        yield {
            "spec-id": 0, "content": "DATA", "file-path": str(path), "file-format": "PARQUET", "record-count": ROWS,
            "file-size-in-bytes": path.stat().st_size, "value-counts": {"keys": [1, 2], "values": [ROWS, ROWS]},
            "lower-bounds": {"keys": [1], "values": [low]}, "upper-bounds": {"keys": [1], "values": [high]},
        }  # fmt: skip


def _load(world: World, entries: list[dict]) -> None:
    """Load the table, whose data files are these and one more, all in one commit, as `full_load` commits them."""
    put = full_load.engine.put

    def with_entries(spark, branch, written, *more, **named):
        written.entries.extend(entries)
        put(spark, branch, written, *more, **named)

    with patch.object(full_load.engine, "put", with_entries), patch.object(full_load, "duplicates", lambda *_: []):
        (done,) = full_load.run(world.book(FullLoadSettings))
    assert done.status == "loaded", done.note


@contextmanager
def _known_keys(world: World, table: str) -> Iterator[None]:
    """Give a key index the rows of `_entries` without reading them: Spark would run a task for each file."""
    import numpy as np

    rows = world.spark.sql(f"select file_path, first_row_id from {world.name(table)}.files where content = 0").collect()
    first, read = dict(rows), Locator._read_keys

    def known(self: Locator, java: object, paths: list[str], snapshot: int) -> None:
        ours = [p for p in paths if Path(p).stem.isdigit()]
        starts = np.array([int(Path(p).stem) * ROWS for p in ours])
        places = [np.repeat(np.array([self.index.number(p) for p in ours], "int32"), ROWS), np.tile(np.arange(ROWS, dtype="int32"), len(ours))]  # fmt: skip
        if self.has_row_ids:
            places.append((np.array([first[p] for p in ours])[:, None] + np.arange(ROWS)).ravel())
        self.index.add([(starts[:, None] + np.arange(ROWS)).ravel()], *places)
        read(self, java, [p for p in paths if not Path(p).stem.isdigit()], snapshot)

    with patch.object(Locator, "_read_keys", known):
        yield


class Memory:
    """The memory and the seconds of steps: the peak of this process, and what its JVM holds after a collection."""

    def __init__(self, spark):
        self.runtime, self.steps = spark._jvm.java.lang.Runtime.getRuntime(), {}

    def step(self, name: str, work: Callable[[], object]) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at the present size
        took, peak = seconds(work), peak_mb("self")
        self.runtime.gc()
        heap = (self.runtime.totalMemory() - self.runtime.freeMemory()) / 1e6
        self.steps[name] = (peak, heap, f"{name} {took:.1f} s, {peak:,.0f} MB, JVM {heap:,.0f} MB")
        print(f"  {self.steps[name][2]}", flush=True)


def _many_files(files: int) -> dict:
    """Do what runs do with a table of that many data files."""
    with lake() as world:
        world.table("t").load("t", (1, "a")).setup()
        memory, entries = Memory(world.spark), list(_entries(world, "t", files))

        def batch(number: int, lane: str) -> None:
            rows = "".join(f"U,2026-01-01 00:00:00.000000,{n},new\n" for n in range(ROWS, 101 * ROWS, number + 2))
            world.write("t", f"20260101-10{number:02d}00000.csv", rows)
            done, _ = merge(world.book(lane=lane))
            assert world.history("t")[0].summary()["frazil.lane"] == lane, done.note

        def maintained() -> None:
            (done,) = maintenance.run(world.book(MaintenanceSettings, dry_run=False, max_run_s=0.0, orphan_days=0))
            assert done.counts["rewritten_files"], done.note

        memory.step("commit of the load", lambda: _load(world, entries))
        entries.clear()
        memory.step("batch by scan", lambda: batch(1, "scan"))
        with _known_keys(world, "t"):
            memory.step("first batch by index", lambda: batch(2, "rowdelta"))
        memory.step("frazil plan", lambda: plan(world.book()))
        memory.step("plan of maintenance", lambda: maintenance.plan(world.book(MaintenanceSettings)))
        memory.step("compaction of one group", maintained)
    python, jvm, told = zip(*memory.steps.values(), strict=True)
    conditions = f"{files:,} data files of {ROWS} rows; {'; '.join(told)}"
    return figure(f"driver_rss_mb_{files // 1000}k_files", max(python) + max(jvm), "MB", conditions, 0)


def run(quick: bool = False) -> list[dict]:
    """Apply batches on one executor and on three, and one of ten times as many changes; then what runs do with many data files."""
    rows, small, per_file = (1_000_000, 100_000, 10_000) if quick else (20_000_000, 1_000_000, 100_000)
    _, (_, one, _) = _batches(1, rows, [small, small], per_file)
    _, (_, three, mb), (driver, large, large_mb) = _batches(3, rows, [small, small, small * 10], per_file)
    told = f"{rows:,} rows, executors of one core and {EXECUTOR_MB} MB on one machine, after one batch to warm up"
    return [
        figure("cluster_cpu_overhead", three / one, "×", f"{small:,} changes on three executors ({three:.1f} CPU s) and on one ({one:.1f}); {told}"),
        figure("driver_cpu_share", driver / large, "ratio", f"{small * 10:,} changes on three executors, {large:.0f} CPU s in all; {told}", 3),
        figure("driver_rss_growth", large_mb / mb, "×", f"{small * 10:,} changes ({large_mb:,.0f} MB at most) and {small:,} ({mb:,.0f}); {told}"),
        _many_files(2_000 if quick else 100_000),
    ]  # fmt: skip
