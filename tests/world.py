"""The doors of the library: files, messages, settings and verbs go in; rows, status words, counts and codes come out.

A test asks a world and never the library. Which library answers is chosen here, by `FRAZIL_HOUSE`; no test may know.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

import table_reader
from dms_writer import Folder, Messages, columns_of

HERE = Path(__file__).parent
HOUSES = {"old": "old_house", "new": "new_house"}
"""The module that adapts each library, by the library's name."""
CHANGED = HERE / "changed.md"


def house_name() -> str:
    """Return the name of the library that this process tests."""
    return os.environ.get("FRAZIL_HOUSE", "old")


def house():
    """Return the module that adapts the library under test."""
    return importlib.import_module(HOUSES[house_name()])


@dataclass(frozen=True)
class Result:
    """What a verb says of one table.

    `status` is one word: created, exists, loaded, empty, merged, unchanged, waiting, skipped, reloaded, replayed, maintained, failed.
    `code` names the error, or what the table waits for; it is empty if nothing is wrong.
    """

    table: str
    status: str
    code: str = ""
    note: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    decision: bool = False

    @property
    def failed(self) -> bool:
        """Whether the table failed."""
        return self.status == "failed"

    @property
    def went_well(self) -> bool:
        """Whether the table neither failed nor waits nor was left to another run."""
        return self.status not in ("failed", "waiting", "skipped", "stopped")

    def names(self, *parts: str) -> bool:
        """Return whether the message names all of these: files, rows, values."""
        return all(part in self.note for part in parts)


class Refused(Exception):
    """A question that has no answer; the text says why, and names a cure."""


