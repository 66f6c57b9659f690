"""Tables of the new Iceberg room in a benchmark's lake, beside those of the old library; and what watches a measured step."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from statistics import median
from unittest.mock import patch

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from bench._lake import MEMORY, NAMES, TYPED, VALUES, Changes, World, fill, merge, seconds, upsert
from frazil.core.latest import Latest
from frazil.dms.position import Position
from frazil.iceberg import commits, compaction, row_delta
from frazil.iceberg.delete_files import Vectors
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.locate import scan_files
from frazil.iceberg.table import LakeTable
from frazil_old.config.settings import Settings
from frazil_old.config.spark_session import get_spark
from frazil_old.lake.row_delta import RowDelta
from unit.iceberg_world import replace_position

MONEY = pa.decimal128(12, 2)
CHANGED = [pa.scalar(7, pa.int32())] * 2 + [pa.scalar(Decimal(m), MONEY) for m in ("12.50", "99.90")] + [pa.scalar(datetime(2026, 1, 1)), pa.scalar("paid"), pa.scalar("changed")]  # fmt: skip
"""What the files of `Changes` have after the key."""
PARTS = {"locate": (row_delta, "locate"), "data_file": (row_delta, "_write_rows"), "vectors": (Vectors, "write"), "swap": (LakeTable, "swap")}  # fmt: skip


class Room:
    """A table as a run of the new library has it open."""

    def __init__(self, options: dict[str, str], name: str, session: Callable, key: str = "id", segments: bool = True):
        uri = options["uri"].replace("jdbc:sqlite:", "sqlite:///")
        self.table = LakeTable(SqlCatalog("lake", uri=uri, warehouse=options["warehouse"]), name, [key], session)
        self.segments = Segments() if segments else scan_files

    def commit(self, batch: Latest) -> None:
        self.commit_change(lambda: row_delta.write_batch(self.table, self.segments, batch))

    def commit_change(self, write: Callable[[], commits.Change]) -> None:
        planned = self.table.position
        commits.commit(self.table, commits.written(self.table, write()), write, planned, replace_position(planned))


def made(world: World, name: str, rows: int, files: int, version: int = 3, more: str = "") -> str:
    """Make a table of the new library with the rows of `fill`, and one text more; return its name in the catalog."""
    table, deltas = f"{world.space}.{name}", "'write.merge.mode'='merge-on-read', 'write.delete.mode'='merge-on-read'"
    columns = TYPED.replace("bigint", "bigint not null") + (f", {more.split()[-1]} string" if more else "")
    world.session.sql(f"create namespace if not exists lake.{world.space}")
    world.session.sql(f"create table lake.{table} ({columns}) using iceberg tblproperties('format-version'='{version}', 'write.distribution-mode'='none', {deltas})")  # fmt: skip
    ids = world.session.range(1, rows + 1, 1, files).selectExpr(*VALUES, *([more] if more else []))
    ids.writeTo(f"lake.{table}").option("snapshot-property.frazil.position", Position().text).append()
    return table


def opened(world: World, table: str, **more) -> Room:
    """Open a table of the new library in the session of a world."""
    return Room(world.lake, table, lambda: world.session, **more)


def batch(ids: np.ndarray, deleted: int = 0) -> Latest:
    """Return changes of keys, of which the last ones are deleted, as the last change of each key."""
    keys, n = pa.table({"id": ids}), len(ids) - deleted
    rows = pa.table([keys["id"][:n], *(pa.repeat(value, n) for value in CHANGED)], names=NAMES)
    return Latest(keys, np.arange(len(ids)), np.arange(len(ids)) >= n, rows, None, keys[:0], keys[:0])


def drawn(changes: Changes, count: int) -> Latest:
    """Return random changes, of the mix that `Changes` writes to a file, from Arrow."""
    updates, new, gone = changes.draw(count)
    return batch(np.concatenate([updates, new, gone]), len(gone))


class New:
    """A table of the new library with random changes: seconds of each step from Arrow to commit, and of its parts."""

    def __init__(self, world: World, name: str, rows: int, files: int, version: int = 3):
        self.room, self.changes = opened(world, made(world, name, rows, files, version)), Changes(rows)
        self.taken, self.parts = [], []

    def step(self, count: int) -> float:
        """Commit a batch; then fold small files if it is a sixteenth one, as a continuous run does."""
        latest, before = drawn(self.changes, count), cpu_s()
        with timed(**PARTS) as parts:
            self.taken.append(seconds(lambda: self.room.commit(latest)))
        self.parts.append(parts | {"CPU": cpu_s() - before})
        if len(self.taken) % 16 == 0:
            compaction.fold(self.room.table)
        return self.taken[-1]

    def profile(self, late: int) -> str:
        """Return medians of the last steps."""
        ms = ", ".join(f"{p} {1000 * median(s[p] for s in self.parts[-late:]):.1f}" for p in self.parts[-1])
        table = self.room.table
        return f"{ms} ms; {len(table.live_files)} files, {len(table.snapshots)} snapshots in {table.metadata_bytes >> 10} kB"


class Old:
    """The same of the old library: seconds of each step from file to commit, and of `commit_by_index` within it."""

    def __init__(self, world: World, name: str, rows: int, files: int):
        fill(world, name, rows, files)
        self.world, self.name, self.changes, self.whole, self.taken = world, name, Changes(rows), [], []
        self.book = world.book(lane="rowdelta", tables=[f"public.{name}"])

    def step(self, count: int) -> float:
        """Apply a file of changes."""
        self.changes.write(self.world.source, self.name, count)
        with timed(commit=(RowDelta, "commit_by_index")) as taken:
            self.whole.append(merge(self.book)[1])
        self.taken.append(taken["commit"])
        return self.whole[-1]


def merge_into(world: World, table: str) -> Callable[[Latest], None]:
    """Return what applies changes to a table by one MERGE INTO of Spark's, from a Parquet file."""
    place = str(world.root / "changes.parquet")

    def apply(changes: Latest) -> None:
        rows, gone = changes.rows, changes.keys.filter(pa.array(changes.deleted))
        named = [t.append_column("op", pa.repeat(op, len(t))) for t, op in ((rows, "U"), (gone, "D"))]
        pq.write_table(pa.concat_tables(named, promote_options="default"), place)
        world.session.read.parquet(place).createOrReplaceTempView("changes")
        world.session.sql(upsert(f"lake.{table}", "changes"))

    return apply


