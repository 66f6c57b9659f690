"""`frazil init` from a real database: its files let all rows arrive, hold no password, and name what the task would lose."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
import yaml

import table_reader
from frazil_demo import shop
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.simulator import DmsSimulator, Slot
from helpers import source_is
from world import World

pytestmark = pytest.mark.spark
PARAMS = Path(__file__).parent.parent / "params"
SECRET = "s3cr3t-Pa55"
TEXTS = ["NULL", None, "null", "", "\\N", "None", "n/a", "-", "~"]
TABLES = """
create schema made;
create table made.texts (id int primary key, v text);
create table made.meter (id int, day date, v int, primary key (id, day)) partition by range (day);
create table made.meter_2024 partition of made.meter for values from ('2024-01-01') to ('2025-01-01');
create table made.meter_2025 partition of made.meter for values from ('2025-01-01') to ('2026-01-01');
create table made.deep (id int, kind text, day date, primary key (id, kind, day)) partition by list (kind);
create table made.deep_a partition of made.deep for values in ('a') partition by range (day);
create table made.deep_a_2024 partition of made.deep_a for values from ('2024-01-01') to ('2025-01-01');
create table made.deep_b partition of made.deep for values in ('b');
create table made.sums (id int primary key, n int, twice int generated always as (n * 2) stored, t text);
create table made."a b" (id int primary key);
create table made.a_b (id int primary key);
insert into made.meter values (1, '2024-01-01', 1), (2, '2025-02-02', 2);
insert into made.deep values (1, 'a', '2024-01-01'), (2, 'b', '2024-01-01');
insert into made.sums (id, n, t) values (1, 5, 'one');
"""
CHANGES = """
insert into made.meter values (3, '2024-03-03', 3), (4, '2025-04-04', 4);
update made.meter set v = 20 where id = 2;
delete from made.meter where id = 1;
insert into made.deep values (3, 'a', '2024-02-02'), (4, 'b', '2020-01-01');
insert into made.sums (id, n, t) values (2, 6, 'two');
update made.sums set n = 7 where id = 1;
update made.texts set v = 'NULL' where id = 2;
update made.texts set v = null where id = 1;
insert into made."a b" values (1);
"""
LEAVES = {
    "meter_2024": "id, day, v", "meter_2025": "id, day, v", "deep_a_2024": "id, kind, day", "deep_b": "id, kind, day",
    "sums": "id, n, t", "texts": "id, v", "a b": "id", "a_b": "id",
}  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A server with the shop of the demo, and a schema of tables that are hard to describe."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("source") / "postgres") as server, pytest.MonkeyPatch.context() as patch:  # fmt: skip
        source_is(server, patch)
        with server.connect() as c:
            shop.make(c, scale=0.01)
        with server.connect(autocommit=True) as c:
            c.execute(TABLES)
            for number, text in enumerate(TEXTS, 1):
                c.execute("insert into made.texts values (%s, %s)", (number, text))
        yield server


@pytest.fixture
def home(spark, catalog_options, tmp_path) -> World:
    """A world for commands."""
    return World(tmp_path / "w", f"init_{tmp_path.name[-8:]}", catalog_options)


def specs(folder: Path) -> dict[str, dict]:
    """Return the specs of a folder, by table."""
    return {spec["source"]: spec for spec in (yaml.safe_load(f.read_text()) for f in folder.glob("*.yml"))}


def test_what_init_writes_is_what_the_task_writes_and_every_row_arrives(database, home, tmp_path):
    params = home.root / "params"
    code, said = home.command("init", "--env", "own", "--source", str(home.root / "s3"), "--tables", "made.%")
    assert code == 0 and all(f"made.{t}: " in said for t in ("meter", "deep", "sums")) and "twice" in said
    assert not [f for f in params.rglob("*.*") if database.password in f.read_text()] and database.password not in said
    written = specs(params / "own")
    assert set(written) == {f"made.{t}" for t in LEAVES}
    assert [c["name"] for c in written["made.sums"]["columns"]] == ["id", "n", "t"]
    target = json.loads((params / "own.endpoint.json").read_text())["S3Settings"]
    w = World(tmp_path / "own", home.space, home.lake, target)
    w.source.rules = json.loads((params / "own.mappings.json").read_text())
    for name, spec in written.items():
        w.specs[name.split(".")[1]] = spec | {"target": f"{w.space}.{spec['target'].split('.')[1]}"}
        w.declare(name.split(".")[1])
    with DmsSimulator(database.connect, params / "own.endpoint.json", params / "own.mappings.json", w.source.folder, slot=Slot("own", "own")) as dms:  # fmt: skip
        dms.full_load()
        w.loaded()
        with database.connect(autocommit=True) as c:
            c.execute(CHANGES)
        dms.pump(), dms.flush()
        dms.drop()
    w.merged()
    with database.connect() as c:
        for table, columns in LEAVES.items():
            rows = c.execute(f'select {columns} from made."{table}"').fetchall()
            assert table_reader.rows(w.lake, w.specs[table]["target"]) == sorted(rows, key=repr), table


def test_init_by_a_task_writes_the_specs_of_the_shop_and_nothing_over(database, home):
    command = ("init", "--env", "made", "--endpoints", str(PARAMS / "shop.endpoint.json"), "--task", str(PARAMS / "shop.mappings.json"), "--source", "s3")  # fmt: skip
    code, said = home.command(*command)
    assert code == 0 and "next: frazil plan --env made" in said
    ours, made = specs(PARAMS / "shop"), specs(home.root / "params/made")
    assert made.keys() == ours.keys()
    for name, spec in made.items():
        told = [[(c["name"], c["type"].split("(")[0], c.get("utc", False)) for c in s["columns"]] for s in (spec, ours[name])]  # fmt: skip
        assert spec["key"] == ours[name]["key"] and told[0] == told[1], name
    code, said = home.command(*command)
    assert code != 0 and "exists already" in said


def test_a_pattern_that_means_a_partitioned_table_means_its_partitions_and_rules_that_do_not_are_named(database, home):
    code, _ = home.command("init", "--env", "part", "--source", "s3", "--tables", "made.deep")
    assert code == 0 and set(specs(home.root / "params/part")) == {"made.deep_a_2024", "made.deep_b"}
    rule = {"rule-type": "selection", "rule-id": "1", "rule-name": "1", "rule-action": "include"}
    rules = [{**rule, "object-locator": {"schema-name": "made", "table-name": "meter"}}]
    (home.root / "task.json").write_text(json.dumps({"rules": rules}))
    code, said = home.command("init", "--env", "bare", "--source", "s3", "--task", str(home.root / "task.json"))
    assert code == 0 and "made.meter_2024: " in said and "made.meter_2025: " in said


def test_init_knows_the_address_of_a_stream_and_writes_no_password(database, home):
    source = {"EndpointType": "SOURCE", "EngineName": "postgres", "ServerName": "db", "Password": SECRET}
    arn = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
    for env, target, address in (
        ("kafka", {"KafkaSettings": {"Broker": "a:9092, b:9092", "Topic": "dms", "SaslPassword": SECRET}}, "kafka://a:9092,b:9092/dms"),
        ("kinesis", {"KinesisSettings": {"StreamArn": arn}}, "kinesis://eu-central-1/orders"),
    ):  # fmt: skip
        file = home.root / "endpoints.json"
        file.write_text(json.dumps({"Endpoints": [source, {"EndpointType": "TARGET", **target}]}))
        code, said = home.command("init", "--env", env, "--endpoints", str(file), "--tables", "shop.orders")
        assert code == 0 and "stream_start" in said and list(specs(home.root / "params" / env)) == ["shop.orders"]
        assert address in (home.root / f"params/{env}.yml").read_text()
        file.unlink()
    assert SECRET not in "".join(f.read_text() for f in (home.root / "params").rglob("*.*"))


@pytest.mark.parametrize("url", ["jdbc:mysql://{}/shop", "jdbc:sqlserver://{};databaseName=shop", "jdbc:oracle:thin:@//{}/shop", "jdbc:postgresql://{}/shop"])  # fmt: skip
def test_init_reaches_the_address_of_every_engine(home, url):
    """There is no database at it: that is what the error says, and not that a driver is missing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = url.format(f"127.0.0.1:{free.getsockname()[1]}")
    code, said = home.command("init", "--env", "new", "--source", "dms", FRAZIL_SOURCE_URL=address, FRAZIL_SOURCE_USER="u", FRAZIL_SOURCE_PASSWORD=SECRET)  # fmt: skip
    assert code != 0 and re.search("refused|ORA-12541", said), said
    assert "ClassNotFound" not in said and "driver" not in said.lower() and SECRET not in said
