"""`frazil warehouse refresh` and `check` between runs, on tables in AWS Glue and S3 (MiniStack), without Spark."""

import json

import pyarrow as pa
import pytest
import yaml

import aws_emulator
from fake_driver import SERVERS, FakeServer
from frazil_old.cli.commands import main
from frazil_old.config.settings import resolve
from frazil_old.lake import pyiceberg_catalog
from warehouse_world import ENTRIES, WarehouseWorld

pytestmark = pytest.mark.aws


@pytest.fixture
def glue(tmp_path, monkeypatch):
    """The world of warehouses with its tables in Glue: yield the catalog, and the server of a Snowflake."""
    with aws_emulator.running() as url:
        for name, value in aws_emulator.variables(url).items():
            monkeypatch.setenv(name, value)
        where = {"LocationConstraint": aws_emulator.REGION}
        aws_emulator.client("s3", url).create_bucket(Bucket="lake", CreateBucketConfiguration=where)
        world = WarehouseWorld(tmp_path, monkeypatch, snow={"engine": "snowflake", **ENTRIES})
        told = yaml.safe_load(world.file.read_text())
        told["common"]["catalog_options"] = {
            "type": "glue", "warehouse": "s3://lake/tables", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": url,
            "s3.path-style-access": "true", "glue.endpoint": url, "client.region": aws_emulator.REGION,
        }  # fmt: skip
        world.file.write_text(yaml.safe_dump(told))
        world.catalog = pyiceberg_catalog.open_catalog(resolve("operate", {"env": "wh"}).settings)
        world.catalog.create_namespace("shop")
        for table in ("orders", "items"):
            world.catalog.create_table(f"shop.{table}", pa.schema([("id", pa.int64()), ("v", pa.string())]))
            world.commit(table, 1)
        SERVERS["fake"] = server = FakeServer()
        bound: dict[str, str] = {}

        def table_of(statement: str) -> str:
            return "shop.items" if "ITEMS" in statement else "shop.orders"

        def refresh(statement: str):
            bound[table_of(statement)] = world.catalog.load_table(table_of(statement)).metadata_location
            return []

        def information(statement: str):
            return [(json.dumps({"metadataLocation": bound.get(table_of(statement), ""), "status": "success"}),)]

        server.answers = [("REFRESH$", refresh), ("GET_ICEBERG", information)]
        yield world
        SERVERS.clear()


def test_a_table_in_glue_is_refreshed_read_back_and_called_late(glue, capsys):
    assert main(["warehouse", "refresh", "--env", "wh"]) == 0
    assert glue.commit("orders", 2)
    assert main(["warehouse", "check", "--env", "wh"]) == 6
    told = capsys.readouterr().out
    assert "snow: public.orders: late: it serves an older state" in told and told.endswith(
        "snow: public.orders: late: it serves an older state\n"
    )
    assert main(["warehouse", "refresh", "--env", "wh", "--table", "public.orders"]) == 0
    rows = glue.catalog.load_table("ops.served").scan().to_arrow().to_pylist()
    newest = glue.catalog.load_table("shop.orders")
    seen = max(rows, key=lambda r: r["seen_at"])
    assert (seen["status"], seen["snapshot_id"]) == ("served", newest.current_snapshot().snapshot_id)
    assert seen["metadata"] == newest.metadata_location and seen["metadata"].startswith("s3://lake/")