@contextmanager
def timed(**watched: tuple[object, str]) -> Iterator[Counter]:
    """Add up the seconds spent in functions, which an owner and a name tell."""
    taken: Counter = Counter()

    def timer(label: str, real: Callable) -> Callable:
        def wrapped(*arguments, **named):
            began = time.perf_counter()
            found = real(*arguments, **named)
            taken[label] += time.perf_counter() - began
            return found

        return wrapped

    with ExitStack() as stack:
        for label, (owner, name) in watched.items():
            stack.enter_context(patch.object(owner, name, timer(label, getattr(owner, name))))
        yield taken


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a piece of work, and its CPU seconds."""
    os.sync()
    before, took = cpu_s(), seconds(work)
    return took, cpu_s() - before


def cpu_s() -> float:
    """Return the CPU seconds so far of this process, the JVM, and the Python processes of Spark's tasks."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def p99(taken: list[float]) -> float:
    """Return what 99 of 100 steps keep to; of fewer steps the longest one."""
    return sorted(taken)[min(len(taken) - 1, int(0.99 * len(taken)))]


def both(name: str, new: float, old: float | None, unit: str, conditions: str, digits: int = 3) -> list[dict]:
    """Return the rows of a figure, of both libraries or of the new one alone."""
    more = {"unit": unit, "conditions": f"{conditions}; load {os.getloadavg()[0]:.1f}"}
    return [{"name": name + "_old" * (h == "old"), "value": round(v, digits), **more, "house": h} for h, v in (("new", new), ("old", old)) if v is not None]  # fmt: skip


def other_process():
    """Return a pool of one process, which starts afresh."""
    return multiprocessing.get_context("spawn").Pool(1)


def session_of(root: str, options: dict[str, str], memory: str):
    """Start the session of another process."""
    return get_spark(Settings(root=root, catalog_options=options, spark_options={**MEMORY, "spark.driver.memory": memory}))  # fmt: skip
