"""Warehouses: what they serve before and after a refresh, how late they are, and what becomes of one in trouble."""

from __future__ import annotations

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
