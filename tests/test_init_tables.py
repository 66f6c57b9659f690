"""`frazil init` from a real database: partitions, generated columns and texts that look like nulls, up to equal rows in the lake."""

import json
from dataclasses import replace

import pytest

from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.simulator import DmsSimulator, Slot
from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import resolve
from frazil_old.flows import cdc, full_load, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.results import raise_if_failed
from lake_reader import lake_rows

pytestmark = pytest.mark.spark
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
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("init")
    (root / "params").mkdir()
    with pytest.MonkeyPatch.context() as patch, EmbeddedPostgres(root / "postgres") as postgres:
        patch.setenv("FRAZIL_PARAMS", str(root / "params"))
        patch.setenv("FRAZIL_SOURCE_URL", postgres.jdbc_url)
        patch.setenv("FRAZIL_SOURCE_USER", postgres.user)
        patch.setenv("FRAZIL_SOURCE_PASSWORD", postgres.password)
        with postgres.connect(autocommit=True) as c:
            c.execute(TABLES)
            if c.info.server_version >= 180000:
                c.execute("alter table made.sums add column thrice int generated always as (n * 3) virtual")
            for number, text in enumerate(TEXTS, 1):
                c.execute("insert into made.texts values (%s, %s)", (number, text))
            c.execute("insert into made.meter values (1, '2024-01-01', 1), (2, '2025-02-02', 2)")
            c.execute("insert into made.deep values (1, 'a', '2024-01-01'), (2, 'b', '2024-01-01')")
            c.execute("insert into made.sums (id, n, t) values (1, 5, 'one')")
        yield postgres, root


@pytest.mark.slow
def test_what_init_writes_is_what_the_task_writes_and_every_row_arrives(spark, source, capsys, catalog_options):
    postgres, root = source
    assert main(["init", "--env", "own", "--source", str(root / "s3"), "--tables", "made.%"]) == exit_codes.OK
    told = capsys.readouterr()
    assert (
        "made.meter: " in told.err and "made.deep: " in told.err and "made.sums: " in told.err and "twice" in told.err
    )

    def book(notebook):
        return Workbook(
            replace(resolve(notebook, {"env": "own"}).settings, catalog_options=catalog_options), lambda text: None
        )

    specs = book("setup").specs
    assert set(specs) == {f"made.{t}" for t in LEAVES}
    assert specs["made.sums"].names == ["id", "n", "t"]
    params = root / "params"
    with DmsSimulator(postgres.connect, params / "own.endpoint.json", params / "own.mappings.json", root / "s3", slot=Slot("own", "own")) as dms:  # fmt: skip
        dms.full_load()
        raise_if_failed(setup.create_tables(book("setup")))
        raise_if_failed(full_load.run(book("full_load")))
        with postgres.connect(autocommit=True) as c:
            c.execute(CHANGES)
        dms.pump(), dms.flush()
        dms.drop()
    raise_if_failed(cdc.run(book("cdc_merge")))
    with postgres.connect() as c:
        for table, columns in LEAVES.items():
            rows = c.execute(f'select {columns} from made."{table}"').fetchall()
            assert lake_rows(catalog_options, specs[f"made.{table}"].target) == sorted(rows, key=repr), table


def test_a_pattern_that_means_a_partitioned_table_means_its_partitions_and_rules_that_do_not_are_named(
    spark, source, capsys
):
    postgres, root = source
    assert main(["init", "--env", "part", "--source", "s3", "--tables", "made.deep"]) == exit_codes.OK
    capsys.readouterr()
    written = {f.name for f in (root / "params/part").glob("*.yml")}
    assert written == {"made.deep_a_2024.yml", "made.deep_b.yml"}
    rule = {"rule-type": "selection", "rule-id": "1", "rule-name": "1", "rule-action": "include"}
    rules = [{**rule, "object-locator": {"schema-name": "made", "table-name": "meter"}}]

    (root / "task.json").write_text(json.dumps({"rules": rules}))
    assert main(["init", "--env", "bare", "--source", "s3", "--task", str(root / "task.json")]) == exit_codes.OK
    told = capsys.readouterr().err
    assert "made.meter_2024: " in told and "made.meter_2025: " in told
