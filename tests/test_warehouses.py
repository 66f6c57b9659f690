"""Warehouses: what they serve before and after a refresh, how late they are, and what becomes of one in trouble."""

from __future__ import annotations

import json
import re

import duckdb
import pytest

from dms_writer import U, file_name
from fake_driver import SERVERS, SNOW, FakeServer

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setitem(SERVERS, "fake", FakeServer())
    return SERVERS["fake"]


def two_tables(w):
    """Load two tables and return the world."""
    for table in ("orders", "items"):
        w.table(table).source.load(table, (1, "a"))
    return w.loaded()


def statuses(w, refresh: bool = False) -> dict[tuple[str, str], str]:
    return {(r["warehouse"], r["table"].split(".")[-1]): r["status"] for r in w.warehouses(refresh) if r.get("table")}


def test_a_warehouse_serves_what_a_refresh_shows_it_and_a_check_says_how_late_it_is(open_world, tmp_path):
    file = str(tmp_path / "d.duckdb")
    duck = {"engine": "duckdb", "database": file, "namespace": "readers", "max_late_commits": 1, "max_late_s": 3600}
    w = two_tables(open_world(warehouses={"duck": duck}))
    with duckdb.connect(file) as db:
        db.execute("CREATE SCHEMA readers")
    first = w.warehouses(refresh=True)
    assert {(r["warehouse"], r["status"]) for r in first} == {("duck", "served")} and len(first) == 2, first[0]["why"]
    late = []
    for n in range(2):
        w.source.changes("orders", U(1, f"v{n}"), name=file_name(n))
        declared = w.settings.pop("warehouses")  # a run of another environment refreshes nothing here
        w.merged()
        w.settings["warehouses"] = declared
        late.append([line for line in w.check() if "duck" in line])
    assert late[0] == [], "one commit is allowed"
    assert re.search(r"orders.* 2 commits", late[1][0]) and len(late[1]) == 1
    assert statuses(w) == {("duck", "orders"): "late", ("duck", "items"): "served"}
    assert statuses(w, refresh=True)["duck", "orders"] == "served" and not [x for x in w.check() if "duck" in x]
    w.source.changes("orders", U(1, "last"), name=file_name(2))
    w.merged()
    assert statuses(w)["duck", "orders"] == "served", "a run refreshes it after its commit"


MISTAKES = {
    "absent": ({"connect": "no_such_driver:connect"}, "no_such_driver"),
    "misspelt": ({"connect": "fake_driver:conect"}, "conect"),
    "no secret": ({"secret": "env:NOT_SET"}, "NOT_SET"),
    "away": ({"options": {"server": "gone"}}, "gone"),
}


def test_a_warehouse_in_trouble_is_named_and_the_others_are_refreshed(open_world, tmp_path, server, monkeypatch):
    monkeypatch.setenv("LOGIN", '{"password": "top-secret-word"}')
    declared = {n.replace(" ", "_"): {**SNOW, **change} for n, (change, _) in MISTAKES.items()}
    declared |= {"snow": {**SNOW, "secret": "env:LOGIN"}, "duck": {"engine": "duckdb", "database": str(tmp_path / "d.duckdb")}}  # fmt: skip
    w = two_tables(open_world(warehouses=declared))
    server.answers = [('"ORDERS" REFRESH', RuntimeError("091968 no: top-secret-word"))]
    found = w.warehouses(refresh=True)
    for name, (_, says) in MISTAKES.items():
        assert [r for r in found if r["warehouse"] == name.replace(" ", "_") and r["status"] == "failed" and says in r["why"]], name  # fmt: skip
    (refused,) = [r for r in found if r["warehouse"] == "snow" and r["status"] == "failed"]
    assert "orders" in refused["table"] and "091968 no" in refused["why"]
    assert "top-secret-word" not in str(found) and server.arguments["password"] == "top-secret-word"
    assert [s for s in server.sent if '"ITEMS"' in s and s.endswith("REFRESH")]
    assert w.merge()["orders"].status == "unchanged"


def test_a_warehouse_that_is_bound_to_a_metadata_file_is_late_until_it_is_refreshed(open_world, server):
    bound: dict[str, str] = {}
    w = two_tables(open_world(warehouses={"snow": SNOW}))

    def table_of(statement: str) -> str:
        return "items" if "ITEMS" in statement else "orders"

    def refresh(statement: str) -> list:
        bound[table_of(statement)] = w.metadata_file(table_of(statement))
        return []

    def information(statement: str) -> list:
        return [(json.dumps({"metadataLocation": bound.get(table_of(statement), ""), "status": "success"}),)]

    server.answers = [("REFRESH$", refresh), ("GET_ICEBERG", information)]
    assert statuses(w, refresh=True) == {("snow", "orders"): "served", ("snow", "items"): "served"}
    w.sql("INSERT INTO {t} VALUES (2, 'of another writer')", "orders")
    assert statuses(w) == {("snow", "orders"): "late", ("snow", "items"): "served"}
    assert [r["why"] for r in w.warehouses() if r["status"] == "late"] == ["it serves an older state"]
    assert statuses(w, refresh=True)["snow", "orders"] == "served"


def test_statements_are_shown_in_order_made_once_and_never_in_a_dry_run(open_world, server):
    w = two_tables(open_world(warehouses={"snow": {**SNOW, "credential": "glue_reader"}}))
    shown, order = "\n".join(w.statements()), ["CREATE CATALOG", "CREATE EXTERNAL", "CREATE SCHEMA", "CREATE ICEBERG"]
    assert [shown.index(word) for word in order] == sorted(shown.index(word) for word in order)
    server.sent.clear()  # the load has refreshed tables
    w.set_up_warehouses(dry_run=True)
    assert server.sent == []
    w.set_up_warehouses(dry_run=False)
    made = [s for s in server.sent if s.startswith("CREATE")]
    w.set_up_warehouses(dry_run=False)
    assert len(made) == 5 and [s for s in server.sent if s.startswith("CREATE")] == made


def test_the_notebook_sets_up_and_shows_how_a_commit_is_seen_and_what_is_missing(open_world, tmp_path):
    w = open_world(warehouses={"duck": {"engine": "duckdb", "database": str(tmp_path / "d.duckdb")}})
    for table in ("orders", "items"):
        w.table(table).source.load(table, (1, "a"))
    (row,) = w.warehouses(refresh=True)
    assert row["status"] == "failed" and "00_setup" in row["why"]
    declared = w.settings.pop("warehouses")  # a load would refresh them
    w.loaded().settings["warehouses"] = declared
    assert w.command("run", "06_warehouses")[0] == 0
    assert [n for n, raw in w.files_kept().items() if n.endswith("06_warehouses.ipynb") and b"2 served" in raw]
    declared["auto"] = {**SNOW, "refresh": "auto"}
    sees = {r["warehouse"]: r["sees_a_commit"] for r in w.warehouse_facts()}
    assert sees == {"duck": "after a refresh", "auto": "when it refreshes by itself"}
    del w.settings["warehouses"]
    assert w.warehouses() == []
