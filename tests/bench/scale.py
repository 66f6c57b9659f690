"""Figures of very large tables: 100,000 data files in a driver's memory, 10,000 files in one commit, and 1 G rows looked up by key bounds.

Most files are synthetic: their entries in the manifests are real, and nothing reads them. The old library commits only
files that it wrote itself, so it has no such figures.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench._lake import lake, peak_mb, seconds
from bench._room import Room, batch, both, made, opened, other_process, session_of
from frazil.iceberg.commits import Change
from frazil.iceberg.live_files import LiveFile
from frazil.iceberg.locate import locate, scan_files
from frazil.iceberg.row_delta import write_rows

ROWS, BATCH = 500_000, 5_000
"""Rows of a synthetic file, and keys of a batch."""


def _synthetic(like: LiveFile, first: int, count: int, link: bool = False) -> Iterator[LiveFile]:
    """Yield files with the statistics of a real one, of which each has the next range of keys; `link`: with its content."""
    real, told = Path(like.path.removeprefix("file:")), json.dumps(like.statistics)
    for number in range(first, first + count):
        path, statistics = f"{like.path[:-8]}-{number}.parquet", json.loads(told)
        for side, key in (("lower-bounds", number * ROWS), ("upper-bounds", (number + 1) * ROWS - 1)):
            statistics[side]["values"][0] = struct.pack("<q", key).hex().upper()
        if link:
            real.with_name(Path(path).name).hardlink_to(real)
        yield replace(like, path=path, rows=ROWS, statistics=statistics)


def opening(root: str, options: dict[str, str], table: str) -> dict[str, float]:
    """Be a new driver: open a table, read its live files, commit a few rows twice; return seconds and peaks of memory."""
    rooms, found = [], {"before_mb": peak_mb("self")}
    session = lambda: session_of(root, options, "3g")  # noqa: E731
    found["open_s"] = seconds(lambda: rooms.append(Room(options, table, session, segments=False)))
    found["live_files_s"] = seconds(lambda: rooms[0].table.live_files)
    found["no_jvm_mb"] = peak_mb("self")
    for name, key in (("first_commit_s", 10**15), ("commit_s", 10**16)):
        found[name] = seconds(lambda: rooms[0].commit(batch(np.arange(key, key + 5))))  # noqa: B023
    java = session().sparkContext._jvm.java.lang
    java.Runtime.getRuntime().gc()
    found["heap_mb"] = (java.Runtime.getRuntime().totalMemory() - java.Runtime.getRuntime().freeMemory()) / 2**20
    found |= {"peak_mb": peak_mb("self"), "jvm_mb": peak_mb(java.ProcessHandle.current().pid())}
    return {name: round(value, 2) for name, value in found.items()}


def _many_files(world, files: int, at_once: int) -> list[dict]:
    """Commit many files in parts; then let a new driver open the table."""
    room, loads = opened(world, made(world, "many", 0, 1), segments=False), []
    (like,) = write_rows(room.table, "append", [batch(np.arange(1000)).rows]).add
    for first in range(0, files, at_once):
        change = Change("append", add=[*_synthetic(like, first, at_once)])
        loads.append(seconds(lambda: room.commit_change(lambda: change)))  # noqa: B023
    size = len(change.to_json(room.table.metadata)) / 1e6
    with other_process() as driver:
        said = driver.apply(opening, (str(world.root), world.lake, f"{world.space}.many"))
    print(f"  commits of {at_once:,} files: " + ", ".join(f"{s:.1f}" for s in loads) + f" s; a new driver: {said}", flush=True)  # fmt: skip
    what = f"{files:,} data files; opened in {said['open_s']:.1f} s, live files in {said['live_files_s']:.1f} s"
    return [
        *both(f"driver_rss_mb_{files // 1000}k_files", said["peak_mb"] + said["heap_mb"], None, "MB", f"{what}; peak of Python {said['peak_mb']:.0f}, {said['before_mb']:.0f} before; the JVM holds {said['heap_mb']:.0f} of its {said['jvm_mb']:.0f}", 0),
        *both("scale_commit_s", said["commit_s"], None, "s", f"{what}; 5 new rows, the second commit"),
        *both("scale_load_s", loads[0], None, "s", f"{at_once:,} files in one commit, {size:.0f} MB of JSON; the last of {len(loads)} took {loads[-1]:.1f} s", 1),
    ]  # fmt: skip


def _large(world, files: int) -> list[dict]:
    """Look up recent and random keys in a table of many rows; its files share one content on disk."""
    room, found = opened(world, made(world, "large", 0, 1), segments=False), []
    (like,) = write_rows(room.table, "append", [batch(np.arange(-ROWS, 0)).rows]).add
    change = Change("append", add=[*_synthetic(like, 0, files, link=True)])
    room.commit_change(lambda: change)
    footer, last = pq.ParquetFile(like.path.removeprefix("file:")).metadata, files * ROWS
    of_keys = sum(footer.row_group(n).column(0).total_compressed_size for n in range(footer.num_row_groups))
    for name, first in (("recent", last - 50_000), ("random", 0)):
        keys, read = pa.table({"id": np.random.default_rng(1).choice(last - first, BATCH, replace=False) + first}), []
        took = seconds(lambda: locate(room.table, lambda scan, files: (read.append(len(files)), scan_files(scan, files))[1], keys))  # noqa: B023  # fmt: skip
        what = f"{last:,} rows in {files:,} files; {BATCH:,} {name} keys: {read[0]:,} files, {read[0] * of_keys / 1e6:.0f} MB, {took:.1f} s; of the key columns' bytes"
        found += both(f"scale_read_{name}_share", read[0] / files, None, "share", what, 4)
    return found


def run(quick: bool = False) -> list[dict]:
    """Measure; quick: 5,000 files, and 200 of the large table."""
    with lake() as world:
        many = _many_files(world, *((5_000, 1_000) if quick else (100_000, 10_000)))
        return [*many, *_large(world, 200 if quick else 2_000)]
