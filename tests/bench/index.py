"""Figures of where keys lie: how soon a run has segments of a large table in memory, and their bytes a row, beside the old index."""

from __future__ import annotations

import gc
import shutil
from statistics import median

import numpy as np
import psutil
import pyarrow as pa

from bench._lake import Changes, fill, lake, merge, seconds
from bench._room import both, made, opened
from frazil.iceberg.locate import locate
from frazil_old.lake import jvm
from frazil_old.lake.index_sync import Locator

BATCH = 5_000
CODE = "concat('customer-', lpad(cast(id as string), 10, '0')) code"
KEYS = {"": ("id", list), "text_": ("code", lambda ids: [f"customer-{n:010d}" for n in ids])}


def _resident() -> int:
    gc.collect()
    pa.default_memory_pool().release_unused()
    return psutil.Process().memory_info().rss


def _new(world, table: str, rows: int, kind: str) -> tuple[float, float, float]:
    """Return the seconds until the segments are there, those of a lookup, and the growth of the process, in bytes a row."""
    column, values = KEYS[kind]
    room, ids = opened(world, table, key=column), np.random.default_rng(3).choice(rows, BATCH, replace=False) + 1
    keys, found = pa.table({column: values(ids.tolist())}), []
    assert room.table.live_files
    before = _resident()
    built = seconds(lambda: room.segments.have(room.table))
    looked = seconds(lambda: found.extend(locate(room.table, room.segments, keys)))
    assert sum(len(f.n) for f in found) == BATCH
    return built, looked, (_resident() - before) / rows


def _old(world, rows: int) -> tuple[float, float]:
    """Return the seconds until the old index is built, with a lookup; and its bytes a row on disk."""
    book = world.book(lane="rowdelta", tables=["public.large"])
    Changes(rows).write(world.source, "large", BATCH)
    merge(book)
    name, table = world.name("large"), jvm.load_table(world.session, world.name("large"))
    folder, keys = book.lanes.folder, np.random.default_rng(3).integers(1, rows, BATCH)
    shutil.rmtree(folder, ignore_errors=True)
    locator = Locator(world.session, name, book.lanes.open[name].spec, folder)
    locator.store.refused = True
    took = seconds(lambda: (locator.sync(table), locator.index.locate([keys])))
    return took, locator.index.bytes / locator.index.count()


def run(quick: bool = False) -> list[dict]:
    """Build the segments of both kinds of keys by turns, and the old index."""
    rows, files, times = (400_000, 20, 1) if quick else (20_000_000, 100, 5)
    with lake() as world:
        table = made(world, "new", rows, files, more=CODE)
        turns = [{kind: _new(world, table, rows, kind) for kind in KEYS} for _ in range(times)]
        fill(world, "large", rows, files)
        old, old_size = _old(world, rows)
    figures = []
    for kind in KEYS:
        built, looked, size = (median(each) for each in zip(*(turn[kind] for turn in turns), strict=True))
        what = f"{rows:,} rows in {files} files, {'text' if kind else 'bigint'} keys; median of {times}"
        told = f"{what}; then {BATCH:,} keys in {1000 * looked:.0f} ms; old: built from the table, with the lookup"
        figures += both(f"index_{kind}start_s", built, None if kind else old, "s", told)
        told = f"{what}; growth of the process; old: on disk"
        figures += both(f"index_{kind}bytes_per_row", size, None if kind else old_size, "B", told, 1)
    return figures
