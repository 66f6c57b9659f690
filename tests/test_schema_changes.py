"""Schema changes of a real PostgreSQL, written as DMS would by its simulator, into the lake: every cell of the matrix.

The cells of `tests/ddl.py` say what must come of each. Undeclared, a change goes on or is refused by name with nothing
changed; declared, the lake is equal to the source, or is not for a reason that is stated.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import ddl
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.simulator import DmsSimulator
from frazil_old.config.columns import PastLayout
from frazil_old.config.policies import SchemaPolicy
from frazil_old.config.settings import FullLoadSettings, SetupSettings
from frazil_old.config.source_database import Connection
from frazil_old.config.spec import TableSpec
from frazil_old.flows import full_load, setup
from frazil_old.flows.follow_source import as_declared
from frazil_old.flows.reconcile import compare, read_source
from frazil_old.flows.source_catalog import read_catalog
from frazil_old.flows.workbook import Workbook
from helpers import FILE1, FILE2, FILE3, LOAD1
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
TABLE = "create table {t} (id int primary key, v varchar(20), n int, d numeric(6,2), r text not null default 'r')"
ROWS = "insert into {t} values (1, 'a', 10, 1.5), (2, 'b', 20, 2.5), (3, 'c', 30, 3.5)"
BEFORE = "update {t} set v = 'A' where id = 1; insert into {t} values (4, 'd', 40, 4.5)"
RULES = {"rules": [{"rule-type": "selection", "rule-action": "include", "rule-id": "1", "rule-name": "1", "object-locator": {"schema-name": "s", "table-name": "%"}}]}  # fmt: skip
POLICIES = SchemaPolicy("refuse", "keep", "beside")


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    with EmbeddedPostgres(tmp_path_factory.mktemp("ddl") / "postgres") as server, pytest.MonkeyPatch.context() as patch:
        for name, value in (("URL", server.jdbc_url), ("USER", server.user), ("PASSWORD", server.password)):
            patch.setenv(f"FRAZIL_SOURCE_{name}", value)
        yield server


@pytest.fixture(autouse=True)
def lake_of_the_session(request, monkeypatch):
    if "spark" in request.fixturenames:
        monkeypatch.setattr(Written, "catalog_options", request.getfixturevalue("catalog_options"))


class Written:
    """What DMS writes of every case's table: a load, changes before the DDL, changes after it; and the source before and after.

    `meanwhile` is done between the two, when what came before lies there.
    """

    catalog_options: dict = {}  # noqa: RUF012

    def __init__(self, root, postgres, spark, cases, form, kafka, meanwhile=lambda written: None):
        self.root, self.form, self.spark, self.cases = root, form, spark, cases
        self.space = f"ddl_{form}_{root.name}".replace("-", "_")
        settings = {"CsvNullValue": "NULL", "TimestampColumnName": "ts", "IncludeOpForFullLoad": True, **ddl.FORMS[form][1]}  # fmt: skip
        endpoint, self.source = {"S3Settings": settings}, "source"
        if form == "stream":
            kafka.create_topic(self.space)
            endpoint = {"KafkaSettings": {"Broker": kafka.brokers, "Topic": self.space, **ddl.FORMS[form][1]}}
            self.source = f"kafka://{kafka.brokers}/{self.space}"
        for name, content in (("endpoint.json", endpoint), ("mappings.json", RULES)):
            (root / name).write_text(json.dumps(content))
        (root / "specs").mkdir()
        for case in cases:
            text = f"source: s.{case.table}\nkey: [id]\ncolumns: [{{name: id, type: INT4}}]\n"
            (root / f"specs/{case.table}.yml").write_text(text)
        run = lambda text, case: connection.execute(text.format(t=f's."{case.table}"', c=case.table))  # noqa: E731
        reach = Connection("postgresql", postgres.jdbc_url, postgres.user, postgres.password)
        with postgres.connect(autocommit=True) as connection:
            connection.execute("drop schema if exists s cascade; create schema s")
            for case in cases:
                run(TABLE, case), run(ROWS, case)
            self.was = read_catalog(spark, reach, ["s.%"])
            with DmsSimulator(
                postgres.connect, root / "endpoint.json", root / "mappings.json", root / "source"
            ) as simulator:
                simulator.full_load()
                for case in cases:
                    run(BEFORE, case)
                simulator.pump(), simulator.flush()
                self.before = {p.name for p in (root / "source").rglob("2*")} | {p.name for p in (root / "source").rglob("CDC_TXN*")}  # fmt: skip
                meanwhile(self)
                for case in cases:
                    run(case.ddl, case), run(case.then, case)
                simulator.pump(), simulator.flush()
                simulator.drop()
        self.now = read_catalog(spark, reach, ["s.%"])

    def run(self, flow, kind, specs, **settings):
        given = {"env": "test", "root": str(self.root), "source": self.source, "specs": "specs", "endpoint": "endpoint.json", "mappings": "mappings.json", "query_engines": ["spark"], "catalog_options": self.catalog_options, **settings}  # fmt: skip
        book = Workbook(kind(**given), lambda text: None)
        book.specs = dict(specs)
        return {r.table: r for r in flow(book)}

    def done(self, *arguments, **settings) -> None:
        results = self.run(*arguments, **settings)
        assert not [r.note for r in results.values() if r.failed]

    def loaded(self) -> None:
        """Set up and load, with the columns of before."""
        self.done(setup.create_tables, SetupSettings, self.specs_before())
        self.done(
            full_load.run, FullLoadSettings, self.specs_before(), stream_start="earliest", load_complete_when="declared"
        )

    def specs_before(self):
        return {f"s.{c.table}": self.spec_before(c) for c in self.cases}

    def spec_before(self, case):
        of = self.was[f"s.{case.table}"]
        return TableSpec(
            of.source, f"{self.space}.{case.table}", of.key, of.columns, changes=SchemaPolicy().over(SchemaPolicy())
        )

    def spec_declared(self, case):
        """What a user writes after the change: the source's columns, policies, and for files without names the cut-over."""
        before, now = self.spec_before(case), self.now.get(f"s.{case.table}")
        spec = replace(as_declared(before, now) if now else before, changes=POLICIES)
        last = max((n for n in self.before), default="")
        bare = self.form in ddl.BARE
        return replace(spec, layouts=(PastLayout(last, tuple(before.names), load=True),) if bare else ())

    def is_equal(self, case) -> bool:
        """Whether the lake has all columns and rows of the source, value by value, and no other row."""
        spec = self.spec_declared(case)
        name = f"s.{case.table}_new" if case.name == "rename the table" else spec.source
        lake = self.spark.table(f"lake.{spec.target}")
        if name not in self.now or not set(spec.names) <= set(lake.columns):
            return False
        return not compare(lake, read_source(self.spark, replace(spec, source=name)), spec).differing_rows


