"""Tables in AWS Glue and S3 Tables off EMR, on MiniStack: written by Spark, and read without it."""

import pytest
import yaml

import aws_emulator
from dms_writer import U
from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import Settings, resolve
from frazil_old.errors import FrazilError
from frazil_old.flows import pending_work
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from helpers import LIB, World, run_python

pytestmark = pytest.mark.aws

EXAMPLE = yaml.safe_load((LIB.parent / "params/aws-glue.yml").read_text())["common"]["catalog_options"]
GLUE = {**EXAMPLE, "warehouse": "s3://lake/tables"}
WORK = """
import sys
from frazil_old.config.settings import resolve
from frazil_old.flows import cdc, full_load, setup
from frazil_old.results import raise_if_failed
from frazil_old.flows.workbook import Workbook
for name, flow in {"setup": setup.create_tables, "full_load": full_load.run, "cdc_merge": cdc.run}.items():
    book = Workbook(resolve(name, {"env": "w"}).settings)
    raise_if_failed(flow(book))
print(book.spark.table("lake.app.t").collect())
"""


@pytest.mark.spark
def test_spark_writes_tables_in_glue_that_the_commands_read_without_it(aws, tmp_path, monkeypatch, capsys):
    aws_emulator.make_buckets(aws, "lake")
    options = {**GLUE, "s3.endpoint": aws, "s3.path-style-access": "true", "glue.endpoint": aws, "client.region": aws_emulator.REGION}  # fmt: skip
    world = World(tmp_path / "w", "app", options).table("t").load("t", (1, "a"), (2, "b")).changes("t", U(1, "new"))
    world.whole_environment(monkeypatch)
    assert "Row(id=1, v='new')" in run_python(WORK, tmp_path)

    monkeypatch.setattr(pending_work, "_spark_is_there", lambda: False)  # tests before this one may have started it
    book = Workbook(resolve("cdc_merge", {"env": "w"}).settings, lambda text: None)
    table = pyiceberg_catalog.get_table(pyiceberg_catalog.open_catalog(book.settings), "app.t")
    assert table.format_version == 3
    assert pending_work.nothing_pending(book)["public.t"]["status"] == "unchanged"
    assert main(["run", "02_cdc_merge", "--env", "w"]) == exit_codes.NOTHING
    assert main(["check", "--env", "w"]) == exit_codes.OK, capsys.readouterr()
    world.changes("t", U(2, "newer"), name="20260101-000002000.csv")
    assert pending_work.nothing_pending(book) is None
    assert main(["down", "--env", "w"]) == exit_codes.OK
    assert "table app.t" in capsys.readouterr().out
    assert main(["down", "--env", "w", "--yes"]) == exit_codes.OK
    assert aws_emulator.client("glue", aws).get_tables(DatabaseName="app")["TableList"] == []


@pytest.mark.spark
def test_a_source_on_s3_goes_with_a_catalog_that_needs_aws_clients(aws, tmp_path, monkeypatch):
    s3 = aws_emulator.client("s3", aws)
    aws_emulator.make_buckets(aws, "lake-both", "dms-both")
    options = {**GLUE, "warehouse": "s3://lake-both/tables", "s3.endpoint": aws, "s3.path-style-access": "true", "glue.endpoint": aws}  # fmt: skip
    options |= {"client.region": aws_emulator.REGION}
    world = World(tmp_path / "w", "both", options)
    world.table("t").load("t", (1, "a"), (2, "b")).changes("t", U(1, "new"))
    for file in (path for path in (world.root / "source").rglob("*") if path.is_file()):
        s3.upload_file(str(file), "dms-both", f"in/{file.relative_to(world.root / 'source')}")
    params = world.whole_environment(monkeypatch) / "w.yml"
    told = yaml.safe_load(params.read_text())
    told["common"]["source"] = "s3://dms-both/in"
    params.write_text(yaml.safe_dump(told))
    assert "Row(id=1, v='new')" in run_python(WORK.replace("lake.app.t", "lake.both.t"), tmp_path)


def test_tables_of_s3_tables_are_read_without_spark(aws, monkeypatch):
    arn = aws_emulator.client("s3tables", aws).create_table_bucket(name="tables")["arn"]
    rest = {"type": "rest", "uri": f"{aws}/iceberg", "warehouse": arn, "rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": aws_emulator.REGION}  # fmt: skip
    there = pyiceberg_catalog.open_catalog(Settings(catalog_options=rest))
    there.create_namespace("app")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3TABLES", aws)
    impl = {"catalog-impl": "software.amazon.s3tables.iceberg.S3TablesCatalog", "warehouse": arn}
    assert pyiceberg_catalog.open_catalog(Settings(catalog_options=impl)).list_namespaces() == [("app",)]
    with pytest.raises(FrazilError, match="'s3://tables' is not the ARN of a table bucket"):
        pyiceberg_catalog.open_catalog(Settings(catalog_options={**impl, "warehouse": "s3://tables"}))
