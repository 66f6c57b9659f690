"""Names and paths of any signs: what a case cannot say of them, for it takes commands, other warehouses and odd files."""

from __future__ import annotations

import os
import socket
import string

import pytest

from dms_writer import FILE1, FILE2, NO_RULES, D, I, U
from world import World, house

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
SIGNS = "t " + string.punctuation.replace("/", "").replace(".", "")
NAVISION = "CRON UK$Item Ledger Entry"
PARTS = [string.punctuation.replace("/", "")[:15], string.punctuation.replace("/", "")[15:], "%20", "/\u00fc"]


def test_commands_know_tables_by_names_that_need_quotes(open_world):
    w = open_world()
    for table in (NAVISION, SIGNS):
        w.table(table).source.load(table, (1, "a"), (2, "b"))
        w.source.changes(table, U(1, "A"), D(2))
    code, text = w.command("plan", "--strict")
    assert code == 0, text
    w.loaded().merged().maintain()
    assert [line for line in w.check() if NAVISION in line or SIGNS in line] == []
    assert [w.rows(table) for table in w.specs] == [[(1, "A")]] * 2
    code, text = w.command("down")
    assert code == 0 and all(f"{w.space}.{table}" in text for table in w.specs), text
    code, text = w.command("down", "--yes")
    assert code == 0 and not [table for table in w.specs if w.exists(table)], text


def test_a_table_of_others_is_adopted_under_a_name_that_needs_quotes(open_world):
    w, table = open_world(), "Taken Over's `t`"
    w.table("t").table(table).source.load(table, (1, "a"))
    w.setup()
    name = f"{w.catalog}.{w.space}.`Taken Over's ``t```"
    w.session.sql(f"DROP TABLE {name}")
    w.session.sql(f"CREATE TABLE {name} (id BIGINT, v STRING) USING iceberg")
    w.session.sql(f"INSERT INTO {name} VALUES (1, 'theirs')")
    w.source.changes(table, U(1, "theirs"), name=FILE1)
    w.source.changes(table, U(1, "ours"), name=FILE2)
    assert w.decide(table, adopt=FILE1).status == "adopted"
    assert w.merge(tables=[table])[table].status == "merged" and w.rows(table) == [(1, "ours")]


@pytest.mark.parametrize("version", [2, 3])
def test_source_warehouse_and_partitions_may_have_any_signs(spark, tmp_path, version):
    folder = tmp_path / f"{version} {string.punctuation.replace('/', '')}per%20cent"
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/lake"}
    w = World(folder / "w", "odd", lake, catalog=f"oddlake{version}", format_version=version)
    w.source.rules = NO_RULES
    w.table("t", "id INT8", "p WSTRING(99)", "v WSTRING(9)", partition=["p", "truncate(3, p)"])
    w.source.load("t", *[(n, p, "old") for n, p in enumerate(PARTS * 2)])
    w.loaded().source.changes("t", *[U(n, p, "new") for n, p in enumerate(PARTS)], D(5), D(6), D(7))
    expected = [*[(n, p, "new") for n, p in enumerate(PARTS)], (4, PARTS[0], "old")]
    assert w.merged().rows("t") == expected
    for file in folder.rglob("*"):
        os.utime(file, (0, 0))  # all are old enough to be orphans
    assert w.maintain()["t"].status == "maintained"
    assert w.rows("t") == expected
    house().forget()


def test_a_folder_that_is_a_pattern_is_not_another_one(open_world):
    w = open_world(source="s[o]urce")
    w.table("t").source.load("t", (1, "wrong"))
    w.source.folder = w.root / "s[o]urce"
    w.source.load("t", (1, "right"))
    w.source.changes("t", I(2, "b"))
    assert w.loaded().merged().rows("t") == [(1, "right"), (2, "b")]


def test_only_regular_files_are_read(open_world, tmp_path, monkeypatch):
    w, odd = open_world(), "20240101-110000000.csv"
    for table in ("pipe", "socket", "link", "folder", "fine"):
        w.table(table).source.load(table, (1, "a"))
    w.loaded()
    for table in w.specs:
        w.source.changes(table, U(1, "b"))
    os.mkfifo(w.source.path("pipe", odd))
    w.source.path("link", odd).symlink_to(tmp_path / "nothing")
    w.source.path("folder", odd).mkdir()
    monkeypatch.chdir(w.source.path("socket", odd).parent)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(odd)
    done, plan, check = w.merge(), w.plan(), "\n".join(w.check())
    for table in ("pipe", "socket", "link", "folder"):
        assert done[table].failed and done[table].names(f"{table}/{odd}"), done[table]
        assert odd in plan[table]["decision"] and f"{table}/{odd}" in check, (plan[table], check)
        assert w.rows(table) == [(1, "a")]
    assert w.rows("fine") == [(1, "b")]


def test_a_variable_in_a_comment_is_never_filled_in(open_world):
    w, variable = open_world(), "${env:FRAZIL_TEST_MARKER}"
    w.table("t", "id INT8", "v WSTRING(9)", comment=f"a {variable} b").column("t", "v", comment=f"c {variable} d")
    w.source.load("t", (1, variable))
    w.session.conf.set("spark.sql.variable.substitute", "true")
    found = w.loaded().metadata("t")
    assert found.properties["comment"] == f"a {variable} b"
    assert [f.doc for f in found.schema().fields] == [None, f"c {variable} d"]
    kept = [p.read_bytes() for p in w.root.rglob("*") if p.is_file()] + [w.metadata_file("t").encode()]
    assert not [data for data in kept if os.environ["FRAZIL_TEST_MARKER"].encode() in data]
