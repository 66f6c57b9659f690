"""The source's own catalog: what is read of it, `frazil init` from it, columns that follow it, credentials that never show."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from frazil_demo import shop
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.simulator import DmsSimulator, Slot
from frazil_demo.workload import Workload
from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import resolve
from frazil_old.config.spec import load_specs
from frazil_old.flows import cdc, full_load, reconcile, setup
from frazil_old.flows.plan import plan
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, jvm_schema
from frazil_old.results import raise_if_failed

PARAMS = Path(__file__).parent.parent / "params"
SECRET = "s3cr3t-Pa55"


# --- types and queries of every engine


# --- credentials


@pytest.fixture
def bare(monkeypatch):
    for name in ("URL", "USER", "PASSWORD", "SECRET"):
        monkeypatch.delenv(f"FRAZIL_SOURCE_{name}", raising=False)
    return monkeypatch


@pytest.mark.spark
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("jdbc:mysql://{}/shop", "refused"), ("jdbc:mariadb://{}/shop", "refused"), ("jdbc:sqlserver://{};databaseName=shop", "refused"),
        ("jdbc:oracle:thin:@//{}/shop", "ORA-12541|refused"), ("jdbc:postgresql://{}/shop", "refused"),
    ],
)  # fmt: skip
def test_init_reaches_the_address_of_every_engine(spark, bare, tmp_path, capsys, url, says):
    """There is no database at it: that is what the error says, and not that a driver is missing."""
    (tmp_path / "params").mkdir()
    bare.setenv("FRAZIL_PARAMS", str(tmp_path / "params"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bare.setenv("FRAZIL_SOURCE_URL", url.format(f"127.0.0.1:{free.getsockname()[1]}"))
    assert main(["init", "--env", "new", "--source", "dms"]) == exit_codes.EXIT_CODES["failed"]
    told = capsys.readouterr().err
    assert re.search(says, told) and "ClassNotFound" not in told and "driver" not in told.lower()


# --- a spec that follows


# --- a real database


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    root = tmp_path_factory.mktemp("source")
    with pytest.MonkeyPatch.context() as patch, EmbeddedPostgres(root / "postgres") as postgres:
        patch.setenv("FRAZIL_SOURCE_URL", postgres.jdbc_url)
        patch.setenv("FRAZIL_SOURCE_USER", postgres.user)
        patch.setenv("FRAZIL_SOURCE_PASSWORD", postgres.password)
        with postgres.connect() as connected:
            shop.make(connected, scale=0.01)
        yield postgres, root, patch


@pytest.mark.spark
def test_init_knows_a_streams_address_and_writes_no_password(spark, database, capsys):
    postgres, root, patch = database
    (root / "streams/params").mkdir(parents=True)
    patch.setenv("FRAZIL_PARAMS", str(root / "streams/params"))
    source = {"EndpointType": "SOURCE", "EngineName": "postgres", "ServerName": "db", "Password": SECRET}
    arn = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
    for env, target, address in (
        ("kafka", {"KafkaSettings": {"Broker": "a:9092, b:9092", "Topic": "dms", "SaslPassword": SECRET}}, "kafka://a:9092,b:9092/dms"),
        ("kinesis", {"KinesisSettings": {"StreamArn": arn}}, "kinesis://eu-central-1/orders"),
    ):  # fmt: skip
        (root / "endpoints.json").write_text(json.dumps({"Endpoints": [source, {"EndpointType": "TARGET", **target}]}))
        assert (
            main(["init", "--env", env, "--endpoints", str(root / "endpoints.json"), "--tables", "shop.orders"])
            == exit_codes.OK
        )
        assert "stream_start" in capsys.readouterr().out
        opened = Workbook(resolve("setup", {"env": env}).settings, lambda text: None)
        assert opened.settings.source == address and opened.stream and list(opened.specs) == ["shop.orders"]
    assert SECRET not in "".join(f.read_text() for f in (root / "streams").rglob("*.*"))


@pytest.mark.spark
def test_init_writes_a_folder_with_which_the_workbook_runs_and_columns_follow_the_source(
    spark, database, capsys, catalog_options
):
    postgres, root, patch = database
    (root / "params").mkdir()
    patch.setenv("FRAZIL_PARAMS", str(root / "params"))
    command = ["init", "--env", "made", "--endpoints", str(PARAMS / "shop.endpoint.json"), "--task", str(PARAMS / "shop.mappings.json"), "--source", "s3"]  # fmt: skip
    assert main(command) == exit_codes.OK
    told = capsys.readouterr()
    assert "next: frazil plan --env made" in told.out and postgres.password not in told.out + told.err
    assert postgres.password not in "".join(f.read_text() for f in (root / "params").rglob("*.*"))
    ours, made = load_specs(PARAMS / "shop"), load_specs(root / "params/made")
    assert made.keys() == ours.keys()
    for name, spec in made.items():
        assert (spec.key, spec.names) == (ours[name].key, ours[name].names)
        assert [(c.dms_type, c.utc, c.nullable) for c in spec.columns] == [(c.dms_type, c.utc, c.nullable) for c in ours[name].columns]  # fmt: skip
        assert all(c.source_id for c in spec.columns)
    assert main(command) == exit_codes.WRONG and "exists already" in capsys.readouterr().err

    assert main(["init", "--env", "own", "--source", "s3", "--tables", "shop.%"]) == exit_codes.OK
    told = capsys.readouterr()
    assert "are for a new target and task of DMS" in told.out
    assert [line.split()[0] for line in told.err.splitlines()] == ["reading"], "the settings lose nothing"
    opened = Workbook(
        replace(resolve("setup", {"env": "own"}).settings, catalog_options=catalog_options), lambda text: None
    )
    assert load_specs(root / "params/own").keys() == made.keys() and opened.mappings.before_image(made["shop.orders"])

    said: list[str] = []

    def book(notebook: str, **cell) -> Workbook:
        settings = resolve(notebook, {"env": "made", "tables": ["shop.customers", "shop.products"], **cell}).settings
        opened = Workbook(replace(settings, catalog_options=catalog_options, changes={"gone": "keep"}), said.append)
        opened.specs = {n: replace(s, target=f"made.{s.table_name}") for n, s in opened.specs.items()}
        return opened

    with DmsSimulator(postgres.connect, PARAMS / "shop.endpoint.json", PARAMS / "shop.mappings.json", root / "s3", slot=Slot("made", "made")) as simulator:  # fmt: skip
        simulator.full_load()
        raise_if_failed(setup.create_tables(book("setup")))
        raise_if_failed(full_load.run(book("full_load")))
        was = {f.name: f.id for f in jvm_schema.fields(spark, jvm.load_table(spark, "lake.made.products"))}
        with postgres.connect(autocommit=True) as c:
            Workload(c, 7).run(10)
            simulator.pump(), simulator.flush()
            c.execute("alter table shop.products rename column description to about")
            c.execute("alter table shop.products add column shelf smallint, drop column attributes")
            c.execute("comment on column shop.products.shelf is 'Where it stands'")
            c.execute(
                "update shop.products set about = 'new', shelf = 3 where sku in (select min(sku) from shop.products)"
            )
            c.execute("alter table shop.customers alter full_name drop not null")
            simulator.pump(), simulator.flush()
        simulator.drop()
    stopped = {r["table"]: r["decision"] for r in plan(book("cdc_merge"))}
    assert "renamed, or another one?" in stopped["shop.products"] and not stopped["shop.customers"]
    raise_if_failed(setup.create_tables(book("setup", follow_source=True)))
    following = book("cdc_merge", follow_source=True)
    raise_if_failed(cdc.run(following))
    fields = {f.name: f for f in jvm_schema.fields(spark, jvm.load_table(spark, "lake.made.products"))}
    assert fields["about"].id == was["description"] and "attributes" in fields
    assert (fields["shelf"].type, fields["shelf"].comment) == ("int", "Where it stands")
    compared, samples = reconcile.run(following)
    raise_if_failed(compared)
    assert samples == [] and {r.counts["differing_rows"] for r in compared} == {0}
    told = "shop.customers: column 'full_name' is no longer NOT NULL at the source; the lake's takes nulls anyway"
    assert [s for s in said if "NOT NULL" in s] == [told] * 2, "00_setup and 02_cdc_merge each say it once"
    with postgres.connect(autocommit=True) as c:
        c.execute("alter table shop.products drop constraint products_pkey cascade, add primary key (sku, name)")
    stopped = {r["table"]: r["decision"] for r in plan(book("cdc_merge", follow_source=True))}
    assert "the source's primary key is (sku, name)" in stopped["shop.products"] and not stopped["shop.customers"]
