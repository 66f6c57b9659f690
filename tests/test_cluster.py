"""All flows on a standalone cluster whose workers see neither checkout nor virtual environment, and what the loss of a process leaves."""

import json
import random
import warnings
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from helpers import D, I, U, World, read_csv
from lake_reader import duckdb_rows, lake_rows
from test_bundle import bundled

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
FILES, ROWS, CHANGES = 4, 500, 250
"""Load files and change files of a table, the rows of each load file, and the changes of each change file."""
COLUMNS = ("id INT8", "v NCLOB", "n NUMERIC(12,2)", "at DATETIME")
LANES = {"aside": "merge", "scanned": "scan", "indexed": "rowdelta"}
SPACE, HOST = "shop", "a-host-that-is-gone"
VISIBLE = (
    "NO MOUNT NAMESPACE is permitted here: workers have a Python and packages of their own, but could see the checkout"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        if not running.namespace:
            warnings.warn(VISIBLE, stacklevel=1)
        yield running


# --- the source: files, and what they come to


class ClusterWorld(World):
    """A world whose environment file names the cluster's options, and a lake of its own."""

    def __init__(self, folder: Path, tables=tuple(LANES)):
        lake = folder / "lake"
        options = {"type": "jdbc", "uri": f"jdbc:sqlite:{lake}/catalog.db", "warehouse": f"{lake}/warehouse"}
        super().__init__(folder / "world", SPACE, options, CsvNullValue="NULL")
        self.random = random.Random(7)
        for table in tables:
            self.table(table, *COLUMNS, utc=("at",))
            for number in range(FILES):
                keys = range(number * ROWS, (number + 1) * ROWS)
                self.load(table, *[(key, *self.values(key)) for key in keys], name=f"LOAD{number + 1:08X}.csv")
        if "aside" in tables:
            self.specs["aside"]["on_bad_rows"] = "quarantine"
            self.table_file("aside")

    def values(self, key: int) -> tuple:
        text = self.random.choice((None, "", f'{key}, "quoted"\nline', "it's é"))
        at = datetime(1969, 12, 31) + timedelta(seconds=self.random.randrange(2 * 10**9), microseconds=key)
        return text, Decimal(self.random.randrange(10**6)) / 100, at

    def write_changes(self, table: str, batch: int) -> None:
        """Write change files: updates, deletes, new rows, changed keys; in `aside` some values fit no number."""
        for number in range(FILES):
            changes = []
            for key in self.random.sample(range(number * ROWS, (number + 1) * ROWS), CHANGES - 1):
                text, n, at = self.values(key)
                kind = self.random.random()
                if kind < 0.1:
                    changes.append(D(key))
                elif kind < 0.2:
                    changes.append(U(key + 10**6 * batch, text, n, at, was=key))
                else:
                    is_bad = table == "aside" and kind > 0.95
                    changes.append(U(key, text, "bad" if is_bad else n, at))
            changes.append(I(10**7 * batch + number, *self.values(number)))
            self.changes(table, *changes, name=f"20240101-1{batch}000{number}000.csv")

    def replay(self, table: str) -> tuple[list[tuple], list[tuple], dict[str, int]]:
        """Return by plain Python what a table's files come to: rows, quarantined rows, and the number of changes by kind."""
        rows, bad, counts = {}, [], dict.fromkeys(("load", *"IUD"), 0)
        files = sorted((self.root / "source/public" / table).iterdir(), key=lambda f: (f.name[:4] != "LOAD", f.name))
        for file in files:
            for number, line in enumerate(read_csv(file), 1):
                line = [None if text == "NULL" else text for text in line]
                op, (_, key, text, n, at, _, was) = ("", line) if file.name[:4] == "LOAD" else (line[0], line[1:])
                counts[op or "load"] += 1
                try:
                    values = (text, n and Decimal(n), at and datetime.fromisoformat(at).replace(tzinfo=UTC))
                except InvalidOperation:
                    bad.append((file.name, str(number)))
                    continue
                rows.pop(int(was or key), None)
                if op != "D":
                    rows[int(key)] = (int(key), *values)
        return sorted(rows.values()), bad, counts


def write_environment(world: World, cluster: Cluster, params: Path, env: str, **more) -> None:
    """Write the environment file of a world, with what its sessions need on the cluster."""
    params.mkdir(exist_ok=True)
    settings, places = world.book().settings, ("source", "specs", "endpoint", "mappings")
    common = {name: getattr(settings, name) for name in (*places, "catalog_options", "query_engines")}
    common |= {n: str(world.root / common[n]) for n in places if common[n] and "://" not in common[n]}
    common |= {"spark_options": {**cluster.spark_options, **more}, "parallel_tables": 1}
    (params / f"{env}.yml").write_text(yaml.safe_dump({"common": common}))


def ran(cluster: Cluster, params: Path, steps: list[dict], host: str = "") -> tuple[int, dict, str]:
    """Run steps in a driver of their own; return its exit code, what came of them, and its output."""
    given = {"steps": steps, "hidden": [str(p) for p in cluster.hidden], "host": host}
    (params.parent / "steps.json").write_text(json.dumps(given))
    told = params.parent / "told.json"
    told.unlink(missing_ok=True)
    done = cluster.drive(params, str(HERE / "cluster_driver.py"), str(params.parent))
    return done.returncode, json.loads(told.read_text()) if told.exists() else {}, (done.stdout + done.stderr)[-4000:]


def require_rows(options: dict, table: str, expected: list[tuple]) -> None:
    """Compare a table row by row, read by PyIceberg and by DuckDB."""
    assert expected
    for read in (lake_rows, duckdb_rows):
        assert sorted(read(options, table), key=lambda row: row[0]) == expected, f"{table} by {read.__name__}"


# --- every flow, without and with losses


def steps_of(victim: str) -> dict[str, dict]:
    """Return all flows, by name. With a victim, it is killed in each of them; a whole worker is lost in the last one."""

    def kill(at: str, who: str = victim) -> dict:
        return {"kill": who, "at": at} if victim else {}

    def changes(table: str, at: str) -> dict:
        settings = {"tables": [f"public.{table}"], "lane": LANES[table]}
        return {"env": "files", "flow": "cdc_merge", "settings": settings, **kill(at)}

    from_start = {"stream_start": "earliest", "load_complete_when": "changes"}
    compact = {"dry_run": False, "max_small_files": 1, "tables": ["public.aside", "public.scanned"]}
    return {
        "setup": {"env": "files", "flow": "setup"},
        "load": {"env": "files", "flow": "full_load", **kill("load files are read")},
        "aside": changes("aside", "changes are read"),
        "scanned": changes("scanned", "a row delta is written"),
        "indexed": changes("indexed", "changes are read"),
        "maintenance": {"env": "files", "flow": "maintenance", "settings": compact, **kill("files are compacted")},
        "stream setup": {"env": "stream", "flow": "setup"},
        "stream load": {"env": "stream", "flow": "full_load", "settings": from_start, **kill("messages are read")},
        "stream": {
            "env": "stream",
            "flow": "cdc_merge",
            "settings": {"lane": "merge"},
            **kill("a MERGE is written", "worker"),
        },
    }


@pytest.mark.slow
def test_with_the_archive_executors_need_no_folder_of_packages(cluster, tmp_path):
    assert bundled(tmp_path / "bundle").returncode == 0
    (file,) = (tmp_path / "bundle").iterdir()
    archive = {"spark.archives": f"{file}#frazil", "spark.executorEnv.PYTHONPATH": "./frazil"}
    world = ClusterWorld(tmp_path, ("scanned",))
    world.write_changes("scanned", 1)
    write_environment(world, cluster, tmp_path / "params", "files", **archive)
    steps = [steps_of("")[name] for name in ("setup", "load", "scanned")]
    code, told, output = ran(cluster, tmp_path / "params", steps)
    assert code == 0 and told["steps"][-1]["public.scanned"]["status"] == "merged", output
    for seen in told["seen"]:
        assert seen["frazil"].startswith(f"{seen['folder']}/frazil/frazil/"), seen
    require_rows(world.catalog_options, f"{SPACE}.scanned", world.replay("scanned")[0])


# --- a killed driver
