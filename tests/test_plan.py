"""The plan before a run: it says of each table what the next run does, and it changes nothing."""

from __future__ import annotations

import pytest

from dms_streams import Topic
from dms_writer import FILE1, FILE2, FILE3, LOAD, I, U

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


@pytest.fixture(scope="module")
def needy(shared_world):
    """A world of which most tables need a decision."""
    w = shared_world("needy", target={"AddColumnName": True})
    for table in ("wide", "again", "late", "fine", "lines"):
        w.table(table).source.load(table, (1, "a"))
    w.loaded()
    w.source.changes("late", U(1, "b"), name=FILE2)
    w.source.changes("fine", U(1, "b"), name=FILE2)
    w.merge(tables=["late"])
    w.source.write("again", LOAD, "ts,id,v,seq,BI_id\n2024-01-01 09:59:00.000000,1,zzz,,\n")
    w.source.write("wide", FILE1, "Op,ts,id,v,more,seq,BI_id\nI,2024-01-01 09:59:00.000000,2,b,c,,\n")
    w.source.write("lines", FILE1, "I,2024-01-01 09:59:00.000000,2,b,,\n")
    w.source.changes("late", U(1, "c"), name=FILE1)
    w.table("new").source.load("new", (1, "a"))
    w.source.changes("new", I(2, "b"))
    w.table("keyless", key=()).source.load("keyless", (1, "a"))
    return w


CODES = {"again": "load-changed", "late": "late-file", "wide": "unknown-column"}


def test_a_plan_tells_what_a_run_would_do_and_changes_nothing(needy):
    before = {t: needy.metadata_file(t) for t in needy.specs if needy.exists(t)}
    rows = needy.plan()
    assert {t for t, r in rows.items() if r["decision"]} == {*CODES, "keyless"}
    assert {t: rows[t]["code"] for t in CODES} == CODES and LOAD not in rows["fine"]["decision"]
    assert [(rows[t]["load"], rows[t]["changes"]) for t in ("new", "fine", "lines")] == [(1, 1), (0, 1), (0, 1)]
    assert {t: needy.metadata_file(t) for t in needy.specs if needy.exists(t)} == before and "new" not in before


def test_the_command_fails_with_strict_where_a_decision_is_needed(needy):
    assert needy.command("plan")[0] == 0
    code, told = needy.command("plan", "--strict")
    assert code == 4 and all(f"public.{t}" in told for t in CODES)
    assert not needy.exists("new")


def test_the_next_run_does_what_the_plan_says(needy):
    """Last with this world: the tables are other ones then."""
    planned, done = needy.plan(), needy.through()
    assert {t for t, r in done.items() if not r.went_well} == {t for t, r in planned.items() if r["decision"]}
    wanted = {"new": [(1, "a"), (2, "b")], "fine": [(1, "b")], "lines": [(1, "a"), (2, "b")]}
    assert {t: needy.rows(t) for t in wanted} == wanted


def test_limits_and_policies_of_the_settings_count_in_the_plan_too(open_world):
    w = open_world(target={"AddColumnName": True}, max_batch_files=1, max_batches=2, changes={"new": "add"})
    for table in ("t", "wider"):
        w.table(table).source.load(table, (1, "a"))
    w.loaded()
    for n, name in enumerate((FILE1, FILE2, FILE3)):
        w.source.changes("t", I(2 + n, "b"), name=name)
    w.source.write("wider", FILE1, "Op,ts,id,v,more,seq,BI_id\nI,2024-01-01 09:59:00.000000,2,b,c,,\n")
    rows = w.plan()
    assert not [r["decision"] for r in rows.values() if r["decision"]]
    done = w.merge()
    assert done["t"].counts["files"] == rows["t"]["changes"] == 2 and rows["wider"]["changes"] == 1
    assert w.rows("t") == [(1, "a"), (2, "b"), (3, "b")] and w.rows("wider") == [(1, "a", None), (2, "b", "c")]


def test_a_stream_is_planned_like_files(open_world, kafka):
    w = open_world().table("t")
    topic = Topic(w, kafka)
    topic.load("t", (1, "a"))
    assert w.plan()["t"]["changes"] == 1 and not w.exists("t")
    w.loaded()
    topic.changes("t", I(2, "b"), U(1, "c"))
    w.table("keyless", key=())
    before, rows = w.metadata_file("t"), w.plan()
    assert rows["t"]["changes"] >= 2 and not rows["t"]["decision"] and rows["keyless"]["decision"]
    assert w.metadata_file("t") == before and w.merge()["t"].status == "merged"
    assert w.rows("t") == [(1, "c"), (2, "b")] and w.plan()["t"]["changes"] == 0
