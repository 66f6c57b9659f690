"""Figures of the key index: how soon a driver with an empty disk has it, and what a row of it takes of disk and memory.

The object store is a local folder: the copy from it is read and written on one disk, without a network.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np

from bench._lake import Changes, fill, lake
from frazil_old.flows.cdc import run as merge
from frazil_old.lake import index_store, jvm
from frazil_old.lake.index_sync import Locator
from frazil_old.lake.key_index import KeyIndex

BATCH, SLICE, PER_FILE = 5_000, 5_000_000, 1_000_000


def anonymous_mb() -> float:
    """Return the memory of this process that is no mapped file, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) / 1024


class Peak:
    """Takes the highest `anonymous_mb` of a block, each 20 ms."""

    def __enter__(self) -> Peak:
        self.mb, self.over = anonymous_mb(), Event()
        self.thread = Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.over.wait(0.02):
            self.mb = max(self.mb, anonymous_mb())

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def build(folder: Path, rows: int) -> dict[str, float]:
    """Build an index with row ids from slices. A slice holds every n-th key, so all slices are merged with each other."""
    index, slices, began = KeyIndex(folder, "bench", 1, True), -(-rows // SLICE), time.perf_counter()
    with Peak() as peak:
        for n in range(slices):
            keys = np.arange(n, rows, slices, dtype=np.int64)
            at = np.arange(n * SLICE, n * SLICE + len(keys))
            file = (at // PER_FILE).astype(np.int32)
            index.marks |= {f"f{number}": "" for number in range(file[-1] + 1)}
            assert [index.number(path) for path in index.marks] == [*range(file[-1] + 1)]
            index.extend([keys], file, (at % PER_FILE).astype(np.int32), keys)
        index.compact()
        index.snapshot = 1
        index.save()
    return {"build_s": time.perf_counter() - began, "build_mb": peak.mb}


def use(folder: Path, rows: int) -> dict[str, float]:
    """Open an index, look keys up and add batches, then forget the rows of a file."""
    index, random, timed = KeyIndex(folder, "bench", 1, True), np.random.default_rng(1), []
    empty, began = anonymous_mb(), time.perf_counter()
    with Peak() as peak:
        assert index.load() and index.count() == rows
        opened = time.perf_counter() - began
        for n in range(40):
            keys, began = np.unique(random.integers(0, rows, BATCH)), time.perf_counter()
            assert (index.locate([keys])[0] >= 0).all()
            timed.append(time.perf_counter() - began)
            place = np.full(len(keys), index.number(f"g{n}"), np.int32), np.arange(len(keys), dtype=np.int32)
            index.add([keys], *place, keys)
        size, steady = index.bytes, anonymous_mb()
        index.forget({3}, [])
        assert rows - PER_FILE <= index.count() <= rows - 0.9 * PER_FILE
    return {"open_s": opened, "locate_ms": float(np.median(timed)) * 1e3, "bytes": size / rows,
            "empty_mb": empty, "mb": steady, "use_mb": peak.mb}  # fmt: skip


def in_processes(rows: int) -> dict[str, float]:
    """Build and use a synthetic index, each in a process of its own; return figures of memory and time."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder:
        for step in ("build", "use"):
            code = (
                "import json, sys; from pathlib import Path; from bench import index; "
                f"print(json.dumps(index.{step}(Path(sys.argv[1]), {rows})))"
            )
            paths = {"PYTHONPATH": ":".join(filter(None, sys.path))}
            ran = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, env=paths)
            assert not ran.returncode, ran.stderr
            found |= json.loads(ran.stdout)
    return found


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
    """Start with an index of a real table from beside it, and measure a synthetic one of many rows."""
    rows, files, many, few = (
        (400_000, 20, 10_000_000, 5_000_000) if quick else (20_000_000, 100, 200_000_000, 20_000_000)
    )
    start, large, small = started(rows, files), in_processes(many), in_processes(few)
    growth = (large["mb"] - small["mb"]) * 2**20 / (many - few)
    told = f"synthetic index with row ids, {many:,} rows, after 40 batches of {BATCH:,}"
    billion = large["mb"] + max(growth, 0.0) * (1e9 - many) / 2**20
    return [
        {"name": "index_start_s", "value": round(start["stored"], 2), "unit": "s",
         "conditions": f"{rows:,} rows, empty disk, stored in a local folder; with the lookup of {BATCH:,} keys; built from the table: {start['built']:.1f} s"},
        {"name": "index_stored_bytes_per_row", "value": round(large["bytes"], 1), "unit": "B", "conditions": f"{told}; on disk"},
        {"name": "index_anon_mb", "value": round(large["mb"]), "unit": "MB",
         "conditions": f"{told}; RssAnon, {large['empty_mb']:.0f} MB before; at most {large['build_mb']:.0f} MB in a build, {large['use_mb']:.0f} MB in a scan; {few:,} rows: {small['mb']:.0f} MB"},
        {"name": "index_anon_bytes_per_row", "value": round(growth, 3), "unit": "B",
         "conditions": f"growth of RssAnon from {few:,} to {many:,} rows; 1,000,000,000 rows: {billion:,.0f} MB"},
        {"name": "index_open_ms", "value": round(1e3 * large["open_s"], 1), "unit": "ms", "conditions": f"{told}; from local disk"},
        {"name": "index_locate_ms", "value": round(large["locate_ms"], 1), "unit": "ms", "conditions": f"{told}; {BATCH:,} random keys, blocks checked as they are read"},
    ]  # fmt: skip
