"""A small world of source, specs and lake that opens the old library itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from dms_writer import FILE1, Change, Folder, columns_of
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
        self.specs: dict[str, dict] = {}
        self.said: list[str] = []
        self.files = Folder(root / "source", self.specs, **s3_settings)
        self.endpoint, self.source = {"S3Settings": self.files.settings}, "source"
        for folder in ("source/public", "specs"):
            (root / folder).mkdir(parents=True)

    # --- what lies in the source

    def table(self, name: str, *columns: str, key="id") -> "World":
        given = columns or ("id INT8", "v WSTRING(99)")
        self.specs[name] = spec_of(f"public.{name}", *given, key=key, target=f"{self.space}.{name}")
        return self.table_file(name)

    def table_file(self, name: str) -> "World":
        """Write the spec of a table as it is in `specs`."""
        (self.root / f"specs/{name}.yml").write_text(yaml.safe_dump(self.specs[name]))
        return self

    def load(self, table: str, *rows: tuple) -> "World":
        self.files.load(table, *rows)
        return self

    def changes(self, table: str, *changes: Change, name: str = FILE1) -> "World":
        self.files.changes(table, *changes, name=name)
        return self

    def write(self, table: str, name: str, text: str) -> "World":
        """Write a file of the table as it stands."""
        self.files.write(table, name, text)
        return self

    # --- what is done with it

    def book(self, kind=CdcMergeSettings, **settings) -> Workbook:
        (self.root / "endpoint.json").write_text(json.dumps(self.endpoint))
        (self.root / "mappings.json").write_text(json.dumps(self.files.rules))
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


def _by_table(results) -> dict:
    return {r.table.split(".", 1)[1]: r for r in results}