class World:
    """One source, its specs, the settings of its environment, and its tables in a lake.

    `settings` have the names of the settings that users write. `lake` are the options of the Iceberg catalog.
    """

    def __init__(self, root: Path, space: str, lake: dict[str, str], target: dict | None = None, **settings):
        self.root, self.space, self.lake = root, space, lake
        self.catalog = settings.pop("catalog", "lake")
        self.specs: dict[str, dict] = {}
        self.settings = {"format_version": 3, **settings}
        self.stream = ""
        self.said: list[str] = []
        (root / "specs").mkdir(parents=True)
        self.source = Folder(root / "source", self.specs, **(target or {}))

    # --- what is declared

    def table(self, name: str, *columns: str, key="id", **more) -> World:
        """Declare a table by its spec; columns are written `name TYPE`."""
        keys = [key] if isinstance(key, str) else list(key)
        entries = columns_of(*(columns or ("id INT8", "v WSTRING(99)")))
        self.specs[name] = {"source": f"public.{name}", "target": f"{self.space}.{name}", "key": keys, "columns": entries, **more}  # fmt: skip
        return self.declare(name)

    def declare(self, name: str, **entries) -> World:
        """Write entries of a table's spec."""
        self.specs[name] |= entries
        (self.root / f"specs/{name}.yml").write_text(yaml.safe_dump(self.specs[name]))
        return self

    def column(self, table: str, name: str, **entries) -> World:
        """Write entries of one column of a table's spec."""
        next(c for c in self.specs[table]["columns"] if c["name"] == name).update(entries)
        return self.declare(table)

    def reads(self, stream: str, messages: Messages) -> World:
        """Let the source be a stream: `kafka://host:port/topic`; `messages` sends to it."""
        self.stream, self.source = stream, messages
        return self

    # --- what is done

    def do(self, verb: str, **settings) -> dict[str, Result]:
        """Do what a verb of the library says, and return its results by table."""
        return {r.table: r for r in house().do(self, verb, settings)}

    def setup(self, **settings) -> dict[str, Result]:
        """Create missing tables and bring columns to their specs."""
        return self.do("setup", **settings)

    def load(self, **settings) -> dict[str, Result]:
        """Apply the load of every table that has none."""
        return self.do("load", **settings)

    def merge(self, **settings) -> dict[str, Result]:
        """Apply everything that is pending."""
        return self.do("merge", **settings)

    def maintain(self, **settings) -> dict[str, Result]:
        """Compact every table that has anything to compact, expire what may expire."""
        return self.do("maintain", **settings)

    def loaded(self, **settings) -> World:
        """Set up and load, and insist that it went well."""
        return self._insist({**self.setup(**settings), **self.load(**settings)})

    def merged(self, **settings) -> World:
        """Apply what is pending, and insist that it went well."""
        return self._insist(self.merge(**settings))

    def through(self, **settings) -> dict[str, Result]:
        """Set up, load and merge; return the last result of each table, or the first that failed."""
        found: dict[str, Result] = {}
        for verb in (self.setup, self.load, self.merge):
            found |= {t: r for t, r in verb(**settings).items() if t not in found or not found[t].failed}
        return found

    def _insist(self, results: dict[str, Result]) -> World:
        troubles = [f"{r.table}: {r.status} {r.code}: {r.note}" for r in results.values() if not r.went_well]
        assert not troubles, "\n".join(troubles)
        return self

    def decide(self, table: str, **decision) -> Result:
        """Carry out a decision about a table, and go on with it.

        One of: accept=<late file>, without=<vanished file>, restart="all" (load again, then all change files), restart="pending"
        (load again, then what is not applied), replay=True or discard=True (its quarantined rows), stop=<why>, resume=True,
        adopt=<place>.
        """
        return house().decide(self, table, **decision)

    def cure(self, result: Result) -> str:
        """Carry out the statement, or the decision, that a table's error names first, and return it."""
        return house().cure(self, result)

    def new_process(self) -> World:
        """Forget all that a process keeps in memory, as the next one does."""
        house().forget()
        return self

    def process(self, verb: str, **settings) -> Process:
        """Start a verb in a process of its own."""
        return Process(self, verb, settings)

    def command(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run the command `frazil` in this environment; return its exit code and all that it printed."""
        return house().command(self, arguments, environment)

    def started(self, *arguments: str) -> subprocess.Popen:
        """Start the command `frazil` in a process of its own; what it prints is its standard output."""
        order = house().command_line(self, arguments)
        return subprocess.Popen(order, env={**os.environ, "FRAZIL_ENV": "w"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip

    # --- what it says

    def plan(self) -> dict[str, dict]:
        """Return what a run would do to each table: `action`, `decision`, `load`, `changes` (files), `quarantined`."""
        return house().world_plan(self)

    def lint(self) -> list[dict]:
        """Return what settings, rules and files contradict or lose: `subject`, `says`, `cure`."""
        return house().lint(self)

    def findings(self) -> str:
        """Return all that `lint` says, as one text."""
        return "\n".join(f"{f['subject']} {f['says']} {f['cure']}" for f in self.lint())

    def check(self, **limits) -> list[str]:
        """Return the lines of the breached limits."""
        return house().check(self, limits)

    def lateness(self) -> dict[str, dict]:
        """Return how much of each table is `pending`, and for how many seconds the oldest waits (`lag_s`)."""
        return house().lateness(self)

    def quarantine(self, table: str) -> list[dict]:
        """Return a table's rows that wait: `file`, `row`, `column`, `reason`, `raw`, in their order."""
        return house().quarantine(self, table)

    def latency(self, hours: float = 0) -> dict[str, dict]:
        """Return the percentiles of each stage in seconds: `p50`, `p95`, `p99`, and the number of `changes`."""
        return house().latency(self, hours)

    def warehouses(self, refresh: bool = False) -> list[dict]:
        """Return what each declared warehouse serves: `warehouse`, `table`, `status`, `why`."""
        return house().warehouses_of(self, refresh)

    def warehouse_facts(self) -> list[dict]:
        """Return what each declared warehouse is: `warehouse`, `sees_a_commit`, `status`, `why`."""
        return house().warehouse_facts(self)

    def statements(self) -> list[str]:
        """Return what each declared warehouse needs, in order."""
        return house().statements(self)

    def set_up_warehouses(self, dry_run: bool) -> list[dict]:
        """Make what the declared warehouses lack, or only show it; return a row for each object."""
        return house().set_up_warehouses(self, dry_run)

    def find(self, table: str, *key) -> list[dict]:
        """Return the row of a key: `values` of the other columns, and `origin`: file, number and operation of DMS's rows, or why not."""
        return house().find(self, table, key)

    def changed(self, what: str, old, new):
        """Return what this library does where the two differ on purpose; `what` is a name in changed.md."""
        assert f"| `{what}` |" in CHANGED.read_text(), f"{CHANGED.name} does not list {what}"
        return old if house_name() == "old" else new

    # --- what lies in the lake, without the library

    def name(self, table: str) -> str:
        """Return the name of a table in Spark."""
        return f"{self.catalog}.{self.space}.{table}"

    def rows(self, table: str) -> list[tuple]:
        """Return a table's rows as PyIceberg reads them, after DuckDB has read the same."""
        return table_reader.rows(self.lake, f"{self.space}.{table}")

    def exists(self, table: str) -> bool:
        """Return whether the lake has a table."""
        return table_reader.exists(self.lake, f"{self.space}.{table}")

    def row_ids(self, table: str) -> dict[tuple, int]:
        """Return the row id of each key (format v3), as DuckDB reads it."""
        return table_reader.row_ids(self.lake, f"{self.space}.{table}", self.specs[table]["key"])

    def metadata_file(self, table: str) -> str:
        """Return the address of a table's current metadata file."""
        return table_reader.metadata_file(self.lake, f"{self.space}.{table}")

    def metadata(self, table: str):
        """Return a table's metadata, as PyIceberg reads them."""
        return table_reader.table(self.lake, f"{self.space}.{table}").metadata

    def history(self, table: str) -> list:
        """Return the snapshots from the current one back to the first that is kept, newest first."""
        return table_reader.history(self.metadata(table))

    def batches(self, table: str) -> int:
        """Return the number of kept snapshots on main that the library made for a load or a batch."""
        return sum(house().is_batch(s) for s in self.history(table))

    def position(self, table: str) -> dict:
        """Return the position: `last`, the name of the last applied change file, or `offsets` by partition."""
        return house().position(self.metadata(table))

    def leftovers(self, table: str) -> list[str]:
        """Return what a run should not leave: branches, snapshots that are no part of main, files that nothing names."""
        return table_reader.leftovers(self.lake, f"{self.space}.{table}")

    def files_kept(self) -> dict[str, bytes]:
        """Return all files below the folder of runs, by path: what a run leaves for people to read."""
        found = (p for p in (self.root / "runs").rglob("*") if p.is_file())
        return {str(p.relative_to(self.root)): p.read_bytes() for p in found}

    # --- what others do to it

    @property
    def session(self):
        """The Spark session by which another writer changes tables."""
        return house().session(self)

    def sql(self, statement: str, table: str = "t"):
        """Run a statement as another writer; `{t}` stands for the table."""
        return self.session.sql(statement.replace("{t}", self.name(table))).collect()

    def call(self, procedure: str, table: str = "t", arguments: str = ""):
        """Call one of Iceberg's procedures as another writer."""
        more = f", {arguments}" if arguments else ""
        return self.sql(f"CALL {self.catalog}.system.{procedure}(table => '{self.space}.{table}'{more})")

    # --- the same world in another process

    def write(self) -> Path:
        """Write what is needed to open this world in another process, and return the file."""
        file = self.root / "world.json"
        kept = {n: getattr(self, n) for n in ("space", "lake", "catalog", "specs", "settings", "stream")}
        target = {} if self.stream else {"target": self.source.settings, "rules": self.source.rules}
        file.write_text(json.dumps({**kept, **target}))
        return file

    @classmethod
    def opened(cls, root: Path) -> World:
        """Open a world that another process wrote."""
        kept, w = json.loads((root / "world.json").read_text()), cls.__new__(cls)
        w.root, w.said = root, []
        for name in ("space", "lake", "catalog", "specs", "settings", "stream"):
            setattr(w, name, kept[name])
        if w.stream:
            w.source = Messages(w.specs)
        else:
            w.source = Folder(root / "source", w.specs, **kept["target"])
            w.source.rules = kept["rules"]
        return w


class Process:
    """A verb that runs in a process of its own; its results are the last line of what it prints."""

    def __init__(self, world: World, verb: str, settings: dict):
        world.write()
        house().prepare(world)
        order = [sys.executable, str(HERE / "world.py"), str(world.root), verb, json.dumps(settings)]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE.parent / "lib"), str(HERE)))}
        self.child = subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=found)  # fmt: skip

    @property
    def pid(self) -> int:
        """The number of the process, whose group has the same one."""
        return self.child.pid

    def results(self, timeout: float = 240) -> dict[str, Result]:
        """Wait for the end and return the results by table; empty if the process was killed."""
        out, err = self.child.communicate(timeout=timeout)
        found = re.findall(r"^RESULTS (.*)$", out, re.MULTILINE)
        assert found or self.child.returncode < 0, f"the process ended with {self.child.returncode}: {out[-999:]} {err[-3000:]}"  # fmt: skip
        return {r["table"]: Result(**r) for r in json.loads(found[-1])} if found else {}


def main(root: str, verb: str, settings: str) -> None:
    """Do a verb in a world that another process wrote, and print the results."""
    world = World.opened(Path(root))
    results = world.do(verb, **json.loads(settings))
    print("RESULTS " + json.dumps([asdict(r) for r in results.values()]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
