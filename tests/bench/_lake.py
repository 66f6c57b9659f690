"""What the benchmark groups share: a lake, an orders-like table in it, files of random changes for it, a timed merge, rows of figures."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from pyspark.sql import SparkSession

from dms_writer import NO_RULES, Messages, U
from frazil_old.config.settings import Settings, resolve
from frazil_old.config.spark_session import get_spark
from frazil_old.flows import cdc
from frazil_old.flows.workbook import Workbook
from world import World as Doors
from world import house, house_name

ROOT = Path(__file__).parents[2]
COLUMNS = ("id INT8", "cust INT4", "qty INT4", "price NUMERIC(12,2)", "amount NUMERIC(12,2)", "placed DATETIME",
           "status STRING(10)", "note STRING(20)")  # fmt: skip
NAMES = [c.split()[0] for c in COLUMNS]
TYPES = ["bigint", "int", "int", "decimal(12,2)", "decimal(12,2)", "timestamp_ntz", "string", "string"]
TYPED = ", ".join(f"{n} {t}" for n, t in zip(NAMES, TYPES, strict=True))
VALUES = ("id", "int(id % 200000) cust", "int(id % 100) qty", "cast(id % 10000 as decimal(12,2)) price",
          "cast(id % 90000 as decimal(12,2)) amount",
          "timestamp_ntz'2025-01-01 00:00:00' + make_dt_interval(0, 0, 0, id % 86400) placed",
          "array('new', 'paid', 'packed')[int(id % 3)] status", "concat('n', id % 50000) note")  # fmt: skip
MEMORY = {"spark.driver.memory": "3g", "spark.driver.maxResultSize": "2g", "spark.sql.shuffle.partitions": "2"}


def figure(name: str, value: float, unit: str, conditions: str, digits: int = 2) -> dict:
    """Return a row of results."""
    return {"name": name, "value": round(value, digits or None), "unit": unit, "conditions": conditions}


class World(Doors):
    """A world whose workbooks of the old library a benchmark opens itself; `lake` gives it a session."""

    session = None

    def book(self, notebook: str = "cdc_merge", **settings) -> Workbook:
        """Open a workbook as a run does."""
        house().prepare(self)
        return Workbook(resolve(notebook, {"env": "w", **settings}).settings, self.said.append)


@contextmanager
def lake(master: str = "") -> Iterator[World]:
    """A world in a temporary folder, with a catalog and a Spark session of its own, on another master if one is named."""
    stop_spark()
    with (
        tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder,
        patch.dict(os.environ, {"FRAZIL_MASTER": master} if master else {}),
    ):
        options = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        world = World(Path(folder) / "world", "bench", options)
        world.source.rules = NO_RULES
        if house_name() == "new":
            world.session = house().start_spark(Path(folder) / "session", options, MEMORY)
        else:
            world.session = get_spark(Settings(root=folder, catalog_options=options, spark_options=MEMORY))
        try:
            yield world
        finally:
            stop_spark()


def stop_spark() -> None:
    """End the Spark session, if there is one: the next lake has a session of its own, in the same JVM."""
    if spark := SparkSession.getActiveSession():
        spark.stop()


def of_topic(kafka, beside: World) -> World:
    """Return a world whose source is a topic of the embedded Kafka."""
    made = World(beside.root / "kafka", beside.space, beside.lake)
    made.session = beside.session
    kafka.create_topic("bench", 2)
    return made.reads(f"kafka://{kafka.brokers}/bench", Messages(made.specs))


def python(world: World, *words: str, codes: tuple[int, ...] = (0,), master: str = "local[2]") -> str:
    """Run Python in a workspace, insist on its exit codes, and return what it prints."""
    environment = {"FRAZIL_PARAMS": str(world.root / "params"), "FRAZIL_MASTER": master, "PYTHONPATH": str(ROOT / "lib"), "PYTHONDONTWRITEBYTECODE": ""}  # fmt: skip
    ran = subprocess.run([sys.executable, *words], env={**os.environ, **environment}, capture_output=True, text=True)  # fmt: skip
    assert ran.returncode in codes, (ran.stdout + ran.stderr)[-2000:]
    return ran.stdout


def fill(world: World, table: str, rows: int, files: int) -> None:
    """Make a table that is loaded, of `rows` rows with the ids from 1 on, in `files` data files by ranges of ids.

    A change of the first row, after which it is as before, lets the library look once at the keys of all rows.
    """
    world.table(table, *COLUMNS).source.load(table, (0, 1, 1, "1.00", "1.00", "2025-01-01 00:00:00", "new", "n"))
    world.loaded(tables=[table])
    world.session.range(1, rows + 1, 1, files).selectExpr(*VALUES).writeTo(world.name(table)).append()
    same = U(1, 1, 1, "1.00", "1.00", "2025-01-01 00:00:01", "paid", "n1")
    world.source.changes(table, same, name="20251231-000000000.csv")
    world.merged(tables=[table])


def timed(world: World, verb: str, table: str, **settings) -> tuple[dict[str, int], float]:
    """Let the library under test load or merge one table; return its counts, and the seconds."""
    own = {"lane": "auto"} if verb == "merge" and house_name() == "old" else {}
    began = time.perf_counter()
    done = getattr(world, verb)(tables=[table], **own, **settings)[table]
    took = time.perf_counter() - began
    assert done.status in ("loaded", "merged"), done.note
    return done.counts, took


def link_files(world: World, table: str, like: str) -> list[str]:
    """Give a table those files of another one that it does not have, without a copy; return the paths of its change files."""
    there, here = (world.root / f"source/public/{t}" for t in (like, table))
    here.mkdir(exist_ok=True)
    for file in there.iterdir():
        if not (here / file.name).exists():
            (here / file.name).hardlink_to(file)
    return [str(f) for f in here.glob("2*.csv")]


def seconds(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def by_turns(times: int, *ways: Callable[[], object]) -> list[list[float]]:
    """Return the seconds of each way, done by turns; the first turn is left out."""
    turns = [[seconds(way) for way in ways] for _ in range(times + 1)]
    return [list(taken) for taken in zip(*turns[1:], strict=True)]


def to_nothing(*frames) -> None:
    """Let Spark compute frames into its no-op sink."""
    for frame in frames:
        frame.write.format("noop").mode("overwrite").save()


def peak_mb(process: int | str) -> float:
    """Return the peak of a process's memory since its start, or since `5` was written to its `clear_refs`."""
    return int(Path(f"/proc/{process}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def merge(book: Workbook):
    """Apply what is new of one table; return what was done, and the seconds."""
    began = time.perf_counter()
    (done,) = cdc.run(book)
    took = time.perf_counter() - began
    assert done.status == "merged", done.note
    return done, took


def checksum(world: World, table: str):
    """Return what two tables with the same rows have in common."""
    return world.session.table(world.name(table)).selectExpr("count(*)", "bit_xor(xxhash64(*))").first()


def lane_of(world: World, table: str) -> str:
    """Return the way in which the last batch of a table was written."""
    return world.history(table)[0].summary.additional_properties["frazil.lane"]


def assert_unique(world: World, *tables: str) -> None:
    """No row of these tables may be there twice."""
    for table in tables:
        counted = world.session.table(world.name(table)).selectExpr("count(*) n", "count(distinct id) k").first()
        assert counted.n == counted.k, (table, counted)


def upsert(table: str, source: str) -> str:
    """Return a MERGE of the changes in a view, of which a column `op` tells the deletes."""
    updates, values = ", ".join(f"t.{c} = s.{c}" for c in NAMES), ", ".join(f"s.{c}" for c in NAMES)
    there = f"when matched and s.op = 'D' then delete when matched then update set {updates}"
    return f"merge into {table} t using {source} s on t.id = s.id {there} when not matched and s.op <> 'D' then insert ({', '.join(NAMES)}) values ({values})"


class Changes:
    """Random changes of a table of `rows` rows: updates and deletes of uniform keys, inserts of new ones; no key twice in a file."""

    def __init__(self, rows: int, seed: int = 1, first_file: int = 0):
        self.rows, self.random, self.file = rows, np.random.default_rng(seed), first_file
        self.next = rows + 1 + first_file * 10**6

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ids of 80 % updates, 10 % inserts and 10 % deletes."""
        u, d = round(count * 0.8), round(count * 0.1)
        old = self.random.choice(self.rows, u + d, replace=False) + 1
        new = np.arange(self.next, self.next + count - u - d)
        self.next += len(new)
        return old[:u], new, old[u:]

    def write(self, source, table: str, count: int) -> str:
        """Write one change file of them, and return its name."""
        updates, new, gone = self.draw(count)
        ops = [("U", k) for k in updates] + [("D", k) for k in gone] + [("I", k) for k in new]
        ts, tail = "2026-01-01 00:00:00.000000", ",7,7,12.50,99.90,2026-01-01 00:00:00.000000,paid,changed\n"
        n, self.file = self.file, self.file + 1
        name = f"20260101-{n // 3600000:02d}{n // 60000 % 60:02d}{n // 1000 % 60:02d}{n % 1000:03d}.csv"
        source.write(table, name, "".join(f"{op},{ts},{k}{tail}" for op, k in ops))
        return name
