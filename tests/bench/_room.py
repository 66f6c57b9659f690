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

from bench._lake import MEMORY, NAMES, ROOT, TYPED, VALUES, Changes, seconds
from frazil.core.latest import Latest
from frazil.dms.position import Position
from frazil.iceberg import compaction, delete_files, row_delta, swap
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.table import LakeTable
from frazil_old.config.settings import Settings
from frazil_old.config.spark_session import get_spark
from helpers import World
from unit.iceberg_world import replace_position

INT, MONEY, TEXT = pa.int32(), pa.decimal128(12, 2), pa.string()
KINDS = [pa.int64(), INT, INT, MONEY, MONEY, pa.timestamp("us"), TEXT, TEXT]
CHANGED = [pa.scalar(v, k) for v, k in zip((7, 7, Decimal("12.50"), Decimal("99.90"), datetime(2026, 1, 1), "paid", "changed"), KINDS[1:], strict=True)]  # fmt: skip
PARTS = {"locate": (row_delta, "locate"), "data file": (row_delta, "_write_rows"), "vectors": (delete_files.Vectors, "write"), "swap": (LakeTable, "swap")}  # fmt: skip


class Room:
    """A table as a run of the new library has it open."""

    def __init__(self, options: dict[str, str], name: str, session: Callable, key: str = "id", segments: bool = True):
        uri = options["uri"].replace("jdbc:sqlite:", "sqlite:///")
        self.table = LakeTable(SqlCatalog("lake", uri=uri, warehouse=options["warehouse"]), name, [key], session)
        self.segments, self.steps = Segments() if segments else None, 0

    def commit(self, batch: Latest) -> None:
        self.commit_change(lambda: row_delta.write_batch(self.table, self.segments, batch))

    def commit_change(self, write: Callable[[], swap.Change]) -> None:
        planned = self.table.position
        swap.commit(self.table, swap.written(self.table, write()), write, planned, replace_position(planned))

    def care(self) -> None:
        """Fold small files after each sixteenth step, as a continuous run does."""
        self.steps += 1
        if self.steps % 16 == 0:
            compaction.fold(self.table)


def made(world: World, name: str, rows: int, files: int, version: int = 3, more: str = "") -> str:
    """Make a table of the new library with the rows of `fill`, and one text more; return its name in the catalog."""
    table, deltas = f"{world.space}.{name}", ", ".join(f"'write.{w}.mode'='merge-on-read'" for w in ("merge", "delete"))
    columns = TYPED.replace("bigint", "bigint not null") + (f", {more.split()[-1]} string" if more else "")
    world.session.sql(f"create namespace if not exists lake.{world.space}")
    world.session.sql(f"create table lake.{table} ({columns}) using iceberg tblproperties('format-version'='{version}', 'write.distribution-mode'='none', {deltas})")  # fmt: skip
    ids = world.session.range(1, rows + 1, 1, files).selectExpr(*VALUES, *([more] if more else []))
    ids.writeTo(f"lake.{table}").option("snapshot-property.frazil.position", Position().text).append()
    return table


def opened(world: World, table: str, **more) -> Room:
    """Open a table of the new library in the session of a world."""
    return Room(world.catalog_options, table, lambda: world.session, **more)


def batch(ids: np.ndarray, deleted: int = 0) -> Latest:
    """Return changes of keys, of which the last ones are deleted, as the last change of each key."""
    keys, n = pa.table({"id": ids}), len(ids) - deleted
    rows = pa.table([keys["id"][:n], *(pa.repeat(value, n) for value in CHANGED)], names=NAMES)
    return Latest(keys, np.arange(len(ids)), np.arange(len(ids)) >= n, rows, None, keys[:0], keys[:0])


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
        found = real(*arguments, **named)
        taken[label] += time.perf_counter() - began
        return found

    return wrapped


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a piece of work, and the CPU seconds of this process, the JVM, and Python in Spark's tasks."""
    os.sync()
    before, took = cpu_s(), seconds(work)
    return took, cpu_s() - before


def cpu_s() -> float:
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (me, *me.children(recursive=True)))


def p99(taken: list[float]) -> float:
    """Return what 99 of 100 steps keep to; of fewer steps the longest one."""
    return sorted(taken)[min(len(taken) - 1, int(0.99 * len(taken)))]


def both(name: str, new: float, old: float | None, unit: str, conditions: str, digits: int = 3) -> list[dict]:
    """Return the rows of a figure, of both libraries or of the new one alone."""
    more = {"unit": unit, "conditions": f"{conditions}; load {os.getloadavg()[0]:.1f}"}
    return [{"name": name + "_old" * (h == "old"), "value": round(v, digits), **more, "house": h} for h, v in (("new", new), ("old", old)) if v is not None]  # fmt: skip


def child(world: World, function: str, *words: object) -> subprocess.Popen:
    """Call `module.function` of this package in a process of its own, with the world's folder and catalog; it talks by lines."""
    module, name = function.split(".")
    script = f"import sys; from bench.{module} import {name}; {name}(*sys.argv[1:])"
    words = (world.root, json.dumps(world.catalog_options), *words)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/lib:{ROOT}/tests"}
    return subprocess.Popen([sys.executable, "-c", script, *map(str, words)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip


def session_of(root: str, options: dict[str, str], memory: str = "3g"):
    """Start the session of a child."""
    conf = {**MEMORY, "spark.driver.memory": memory}
    return get_spark(Settings(root=root, catalog_options=options, spark_options=conf))


def told(process: subprocess.Popen) -> dict:
    """Return what a child says in its last line."""
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return json.loads(said.splitlines()[-1])
