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
from frazil_old.config import source_database
from frazil_old.config.columns import TYPES, Column
from frazil_old.config.policies import SchemaPolicy
from frazil_old.config.settings import resolve
from frazil_old.config.source_database import Connection, SourceDatabaseError, engine_of, source_connection
from frazil_old.config.spec import TableSpec, load_specs
from frazil_old.flows import cdc, full_load, reconcile, setup, source_catalog
from frazil_old.flows.follow_source import as_declared
from frazil_old.flows.plan import plan
from frazil_old.flows.source_catalog import DMS_TYPES, QUERIES, CatalogTable, dms_type, read_catalog
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, jvm_schema, schema_evolution
from frazil_old.lake.schema_evolution import SchemaError
from frazil_old.results import raise_if_failed

PARAMS = Path(__file__).parent.parent / "params"
SECRET = "s3cr3t-Pa55"


# --- types and queries of every engine


@pytest.mark.parametrize(
    ("engine", "kind", "dms", "utc"),
    [
        ("postgresql", "numeric(12,2)", "NUMERIC(12,2)", False), ("postgresql", "numeric", "NUMERIC(28,6)", False),
        ("postgresql", "numeric(60,2)", "STRING(62)", False), ("postgresql", "timestamp(3) with time zone", "DATETIME", True),
        ("postgresql", "integer[]", "NCLOB", False), ("postgresql", "character varying(80)", "WSTRING(80)", False),
        ("mysql", "bigint(20) unsigned", "UINT8", False), ("mysql", "tinyint(1)", "INT1", False), ("mysql", "bit(1)", "BOOLEAN", False),
        ("mysql", "int(10) unsigned zerofill", "UINT4", False), ("mysql", "timestamp(6)", "DATETIME", True), ("mysql", "enum('a','b')", "WSTRING(64)", False),
        ("sqlserver", "nvarchar(max)", "NCLOB", False), ("sqlserver", "decimal(12,4)", "NUMERIC(12,4)", False),
        ("sqlserver", "money", "NUMERIC(19,4)", False), ("sqlserver", "datetime2", "DATETIME", False),
        ("oracle", "number", "NUMERIC(38,10)", False), ("oracle", "number(4,0)", "INT2", False), ("oracle", "number(9,0)", "INT4", False),
        ("oracle", "number(12,0)", "NUMERIC(12,0)", False), ("oracle", "number(5,-2)", "REAL8", False),
        ("oracle", "timestamp(6) with time zone", "STRING(64)", False), ("oracle", "float(24)", "REAL4", False),
    ],
)  # fmt: skip
def test_a_source_type_is_what_dms_makes_of_it(engine, kind, dms, utc):
    assert dms_type(engine, kind) == (dms, utc)


def test_an_unknown_type_is_named_with_its_table_and_column():
    row = ("geo", "places", "at", 1, "geometry(Point,4326)", True, None, None, None, False)
    with pytest.raises(SourceDatabaseError, match="geo.places: column 'at': column type 'geometry"):
        source_catalog._table("geo.places", [row], "postgresql")


def test_every_type_in_the_maps_is_one_that_a_spec_may_say():
    assert {t.split("(")[0] for known in DMS_TYPES.values() for t, _ in known.values()} <= TYPES
    with pytest.raises(SourceDatabaseError, match="'anydata' of oracle is unknown"):
        dms_type("oracle", "anydata")


def test_every_engine_has_a_query_with_the_same_ten_columns():
    assert set(QUERIES) == set(source_database.ENGINES) == set(DMS_TYPES)
    for sql in QUERIES.values():
        assert [n for n in ("s", "t", "c", "n", "kind", "nullable", "remark", "about", "place", "generated") if f" as {n}" not in sql] == []  # fmt: skip


# --- credentials


@pytest.fixture
def bare(monkeypatch):
    for name in ("URL", "USER", "PASSWORD", "SECRET"):
        monkeypatch.delenv(f"FRAZIL_SOURCE_{name}", raising=False)
    return monkeypatch


@pytest.fixture
def secrets(bare):
    moto = pytest.importorskip("moto")
    boto3 = pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        bare.setenv(name, "testing")
    bare.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        bare.delenv(name, raising=False)
    with moto.mock_aws():
        yield boto3.client("secretsmanager")


def test_a_secret_of_rds_says_all(secrets, bare):
    rds = {"engine": "postgres", "host": "db", "port": 5433, "dbname": "shop", "username": "u", "password": SECRET}
    secrets.create_secret(Name="prod/shop", SecretString=json.dumps(rds))
    bare.setenv("FRAZIL_SOURCE_SECRET", "prod/shop")
    found = source_connection()
    assert (found.engine, found.url, found.user) == ("postgresql", "jdbc:postgresql://db:5433/shop", "u")
    assert found.options()["password"] == SECRET and SECRET not in repr(found)


