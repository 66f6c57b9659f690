"""Maintenance and its ledger: what is due, what is done, and what Python and Java read of it."""

import os
import time
from datetime import UTC, datetime
from unittest.mock import Mock

import pyarrow as pa
import pytest

import new_house
from dms_writer import FILE1, FILE2, U
from frazil.engine.work import for_each
from frazil.iceberg import compaction, side_files
from frazil.pipeline import ledger, maintain

pytestmark = pytest.mark.spark


@pytest.fixture
def w(open_world):
    (w := open_world(keep_hours=0).table("t")).source.load("t", (1, "a"), (2, "b"))
    w.source.changes("t", U(1, "c"), name=FILE1), w.source.changes("t", U(1, "d"), name=FILE2)
    return w.loaded().merged(max_batch_files=1)


def test_what_is_due_is_said_and_done_once_and_a_row_of_the_ledger_counts_once(w):
    before, table = (of := new_house.opened(w, {})).health(), f"{w.space}_ops.commits"
    assert of.maintain(dry_run=True)[0].status == "due" and "compact: 3" in before.rows[0]["why"]
    assert of.health().rows == before.rows and not of.catalog.table_exists(table)
    assert (done := of.maintain()[0]).status == "maintained" and done.counts["compact"] == 3
    changed = {row["measure"]: row["now"] for row in of.health().compared_to(before).rows}
    assert changed["files"] == 1 and changed["why"] == "" and of.maintain()[0].status == "unchanged"
    assert [row.facts["action"] for row in ledger.read(of, "maintenance").values()] == ["compact", "expire"]
    commits = ledger.read(of, "commits")
    assert sum(row.facts.get("frazil.kind") == "changes" for row in commits.values()) == 2
    later = ledger.Row([*commits][0], "t", datetime.now(UTC), {"newest": True})
    [ledger.append(of, "commits", [later]) for _ in range(2)]
    assert ledger.read(of, "commits") == {**commits, later.id: later}
    assert w.session.table(f"{w.catalog}.{table}").count() == len(commits) + 1  # Java reads what Python wrote


def test_old_side_files_go_and_a_table_that_is_not_compacted_is_expired(w, monkeypatch):
    assert "compact" not in new_house.opened(w, {"managed_by": "glue"}).maintain(dry_run=True)[0].note
    of = new_house.opened(w, {})
    files = [side_files.store(of.state, of["public.t"].name, pa.table({"n": [n]})) for n in range(2)]
    os.utime(w.root / "state" / files[0].path, (time.time() - 90_000,) * 2)
    monkeypatch.setattr(compaction, "plan", Mock(side_effect=compaction.NotCompactedError("n is nested", "call it")))
    assert "n is nested" in (found := of.maintain()[0]).note and {*found.counts} == {"side_files", "expire"}
    assert [p.name for p in (w.root / "state").rglob("*.parquet")] == [files[1].path.rpartition("/")[2]]


def test_neither_runs_at_the_same_time_nor_a_failing_action_or_ledger_stop_others(w, monkeypatch):
    of, now = new_house.opened(w, {}), datetime.now(UTC)
    rows = {str(n): ledger.Row(str(n), "t", now, {"n": n}) for n in range(8)}
    for_each(rows, lambda n: ledger.append(of, "quarantine", [rows[n]]))
    assert ledger.read(of, "quarantine") == rows, w.said
    monkeypatch.setattr(ledger, "opened_table", lambda *_: 1 / 0)
    monkeypatch.setattr(maintain, "audit_table", lambda _: 1 / 0)
    assert of.maintain()[0].code == "ZeroDivisionError" and "is not kept" in w.said[-1]
