"""What the benchmark groups share: an orders-like table of any size in a lake of its own, and files of random changes for it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from frazil_old.config.settings import CdcMergeSettings, FullLoadSettings, MaintenanceSettings, Settings, SetupSettings
from frazil_old.config.spark_session import get_spark
from frazil_old.flows import cdc, full_load, maintenance, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.results import raise_if_failed
from helpers import World

COLUMNS = ("id INT8", "cust INT4", "qty INT4", "price NUMERIC(12,2)", "amount NUMERIC(12,2)", "placed DATETIME",
           "status STRING(10)", "note STRING(20)")  # fmt: skip
VALUES = ("id", "int(id % 200000) cust", "int(id % 100) qty", "cast(id % 10000 as decimal(12,2)) price",
          "cast(id % 90000 as decimal(12,2)) amount",
          "timestamp_ntz'2025-01-01 00:00:00' + make_dt_interval(0, 0, 0, id % 86400) placed",
          "array('new', 'paid', 'packed')[int(id % 3)] status", "concat('n', id % 50000) note")  # fmt: skip
MEMORY = {"spark.driver.memory": "3g", "spark.driver.maxResultSize": "2g", "spark.sql.shuffle.partitions": "2"}


@contextmanager
def lake() -> Iterator[World]:
    """A world in a temporary folder, with a catalog and a Spark session of its own."""
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder:
        options = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        world = World(Path(folder) / "world", "bench", options)
        world.rules = {"rules": []}
        get_spark(Settings(root=folder, catalog_options=options, spark_options=MEMORY))
        yield world


class KafkaWorld(World):
    """A world whose source is a topic of the embedded Kafka."""

    def __init__(self, kafka, root: Path, space: str, catalog_options: dict, partitions: int):
        super().__init__(root, space, catalog_options)
        self.topic, self.source = space, f"kafka://{kafka.brokers}/{space}"
        kafka.create_topic(space, partitions)

    def book(self, kind=CdcMergeSettings, **settings) -> Workbook:
        (self.root / "endpoint.json").write_text(json.dumps({"KafkaSettings": {"IncludeNullAndEmpty": True}}))
        given = {
            "env": "test", "root": str(self.root), "source": self.source, "specs": "specs", "endpoint": "endpoint.json",
            "catalog_options": self.catalog_options, "query_engines": ["spark"], **settings,
        }  # fmt: skip
        return Workbook(kind(**given), self.said.append)

    def full_load(self, **settings):
        return super().full_load(**{"stream_start": "earliest", "load_complete_when": "declared", **settings})


def tiny(kind: type[Settings], place: Path, **more) -> Workbook:
    """Open a workbook on the tiny source; it says nothing."""
    lake = {"type": "jdbc", "uri": "jdbc:sqlite:lake/catalog.db", "warehouse": "lake/warehouse"}
    given = kind(root=str(place), source="s3", endpoint="params/endpoint.json", mappings="params/mappings.json", specs="params/tiny",
                 catalog_options=lake, **more)  # fmt: skip
    return Workbook(given, lambda text: None)


def tiny_lake(folder: Path, query_engines: list[str]) -> Path:
    """Set up, load and merge the two tables of the tiny source, and return the place."""
    place = Path(shutil.copytree(Path(__file__).parents[1] / "data/tiny", folder / "tiny"))
    setup.create_tables(tiny(SetupSettings, place, query_engines=query_engines))
    raise_if_failed(full_load.run(tiny(FullLoadSettings, place)))
    raise_if_failed(cdc.run(tiny(CdcMergeSettings, place)))
    return place


def stop_spark() -> None:
    """End the Spark session, if there is one: the next lake has a session of its own, in the same JVM."""
    if spark := SparkSession.getActiveSession():
        spark.stop()


def fill(world: World, table: str, rows: int, files: int) -> None:
    """Make a table that is loaded, of `rows` rows with the ids from 1 on, in `files` data files by ranges of ids."""
    world.table(table, *COLUMNS).load(table, (0, 1, 1, "1.00", "1.00", "2025-01-01 00:00:00", "new", "n"))
    world.loaded()
    world.spark.range(1, rows + 1, 1, files).selectExpr(*VALUES).writeTo(world.name(table)).append()


def link_files(world: World, table: str, like: str) -> list[str]:
    """Give a table those files of another one that it does not have, without a copy; return the paths of its change files."""
    there, here = (world.root / f"source/public/{t}" for t in (like, table))
    here.mkdir(exist_ok=True)
    for file in there.iterdir():
        if not (here / file.name).exists():
            (here / file.name).hardlink_to(file)
    return [str(f) for f in here.glob("2*.csv")]


def scan_s(world: World, table: str) -> float:
    """Return the seconds of a full scan that reads every column, the best of three."""
    timed = []
    for _ in range(3):
        began = time.perf_counter()
        world.spark.table(world.name(table)).selectExpr("bit_xor(xxhash64(*))").collect()
        timed.append(time.perf_counter() - began)
    return min(timed)


class Changes:
    """Random changes of a table of `rows` rows: updates and deletes of uniform keys, inserts of new ones; no key twice in a file."""

    def __init__(self, rows: int, seed: int = 1, first_file: int = 0):
        self.rows, self.random, self.next, self.file = (
            rows,
            np.random.default_rng(seed),
            rows + 1 + first_file * 10**6,
            first_file,
        )

    def write(self, world: World, table: str, count: int, updates: float = 0.8, deletes: float = 0.1) -> str:
        """Write one change file and return its name."""
        u, d = round(count * updates), round(count * deletes)
        old = self.random.choice(self.rows, u + d, replace=False) + 1
        new = np.arange(self.next, self.next + count - u - d)
        self.next += len(new)
        tail = ",7,7,12.50,99.90,2026-01-01 00:00:00.000000,paid,changed\n"
        ts = "2026-01-01 00:00:00.000000"
        lines = [f"U,{ts},{k}{tail}" for k in old[:u]] + [f"D,{ts},{k}{tail}" for k in old[u:]]
        lines += [f"I,{ts},{k}{tail}" for k in new]
        name = f"20260101-{self.file // 3600000:02d}{self.file // 60000 % 60:02d}{self.file // 1000 % 60:02d}{self.file % 1000:03d}.csv"
        self.file += 1
        world.write(table, name, "".join(lines))
        return name


def many_commits(world: World, table: str, rows: int, commits: int, changes: int, maintain_every: int) -> list[float]:
    """Apply that many small change files one by one, with maintenance now and then; return the seconds of each commit."""
    made, timed = Changes(rows, seed=3), []
    book = world.book(lane="rowdelta", tables=[f"public.{table}"])
    care = world.book(
        MaintenanceSettings, tables=[f"public.{table}"], dry_run=False, keep_hours=0.02, max_small_files=20
    )
    for number in range(commits):
        made.write(world, table, changes)
        began = time.perf_counter()
        (done,) = cdc.run(book)
        timed.append(time.perf_counter() - began)
        assert done.status == "merged", done.note
        if number % maintain_every == maintain_every - 1:
            (kept,) = maintenance.run(care)
            assert not kept.failed, kept.note
            print(f"  {number + 1} commits, the last ones {np.median(timed[-20:]):.2f} s; {kept.note}", flush=True)
    return timed
