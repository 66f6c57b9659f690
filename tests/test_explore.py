"""Exploring: the history of a key, what differs, how the source was at a time; nothing is written."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from dms_writer import FILE1, FILE2, FILE3, LOAD, NO_RULES, D, I, U, file_name
from world import Refused, house

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
FILE4 = file_name(3)


def at(clock: str) -> str:
    return f"2024-01-01 {clock}.000000"


@pytest.fixture(scope="module")
def told(shared_world):
    """A world of two tables and five commits of `t`: the load and four files, each of which says when the source committed."""
    w = shared_world("explored")
    w.table("t").source.load("t", (1, "a"), (2, "b"), (3, "c"))
    w.table("u").source.load("u", (1, "x"))
    w.source.changes("t", U(1, "a2", ts=at("09:58:00")), D(2, ts=at("09:59:00")), name=FILE1)
    w.source.changes("t", I(2, "b again", ts=at("10:00:30")), U(3, "c2", ts=at("10:00:40")), name=FILE2)
    w.source.changes("t", U(1, "a3", ts=at("10:01:10")), U(1, "a4", ts=at("10:01:20")), name=FILE3)
    w.source.changes("t", U(10, None, was=3, ts=at("10:02:30")), name=FILE4)
    w.source.changes("u", U(1, "y", ts=at("10:00:50")), name=FILE2)
    w.loaded().merged(max_batch_files=1)
    return w


def loaded(w):
    """Return the snapshot of the load."""
    return [s for s in w.history("t") if house().is_batch(s)][-1]


def story(w, *key, column: str = "v") -> list[tuple]:
    return [(e["did"], e["values"].get(column)) for e in w.find("t", *key)]


def test_a_key_tells_what_it_went_through_and_from_which_rows(told):
    assert [(e["did"], e["values"].get("v"), e["origin"]) for e in told.find("t", 1)] == [
        ("update", "a4", [(FILE3, 1, "U"), (FILE3, 2, "U")]), ("update", "a2", [(FILE1, 1, "U")]), ("load", "a", [(LOAD, 1, "I")]),
    ]  # fmt: skip
    assert story(told, 2) == [("insert", "b again"), ("delete", None), ("load", "b")]
    assert [(e["did"], e["origin"]) for e in told.find("t", 3)] == [
        ("delete", [(FILE4, 1, "U")]), ("update", [(FILE2, 2, "U")]), ("load", [(LOAD, 3, "I")]),
    ]  # fmt: skip
    assert told.find("t", 99) == []


def test_a_key_keeps_its_history_through_compaction_and_columns_that_are_renamed(open_world):
    w = open_world().table("t")
    w.source.load("t", (1, "a"), (2, "b"))
    w.source.changes("t", U(1, "b"))
    w.source.changes("t", U(1, "c"), D(2), name=FILE2)
    w.loaded().merged(max_batch_files=1)
    w.call("rewrite_data_files", "t", "options => map('rewrite-all', 'true')")
    w.merged()
    assert story(w, 1) == [("update", "c"), ("update", "b"), ("load", "a")]
    assert [did for did, _ in story(w, 2)] == ["delete", "load"]
    first = loaded(w).snapshot_id
    for column, name in zip(w.specs["t"]["columns"], ("number", "word"), strict=True):
        column |= {"name": name, "renamed_from": column["name"]}
    w.declare("t", key=["number"]).source.changes("t", U(1, "z"), name=FILE3)
    w.setup(), w.merged()
    assert story(w, 1, column="word") == [("update", "z"), ("update", "c"), ("update", "b"), ("load", "a")]
    counts, found = w.diff("t", first)
    assert counts == {"inserted": 0, "updated": 1, "deleted": 1}
    assert ("updated", (1,), "word", "a", "z") in found


def test_two_states_are_compared(told):
    first, last = loaded(told), told.history("t")[0]
    counts, found = told.diff("t", first.snapshot_id, last.snapshot_id)
    assert counts == {"inserted": 1, "updated": 2, "deleted": 1}
    assert {(change, key, before, after) for change, key, _, before, after in found} == {
        ("inserted", (10,), None, ""), ("deleted", (3,), "v=c", None), ("updated", (1,), "a", "a4"), ("updated", (2,), "b", "b again"),
    }  # fmt: skip
    (since_ms,) = [e.timestamp_ms for e in told.metadata("t").snapshot_log if e.snapshot_id == first.snapshot_id]
    committed = datetime.fromtimestamp((since_ms + 0.5) / 1000, UTC)
    assert told.diff("t", f"{committed:%Y-%m-%d %H:%M:%S.%f}"[:-3])[0] == counts


def test_a_key_may_have_the_name_that_a_difference_uses(open_world):
    w = open_world().table("t", "change INT8", "v WSTRING(9)", key="change")
    w.source.load("t", (1, "a"))
    first = w.loaded().history("t")[0].snapshot_id
    w.source.changes("t", U(1, "A"))
    assert w.merged().diff("t", first)[1] == {("updated", (1,), "v", "a", "A")}


def test_states_of_a_table_without_a_key_are_compared_after_a_column_was_added(open_world):
    w = open_world().table("t", key=(), without_key="append")
    w.source.rules = NO_RULES
    w.source.load("t", (1, "a"))
    first = w.loaded().history("t")[0].snapshot_id
    w.source.changes("t", I(2, "b"))
    w.merged().declare("t", columns=[*w.specs["t"]["columns"], {"name": "w", "type": "INT4"}])
    w.sql("ALTER TABLE {t} ADD COLUMN w int")
    w.sql("INSERT INTO {t} (id, v, w) VALUES (7, 'x', 1)")
    assert w.diff("t", first)[0] == {"inserted": 2, "updated": 0, "deleted": 0}


def test_all_tables_are_shown_as_the_source_had_them_at_a_time(told, open_world):
    def rows(w, table: str, source_time: str = "") -> list[tuple]:
        found = w.states(source_time)[table]["snapshot"]
        return sorted(map(tuple, w.sql(f"SELECT * FROM {{t}} VERSION AS OF {found}", table)))

    assert rows(told, "t", "2024-01-01 10:01:05") == [(1, "a2"), (2, "b again"), (3, "c2")]
    assert rows(told, "u", "2024-01-01 10:01:05") == [(1, "y")]
    assert rows(told, "t") == [(1, "a4"), (2, "b again"), (10, None)]
    assert told.states("2024-01-01 09:00")["u"]["snapshot"] == 0, "no state is as old"
    zone = "America/Bogota"  # without commit times a file's name bounds them, by the zone of the names
    w = open_world(target={"DatePartitionEnabled": True, "DatePartitionTimezone": zone, "TimestampColumnName": ""})
    w.source.rules = NO_RULES
    w.table("t").source.write("t", LOAD, "1,a\n")
    written = datetime(2024, 1, 1, 10, tzinfo=UTC).astimezone(ZoneInfo(zone))
    w.loaded().source.write("t", f"{written:%Y/%m/%d/%Y%m%d-%H%M%S000}.csv", "U,1,b\n")
    found = w.merged().states()["t"]
    assert (found["holds_to"], found["known_by"]) == ("2024-01-01 10:00:00.000", "file names")


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda w: w.find("tt", 1), "did you mean 'public.t'"),
        (lambda w: w.find("t", 1, 2), "give id, in this order"),
        (lambda w: w.diff("t", "yesterday"), "'yesterday' is no time"),
        (lambda w: w.diff("t", 123456789012345678), "is not kept"),
        (lambda w: w.diff("t", "2024-01-01 10:02"), "by the lake's clock"),
    ],
)
def test_a_question_without_an_answer_says_so(told, ask, says):
    with pytest.raises(Refused, match=says):
        ask(told)


def test_an_empty_table_and_files_that_were_cleared_away_stop_nothing(open_world):
    w = open_world().table("t").table("empty")
    w.source.load("t", (1, "x"))
    w.source.changes("t", U(1, "y"))
    w.loaded().merged()
    assert w.find("empty", 1) == [] and w.find("t", 9) == []
    assert (
        w.sql(f"SELECT * FROM {{t}} VERSION AS OF {w.states('2024-01-01 09:00')['empty']['snapshot']}", "empty") == []
    )
    w.source.path("t", FILE1).unlink()
    newest, load = w.find("t", 1)
    assert newest["values"] == {"v": "y"} and "are gone" in newest["origin"] and load["origin"] == [(LOAD, 1, "I")]


def test_nothing_is_written(told, catalog_options):
    def fingerprint() -> dict[str, str]:
        files = [f for f in Path(catalog_options["warehouse"]).parent.rglob("*") if f.is_file()]
        return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    before = fingerprint()
    told.find("t", 1), told.diff("t", loaded(told).snapshot_id), told.states("2024-01-01 10:01")
    told.plan(), told.lateness(), told.latency()
    assert fingerprint() == before
