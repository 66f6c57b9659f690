"""Figures of compaction: on a quiet table beside the old library, Iceberg's `rewrite_data_files` and plain pyarrow; and beside ingestion.

On the quiet tables each way rewrites a table of its own with the same rows, by turns. Beside ingestion a second process
compacts, at a lower priority, while this one commits 1,000 changes each second and looks at the table each 0.2 s, as a
continuous run does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench._lake import World, assert_unique, checksum, fill, lake, seconds
from bench._room import New, Old, Room, both, made, opened, other_process, p99, session_of, spent
from frazil.iceberg import compaction
from frazil.iceberg.table import LakeTable
from frazil_old.config.settings import MaintenanceSettings
from frazil_old.lake import compaction as old_compaction

CORES, RATE = 2, 1_000


def _new(world: World, table: str, target: int) -> None:
    done = compaction.compact(opened(world, f"{world.space}.{table}").table, target << 20, CORES, waits=False)
    assert done["groups"] > CORES, done


def _old(world: World, table: str, target: int) -> None:
    s = MaintenanceSettings(target_file_mb=target, max_run_s=3600)
    with patch.object(old_compaction, "at_once", lambda *_: CORES):
        done = old_compaction.compact(world.session, world.name(table), s, "bench", print)
    assert done["file_groups"] > CORES and not done["given_up"], done


def _iceberg(world: World, table: str, target: int) -> None:
    options = {"target-file-size-bytes": target << 20, "max-file-group-size-bytes": target << 20, "min-input-files": 2,
               "max-concurrent-file-group-rewrites": CORES, "partial-progress.enabled": "true", "delete-ratio-threshold": 0.01}  # fmt: skip
    given = ", ".join(f"'{k}', '{v}'" for k, v in options.items())
    call = f"CALL lake.system.rewrite_data_files(table => '{world.space}.{table}', options => map({given}))"
    done = world.session.sql(call).first()
    assert done.added_data_files_count > CORES and not done.failed_data_files_count, done


def _pyarrow(world: World, table: str, _: int) -> None:
    """Read, filter and write each file of a table; nothing is committed."""
    of = opened(world, f"{world.space}.{table}").table
    for number, file in enumerate(of.live_files.values()):
        alive = np.ones(file.rows, bool)
        alive[of.vectors.of(file).to_array()] = False
        rows = pq.read_table(file.path.removeprefix("file:"), use_threads=False).filter(pa.array(alive))
        pq.write_table(rows, world.root / f"{table}_{number}.parquet", compression="zstd")


def _quiet(world: World, rows: int, target: int, times: int) -> list[dict]:
    """Compact quiet tables by turns, after a round to warm up."""
    ways = {"new": _new, "old": _old, "iceberg": _iceberg, "pyarrow": _pyarrow}
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for number in range(times + 1):
        for way, rewrite in ways.items():
            table = f"{way}{number}"
            (fill if way == "old" else made)(world, table, rows, 32)
            world.session.sql(f"delete from {world.name(table)} where id % 20 = 7")
            files = f"{world.name(table)}.files where content = 0"
            mb = world.session.sql(f"select sum(file_size_in_bytes) from {files}").first()[0] / 1e6
            took, cpu = spent(lambda: rewrite(world, table, target))  # noqa: B023
            found[way].append((mb / took, cpu))
        print("  by turns: " + ", ".join(f"{way} {t[-1][0]:.1f} MB/s, CPU {t[-1][1]:.1f} s" for way, t in found.items()), flush=True)  # fmt: skip
    assert len({checksum(world, f"{way}{times}") for way in ("new", "iceberg")}) == 1
    (new, cpu), (old, old_cpu), (iceberg, by_iceberg), (_, plain) = ([median(each) for each in zip(*t[1:], strict=True)] for t in found.values())  # fmt: skip
    what = f"{rows:,} rows, {mb:.0f} MB in 32 files, 5 % deleted; median of {times}; {CORES} groups at once"
    return [
        *both("compaction_mb_per_s", new / CORES, old / CORES, "MB/s/core", f"{what}; old: rows compared before the commit", 2),
        *both("compaction_iceberg_mb_per_s", iceberg / CORES, None, "MB/s/core", f"{what}; Iceberg's rewrite_data_files", 2),
        *both("compaction_cpu_vs_iceberg", cpu / by_iceberg, old_cpu / by_iceberg, "×", f"{what}; CPU {cpu:.1f} s, Iceberg's {by_iceberg:.1f} s"),
        *both("compaction_cpu_vs_pyarrow", cpu / plain, old_cpu / plain, "×", f"{what}; pyarrow reads, filters and writes the files without row ids, on one core: CPU {plain:.1f} s"),
    ]  # fmt: skip


def ready(root: str, options: dict[str, str]) -> None:
    """Start a session in the second process, at a lower priority."""
    os.nice(10)
    session_of(root, options, "1g")


def compacting(options: dict[str, str], name: str, target: int) -> tuple[dict[str, int], list[int]]:
    """Let the second process compact; return what was done, and how many attempts each swap took."""
    attempts, spark, wave, swap = [], SparkSession.getActiveSession(), compaction.swap_wave, LakeTable.swap
    if name.rpartition(".")[2].startswith("old"):
        s = MaintenanceSettings(target_file_mb=target, max_run_s=3600)
        return old_compaction.compact(spark, f"lake.{name}", s, "bench", print), attempts

    def counted(self, change) -> None:
        attempts[-1] += 1
        swap(self, change)

    with patch.object(compaction, "swap_wave", lambda *a: (attempts.append(0), wave(*a))[1]), patch.object(LakeTable, "swap", counted):  # fmt: skip
        return compaction.compact(Room(options, name, lambda: spark).table, target << 20, 1), attempts


def _beside(world: World, table: str, step: Callable[[], float], look: Callable[[], None], warm: int, target: int) -> tuple[list[float], list[float], tuple]:  # fmt: skip
    """Make a step each second, alone and then beside a compaction; return their seconds, and what that did."""
    begun, taken = [], ([], [])
    with other_process() as process:
        process.apply(ready, (str(world.root), world.lake))
        while not begun or not begun[0].ready():
            if len(taken[0]) == 2 * warm and not begun:
                begun.append(process.apply_async(compacting, (world.lake, f"{world.space}.{table}", target)))
            until = time.monotonic() + 1
            taken[len(begun)].append(step())
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 0.2))
                look()
        return taken[0][warm:], taken[1], begun[0].get()


def _ingesting(world: World, rows: int, files: int, warm: int, target: int) -> list[dict]:
    """Compact beside ingestion, first by the new library, then by the old one."""
    new, old = New(world, "busy", rows, files), Old(world, "old_busy", rows, files)
    room = new.room

    def look() -> None:
        room.table.refresh()
        room.segments.have(room.table)

    step = lambda: seconds(look) + new.step(RATE)  # noqa: E731
    alone, beside, (done, swaps) = _beside(world, "busy", step, look, warm, target)
    old_alone, old_beside, (old_done, _) = _beside(world, "old_busy", lambda: old.step(RATE), lambda: None, warm, target)  # fmt: skip
    assert_unique(world, "busy", "old_busy")
    print(f"  {done}, attempts {swaps}; old: {old_done}", flush=True)
    rises = [(f(beside) / f(alone), f(old_beside) / f(old_alone)) for f in (median, p99)]
    what = f"{rows:,} rows in {files} files, {RATE:,} changes each second; {len(alone)} batches alone, {len(beside)} beside {len(swaps)} swaps of a second process at nice 10; old: whole steps, {len(old_beside)} beside"
    return [
        *both("compaction_first_attempts", sum(n == 1 for n in swaps) / len(swaps), None, "share", f"{what}; {sum(swaps)} attempts"),
        *both("compaction_attempts", max(swaps), old_done["attempts"], "attempts", f"{what}; at most, for a group; {done['carried']} deletes carried", 0),
        *both("ingest_p50_rise", *rises[0], "ratio", f"{what}; {median(alone):.3f} → {median(beside):.3f} s", 2),
        *both("ingest_p99_rise", *rises[1], "ratio", what, 2),
        *both("ingest_p99_beside_s", p99(beside), p99(old_beside), "s", what),
        *both("ingest_p99_alone_s", p99(alone), p99(old_alone), "s", what),
    ]  # fmt: skip


def run(quick: bool = False) -> list[dict]:
    """Measure three times after a round to warm up; quick: once, on 400,000 rows."""
    rows, target, times = (400_000, 1, 1) if quick else (8_000_000, 24, 3)
    busy = (2_000_000, 16, 8, 4) if quick else (20_000_000, 64, 40, 12)
    with lake(f"local[{CORES}]") as world:
        return [*_quiet(world, rows, target, times), *_ingesting(world, *busy)]
