"""A small world of source, specs and lake that opens the old library itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from dms_writer import BEFORE_IMAGE, COMMITTED, FILE1, LOAD, Change, columns_of, csv_field
from frazil_old.config.settings import CdcMergeSettings, FullLoadSettings, SetupSettings
from frazil_old.flows import cdc, full_load, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm

LIB = Path(__file__).parent.parent / "lib"


def spec_of(source: str, *columns: str, key="id", target: str = "") -> dict:
    """Return a spec as its YAML would hold it; columns are written `name TYPE`."""
    keys = [key] if isinstance(key, str) else list(key)
    return {"source": source, "target": target or source, "key": keys, "columns": columns_of(*columns)}


def run_python(code: str, folder: Path, *words: str) -> str:
    """Run code in a process of its own that finds the library, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(LIB), "FRAZIL_MASTER": "local[1]", "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def source_is(postgres, monkeypatch) -> None:
    """Let the environment say how the source database is reached."""
    for name, value in (("URL", postgres.jdbc_url), ("USER", postgres.user), ("PASSWORD", postgres.password)):
        monkeypatch.setenv(f"FRAZIL_SOURCE_{name}", value)


class World:
    """One source folder, its specs and its tables in the lake."""

    def __init__(self, root: Path, space: str, catalog_options: dict, **s3_settings):
        self.root, self.space, self.catalog_options = root, space, catalog_options
        self.s3 = {"CsvNullValue": "", "TimestampColumnName": "ts", **s3_settings}
        self.endpoint, self.source = {"S3Settings": self.s3}, "source"
        self.rules = BEFORE_IMAGE
        self.specs: dict[str, dict] = {}
        self.said: list[str] = []
        for folder in ("source/public", "specs"):
            (root / folder).mkdir(parents=True)

    # --- what lies in the source

    def table(self, name: str, *columns: str, key="id", **more) -> "World":
        self.specs[name] = spec_of(
            f"public.{name}", *(columns or ("id INT8", "v WSTRING(99)")), key=key, target=f"{self.space}.{name}", **more
        )
        return self.table_file(name)

    def table_file(self, name: str) -> "World":
        """Write the spec of a table as it is in `specs`."""
        (self.root / f"specs/{name}.yml").write_text(yaml.safe_dump(self.specs[name]))
        return self

    def load(self, table: str, *rows: tuple, name: str = LOAD) -> "World":
        return self.write(table, name, "".join(self._line((COMMITTED, *r, *self._tail(table, "", None))) for r in rows))

    def changes(self, table: str, *changes: Change, name: str = FILE1) -> "World":
        lines = []
        for c in changes:
            values = (*c.values, *[None] * (len(self.specs[table]["columns"]) - len(c.values)))
            lines.append(self._line((c.op, c.ts, *values, *self._tail(table, c.seq, c.was))))
        return self.write(table, name, "".join(lines))

    def write(self, table: str, name: str, text: str) -> "World":
        """Write a file of the table as it stands."""
        file = self.root / "source/public" / table / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
        return self

    def _line(self, fields) -> str:
        delimiter, null = self.s3.get("CsvDelimiter", ","), self.s3["CsvNullValue"]
        return delimiter.join(csv_field(f, null, delimiter) for f in fields) + "\n"

    def _tail(self, table, seq, was):
        keys = self.specs[table]["key"]
        old = [None] * len(keys) if was is None else [was] if len(keys) == 1 else list(was)
        return (seq or None, *old) if self.rules["rules"] else ()

    # --- what is done with it

    def book(self, kind=CdcMergeSettings, **settings) -> Workbook:
        (self.root / "endpoint.json").write_text(json.dumps(self.endpoint))
        (self.root / "mappings.json").write_text(json.dumps(self.rules))
        given = {
            "env": "test", "root": str(self.root), "source": self.source, "specs": "specs", "endpoint": "endpoint.json", "mappings": "mappings.json",
            "catalog_options": self.catalog_options, "query_engines": ["spark"], **settings,
        }  # fmt: skip
        return Workbook(kind(**given), self.said.append)

    def whole_environment(self, monkeypatch) -> Path:
        """Write what the book is opened with as an environment's files, so that processes in other folders find them."""
        settings, params = self.book().settings, self.root / "params"
        params.mkdir(exist_ok=True)
        common = {n: getattr(settings, n) for n in ("source", "specs", "catalog_options", "query_engines")}
        for name in ("endpoint", "mappings"):
            (self.root / f"{name}.json").rename(params / f"{name}.json")
            common[name] = f"params/{name}.json"
        (params / "w.yml").write_text(yaml.safe_dump({"common": common}))
        monkeypatch.setenv("FRAZIL_PARAMS", str(params))
        return params

    def setup(self, **settings):
        return _by_table(setup.create_tables(self.book(SetupSettings, **settings)))

    def full_load(self, **settings):
        return _by_table(full_load.run(self.book(FullLoadSettings, **settings)))

    def merge(self, **settings):
        return _by_table(cdc.run(self.book(**settings)))

    def loaded(self) -> "World":
        """Set up and load, and insist that it went well."""
        results = {**self.setup(), **self.full_load()}
        troubles = [r.note for r in results.values() if r.failed]
        assert not troubles, troubles
        return self

    def merged(self, **settings) -> "World":
        """Merge what is pending, and insist that it went well."""
        troubles = [r.note for r in self.merge(**settings).values() if r.failed or r.status in ("skipped", "waiting")]
        assert not troubles, troubles
        return self

    # --- what lies in the lake

    @property
    def spark(self):
        return self.book().spark

    def name(self, table: str) -> str:
        return f"lake.{self.space}.{table}"

    def rows(self, table: str) -> list[tuple]:
        return sorted((tuple(r) for r in self.spark.table(self.name(table)).collect()), key=repr)

    def iceberg(self, table: str):
        return jvm.load_table(self.spark, self.name(table))

    def history(self, table: str) -> list:
        return list(jvm.ancestors(self.iceberg(table)))

    def call(self, procedure: str, table: str, arguments: str = "") -> None:
        self.spark.sql(f"CALL lake.system.{procedure}(table => '{self.space}.{table}' {arguments})").collect()


def _by_table(results) -> dict:
    return {r.table.split(".", 1)[1]: r for r in results}
