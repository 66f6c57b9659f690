"""Names that are legal at the source: the lake has them, or refuses that table alone and says which entry helps."""

import contextlib
import io
import json
import string

import pytest
import yaml

from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import ExploreSettings, MaintenanceSettings
from frazil_old.config.sql import identifier
from frazil_old.flows import explore, maintenance, row_history
from frazil_old.flows.plan import plan
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, csv_field, spec_of
from lake_reader import duckdb_rows, lake_rows, lake_table, lake_tables
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark

RESERVED = ("_file", "_pos", "_DELETED", "_deleted", "_spec_id", "_Partition", "_row_id",
            "_last_updated_sequence_number", "_change_type", "_change_ordinal", "_commit_snapshot_id")  # fmt: skip
NAVISION = "CRON UK$Item Ledger Entry"
ALL_SIGNS = "t " + string.punctuation.replace("/", "").replace(".", "")


def declare(world, source: str, *columns: str, key=("id",), file: str = "", **more) -> None:
    target = more.pop("target", "")
    spec = spec_of(source, *columns, key=list(key)) | more
    spec = spec | {"target": target} if target else {k: v for k, v in spec.items() if k != "target"}
    (world.root / f"specs/{file or len(list((world.root / 'specs').iterdir()))}.yml").write_text(
        yaml.safe_dump(spec, allow_unicode=True)
    )


def put(world, source: str, name: str, text: str) -> None:
    file = world.root / "source" / source.replace(".", "/", 1) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def went_well(results: dict) -> None:
    assert not [
        f"{r.table}: {r.status}: {r.note}" for r in results.values() if r.failed or r.status in ("waiting", "skipped")
    ]


