"""What settings and rules of the task lose, or change in mid-life: it is told before it does harm."""

from __future__ import annotations

import pytest

from dms_writer import BEFORE_IMAGE, FILE2, FILE3, NO_RULES, U

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
ZONE = {"rule-type": "transformation", "rule-target": "column", "rule-action": "add-column", "value": "zone", "expression": "'eu'"}  # fmt: skip
OWN = "20240101-090000000.csv"


def test_columns_that_rules_add_and_no_spec_lists_are_found(open_world):
    w = open_world(target={"AddColumnName": True})
    w.source.rules = {"rules": [ZONE, *BEFORE_IMAGE["rules"]]}
    for table in ("listed", "unlisted"):
        w.table(table, "id INT8", "v WSTRING(9)", "zone WSTRING(9)").source.load(table, (1, "a", "eu"))
    w.table("unlisted", "id INT8", "v WSTRING(9)").setup()
    found = [f"{f['subject']} {f['says']}" for f in w.lint() if "zone" in f["says"]]
    assert any("public.unlisted" in f for f in found) and not any("public.listed" in f for f in found), w.findings()


def test_a_task_without_old_keys_is_told_that_old_rows_stay(open_world):
    w = open_world().table("t")
    w.source.rules = NO_RULES
    w.source.load("t", (1, "a"))
    w.setup()
    assert "before-image" in w.findings()
    w.source.rules = BEFORE_IMAGE
    assert "before-image" not in w.findings()


def test_after_files_of_all_tables_a_run_and_a_reload_go_on_with_the_tables_own_files(open_world):
    w = open_world(target={"PreserveTransactions": True, "CdcPath": "all"}).table("t")
    w.source.load("t", (1, "a"), (2, "b"))
    w.source.of_all_tables("CDC_TXN-20240101100000000.csv", ("t", U(1, "z")))
    assert w.loaded().merged().rows("t") == [(1, "z"), (2, "b")]
    w.source.settings["PreserveTransactions"] = False
    w.source.changes("t", U(1, "own"), name=FILE2)
    assert w.merged().rows("t") == [(1, "own"), (2, "b")], "files tell by their names which they are, and their order"
    w.source.load("t", (1, "own"), (3, "c"))
    w.source.changes("t", U(1, "earlier"), name=OWN)
    assert w.decide("t", restart="pending").status == "reloaded"
    w.source.changes("t", U(3, "last"), name=FILE3)
    assert w.merged().rows("t") == [(1, "own"), (3, "last")]