def test_the_page_has_the_stated_outcomes_and_each_engines_has_its_test():
    for name, table in ddl.TABLES.items():
        assert ddl.on_page(name) == table(), "run: python tests/ddl.py"
    assert {row[4] for row in ddl.ENGINES} == {n for n in globals() if n.startswith(("test_mysql", "test_sql_server"))}


# --- where engines differ: what PostgreSQL cannot show, written by hand


def put(world, name, header, *rows):
    return world.write("t", name, f"Op,ts,{header}\n" + "".join(f"{r[0]},2024-01-01 09:59:00.000000,{r[2:]}\n" for r in rows))  # fmt: skip


@pytest.fixture
def named(new_world):
    world = new_world(AddColumnName=True)
    world.rules = {"rules": []}
    world.table("t").write("t", LOAD1, "ts,id,v\n2024-01-01 09:00:00.000000,1,a\n")
    return put(world.loaded(), FILE1, "id,v", "U,1,A").merged()


def test_mysql_oracle_a_truncate_takes_the_files_away_and_the_rows_stay(named):
    for file in (named.root / "source/public/t").iterdir():
        file.unlink()
    assert named.merge()["t"].status == "unchanged" and named.rows("t") == [(1, "A")]
    put(named, FILE2, "id,v", "I,2,b").merged()
    assert named.rows("t") == [(1, "A"), (2, "b")]
    named.write("t", LOAD1, "ts,id,v\n2024-01-01 11:00:00.000000,2,b\n")
    assert named.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert named.rows("t") == [(2, "b")]


def test_sql_server_a_column_renamed_by_sp_rename_goes_on_under_its_old_name(named):
    put(named, FILE2, "id,v", "U,1,B").merged()  # DMS is not told of it
    assert named.rows("t") == [(1, "B")]


def test_mysql_a_column_added_first_comes_last_in_files(named):
    put(named, FILE2, "id,v,w", "U,1,B,7")
    named.table("t", "w INT4", "id INT8", "v WSTRING(99)").merged()
    assert named.rows("t") == [(7, 1, "B")], "names count, and the lake has the spec's order"
    put(named, FILE3, "id,v,w", "D,1,,").merged()
    assert named.rows("t") == []


def test_mysql_a_column_added_first_is_the_last_of_a_headerless_file(new_world):
    world = new_world()
    world.rules = {"rules": []}
    world.table("t").write("t", LOAD1, "2024-01-01 09:00:00.000000,1,a\n").loaded()
    world.write("t", FILE1, "U,2024-01-01 09:59:00.000000,1,A\n")
    world.write("t", FILE2, "U,2024-01-01 10:01:00.000000,1,B,7\n")
    world.table("t", "id INT8", "v WSTRING(99)", "w INT4")
    spec = world.specs["t"] | {"layouts": [{"until": FILE1, "columns": ["id", "v"], "load": True}]}
    (world.root / "specs/t.yml").write_text(json.dumps(spec))
    assert world.merged().rows("t") == [(1, "B", 7)]


def test_mysql_a_rename_by_change_is_not_told_as_one_in_a_stream(kafka, catalog_options, spark, tmp_path):
    w = KafkaWorld(kafka, tmp_path / "w", "ddl_change", catalog_options).table("t").message("load", id=1, v="a")
    w.loaded().control("change-columns", id="INT64", title="STRING").message("update", id=1, title="A")
    note = w.merge(changes={"new": "add", "gone": "keep"})["t"].note
    assert ddl.WHICH in note and w.rows("t") == [(1, "a")]
