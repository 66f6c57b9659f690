"""Figures of compaction on a quiet table: MB/s beside Iceberg's own `rewrite_data_files`, and one file group at once against two.

Each way rewrites a table of its own with the same files, in turns. At the end all tables have the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from unittest.mock import patch

from bench._lake import checksum, figure, fill, lake, seconds
from frazil_old.config.settings import MaintenanceSettings
from frazil_old.lake import compaction
from helpers import World

CORES = 2


def _mb(world: World, table: str) -> float:
    return world.spark.sql(f"select sum(file_size_in_bytes) from {world.name(table)}.files where content = 0").first()[0] / 1e6  # fmt: skip


def _frazil(world: World, s: MaintenanceSettings, at_once: int) -> Callable[[str], None]:
    def rewrite(table: str) -> None:
        with patch.object(compaction, "at_once", lambda *_: at_once):
            done = compaction.compact(world.spark, world.name(table), s, f"bench {at_once}", print)
        assert done["file_groups"] > at_once and not done["given_up"], done

    return rewrite


def _iceberg(world: World, s: MaintenanceSettings) -> Callable[[str], None]:
    size = s.target_file_mb << 20
    options = {"target-file-size-bytes": size, "max-file-group-size-bytes": size, "min-input-files": 2,
               "max-concurrent-file-group-rewrites": CORES, "partial-progress.enabled": "true", "delete-ratio-threshold": 0.01}  # fmt: skip
    given = ", ".join(f"'{k}', '{v}'" for k, v in options.items())

    def rewrite(table: str) -> None:
        call = f"CALL lake.system.rewrite_data_files(table => '{world.space}.{table}', options => map({given}))"
        done = world.spark.sql(call).first()
        assert done.added_data_files_count > CORES and not done.failed_data_files_count, done

    return rewrite


def run(quick: bool = False) -> list[dict]:
    """Measure three times after a round to warm up; quick: once, on 400,000 rows."""
    rows, files, target, times = (400_000, 32, 1, 1) if quick else (8_000_000, 32, 24, 3)
    s = MaintenanceSettings(target_file_mb=target, max_run_s=3600)
    with lake(f"local[{CORES}]") as world:
        ways = {"one": _frazil(world, s, 1), "two": _frazil(world, s, CORES), "iceberg": _iceberg(world, s)}
        found: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(times + 1):
            for way, rewrite in ways.items():
                table = f"{way}{number}"
                fill(world, table, rows, files)
                world.spark.sql(f"delete from {world.name(table)} where id % 20 = 7")
                mb = _mb(world, table)
                found[way].append(mb / seconds(lambda: rewrite(table)))  # noqa: B023
        mb = _mb(world, f"one{times}")
        assert len({checksum(world, f"{way}{times}") for way in ways}) == 1
    one, two, iceberg = (median(each[1:]) for each in found.values())
    what = f"{rows:,} rows, {mb:.0f} MB afterwards, {files} files, 5 % deleted, local[{CORES}]; median of {times}"
    return [
        figure("compaction_mb_per_s", two / CORES, "MB/s/core", f"{what}; rows compared before the commit; {CORES} groups at once"),
        figure("compaction_iceberg_mb_per_s", iceberg / CORES, "MB/s/core", f"{what}; Iceberg's rewrite_data_files, {CORES} groups at once, no comparison"),
        figure("compaction_parallel_speedup", two / one, "ratio", f"{what}; {CORES} groups at once against one; {one:.1f} MB/s one at a time"),
    ]  # fmt: skip
