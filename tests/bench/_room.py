"""Tables of the new Iceberg room in a benchmark's lake, beside those of the old library; and what watches a measured step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from decimal import Decimal
from unittest.mock import patch

import numpy as np
import psutil
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from bench._lake import NAMES, ROOT, TYPED, VALUES, Changes
from frazil.core.latest import Latest
from frazil.dms.position import Position
from frazil.iceberg import compaction, delete_files, row_delta, swap
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.table import LakeTable
from helpers import World
from unit.iceberg_world import replace_position

SCHEMA = pa.schema([*zip(NAMES, [pa.int64(), pa.int32(), pa.int32(), pa.decimal128(12, 2), pa.decimal128(12, 2), pa.timestamp("us"), pa.string(), pa.string()], strict=True)])  # fmt: skip
CHANGED = (7, 7, Decimal("12.50"), Decimal("99.90"), datetime(2026, 1, 1), "paid", "changed")
"""What the files of `Changes` have after the key."""
PARTS = {"locate": (row_delta, "locate"), "data file": (row_delta, "_write_rows"), "vectors": (delete_files.Vectors, "write"), "swap": (LakeTable, "swap")}  # fmt: skip


class Room:
    """A table as a run of the new library has it open."""

    def __init__(self, options: dict[str, str], name: str, session: Callable, key: str = "id", segments: bool = True):
        uri = options["uri"].replace("jdbc:sqlite:", "sqlite:///")
        catalog = SqlCatalog("lake", uri=uri, warehouse=options["warehouse"])
        self.table, self.session = LakeTable(catalog, name, [key], session), session
        self.segments, self.steps = Segments() if segments else None, 0

    def commit(self, batch: Latest) -> None:
        """Commit a batch."""
        self.commit_change(lambda: row_delta.write_batch(self.table, self.segments, batch))

    def commit_change(self, write: Callable[[], swap.Change]) -> None:
        """Commit what is written, once, with the next position."""
        planned = self.table.position
        swap.commit(self.table, swap.written(self.table, write()), write, planned, replace_position(planned))

    def care(self) -> None:
        """Fold small files after each sixteenth step, as a continuous run does."""
        self.steps += 1
        if self.steps % 16 == 0:
            compaction.fold(self.table)


def made(world: World, name: str, rows: int, files: int, version: int = 3, more: str = "") -> str:
    """Make a table of the new library with the rows of `fill`, and one column more; return its name in the catalog."""
    table, options = f"{world.space}.{name}", f"'format-version'='{version}', 'write.merge.mode'='merge-on-read', 'write.delete.mode'='merge-on-read', 'write.distribution-mode'='none'"  # fmt: skip
    extra = f", {more.split()[-1]} string" if more else ""
    world.session.sql(f"create namespace if not exists lake.{world.space}")
    world.session.sql(f"create table lake.{table} ({TYPED.replace('bigint', 'bigint not null')}{extra}) using iceberg tblproperties({options})")  # fmt: skip
    ids = world.session.range(1, rows + 1, 1, files).selectExpr(*VALUES, *([more] if more else []))
    ids.writeTo(f"lake.{table}").option("snapshot-property.frazil.position", Position().text).append()
    return table


def opened(world: World, table: str, **more) -> Room:
    """Open a table of the new library in the session of a world."""
    return Room(world.catalog_options, table, lambda: world.session, **more)


def batch(ids: np.ndarray, deleted: int) -> Latest:
    """Return changes of keys, of which the last ones are deleted, as the last change of each key."""
    keys = pa.table({"id": pa.array(ids)})
    kept = len(ids) - deleted
    same = [pa.repeat(pa.scalar(v, f.type), kept) for v, f in zip(CHANGED, [*SCHEMA][1:], strict=True)]
    rows = pa.table([keys["id"][:kept], *same], schema=SCHEMA)
    return Latest(keys, np.arange(len(ids)), np.arange(len(ids)) >= kept, rows, None, keys[:0], keys[:0])


def drawn(changes: Changes, count: int) -> Latest:
    """Return random changes, of the mix that `Changes` writes to a file, from Arrow."""
    updates, new, gone = changes.draw(count)
    return batch(np.concatenate([updates, new, gone]), len(gone))


@contextmanager
def parts() -> Iterator[Counter]:
    """Add up the seconds of a commit's parts."""
    taken: Counter = Counter()
    with ExitStack() as stack:
        for label, (owner, name) in PARTS.items():
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name), taken, label)))
        yield taken


def timed(real: Callable, taken: Counter, label: str) -> Callable:
    """Return a function that also adds its seconds to a counter."""

    def wrapped(*arguments, **named):
        began = time.perf_counter()
        try:
            return real(*arguments, **named)
        finally:
            taken[label] += time.perf_counter() - began

    return wrapped


def cpu_s() -> float:
    """Return the CPU seconds so far of this process, the JVM, and the Python processes of Spark's tasks."""
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (me, *me.children(recursive=True)))


def p99(seconds: list[float]) -> float:
    """Return the time that 99 of 100 steps keep to; of fewer steps the longest one."""
    return sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]


def both(name: str, new: float, old: float | None, unit: str, conditions: str, digits: int = 3) -> list[dict]:
    """Return the rows of a figure that both libraries have."""
    told = {"unit": unit, "conditions": f"{conditions}; load {os.getloadavg()[0]:.1f}"}
    found = [{"name": name, "value": round(new, digits), **told, "house": "new"}]
    return found if old is None else [*found, {"name": f"{name}_old", "value": round(old, digits), **told, "house": "old"}]  # fmt: skip


def child(script: str, *words: object) -> subprocess.Popen:
    """Start Python code in a process of its own, which talks by lines; `told` reads its last one."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/lib:{ROOT}/tests"}
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen) -> dict:
    """Return what a child says at its end."""
    said, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(said.splitlines()[-1])
