"""What the benchmark groups share: an orders-like table of any size in a lake of its own, and files of random changes for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

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
        world.book(spark_options=MEMORY).spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        yield world


def fill(world: World, table: str, rows: int, files: int) -> None:
    """Make a table that is loaded, of `rows` rows with the ids from 1 on, in `files` data files by ranges of ids."""
    world.table(table, *COLUMNS).load(table, (0, 1, 1, "1.00", "1.00", "2025-01-01 00:00:00", "new", "n"))
    world.loaded()
    world.spark.range(1, rows + 1, 1, files).selectExpr(*VALUES).writeTo(world.name(table)).append()


class Changes:
    """Random changes of a table of `rows` rows: updates and deletes of uniform keys, inserts of new ones; no key twice in a file."""

    def __init__(self, rows: int, seed: int = 1):
        self.rows, self.random, self.next, self.file = rows, np.random.default_rng(seed), rows + 1, 0

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
