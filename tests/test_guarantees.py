"""Guarantees that concern whole runs.

They are about row ids, order, cost, warehouses, secrets, exit codes, latency, and DMS's word on loads.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from dms_writer import FILE1, FILE2, FILE3, D, I, U, file_name
from fake_driver import SERVERS, SNOW, FakeServer
from rest_catalog import RestCatalog
from world import World

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


class Model:
    """A table as a dict, random changes to it, and what they leave."""

    def __init__(self, seed: int, keys: int = 20, text: Callable[[int], str] = str):
        self.dice, self.keys, self.text = random.Random(seed), keys, text
        self.rows: dict[int, str] = {n: f"loaded {n}" for n in range(1, keys, 2)}
        self.done = 0

    def change(self):
        """Return the next change: an update, a delete, a change of the key, or an insert."""
        self.done += 1
        free, held = sorted({*range(1, self.keys + 1)} - set(self.rows)), sorted(self.rows)
        key, text, seq = self.dice.choice(held), self.text(self.done), f"{self.done:035d}"
        what = self.dice.choices(("update", "delete", "move", "insert"), (5, 2, 2, 3))[0]
        if what == "delete" and len(held) > 2:
            del self.rows[key]
            return D(key, seq=seq)
        if what in ("move", "insert") and free:
            new, was = self.dice.choice(free), key if what == "move" else None
            self.rows.pop(was, None)
            self.rows[new] = text
            return I(new, text, seq=seq) if was is None else U(new, text, was=was, seq=seq)
        self.rows[key] = text
        return U(key, text, seq=seq)

    def changes(self, count: int) -> list:
        return [self.change() for _ in range(count)]


def listed(rows: dict) -> list[tuple]:
    return sorted(rows.items(), key=repr)


# --- row ids


def kept_ids(before: dict[tuple, int], after: dict[tuple, int]) -> None:
    """Insist that rows which are still there have their ids, and that new rows have new ones."""
    assert {k: after[k] for k in before if k in after} == {k: i for k, i in before.items() if k in after}
    assert not {i for k, i in after.items() if k not in before} & set(before.values())


def test_a_row_keeps_its_id_through_updates_and_compaction_and_a_new_row_has_a_new_one(open_world):
    w = open_world().table("t")
    w.source.load("t", *((n, "loaded") for n in range(1, 9)))
    w.loaded()
    loaded = w.row_ids("t")
    w.source.changes("t", U(1, "x"), U(2, "x"), D(3), I(9, "new"), U(1, "y"))
    w.merged()
    changed = w.row_ids("t")
    kept_ids(loaded, changed)
    assert w.maintain()["t"].status == "maintained"
    assert w.row_ids("t") == changed
    w.source.changes("t", U(1, "z"), U(9, "z"), D(4), I(10, "new"), U(70, "moved", was=7), name=FILE2)
    w.merged()
    last = w.row_ids("t")
    last.pop((70,))
    kept_ids(changed, last)
    assert w.rows("t") == [(1, "z"), (10, "new"), (2, "x"), (5, "loaded"), (6, "loaded"), (70, "moved"), (8, "loaded"), (9, "z")]  # fmt: skip


# --- order


def test_many_small_files_and_one_large_batch_of_the_same_changes_end_equal(open_world):
    w, model = open_world(), Model(7, keys=15, text=lambda n: f"{n} " + "x" * 90_000)
    first, all_changes, files = dict(model.rows), model.changes(600), []
    for table in ("small", "large"):
        w.table(table, "id INT8", "v NCLOB")
        w.source.load(table, *first.items())
    w.loaded()
    for n in range(4):
        files.append(w.source.changes("large", *all_changes[150 * n : 150 * (n + 1)], name=file_name(n)))
    assert sum(file.stat().st_size for file in files) > 36 << 20
    assert w.merge()["large"].counts["changes"] == 600
    for n in range(60):
        w.source.changes("small", *all_changes[10 * n : 10 * (n + 1)], name=file_name(n))
        if n % 30 == 29:
            w.merged(tables=["small"])
    assert (w.batches("large"), w.batches("small")) == (2, 3)
    large, small, wanted = ([(key, text[:9]) for key, text in rows] for rows in (w.rows("large"), w.rows("small"), listed(model.rows)))  # fmt: skip
    assert large == wanted == small


# --- the release of Iceberg


def test_the_release_of_iceberg_is_the_one_that_was_asked_for(open_world):
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    w.loaded()
    written = w.history("t")[0].summary.additional_properties["iceberg-version"]
    assert os.environ.get("FRAZIL_ICEBERG", "1.12.0") in written


# --- cost


class Costs:
    """Applies batches of one change file each, and tells what each cost: requests to the catalog, new files, bytes of Avro."""

    def __init__(self, world, catalog):
        self.world, self.catalog, self.number = world, catalog, 0

    def change(self, table: str, *changes) -> None:
        self.number += 1
        self.world.source.changes(table, *changes, name=file_name(self.number))

    def of(self, table: str, *changes) -> dict[str, int]:
        place = Path(self.world.metadata(table).location.removeprefix("file:"))
        before = {*place.rglob("*")}
        self.change(table, *changes)
        self.catalog.expect()
        assert self.world.merge(tables=[table])[table].counts["changes"] == len(changes)
        new = [f for f in place.rglob("*") if f.is_file() and f.suffix != ".crc" and f not in before]
        avro = sum(f.stat().st_size for f in new if f.suffix == ".avro")
        return {"requests": len(self.catalog.requests), "files": len(new), "bytes": avro}

    def of_two(self, table: str, first: int) -> dict[str, int]:
        """Return the lesser cost of two batches: now and then one also merges small files."""
        one, other = (self.of(table, U(0, f"v{n}"), I(-n, "new"), D(n)) for n in (first, first + 1))
        return {name: min(one[name], other[name]) for name in one}


def test_the_cost_of_a_batch_grows_neither_with_the_number_of_batches_nor_with_that_of_data_files(open_world, tmp_path):
    with RestCatalog(tmp_path / "rest") as catalog:
        lake = {"type": "rest", "uri": catalog.uri, "warehouse": f"{tmp_path}/rest", "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "rest-metrics-reporting-enabled": "false"}  # fmt: skip
        w, files = open_world(lake=lake, catalog="counted"), {"few": 5, "many": 60}
        costs = Costs(w, catalog)
        for table in files:
            w.table(table)
            w.source.load(table, (0, "loaded"))
        w.loaded()
        for table, count in files.items():
            w.sql(f"INSERT INTO {{t}} SELECT /*+ REPARTITION({count}) */ id, 'x' FROM range(1, 6001)", table)
            assert w.sql("SELECT count(*) FROM {t}.files", table)[0][0] > count
            costs.change(table, U(0, "first"))
        w.merged()
        few, many = costs.of_two("few", 1), costs.of_two("many", 1)
        for n in range(30):
            costs.change("few", U(0, f"w{n}"), I(-100 - n, "new"))
        w.merged(max_batch_files=1)
        late = costs.of_two("few", 3)
        assert w.batches("few") > 30
    for cost in (many, late):
        assert cost["requests"] <= few["requests"] + 1 and cost["files"] <= few["files"] + 2, (few, many, late)
        assert cost["bytes"] <= few["bytes"] + 24_000, (few, many, late)


# --- warehouses

IMPATIENT = {**SNOW, "refresh_wait_s": 0.5}


def test_a_warehouse_that_fails_or_hangs_holds_no_batch_up_and_is_named(open_world, monkeypatch):
    awake = threading.Event()
    broken = FakeServer(answers=[("REFRESH", RuntimeError("no such role"))])
    hanging = FakeServer(answers=[("REFRESH", lambda _: awake.wait(60) and [])])
    for name, server in (("broken", broken), ("hanging", hanging)):
        monkeypatch.setitem(SERVERS, name, server)
    declared = {name: {**IMPATIENT, "options": {"server": name}} for name in ("broken", "hanging", "absent")}
    w = open_world(warehouses=declared).table("t")
    w.source.load("t", (1, "a"), (2, "b"))
    w.loaded()
    for n in range(4):
        w.source.changes("t", U(1, f"v{n}"), I(10 + n, "new"), name=file_name(n))
    said = len(w.said)
    assert w.merge(max_batch_files=1)["t"].status == "merged"
    assert hanging.in_flight > 0, "the run ended before the warehouse had answered"
    assert w.rows("t") == [(1, "v3"), *((10 + n, "new") for n in range(4)), (2, "b")]
    assert w.batches("t") == 5 and broken.sent
    for name in declared:
        assert any(name in line for line in w.said[said:]), (name, w.said[said:])
    awake.set()
    served = {row["warehouse"]: row for row in w.warehouses(refresh=True)}
    assert [name for name in declared if served[name]["status"] == "failed"] == ["broken", "absent"]
    assert "no such role" in served["broken"]["why"]


# --- secrets and exit codes

NOWHERE = "127.0.0.1:9"
SECRETS = {name: f"q7-{name}-Zx81kfP" for name in ("lake", "source", "url", "driver", "hook", "aws")}
VARIABLES = {
    "LAKE_PASSWORD": SECRETS["lake"], "FRAZIL_SOURCE_URL": f"jdbc:postgresql://{NOWHERE}/shop?password={SECRETS['url']}",
    "FRAZIL_SOURCE_USER": "reader", "FRAZIL_SOURCE_PASSWORD": SECRETS["source"], "AWS_SECRET_ACCESS_KEY": SECRETS["aws"],
    "DRIVER_LOGIN": json.dumps({"name": SECRETS["driver"]}), "FRAZIL_NOTIFY": f"json://{NOWHERE}/hook?token={SECRETS['hook']}",
}  # fmt: skip


def secret_in(w, of: str, variable: str) -> str:
    """Return how a setting holds a secret: as it is, or by the name of a variable."""
    return w.changed("secrets-in-settings", old=SECRETS[of], new=f"${{{variable}}}")


def leaky_warehouse() -> dict:
    """Return a warehouse whose driver shows its login in an error: it takes the login for the name of a module."""
    return {**IMPATIENT, "connect": "importlib:import_module", "secret": "env:DRIVER_LOGIN"}


class CommandLines(threading.Thread):
    """Reads the command lines of all processes of this machine again and again."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self.ended = set(), threading.Event()

    def run(self):
        while not self.ended.wait(0.02):
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    self.seen.add("\n".join(process.cmdline()))


