"""Figures of compaction on a quiet table: MB/s beside Iceberg's own `rewrite_data_files`, and one file group at once against two.

Each way rewrites a table of its own with the same files, in turns. At the end all tables have the same rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from unittest.mock import patch

from bench._lake import fill, lake
from frazil_old.config.settings import MaintenanceSettings
from frazil_old.lake import compaction
from helpers import World

CORES = 2


def _table(world: World, name: str, rows: int, files: int) -> str:
    """Make a table of small files in which 5 % of the rows are deleted, and return its full name."""
    fill(world, name, rows, files)
    world.spark.sql(f"delete from {world.name(name)} where id % 20 = 7")
    return world.name(name)


def _mb(world: World, table: str) -> float:
    return world.spark.sql(f"select sum(file_size_in_bytes) from {table}.files where content = 0").first()[0] / 1e6


def _timed(world: World, table: str, rewrite: Callable[[str], object]) -> float:
    """Rewrite a table, and return its MB per second before it was rewritten."""
    mb, began = _mb(world, table), time.perf_counter()
    rewrite(table)
    return mb / (time.perf_counter() - began)


def _frazil(world: World, s: MaintenanceSettings, at_once: int) -> Callable[[str], object]:
    def rewrite(table: str) -> None:
        with patch.object(compaction, "at_once", lambda *_: at_once):
            done = compaction.compact(world.spark, table, s, f"bench {at_once}", print)
        assert done["file_groups"] > at_once and not done["given_up"], done

    return rewrite


def _iceberg(world: World, s: MaintenanceSettings) -> Callable[[str], object]:
    size = s.target_file_mb << 20
    options = {"target-file-size-bytes": size, "max-file-group-size-bytes": size, "min-input-files": 2,
               "max-concurrent-file-group-rewrites": CORES, "partial-progress.enabled": "true", "delete-ratio-threshold": 0.01}  # fmt: skip
    given = ", ".join(f"'{k}', '{v}'" for k, v in options.items())

    def rewrite(table: str) -> None:
        catalog, name = table.split(".", 1)
        call = f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map({given}))"
        done = world.spark.sql(call).first()
        assert done.added_data_files_count > CORES and not done.failed_data_files_count, done

    return rewrite


def run(quick: bool = False) -> list[dict]:
    """Measure three times after a round to warm up; quick: once, on 400,000 rows."""
    rows, files, target, times = (400_000, 32, 1, 1) if quick else (8_000_000, 32, 24, 3)
    s = MaintenanceSettings(target_file_mb=target, max_run_s=3600)
    before = os.environ.get("FRAZIL_MASTER")
    os.environ["FRAZIL_MASTER"] = f"local[{CORES}]"
    try:
        with lake() as world:
            ways = {"one": _frazil(world, s, 1), "two": _frazil(world, s, CORES), "iceberg": _iceberg(world, s)}
            found: dict[str, list[float]] = {way: [] for way in ways}
            for number in range(times + 1):  # the first round warms up
                for way, rewrite in ways.items():
                    table = _table(world, f"{way}{number}", rows, files)
                    found[way].append(_timed(world, table, rewrite))
            mb = _mb(world, world.name(f"one{times}"))
            sums = {world.spark.table(world.name(f"{way}{times}")).selectExpr("count(*)", "bit_xor(xxhash64(*))").first() for way in ways}  # fmt: skip
    finally:
        os.environ.pop("FRAZIL_MASTER") if before is None else os.environ.update(FRAZIL_MASTER=before)
    assert len(sums) == 1, sums
    rate = {way: median(each[1:]) for way, each in found.items()}
    what = f"{rows:,} rows, {mb:.0f} MB afterwards, {files} files, 5 % deleted, local[{CORES}]; median of {times}"
    return [
        {"name": "compaction_mb_per_s", "value": round(rate["two"] / CORES, 2), "unit": "MB/s/core",
         "conditions": f"{what}; rows compared before the commit; {CORES} groups at once"},
        {"name": "compaction_iceberg_mb_per_s", "value": round(rate["iceberg"] / CORES, 2), "unit": "MB/s/core",
         "conditions": f"{what}; Iceberg's rewrite_data_files, {CORES} groups at once, no comparison"},
        {"name": "compaction_parallel_speedup", "value": round(rate["two"] / rate["one"], 2), "unit": "ratio",
         "conditions": f"{what}; {CORES} groups at once against one; {rate['one']:.1f} MB/s one at a time"},
    ]  # fmt: skip
