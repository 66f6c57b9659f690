"""Trino reads what Frazil wrote: position deletes, deletion vectors and partition changes, over Glue and REST, row by row.

The tables are in MiniStack's Glue and S3. `make test-engines` runs this.
"""

import json
from pathlib import Path

import pytest
import yaml

import aws_emulator
import trino_server
from dms_writer import FILE1, FILE2, D, I, U
from frazil_old.cli.commands import main
from frazil_old.config.settings import ParameterError, Settings, resolve
from frazil_old.config.validation import checked
from frazil_old.config.warehouse_model import WarehouseEntries
from frazil_old.config.warehouses import Warehouse
from frazil_old.lake import pyiceberg_catalog
from frazil_old.warehouses.family import family
from helpers import run_python
from rest_catalog import RestCatalog
from world import World, house

pytestmark = [pytest.mark.engines, pytest.mark.spark]
TABLES = {"v2": ["athena"], "v2_partitions": ["athena"], "v3": ["spark"], "v3_partitions": ["spark"]}
"""The tables, and the query engines for which they are made: these decide the format."""
WAREHOUSE = {"engine": "trino", "database": "glue", "region": aws_emulator.REGION}
EXPECTED = {n: f"v{n}" for n in range(40) if n not in (3, 5)} | {4: "new", 6: "newer", 100: "x"}
WORK = """
import json, sys
from frazil_old.config.settings import resolve
from frazil_old.flows import cdc, full_load, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.results import raise_if_failed
for table, engines in json.loads(sys.argv[1]).items():
    def book(notebook, **more):
        return Workbook(resolve(notebook, {"env": "w", "tables": ["public." + table], "query_engines": engines, **more}).settings)
    raise_if_failed(setup.create_tables(book("setup")))
    raise_if_failed(full_load.run(book("full_load")))
    one = book("cdc_merge", lane="rowdelta", max_batches=1, max_batch_files=1)
    raise_if_failed(cdc.run(one))
    if table.endswith("partitions"):
        one.spark.sql(f"ALTER TABLE lake.app.{table} ADD PARTITION FIELD bucket(4, id)")
    raise_if_failed(cdc.run(book("cdc_merge", lane="rowdelta")))
"""


class OfGlue(RestCatalog):
    """A REST catalog over the tables of another catalog: it answers with what their newest metadata files say."""

    def __init__(self, folder: Path, catalog):
        super().__init__(folder)
        self.catalog = catalog

    def do(self, method: str, parts: list[str], body: dict) -> tuple[int, dict]:
        match method, parts:
            case "GET", ["namespaces"]:
                return 200, {"namespaces": [list(n) for n in self.catalog.list_namespaces()]}
            case "GET" | "HEAD", ["namespaces", name]:
                return 200, {"namespace": [name], "properties": {}}
            case "GET", ["namespaces", name, "tables"]:
                return 200, {"identifiers": [{"namespace": [n], "name": t} for n, t in self.catalog.list_tables(name)]}
            case "GET", ["namespaces", name, "tables", table]:
                there = self.catalog.load_table(f"{name}.{table}")
                with there.io.new_input(there.metadata_location).open() as file:
                    return 200, {"metadata-location": there.metadata_location, "metadata": json.loads(file.read()), "config": {}}  # fmt: skip
        return super().do(method, parts, body)


@pytest.fixture(scope="module")
def lake(aws, tmp_path_factory):
    """The four tables with deletes and updates before and after a change of partitions; yield the world and its catalog."""
    trino_server.java_25()
    aws_emulator.make_buckets(aws, "lake")
    options = {
        "type": "glue", "warehouse": "s3://lake/tables", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": aws,
        "s3.path-style-access": "true", "glue.endpoint": aws, "client.region": aws_emulator.REGION,
    }  # fmt: skip
    w = World(tmp_path_factory.mktemp("engines") / "w", "app", options)
    for t in TABLES:
        w.table(t).source.load(t, *[(n, f"v{n}") for n in range(40)])
        w.source.changes(t, D(3), U(4, "new"), I(100, None), name=FILE1)
        w.source.changes(t, D(5), U(6, "newer"), U(100, "x"), name=FILE2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(w.root / "params"))
        house().prepare(w)
        run_python(WORK, w.root, json.dumps(TABLES), SPARK_LOCAL_IP="127.0.0.1")
        yield w, pyiceberg_catalog.open_catalog(resolve("operate", {"env": "w"}).settings)