@pytest.fixture(scope="module")
def commands(shared_world, catalog_options):
    """A world with secrets in all places, and what commands came to: their exit codes, and all that they printed."""
    w = shared_world("commands", dict(catalog_options), catalog="guarded")
    w.lake["jdbc.password"] = secret_in(w, "lake", "LAKE_PASSWORD")
    hook = {"webhook": f"http://{NOWHERE}/hook?token={SECRETS['hook']}"}
    w.settings |= w.changed("secrets-in-settings", old=hook, new={})
    w.settings["warehouses"] = {"leaky": leaky_warehouse()}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        (lines := CommandLines()).start()
        found = run_commands(w)
        lines.ended.set()
        found.append((0, str(w.warehouses(refresh=True))))
        w.command_lines = lines.seen
    return w, found


def run_commands(w: World) -> list[tuple[int, str]]:
    """Let runs end well, with nothing to do, with one failed table, and with a late file; then ask a database that is not there."""
    for table in ("t", "other"):
        w.table(table)
        w.source.load(table, (1, "a"), (2, "b"))
    w.loaded()
    w.source.changes("t", U(1, "x"), name=FILE2)
    found = [w.command("run", "02_cdc_merge"), w.command("run", "02_cdc_merge")]
    w.source.changes("t", D(2), name=FILE3)
    w.source.changes("other", U("one", "x"), name=FILE2)
    found.append(w.command("run", "02_cdc_merge"))
    w.source.changes("other", U(1, "x"), name=FILE2)
    w.source.changes("t", U(1, "late"), name=FILE1)
    found.append(w.command("run", "02_cdc_merge"))
    return [*found, w.command("init", "--env", "fresh", "--source", "dms")]


