"""All flows on a standalone cluster whose workers see neither checkout nor virtual environment, and what the loss of a process leaves."""

import json
import random
import signal
import sys
import warnings
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from cluster import CHECKOUT, Cluster
from frazil_old import exit_codes
from frazil_old.config import processes
from frazil_old.config.processes import host
from frazil_old.report import runs
from frazil_old.report.notebook_output import read_record
from helpers import D, I, U, World, read_csv, slow
from lake_reader import duckdb_rows, lake_rows, lake_table
from stream_world import KafkaWorld
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


class Messages(KafkaWorld):
    """A topic of three partitions with a table's load and changes, and the rows that they come to."""

    def __init__(self, kafka, folder: Path, space: str, options: dict):
        super().__init__(kafka, folder, space, options, partitions=3)
        # A batch that is sent again must not come after a later one.
        self._producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0, "enable.idempotence": True})
        self.table("t", "id INT8", "v WSTRING(99)", "n INT4")
        self.random, self.expected = random.Random(7), {}
        for key in range(2_000):
            self.put("load", key)
        for number in range(1_000):
            operation = self.random.choice(("insert", "update", "update", "delete"))
            self.put(operation, 10**6 + number if operation == "insert" else self.random.choice([*self.expected]))
        assert self._producer.flush(60) == 0

    def send(self, text, partition=0, topic=0, at_ms=0):
        """Put a message into the producer's buffer."""
        self._producer.produce(self.topic, text.encode(), partition=partition)
        return self

    def put(self, operation: str, key: int) -> None:
        text, n = self.random.choice((None, "", f"é 'quoted'\n {key}")), self.random.choice((None, key))
        self.message(operation, partition=key % 3, id=key, v=text, n=n)
        self.expected[key] = (key, text, n)
        if operation == "delete":
            del self.expected[key]


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


def summaries(world: World, table: str) -> list[dict]:
    """Return the summaries of a table's snapshots, the newest first."""
    snapshots = lake_table(world.catalog_options, f"{world.space}.{table}").snapshots()
    return [s.summary.additional_properties for s in reversed(snapshots)]


def branches(world: World, table: str) -> list[str]:
    """Return the names of a table's branches that batches have."""
    refs = lake_table(world.catalog_options, f"{world.space}.{table}").refs()
    return [name for name in refs if name.startswith("frazil_")]


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


class Everything:
    """Worlds of files and of messages after every flow, and what came of each."""

    def __init__(self, cluster: Cluster, kafka, folder: Path, victim: str):
        self.files = ClusterWorld(folder)
        for table in LANES:
            self.files.write_changes(table, 1)
        self.stream = Messages(kafka, folder / "stream", f"stream{victim}", self.files.catalog_options)
        self.params = folder / "params"
        for env, world in (("files", self.files), ("stream", self.stream)):
            write_environment(world, cluster, self.params, env)
        steps = steps_of(victim)
        self.code, self.told, output = ran(cluster, self.params, [*steps.values()])
        assert self.code == 0, output
        self.steps = dict(zip(steps, self.told["steps"], strict=True))

    def require_counts(self, table: str) -> None:
        """Compare the counts of a batch's result and of its snapshot's summary with the files."""
        result = self.steps[table][f"public.{table}"]
        assert result["status"] == "merged", result
        _, bad, by_kind = self.files.replay(table)
        (summary,) = [s for s in summaries(self.files, table) if s.get("frazil.kind") == "changes"]
        counts = json.loads(summary["frazil.counts"])
        assert summary["frazil.lane"] == LANES[table]
        assert {kind: counts[kind] for kind in "IUD"} == {kind: by_kind[kind] for kind in "IUD"}
        assert counts["changes"] == FILES * CHANGES
        names = {"changes": "changes", "inserts": "I", "updates": "U", "deletes": "D", "keys": "keys"}
        assert {n: result["counts"][n] for n in names} == {n: counts[short] for n, short in names.items()}
        assert counts["quarantined"] == result["counts"].get("quarantined", 0) == len(bad)

    def require_all(self) -> None:
        """Compare every row and every count of every table with the files and messages."""
        options = self.files.catalog_options
        assert not [said for said in self.told["said"] if "this process" in said or "executor" in said]
        for table in LANES:
            rows, bad, _ = self.files.replay(table)
            assert self.steps["load"][f"public.{table}"]["counts"]["rows"] == FILES * ROWS
            require_rows(options, f"{SPACE}.{table}", rows)
            self.require_counts(table)
            for read in (lake_rows, duckdb_rows) if bad else ():
                found = read(options, "ops.quarantine")
                names = [f.name for f in lake_table(options, "ops.quarantine").schema().fields]
                places = [tuple(row[names.index(n)] for n in ("object", "row_no", "status")) for row in found]
                assert sorted(places) == sorted((*place, "waiting") for place in bad)
        for table, result in self.steps["maintenance"].items():
            assert table == "killed" or result["counts"]["file_groups"] == 1, result
        require_rows(options, f"{self.stream.space}.t", sorted(self.stream.expected.values()))
        assert self.steps["stream load"]["public.t"]["counts"]["rows"] == 2_000
        assert self.steps["stream"]["public.t"]["counts"]["changes"] == 1_000