@pytest.fixture(scope="module")
def trino(aws, lake, tmp_path_factory):
    """Trino with the catalogs `glue`, `rest` and `signed`, which is REST with signed calls; yield its port."""
    here = {
        "s3.endpoint": aws, "s3.path-style-access": "true", "s3.aws-access-key": aws_emulator.ACCOUNT, "s3.aws-secret-key": "test",
    }  # fmt: skip
    keys = {"hive.metastore.glue.aws-access-key": aws_emulator.ACCOUNT, "hive.metastore.glue.aws-secret-key": "test"}
    w = Warehouse("trino", "w", checked(WarehouseEntries, WAREHOUSE, "test", ParameterError))
    (ours,) = family(w).files(w).values()
    glue = {**ours, "hive.metastore.glue.endpoint-url": aws, **keys, **here}
    s3 = {"fs.native-s3.enabled": "true", "s3.region": aws_emulator.REGION, **here}
    folder = tmp_path_factory.mktemp("trino")
    with OfGlue(folder, lake[1]) as rest:
        given = {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": rest.uri, **s3}
        with trino_server.running(folder, glue=glue, rest=given, signed={**_signed(rest.uri), **here}) as port:
            yield port
        assert rest.signed == {"s3tables"}


def _signed(uri: str) -> dict[str, str]:
    """Return the catalog file that Frazil writes for a lake in S3 Tables."""
    options = {
        "type": "rest", "uri": uri, "warehouse": f"arn:aws:s3tables:{aws_emulator.REGION}:111122223333:bucket/lake",
        "rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": aws_emulator.REGION,
    }  # fmt: skip
    entries = checked(WarehouseEntries, {"engine": "trino", "database": "signed"}, "test", ParameterError)
    (ours,) = family(w := Warehouse("trino", "w", entries, Settings(catalog_options=options))).files(w).values()
    return ours


def ask(port: int, statement: str) -> list[list]:
    from trino.dbapi import connect

    with connect(host="127.0.0.1", port=port, user="frazil") as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_have_the_forms_of_deletes_that_are_to_be_read(lake, table):
    there = lake[1].load_table(f"app.{table}")
    deletes = there.inspect.delete_files().to_pylist()
    assert there.format_version == int(table[1])
    assert {d["file_format"] for d in deletes} == {"PUFFIN" if table.startswith("v3") else "PARQUET"}
    assert len(there.specs()) == (2 if table.endswith("partitions") else 1)


@pytest.mark.parametrize("catalog", ["glue", "rest", "signed"])
@pytest.mark.parametrize("table", TABLES)
def test_trino_returns_the_same_rows(trino, catalog, table):
    assert sorted(map(tuple, ask(trino, f"SELECT id, v FROM {catalog}.app.{table}"))) == sorted(EXPECTED.items())


def test_frazil_reads_back_that_trino_serves_the_newest_state_without_a_refresh(lake, trino, monkeypatch, capsys):
    world, catalog = lake
    file = world.root / "params/w.yml"
    text = file.read_text()
    options = {"host": "127.0.0.1", "port": trino, "user": "frazil"}
    file.write_text(yaml.safe_dump({**yaml.safe_load(text), "warehouses": {"live": {**WAREHOUSE, "options": options}}}))
    try:
        assert main(["warehouse", "apply", "--env", "w"]) == 0
        assert main(["warehouse", "check", "--env", "w"]) == 0
        told = capsys.readouterr().out
        assert [f"live: public.{t}: served" in told for t in TABLES] == [True] * 4
        rows = catalog.load_table("app_ops.served").scan().to_arrow().to_pylist()
        newest = {f"lake.app.{t}": catalog.load_table(f"app.{t}").current_snapshot().snapshot_id for t in TABLES}
        assert {r["name"].replace("`", ""): r["snapshot_id"] for r in rows} == newest
    finally:
        file.write_text(text)