def test_an_endpoint_of_dms_names_host_and_secret(secrets):
    secrets.create_secret(Name="dms", SecretString=json.dumps({"username": "u", "password": SECRET}))
    endpoint = {"EngineName": "aurora", "ServerName": "db", "DatabaseName": "shop", "MySQLSettings": {"SecretsManagerSecretId": "dms"}}  # fmt: skip
    found = source_connection(endpoint)
    assert (found.url, found.user, found.password) == ("jdbc:mysql://db:3306/shop", "u", SECRET)


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


@pytest.mark.parametrize(
    ("secret", "says"),
    [(None, "'gone' cannot be read: ResourceNotFoundException"), (SECRET, "holds no JSON object"), (f'"{SECRET}"', "holds no JSON object")],
)  # fmt: skip
def test_a_secret_that_cannot_be_used_is_named_and_never_shown(secrets, bare, secret, says):
    bare.setenv("FRAZIL_SOURCE_SECRET", "gone")
    if secret:
        secrets.create_secret(Name="gone", SecretString=secret)
    with pytest.raises(SourceDatabaseError, match=says) as raised:
        source_connection()
    assert SECRET not in str(raised.value) and raised.value.__cause__ is None


def test_nothing_said_is_an_error_and_so_is_an_unknown_engine(bare):
    with pytest.raises(SourceDatabaseError, match="nothing says where"):
        source_connection()
    assert [engine_of(n) for n in ("postgres", "aurora-postgresql", "mariadb", "sqlserver-ee", "oracle-se2")] == [
        "postgresql", "postgresql", "mysql", "sqlserver", "oracle",
    ]  # fmt: skip
    with pytest.raises(SourceDatabaseError, match="'db2' is not known"):
        engine_of("db2")


# --- a spec that follows


def of(*columns: Column) -> CatalogTable:
    return CatalogTable("a.t", ("id",), columns)


SPEC = TableSpec(
    "a.t", "a.t", ("id",),
    (Column("id", "INT4", source_id=1), Column("v", "WSTRING(9)", mask="sha256", source_id=2), Column("n", "INT4", source_id=3)),
)  # fmt: skip


def test_a_rename_is_known_by_the_number_and_what_the_spec_says_beyond_the_type_stays():
    new = as_declared(SPEC, of(Column("no", "INT8", source_id=1), Column("title", "WSTRING(20)", source_id=2), Column("w", "DATE", source_id=4)))  # fmt: skip
    assert new.key == ("no",) and new.names == ["no", "title", "w"]
    assert (new.column("title").renamed_from, new.column("title").mask) == (("v",), "sha256")
    assert (new.column("no").renamed_from, new.column("no").type) == (("id",), "INT8")
    assert as_declared(new, of(*new.columns)) == new, "and again"


def test_numbers_of_a_table_that_was_made_again_are_refused():
    """A restored table counts its columns anew: `n`, which the lake leaves out, would come into it as a renamed `v`."""
    left_out = replace(SPEC, columns=SPEC.columns[:2], all_columns=SPEC.columns)
    restored = of(*(Column(c, "INT4", source_id=i) for c, i in (("id", 1), ("n", 2), ("v", 3))))
    with pytest.raises(SchemaError, match="a.t: by its number, column 'n' is 'v', which is still there"):
        as_declared(left_out, restored)


def test_without_numbers_a_new_name_is_a_new_column_and_a_key_that_is_gone_is_refused():
    unnumbered = replace(SPEC, columns=tuple(replace(c, source_id=0) for c in SPEC.columns))
    new = as_declared(unnumbered, of(Column("id", "INT4"), Column("title", "WSTRING(20)")))
    assert new.names == ["id", "title"] and new.column("title").renamed_from == ()
    with pytest.raises(SchemaError, match="key column id is gone"):
        as_declared(unnumbered, of(Column("no", "INT4")))


def test_the_sources_primary_key_is_the_specs_or_is_declared_not_to_matter():
    table = of(Column("id", "INT4", nullable=False), Column("name", "WSTRING(20)"))
    assert as_declared(SPEC, table).column("id").nullable is False
    for key in (("id",), ()):  # none: unique columns were declared
        schema_evolution.require_source_key(SPEC, key, "a.t")
    with pytest.raises(
        SchemaError, match=r"(?s)a.t: the source's primary key is \(id, name\), and \(id\) in .*key: keep"
    ):
        schema_evolution.require_source_key(SPEC, ("id", "name"), "a.t")
    schema_evolution.require_source_key(replace(SPEC, changes=SchemaPolicy(key="keep")), ("id", "name"), "a.t")
    schema_evolution.require_source_key(replace(SPEC, key=(), without_key="append"), ("id",), "a.t")


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
def test_a_wrong_password_is_not_in_the_message(spark, database):
    postgres, _, _ = database
    with pytest.raises(SourceDatabaseError, match="cannot be read") as raised:
        read_catalog(spark, Connection("postgresql", postgres.jdbc_url, "nobody", SECRET))
    assert SECRET not in str(raised.value)
    with pytest.raises(SourceDatabaseError, match="Connection refused"):
        read_catalog(spark, Connection("mysql", "jdbc:mysql://127.0.0.1:1/x"))


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
