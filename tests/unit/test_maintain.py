"""Maintenance and the tables of `ops`: what is due, what is done, and what PyIceberg reads of it."""

from __future__ import annotations

import json
import os
import time
from unittest.mock import Mock

import obstore
import pyarrow as pa
import pytest

import new_house
from dms_writer import FILE1, FILE2, I, U
from frazil.dms import quarantine_files
from frazil.iceberg import compaction
from frazil.iceberg.catalog import opened_table
from frazil.pipeline import ops_tables
from frazil.pipeline.explore import ExploreError

pytestmark = pytest.mark.spark


@pytest.fixture
def opened(open_world):
    """Return a function that opens an environment with a table that has a load and two batches."""
    w = open_world(keep_hours=0.0, on_bad_rows="quarantine").table("t", "id INT8", "v INT8")
    w.source.load("t", (1, 0), (2, 0))
    w.loaded()
    for number, name in enumerate((FILE1, FILE2), 1):
        w.source.changes("t", U(number, 9), I(2 + number, "no number"), name=name)
        w.merged()
    return lambda **settings: new_house.opened(w, settings)


def rows_of(of, name: str) -> list[tuple[str, dict]]:
    found = opened_table(of.catalog, f"{of.settings.ops_namespace}.{name}").scan().to_arrow().sort_by("at").to_pylist()
    return [(row["table_name"], json.loads(row["facts"])) for row in found]


def test_what_is_due_is_said_and_done_once_and_commits_are_kept_before_they_expire(opened):
    of = opened()
    before = of.health()
    assert of.maintain(dry_run=True)[0].status == "due" and "compact" in before.rows[0]["why"]
    assert of.health().rows == before.rows and not of.catalog.table_exists(f"{of.settings.ops_namespace}.commits")
    done = of.maintain()[0]
    assert (done.status, done.counts["compact"]) == ("maintained", 3) and done.counts["expire"] > 2
    changed = {row["measure"]: row["now"] for row in of.health().compared_to(before).rows}
    assert changed["files"] == 1 and changed["why"] == "" and "rows" not in changed
    assert opened().maintain()[0].status == "unchanged"
    kinds = [facts.get("frazil.kind") for _, facts in rows_of(of, "commits")]
    assert kinds.count("changes") == 2 and kinds.count("load") == 1
    ((name, facts),) = rows_of(of, "maintenance")
    assert name == of["public.t"].name and facts["compact"] == 3 and facts["seconds"] > 0


def test_old_side_files_go_unless_their_rows_wait_and_a_table_that_is_not_compacted_is_expired(opened, monkeypatch):
    of = opened()
    assert "compact" not in opened(managed_by="glue").maintain(dry_run=True)[0].note
    files = [quarantine_files.store(of.state, of["public.t"].name, pa.table({"n": [n]})) for n in range(2)]
    for path in (of.settings._root / "state").rglob("*"):
        os.utime(path, (time.time() - 90_000 * (path.name not in files[1].path),) * 2)
    monkeypatch.setattr(compaction, "plan", Mock(side_effect=compaction.NotCompactedError("n is nested", "call it")))
    found = opened().maintain()[0]
    assert "n is nested" in found.note and {*found.counts} == {"side_files", "expire"}
    there = [entry["path"] for batch in obstore.list(of.state) for entry in batch]
    assert files[1].path in there and files[0].path not in there and len(opened().quarantine()) == 2


def test_states_rows_and_sql_know_tables_by_their_source_names(opened):
    of = opened(keep_hours=9.0)
    table = of["public.t"]
    states, history = of.states(), table.history(9)
    assert states.snapshot[table.name] == history.snapshot[0] and states.position.iloc[0].endswith(FILE2)
    now = table.rows(at=states.snapshot.iloc[0]).orderBy("id").collect()
    assert [*map(tuple, now)] == [(1, 9), (2, 9)] == sorted(map(tuple, table.head().values))
    load = history[history.kind == "load"]
    assert [tuple(row) for row in table.rows(at=load.committed.iloc[0] + "999").orderBy("id").collect()] == [
        (1, 0),
        (2, 0),
    ]
    assert of.sql("select 'public.t' as x, count(*) as n from public.t").collect()[0][:] == ("public.t", 2)
    with pytest.raises(ExploreError, match="no state 17 is kept"):
        table.rows(at=17)


def test_ops_tables_that_cannot_be_written_stop_no_table(opened, monkeypatch):
    of = opened()
    monkeypatch.setattr(ops_tables, "COLUMNS", "no column")
    of.say = Mock()
    assert of.maintain()[0].status == "maintained" and of.say.call_count == 3
