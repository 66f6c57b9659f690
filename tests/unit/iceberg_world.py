"""Tables of the Iceberg room, each with its replay: what other engines must read after each commit."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

import table_reader
from frazil.core.bad_rows import BAD
from frazil.core.changes import Changes
from frazil.core.latest import Latest, latest
from frazil.dms.position import Position
from frazil.iceberg import commits
from frazil.iceberg.catalog import open_catalog
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.row_delta import write_batch
from frazil.iceberg.snapshot_summary import Snapshot
from frazil.iceberg.table import LakeTable
from frazil.settings import jars, spark
from frazil.settings.environment import resolve
from frazil.settings.secrets import is_secret

KEYS = {
    "bigint": lambda n: n * 7919 - 5000,
    "int": lambda n: n - 100,
    "string": lambda n: f"customer {n}",
    "decimal(12,2)": lambda n: Decimal(n * 3 - 50).scaleb(-2),
    "date": lambda n: date(2020, 1, 1) + timedelta(n),
    "timestamp_ntz": lambda n: datetime(2020, 1, 1) + timedelta(seconds=n * 1.5),
    "double": lambda n: n / 4 if n else -0.0,
}
"""The n-th key of each type."""
DELTAS = "'write.merge.mode'='merge-on-read', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"


JARS = [jars.AWS, f"{jars.ICEBERG.rpartition(':')[0]}:{os.environ.get('FRAZIL_ICEBERG', '1.12.0')}"]
"""What the session of a process needs for any catalog; `FRAZIL_ICEBERG` chooses the release of Iceberg."""


class Lake:
    """A lake, and the session of this process with its catalog: on disk, or as the options say."""

    def __init__(self, folder: Path, catalog: str = "lake", **options: str):
        disk = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/lake.db", "warehouse": f"{folder}/lake"}
        self.options, self.name = options or disk, catalog
        self.warehouse = self.options["warehouse"]
        secrets = {name: f"LAKE_{n}" for n, name in enumerate(self.options) if is_secret(name)}
        given = self.options | {name: f"${{{variable}}}" for name, variable in secrets.items()}
        params = {"catalog": catalog, "catalog_options": given, "spark_options": {"spark.jars.packages": ",".join(JARS)}}  # fmt: skip
        (folder / "params").mkdir(parents=True, exist_ok=True)
        (folder / "params/unit.yml").write_text(json.dumps(params))
        hidden = {variable: self.options[name] for name, variable in secrets.items()}
        with patch.dict(os.environ, FRAZIL_PARAMS=f"{folder}/params", FRAZIL_MASTER="local[1]", **hidden):
            self.settings = resolve("unit")
            self.session = spark.session(self.settings)
            self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.db")
            self.catalog = open_catalog(self.settings)


class Kept:
    """A table with the columns k0 …, region, day, n and v; of each key the row that it must have, and its row id."""

    def __init__(self, lake: Lake, name: str, *kinds: str, partitioned: str = "", version: int = 3):
        self.lake, self.name, self.kinds, self.random = lake, f"db.{name}", kinds, random.Random(name)
        self.key = [f"k{i}" for i in range(len(kinds))]
        columns = ", ".join(f"{k} {kind} not null" for k, kind in zip(self.key, kinds, strict=True))
        by = f"partitioned by ({partitioned})" if partitioned else ""
        more = f"'format-version'='{version}', {DELTAS}, 'commit.manifest.min-count-to-merge'='5'"
        self.sql(f"create table if not exists {{t}} ({columns}, region string, day date, n int, v string) using iceberg {by} tblproperties({more})")  # fmt: skip
        self.table, self.segments = self.opened(), Segments()
        self.rows: dict[tuple, tuple] = {}
        self.ids: dict[tuple, int] = {}
        self.number = 0

    def opened(self) -> LakeTable:
        """Open the table as another process does."""
        return LakeTable(self.lake.catalog, self.name, self.key, lambda: self.lake.session)

    def sql(self, statement: str):
        """Run a statement as another writer."""
        return self.lake.session.sql(statement.format(t=f"{self.lake.name}.{self.name}"))

    def call(self, procedure: str, more: str = ""):
        """Call one of Iceberg's procedures as another writer."""
        return self.sql(f"CALL {self.lake.name}.system.{procedure}(table => '{self.name}'{more})")

    # --- batches

    def key_of(self, n: int) -> tuple:
        """Return the n-th key; composite ones share values of each column."""
        last = len(self.kinds) - 1
        return tuple(KEYS[k](n // 10**i % 10 if i < last else n // 10**i) for i, k in enumerate(self.kinds))

    def changes(self, universe: int, count: int) -> tuple[dict[tuple, tuple], list[tuple]]:
        """Return random new rows by key, and deleted keys."""
        numbers, r = self.random.sample(range(universe), min(count, universe)), self.random
        rows = {}
        for n in numbers[: round(len(numbers) * 0.75)]:
            self.number += 1
            day = date(2024, 1, 1) + timedelta(r.randrange(3))
            rows[self.key_of(n)] = (r.choice(["eu", "us", None]), day, self.number, f"v{r.randrange(99)}")
        return rows, [self.key_of(n) for n in numbers[len(rows) :]]

    def changes_of(self, new: dict[tuple, tuple], gone: list[tuple]) -> Changes:
        """Return new rows and deleted keys as changes."""
        schema, rows = schema_to_pyarrow(self.table.metadata.schema()), [(*k, *v) for k, v in new.items()]
        rows += [(*k, *[None] * (len(schema) - len(k))) for k in gone]
        columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
        ops = pa.array(["U"] * len(new) + ["D"] * len(gone), pa.string())
        return Changes(pa.table(columns, names=schema.names), pa.table({"op": ops}), BAD.empty_table())

    def latest(self, new: dict[tuple, tuple], gone: list[tuple]) -> Latest:
        """Return what a batch of changes comes to."""
        return latest(self.changes_of(new, gone), self.key)

    def apply(self, new: dict[tuple, tuple], gone: list[tuple]) -> Snapshot:
        """Commit a batch, here and in the replay."""
        done = self.commit(self.latest(new, gone))
        self.replay(new, gone)
        return done

    def commit(self, batch: Latest) -> Snapshot:
        """Commit a batch."""
        return self.commit_change(lambda: write_batch(self.table, self.segments, batch))

    def commit_change(self, write: Callable[[], commits.Change]) -> Snapshot:
        """Commit what is written."""
        first, planned = commits.written(self.table, write()), self.table.position
        return commits.commit(self.table, first, write, planned, replace_position(planned))

    def replay(self, new: dict[tuple, tuple], gone: list[tuple]) -> None:
        """Take a batch over into the replay."""
        for key in gone:
            self.rows.pop(key, None)
            self.ids.pop(key, None)
        self.rows |= new

    def apply_random(self, universe: int = 100, count: int = 50) -> Snapshot:
        """Commit a random batch."""
        return self.apply(*self.changes(universe, count))

    # --- what others read

    def check(self, duckdb: bool = True) -> None:
        """Compare the table with the replay as PyIceberg, DuckDB and Spark read it, and its live files with the manifests."""
        fresh = self.opened()
        assert self.table.live_files == fresh.live_files, "live files after own commits"
        assert self.table.position == fresh.position
        wanted = sorted(((*k, *v) for k, v in self.rows.items()), key=repr)
        if duckdb:
            assert sorted(table_reader.rows(self.lake.options, self.name), key=repr) == wanted
        lineage = ", _row_id" if fresh.metadata.format_version >= 3 else ""
        found = [tuple(row) for row in self.sql(f"select *{lineage} from {{t}}").collect()]
        assert sorted((r[: len(wanted[0])] for r in found) if wanted else found, key=repr) == wanted, "Spark"
        ids = {r[: len(self.key)]: r[-1] for r in found} if lineage else {}
        assert len({*ids.values()}) == len(ids), "row ids are unique"
        moved = {k: (i, ids[k]) for k, i in self.ids.items() if k in ids and ids[k] != i}
        assert not moved, f"row ids: {[*moved.items()][:3]}"
        self.ids = ids


def replace_position(planned: Position) -> Position:
    """Return the position after a batch."""
    fields = {name: getattr(planned, name) for name in planned.__struct_fields__}
    return Position(**fields | {"batch": planned.batch + 1, "last": f"file {planned.batch + 1}"})