def test_the_exit_code_tells_how_a_run_ended(commands):
    w, found = commands
    assert [code for code, _ in found[:5]] == [0, 10, 3, 4, 1], found
    assert "public.other" in found[2][1] and FILE1 in found[3][1]
    assert w.rows("t") == [(1, "x")] and w.rows("other") == [(1, "x"), (2, "b")]


def test_no_secret_is_in_what_runs_keep_and_print(commands):
    w, found = commands
    kept = {**w.files_kept(), **{f"told {n}": text.encode() for n, (_, text) in enumerate(found)}}
    assert sum(name.endswith(".ipynb") for name in kept) >= 3 and any(name.endswith("run.json") for name in kept)
    assert "ModuleNotFoundError" in found[-1][1], "the warehouse's driver failed"
    assert [(name, of) for name, raw in kept.items() for of, secret in SECRETS.items() if secret.encode() in raw] == []


def test_no_process_has_a_secret_among_its_arguments(commands):
    w, _ = commands
    assert [line for line in w.command_lines if "org.apache.spark.deploy.SparkSubmit" in line], "no session was started"
    assert [(of, line[:99]) for line in w.command_lines for of, secret in SECRETS.items() if secret in line] == []


@contextmanager
def serving(told: Callable[[Mapping[str, str]], tuple[int, dict]]):
    """Serve on loopback, and give the address; `told` has the code and the text of an answer by the headers of its request."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, said = told(self.headers)
            text = json.dumps(said).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def refusing(headers: Mapping[str, str]) -> tuple[int, dict]:
    """Answer as a catalog that refuses each request, and repeats its login."""
    return 403, {"error": {"message": f"no: {headers['Authorization']}", "type": "Forbidden", "code": 403}}


def test_no_secret_is_in_the_error_of_a_catalog_that_shows_it(open_world, monkeypatch):
    monkeypatch.setenv("LAKE_PASSWORD", SECRETS["lake"])
    w = open_world(lake={"type": "rest", "warehouse": "s3://lake"}, catalog="refusing")
    w.lake["token"] = secret_in(w, "lake", "LAKE_PASSWORD")
    with serving(refusing) as w.lake["uri"]:
        w.table("t").source.load("t", (1, "a"))
        result = w.setup()["t"]
    assert result.failed and result.names("no: ")
    assert not [text for text in (result.note, *w.said) if SECRETS["lake"] in text]


# --- latency

STAGES = {"source_to_dms": 400, "dms_to_landed": 100, "landed_to_pickup": 500, "source_to_commit": 1000}
"""Seconds of each stage of most changes below."""


def test_the_latency_of_each_stage_is_told_in_numbers(open_world):
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    w.loaded()
    now = datetime.now(UTC)

    def at(age_s: float, form: str) -> str:
        return (now - timedelta(seconds=age_s)).strftime(form)

    ages = [4000 if n % 30 == 0 else 1000 for n in range(1, 101)]
    changes = [U(1, f"v{n}", ts=at(age, "%Y-%m-%d %H:%M:%S.%f")) for n, age in enumerate(ages)]
    file = w.source.changes("t", *changes, name=f"{at(600, '%Y%m%d-%H%M%S')}000.csv")
    os.utime(file, (now.timestamp() - 500,) * 2)
    w.merged()
    late_by = (datetime.now(UTC) - now).total_seconds()
    found = w.latency()
    for stage, seconds in STAGES.items():
        assert 0.88 * seconds <= found[stage]["p50"] <= 1.12 * (seconds + late_by), (stage, found)
    assert found["pickup_to_commit"]["p50"] <= 1.12 * late_by
    parts = ("source_to_dms", "dms_to_landed", "landed_to_pickup", "pickup_to_commit")
    assert sum(found[stage]["p50"] for stage in parts) == pytest.approx(found["source_to_commit"]["p50"], rel=0.12)
    assert 0.88 * 4000 <= found["source_to_commit"]["p99"] <= 1.12 * (4000 + late_by)
    assert found["source_to_commit"]["p95"] < 1500
    assert found["source_to_commit"]["changes"] == 100


# --- DMS's word on loads

TASK = "arn:aws:dms:eu-west-1:111111111111:task:ABC"


class Dms:
    """AWS's database migration service, as far as it tells about one task and its tables."""

    def __init__(self):
        self.tables: dict[str, tuple[str, int]] = {}
        self.answers = True

    def told(self, headers: Mapping[str, str]) -> tuple[int, dict]:
        if not self.answers:
            return 400, {"__type": "AccessDeniedException", "message": "not allowed"}
        known = {
            "DescribeReplicationTasks": {"ReplicationTasks": [{"ReplicationTaskArn": TASK, "Status": "running", "MigrationType": "full-load-and-cdc"}]},
            "DescribeTableStatistics": {"TableStatistics": [
                {"SchemaName": "public", "TableName": name, "TableState": state, "FullLoadRows": rows} for name, (state, rows) in self.tables.items()
            ]},
        }  # fmt: skip
        return 200, known[headers["X-Amz-Target"].split(".")[-1]]


