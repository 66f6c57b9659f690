"""Figure of the key index: how soon a driver with an empty disk has it.

The object store is a local folder: the copy from it is read and written on one disk, without a network.
"""

from __future__ import annotations

import shutil

import numpy as np

from bench._lake import Changes, figure, fill, lake, merge, seconds
from frazil_old.lake import index_store, jvm
from frazil_old.lake.index_sync import Locator

BATCH = 5_000


def run(quick: bool = False) -> list[dict]:
    """Start with an index of a real table from beside it, and with one that is built."""
    rows, files = (400_000, 20) if quick else (20_000_000, 100)
    index_store.LEAST_ROWS = min(index_store.LEAST_ROWS, rows)
    with lake() as world:
        fill(world, "large", rows, files)
        book = world.book(lane="rowdelta", tables=["public.large"])
        Changes(rows).write(world, "large", BATCH)
        merge(book)
        name, table, start = world.name("large"), jvm.load_table(world.spark, world.name("large")), {}
        spec, folder = book.lanes.open[name].spec, book.lanes.folder
        keys = np.random.default_rng(3).integers(1, rows, BATCH)
        for way in ("stored", "built", "stored"):
            shutil.rmtree(folder, ignore_errors=True)  # a small index that was only built is in memory
            locator = Locator(world.spark, name, spec, folder)
            locator.store.refused = way == "built"
            start[way] = seconds(lambda: (locator.sync(table), locator.index.locate([keys])))  # noqa: B023
            assert (folder / name / "manifest.json").exists() == (way == "stored")
    told = f"{rows:,} rows, empty disk, stored in a local folder; with the lookup of {BATCH:,} keys; built from the table: {start['built']:.1f} s"
    return [figure("index_start_s", start["stored"], "s", told)]