def frazil(*argv: str) -> tuple[int, str]:
    """Run a command in this process, with its Spark; return its exit code and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(list(argv))
    return code, out.getvalue()


@pytest.mark.slow
def test_a_name_that_needs_quoting_goes_through_every_command(new_world, monkeypatch):
    world = new_world()
    world.rules, world.given = {"rules": []}, {"ops_namespace": f"{world.space} ops"}
    sources = {f"{world.space}.{NAVISION}": "rowdelta", f"{world.space} {ALL_SIGNS}.{ALL_SIGNS}": "rowdelta",
               f"{world.space}.{ALL_SIGNS}": "merge", f"{world.space}.plain": "merge", f"{world.space}.2024": "merge"}  # fmt: skip
    for source in sources:
        declare(world, source, "id INT8", "v WSTRING(99)")
        put(world, source, LOAD1, f"{ONE_COMMIT},1,a\n{ONE_COMMIT},2,b\n")
        put(world, source, FILE1, f"U,{ONE_COMMIT},1,{csv_field(source)}\nD,{ONE_COMMIT},2,\n")
    world.environment(monkeypatch)
    assert frazil("plan", "--env", "w", "--strict")[0] == exit_codes.OK
    for step in (world.setup, world.full_load):
        went_well(step())
    for source, lane in sources.items():
        went_well(world.merge(tables=[source], lane=lane))
        assert lake_table(world.catalog_options, source).current_snapshot().summary["frazil.lane"] == lane
    done = maintenance.run(world.book(MaintenanceSettings, tables=[*sources][:2], dry_run=False, target_file_mb=256))
    assert not [r.note for r in done if r.failed]
    book = world.book(ExploreSettings)
    for source in sources:
        assert lake_rows(world.catalog_options, source) == [(1, source)]
        assert [e["operation"] for e in row_history.key_history(book, source, ["1"])] == ["update", "load"]
        assert explore.difference(book, source, "oldest", "newest").counts["inserted"] == 1
        assert len(book.first_rows(source)) == 1
    told = frazil("check", "--env", "w")[1]
    assert not [s for s in sources if s in told], told
    _adopted(world, f"{world.space}.Taken Over's `t`")
    code, told = frazil("down", "--env", "w")
    assert code == exit_codes.OK and all(f"table {s}\n" in told for s in sources)
    assert frazil("down", "--env", "w", "--yes")[0] == exit_codes.OK
    assert not set(sources) & set(lake_tables(world.catalog_options))


def _adopted(world, source: str) -> None:
    """Take over a table of another pipeline, under a name that needs quoting, and go on with it."""
    name = f"lake.{world.space}.{identifier(source.split('.', 1)[1])}"
    declare(world, source, "id INT8", "v WSTRING(99)")
    put(world, source, LOAD1, f"{ONE_COMMIT},1,a\n")
    put(world, source, FILE1, f"U,{ONE_COMMIT},1,theirs\n")
    put(world, source, FILE2, f"U,{ONE_COMMIT},1,ours\n")
    world.spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING) USING iceberg")
    world.spark.sql(f"INSERT INTO {name} VALUES (1, 'theirs')")
    code, told = frazil("adopt", "--env", "w", "--table", source, "--position", FILE1)
    assert code == exit_codes.OK and "1 change file pending" in told
    went_well(world.merge(tables=[source]))
    assert lake_rows(world.catalog_options, source) == [(1, "ours")]


def test_a_name_that_the_lake_cannot_hold_stops_its_table_alone_before_anything_is_made(new_world, monkeypatch):
    world = new_world(AddColumnName=True)
    world.rules = {"rules": []}
    space = world.space
    says = {}
    for n, name in enumerate(RESERVED):
        declare(world, f"{space}.plain{n}", "id INT8", f"{name} WSTRING(9)")
        declare(world, f"{space}.key{n}", f"{name} INT8", "v WSTRING(9)", key=[name])
        says |= {f"{space}.plain{n}": [f"'{name}'", "renamed_from", "exclude"], f"{space}.key{n}": [f"'{name}'", "renamed_from"]}  # fmt: skip
    declare(world, f"{space}.twins", "Id INT8", "id INT8", key=["Id"])
    declare(world, f"{space}.a/b", "id INT8", "v WSTRING(9)")
    declare(world, f"{space}.no", "id INT8", "v WSTRING(9)", target="alone")
    says |= {f"{space}.twins": ["'Id'", "'id'", "renamed_from"], f"{space}.a/b": ["target"], f"{space}.no": ["target"]}
    declare(world, f"{space}.good", "id INT8", "v WSTRING(9)")
    for source in (*says, f"{space}.good"):
        put(world, source, LOAD1, f"ts,id,v\n{ONE_COMMIT},1,a\n")
    world.environment(monkeypatch)
    found = {r["table"]: r["decision"] for r in plan(world.book())}
    assert all(all(s in found[t] for s in words) for t, words in says.items()), found
    assert found[f"{space}.good"] == ""
    for step, good in ((world.setup, "created"), (world.full_load, "loaded"), (world.merge, "unchanged")):
        results = {r.table: r for r in step().values()}
        assert results[f"{space}.good"].status == good
        assert all(results[t].failed and all(s in results[t].note for s in words) for t, words in says.items())
    code, told = frazil("check", "--env", "w")
    assert code == exit_codes.BREACH and all(f"{t}: " in told for t in says) and f"{space}.good: " not in told
    assert [t for t in lake_tables(world.catalog_options) if t.startswith(f"{space}.")] == [f"{space}.good"]
    assert lake_rows(world.catalog_options, f"{space}.good") == [(1, "a")]


@pytest.mark.slow
def test_a_column_that_the_lake_cannot_have_under_its_name_is_renamed_or_left_out(new_world):
    world = new_world(AddColumnName=True)
    world.rules = {"rules": []}
    names = [n for n in RESERVED if n != "_DELETED"] + ["Id"]
    renamed = [{"name": f"c{i}", "type": "WSTRING(9)", "renamed_from": n} for i, n in enumerate(names)]
    head, values = ",".join(names), ",".join(f"x{i}" for i in range(len(names)))
    declare(world, f"{world.space}.renamed", "id INT8", columns=[{"name": "id", "type": "INT8"}, *renamed])
    declare(world, f"{world.space}.left", "id INT8", *[f"{n} WSTRING(9)" for n in names], exclude=names)
    keyed = {"columns": [{"name": "k", "type": "INT8", "renamed_from": "_row_id"}, {"name": "v", "type": "WSTRING(9)"}]}
    declare(world, f"{world.space}.keyed", "id INT8", key=["k"], **keyed)
    for table in ("renamed", "left"):
        put(world, f"{world.space}.{table}", LOAD1, f"ts,id,{head}\n{ONE_COMMIT},1,{values}\n{ONE_COMMIT},2,{values}\n")
        put(world, f"{world.space}.{table}", FILE1, f"Op,ts,id,{head}\nU,{ONE_COMMIT},1,{values.replace('x', 'y')}\nD,{ONE_COMMIT},2,{values}\n")  # fmt: skip
    put(world, f"{world.space}.keyed", LOAD1, f"ts,_row_id,v\n{ONE_COMMIT},1,a\n{ONE_COMMIT},2,b\n")
    put(world, f"{world.space}.keyed", FILE1, f"Op,ts,_row_id,v\nU,{ONE_COMMIT},1,A\nD,{ONE_COMMIT},2,b\n")
    for step in (world.setup, world.full_load, world.merge):
        went_well(step())
    lake = world.catalog_options
    assert lake_rows(lake, f"{world.space}.renamed") == [(1, *[f"y{i}" for i in range(len(names))])]
    assert lake_rows(lake, f"{world.space}.left") == [(1,)]
    assert lake_rows(lake, f"{world.space}.keyed") == [(1, "A")]


def test_a_file_that_brings_a_reserved_name_stops_its_table_and_says_where(new_world):
    world = new_world(AddColumnName=True)
    world.rules = {"rules": []}
    brought = {"a": "_deleted", "b": "V", "c": "_FILE"}
    for table, name in brought.items():
        declare(world, f"{world.space}.{table}", "id INT8", "v WSTRING(9)", changes={"new": "add"})
        put(world, f"{world.space}.{table}", LOAD1, f"ts,id,v\n{ONE_COMMIT},1,a\n")
        put(world, f"{world.space}.{table}", FILE1, f"Op,ts,id,v,{name}\nU,{ONE_COMMIT},1,b,x\n")
    for step in (world.setup, world.full_load):
        went_well(step())
    results = world.merge()
    for table, name in brought.items():
        note = results[table].note
        assert results[table].failed and FILE1 in note and f"'{name}'" in note and "renamed_from" in note, note
        assert lake_rows(world.catalog_options, f"{world.space}.{table}") == [(1, "a")]


LETTERS = {"gr\u00f6\u00dfe": "WSTRING(9)", "\u540d\u524d": "WSTRING(9)", "\u0438\u043c\u044f": "WSTRING(9)"}
TIMES = {"j\u00e4hrlich": "year", "\u6708": "month", "\u0434\u0435\u043d\u044c": "day", "\u03ce\u03c1\u03b1": "hour"}


def test_a_partition_by_a_column_with_any_letters_is_read_by_every_declared_reader(new_world):
    world = new_world()
    world.rules, world.given = {"rules": []}, {"query_engines": ["spark", "duckdb", "pyiceberg"]}
    columns = ["id INT8", *[f"{n} {t}" for n, t in LETTERS.items()], *[f"{n} DATETIME" for n in TIMES]]
    parts = [p for n in LETTERS for p in (n, f"bucket(4, {n})", f"truncate(2, {n})")]
    for lane in ("merge", "rowdelta"):
        source = f"{world.space}.{lane}"
        declare(world, source, *columns, partition=[*parts, *[f"{t}({n})" for n, t in TIMES.items()]])
        row = ",".join(["klein", "\u5c0f", "\u043c\u0430\u043b", *["2024-01-02 03:04:05"] * 4])
        put(world, source, LOAD1, f"{ONE_COMMIT},1,{row}\n{ONE_COMMIT},2,{row}\n")
        put(world, source, FILE1, f"U,{ONE_COMMIT},1,{row.replace('klein', 'kurz')}\nD,{ONE_COMMIT},2,{row}\n")
    for step in (world.setup, world.full_load):
        went_well(step())
    for lane in ("merge", "rowdelta"):
        went_well(world.merge(tables=[f"{world.space}.{lane}"], lane=lane))
        table = f"{world.space}.{lane}"
        assert lake_table(world.catalog_options, table).current_snapshot().summary["frazil.lane"] == lane
        rows = lake_rows(world.catalog_options, table)
        assert [r[:4] for r in rows] == [(1, "kurz", "\u5c0f", "\u043c\u0430\u043b")]
        assert duckdb_rows(world.catalog_options, table) == rows


# --- two specs for the same files

RULES = {
    "rename": ({"value": "one"}, "r1", "r2"),
    "convert-lowercase": ({}, "LOW", "low"),
    "convert-uppercase": ({}, "UP", "up"),
    "add-prefix": ({"value": "x"}, "refix", "xrefix"),
    "add-suffix": ({"value": "x"}, "suffi", "suffix"),
    "remove-prefix": ({"value": "rp_"}, "rp_t", "t"),
    "remove-suffix": ({"value": "_rs"}, "u_rs", "u"),
    "replace-prefix": ({"value": "new_", "old-value": "old_"}, "old_v", "new_v"),
    "replace-suffix": ({"value": "_new", "old-value": "_old"}, "w_old", "w_new"),
}
"""Per kind of rule its values and two tables that it gives one name."""


def renaming(space: str) -> tuple[dict, list[str]]:
    """Rules that rename, and the tables that they give a name of another: two of each kind, and two of two schemas."""
    rules, tables = [], []
    for n, (action, (values, *pair)) in enumerate(RULES.items()):
        first = (
            pair[:1] if action.startswith("add-") else pair
        )  # what is added differs, so the other has the name already
        rules += [
            {"rule-type": "transformation", "rule-id": str(n), "rule-target": "table", "rule-action": action, **values,
             "object-locator": {"schema-name": space, "table-name": name}} for name in first
        ]  # fmt: skip
        tables += [f"{space}.{name}" for name in pair]
    rules.append({"rule-type": "transformation", "rule-id": "s", "rule-target": "schema", "rule-action": "rename", "value": "x",
                  "object-locator": {"schema-name": f"{space}_%", "table-name": "%"}})  # fmt: skip
    return {"rules": rules}, [*tables, f"{space}_1.s", f"{space}_2.s"]


def refused(world, tables: list[str], good: str, **settings) -> None:
    """Insist that plan, setup and each run refuse these tables, and do not stop another one."""
    found = {r["table"]: r["decision"] for r in plan(world.book(**settings))}
    assert all("read the same" in found[t] for t in tables) and not found[good], found
    for step in (world.setup, world.full_load, world.merge):
        results = {r.table: r for r in step(**settings).values()}
        there = [results[t] for t in tables if t in results]  # of two tables with one name the last
        assert len(there) == len(tables) - 1 and all(r.failed and "read the same" in r.note for r in there), results
        assert not results[good].failed


def test_two_specs_that_read_the_same_files_are_refused_whatever_rule_makes_them_one(new_world):
    world = new_world()
    world.rules, tables = renaming(world.space)
    for source in (*tables, f"{world.space}.good"):
        declare(world, source, "id INT8", "v WSTRING(9)")
        put(world, source, LOAD1, f"{ONE_COMMIT},1,a\n")
    refused(world, tables, f"{world.space}.good")
    assert lake_rows(world.catalog_options, f"{world.space}.good") == [(1, "a")]
    (only,) = [s for s in (world.root / "specs").iterdir() if "_1.s" in s.read_text()]
    only.unlink()  # one spec for the folder is accepted
    put(world, "x.s", LOAD1, f"{ONE_COMMIT},1,of both\n")
    for step in (world.setup, world.full_load):
        assert not step(tables=[f"{world.space}_2.s"])["s"].failed
    assert lake_rows(world.catalog_options, f"{world.space}_2.s") == [(1, "of both")]


def test_two_specs_that_read_the_same_messages_are_refused(kafka, spark, catalog_options, tmp_path):
    world = KafkaWorld(kafka, tmp_path / "w", "same_messages", catalog_options)
    rules, tables = renaming("public")
    (world.root / "rules.json").write_text(json.dumps(rules))
    for source in (*tables, "public.good"):
        declare(world, source, "id INT8", "v WSTRING(9)", target=f"same_messages.{source.replace('.', '_')}")
    world.message("load", table="good", id=1, v="a").message("load", table="one", id=1, v="a")
    refused(world, tables, "public.good", mappings="rules.json")
    assert lake_rows(catalog_options, "same_messages.public_good") == [(1, "a")]
