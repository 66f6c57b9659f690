"""Figures of a cluster: large batches on executors of their own, and a driver whose table has 100,000 data files.

Everything that tasks do grows with a cluster. What this process and its JVM hold and do does not, so it has to be little.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import psutil

from bench import _executors
from bench._lake import lake, stop_spark
from frazil_old.config.paths import local_path
from frazil_old.config.settings import FullLoadSettings, MaintenanceSettings
from frazil_old.flows import cdc, full_load, maintenance
from frazil_old.flows.plan import plan
from frazil_old.lake.index_sync import Locator
from helpers import World

ROWS = 10
"""Rows of each data file; file n has those with the ids from 10 n on."""


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


def _load(world: World, table: str, entries: list[dict]) -> None:
    """Load a table whose data files are these and one more, all in one commit, as `full_load` commits them."""
    put = full_load.engine.put

    def with_entries(spark, branch, written, *more, **named):
        written.entries.extend(entries)
        put(spark, branch, written, *more, **named)

    with patch.object(full_load.engine, "put", with_entries), patch.object(full_load, "duplicates", lambda *_: []):
        (done,) = full_load.run(world.book(FullLoadSettings, tables=[f"public.{table}"]))
    assert done.status == "loaded", done.note


@contextmanager
def _known_keys(world: World, table: str) -> Iterator[None]:
    """Give a key index the rows of `_entries` without reading them: Spark would run a task for each file."""
    import numpy as np

    found = world.spark.sql(
        f"select file_path, first_row_id from {world.name(table)}.files where content = 0"
    ).collect()
    first, read = dict(found), Locator._read_keys

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
        self.spark, self.steps = spark, {}

    def step(self, name: str, work: Callable[[], object]) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at the present size
        began = time.perf_counter()
        work()
        seconds, status = time.perf_counter() - began, Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        self.steps[name] = (seconds, peak, self._heap_mb())
        print(f"  {name}: {seconds:.1f} s, Python {peak:,.0f} MB at most, JVM {self.steps[name][2]:,.0f} MB afterwards", flush=True)  # fmt: skip

    def _heap_mb(self) -> float:
        runtime = self.spark._jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        return (runtime.totalMemory() - runtime.freeMemory()) / 1e6

    def most(self) -> float:
        """Return the peak of this process, and what the JVM held at most after a step, together."""
        return max(s[1] for s in self.steps.values()) + max(s[2] for s in self.steps.values())


def run(quick: bool = False) -> list[dict]:
    """Measure batches on executors, then once what runs do with many data files (quick: with 2,000)."""
    on_executors = _executors.run(quick)
    stop_spark()
    return [*on_executors, *measured(2_000 if quick else 100_000)]


def measured(files: int) -> list[dict]:
    """Do what runs do with a table of that many data files."""
    with lake() as world:
        world.table("t").load("t", (1, "a")).setup()
        memory, changed = Memory(world.spark), iter(range(1, 100))
        entries = list(_entries(world, "t", files))
        start = psutil.Process().memory_info().rss / (1 << 20)

        def batch(lane: str) -> None:
            number = next(changed)
            rows = "".join(f"U,2026-01-01 00:00:00.000000,{n},new\n" for n in range(ROWS, 101 * ROWS, number + 2))
            world.write("t", f"20260101-10{number:02d}00000.csv", rows)
            (done,) = cdc.run(world.book(lane=lane, tables=["public.t"]))
            assert done.status == "merged" and world.history("t")[0].summary()["frazil.lane"] == lane, done.note

        def maintained() -> None:
            (done,) = maintenance.run(world.book(MaintenanceSettings, tables=["public.t"], dry_run=False, max_run_s=0.0, orphan_days=0))  # fmt: skip
            assert done.counts["rewritten_files"], done.note

        memory.step("commit of the load", lambda: _load(world, "t", entries))
        entries.clear()
        memory.step("batch by scan", lambda: batch("scan"))
        with _known_keys(world, "t"):
            memory.step("first batch by index", lambda: batch("rowdelta"))
        memory.step("frazil plan", lambda: plan(world.book(tables=["public.t"])))
        memory.step("plan of maintenance", lambda: maintenance.plan(world.book(MaintenanceSettings, tables=["public.t"])))  # fmt: skip
        memory.step("compaction of one group", maintained)
        told = "; ".join(f"{name} {s:.1f} s, {peak:,.0f} MB, JVM {heap:,.0f} MB" for name, (s, peak, heap) in memory.steps.items())  # fmt: skip
    name = f"driver_rss_mb_{files // 1000}k_files"
    conditions = (
        f"{files:,} data files of {ROWS} rows; this process began at {start:,.0f} MB; {told}; {os.cpu_count()} cores"
    )
    return [{"name": name, "value": round(memory.most()), "unit": "MB", "conditions": conditions}]