@pytest.fixture(scope="module")
def lossy(cluster, kafka, tmp_path_factory):
    """Every flow has lost an executor, and the last one a whole worker."""
    return Everything(cluster, kafka, tmp_path_factory.mktemp("lossy"), "executor")


def test_executors_have_only_what_is_sent_to_them(cluster, lossy):
    for seen in lossy.told["seen"]:
        assert seen["frazil"].startswith(str(cluster.packages)) and seen["folder"].startswith(str(cluster.folder))
        used = [p for p in seen["path"] if Path(p).is_relative_to(CHECKOUT) or Path(p).is_relative_to(sys.prefix)]
        assert not used and not set(seen["variables"]) & {"FRAZIL_PARAMS", "FRAZIL_MASTER", "VIRTUAL_ENV"}


def test_executors_do_not_see_checkout_and_virtual_environment(cluster, lossy):
    if not cluster.namespace:
        pytest.skip(VISIBLE)
    assert CHECKOUT in cluster.hidden and [seen["there"] for seen in lossy.told["seen"]] == [[], []]


def test_lost_executors_and_a_lost_worker_change_no_row_and_no_count_of_any_flow(lossy):
    assert [name for name, told in lossy.steps.items() if not told.get("killed")] == ["setup", "stream setup"]
    lossy.require_all()


@pytest.mark.slow
def test_every_flow_ends_as_a_replay_of_files_and_messages(cluster, kafka, tmp_path):
    Everything(cluster, kafka, tmp_path, "").require_all()


@pytest.mark.notebooks
@pytest.mark.parametrize("notebook", ["04_latency", "05_explore"])
def test_a_notebook_that_reads_the_lake_runs_on_the_cluster(cluster, lossy, notebook):
    before = cluster.applications()
    done = cluster.drive(lossy.params, "-m", "frazil_old.cli", "run", notebook, "--env", "files")
    assert done.returncode == exit_codes.OK, done.stdout + done.stderr
    assert cluster.applications() == before + 1
    (run,) = [r for r in runs.read(lossy.params.parent / "runs/files") if r["notebook"] == notebook]
    record = read_record(run["folder"] / f"{notebook}.ipynb")
    if notebook == "04_latency":
        assert {row["table"] for row in record["percentiles"]} == {f"public.{t}" for t in LANES}, record
    else:
        rows = {table: row["rows"] for table, row in record["tables"].items()}
        assert rows == {f"public.{t}": len(lossy.files.replay(t)[0]) for t in LANES}, record


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


COMPACT = "files are compacted"


@pytest.mark.parametrize("at", ["a row delta is written", slow("a MERGE is written"), slow(COMPACT)])
def test_a_successor_on_another_host_ends_what_a_killed_driver_began(cluster, tmp_path, at):
    """The driver dies at a point, with a batch of another table on a branch; the next one has neither its folder nor its host."""
    world, params = ClusterWorld(tmp_path, ("aside", "scanned")), tmp_path / "params"
    for table in world.specs:
        world.write_changes(table, 1)
    write_environment(world, cluster, params, "files")
    flows = steps_of("")
    setup, load, aside, scanned, compact = (flows[n] for n in ("setup", "load", "aside", "scanned", "maintenance"))
    kill = {"kill": "driver", "at": at}
    held = {"hold": True, "at": "a branch is published"}
    until_death = {
        "a row delta is written": [aside | held, scanned | kill],
        "a MERGE is written": [aside | kill],
        COMPACT: [
            scanned,
            aside | held,
            compact | kill | {"settings": {**compact["settings"], "tables": ["public.scanned"]}},
        ],
    }
    code, _, output = ran(cluster, params, [setup, load, *until_death[at]], host=HOST)
    assert code == -signal.SIGKILL, output
    (branch,) = branches(world, "aside")
    with pytest.MonkeyPatch.context() as patch:
        assert host() not in branch
        patch.setattr(processes.socket, "gethostname", lambda: HOST)
        assert host.__wrapped__() in branch

    for one in (successor := [aside, scanned, compact]):
        one["settings"] |= {"runs": "elsewhere"}
    code, told, output = ran(cluster, params, successor)
    assert code == 0, output
    merged = [told["steps"][0]["public.aside"], told["steps"][1]["public.scanned"]]
    assert [one["status"] for one in merged] == ["merged", "unchanged" if at == COMPACT else "merged"]
    for table in world.specs:
        require_rows(world.catalog_options, f"{SPACE}.{table}", world.replay(table)[0])
        compacted = told["steps"][2][f"public.{table}"]["counts"]
        assert compacted["file_groups"] > 0 and compacted["given_up"] == 0 and not branches(world, table)