@pytest.fixture
def dms(monkeypatch):
    """DMS at the address that the environment names."""
    stub = Dms()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with serving(stub.told) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DATABASE_MIGRATION_SERVICE", address)
        yield stub


def test_a_table_waits_with_its_changes_until_dms_calls_its_load_completed(open_world, dms):
    w = open_world(load_complete_when=f"dms:{TASK}")
    for table in ("done", "running", "short", "broken"):
        w.table(table)
        w.source.load(table, (1, "old"), (2, "old"))
        w.source.changes(table, U(1, "new"), D(2))
    w.table("none")
    dms.tables = {"done": ("Table completed", 2), "running": ("Full load", 2), "short": ("Table completed", 3), "broken": ("Table error", 2), "none": ("Table completed", 1)}  # fmt: skip
    w.setup()
    waiting = dict.fromkeys(("running", "short", "broken", "none"), "waiting")
    assert {t: r.status for t, r in w.load().items()} == {"done": "loaded", **waiting}
    merged = {t: r.status for t, r in w.merge().items()}
    assert merged == {"done": "merged", **waiting, "none": merged["none"]}
    assert w.rows("done") == [(1, "new")] and w.rows("running") == w.rows("short") == []
    w.source.load("short", (3, "old"), name="LOAD00000002.csv")
    dms.tables = {**dms.tables, "running": ("Table completed", 2)}
    loaded = {"done": "unchanged", "running": "loaded", "short": "loaded", "broken": "waiting", "none": "waiting"}
    assert {t: r.status for t, r in w.load().items()} == loaded
    w.merge()
    assert w.rows("running") == [(1, "new")] and w.rows("short") == [(1, "new"), (3, "old")]


def test_a_dms_that_does_not_answer_is_named_and_nothing_is_loaded(open_world, dms, monkeypatch):
    w = open_world(load_complete_when=f"dms:{TASK}").table("t")
    w.source.load("t", (1, "old"))
    w.setup()
    dms.answers = False
    refused = w.load()["t"]
    monkeypatch.setenv("AWS_ENDPOINT_URL_DATABASE_MIGRATION_SERVICE", f"http://{NOWHERE}")
    silent = w.load()["t"]
    assert {(r.status, r.code) for r in (refused, silent)} == {("failed", "dms-silent")}
    assert refused.names("AccessDenied", TASK) and w.rows("t") == []
