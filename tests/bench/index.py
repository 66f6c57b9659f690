"""Figure of the key index: how soon a driver with an empty disk has it.

The object store is a local folder: the copy from it is read and written on one disk, without a network.
"""

from __future__ import annotations

import shutil
import time

import numpy as np

from bench._lake import Changes, fill, lake
from frazil_old.flows.cdc import run as merge
from frazil_old.lake import index_store, jvm
from frazil_old.lake.index_sync import Locator

BATCH = 5_000


def started(rows: int, files: int) -> dict[str, float]:
    """Return the seconds in which a driver with an empty disk has an index of a real table, stored and not stored."""
    index_store.LEAST_ROWS = min(index_store.LEAST_ROWS, rows)
    with lake() as world:
        fill(world, "large", rows, files)
        book = world.book(lane="rowdelta", tables=["public.large"])
        changes = Changes(rows)
        changes.write(world, "large", BATCH)
        (done,) = merge(book)
        assert done.status == "merged", done.note
        name, table, found = world.name("large"), jvm.load_table(world.spark, world.name("large")), {}
        spec, folder = book.lanes.open[name].spec, book.lanes.folder
        keys = np.random.default_rng(3).integers(1, rows, BATCH)
        for way in ("stored", "built", "stored"):
            shutil.rmtree(folder, ignore_errors=True)  # a small index that was only built is in memory
            locator = Locator(world.spark, name, spec, folder)
            locator.store.refused = way == "built"
            began = time.perf_counter()
            locator.sync(table)
            assert (folder / name / "manifest.json").exists() == (way == "stored")
            locator.index.locate([keys])
            found[way] = time.perf_counter() - began
    return found


def run(quick: bool = False) -> list[dict]:
    """Start with an index of a real table from beside it."""
    rows, files = (400_000, 20) if quick else (20_000_000, 100)
    start = started(rows, files)
    told = f"{rows:,} rows, empty disk, stored in a local folder; with the lookup of {BATCH:,} keys; built from the table: {start['built']:.1f} s"
    return [{"name": "index_start_s", "value": round(start["stored"], 2), "unit": "s", "conditions": told}]
