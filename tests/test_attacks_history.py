"""Attacks on a table's history: rollbacks, lost tags, expiry by others, and files that come late. No row is lost or doubled without a word."""

from __future__ import annotations

import threading
import time

import pytest

from dms_writer import FILE1, FILE2, FILE3, D, I, U, file_name

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
EVERYTHING = "older_than => timestamp '2999-01-01', retain_last => 1"


def here(w, table: str = "t") -> int:
    """Return the snapshot that is current."""
    return w.metadata(table).current_snapshot_id


def roll_back(w, snapshot: int, table: str = "t") -> None:
    """Roll a table back, as another writer does."""
    w.call("rollback_to_snapshot", table, f"snapshot_id => {snapshot}")


def stopped(result, *codes: str) -> bool:
    """Return whether a table failed with one of these codes."""
    return result.status == "failed" and result.code in codes


def test_a_rollback_in_the_middle_of_a_run_stops_its_table_there(open_world):  # A1
    w = open_world().table("t")
    w.source.load("t", (1, "a"), (2, "b"))
    loaded = here(w.loaded())
    w.source.changes("t", U(1, "x"), I(3, "c"))
    seen = []

    def meanwhile():
        until = time.monotonic() + 50
        while time.monotonic() < until and w.batches("t") < 2:
            time.sleep(0.1)
        seen.append(w.batches("t"))
        roll_back(w, loaded)
        w.source.changes("t", U(2, "y"), name=FILE2)

    other = threading.Thread(target=meanwhile)
    other.start()
    result = w.merge(run_for_s=60.0, idle_s=6.0, trigger_s=0.2)["t"]
    other.join()
    assert seen == [2], "the rollback came before the first batch"
    assert stopped(result, "rolled-back") and w.rows("t") == [(1, "a"), (2, "b")]
    w.cure(result)
    assert w.merged().rows("t") == [(1, "x"), (2, "y"), (3, "c")]


@pytest.mark.parametrize("version", [2, 3])
def test_after_a_rollback_and_its_cure_a_process_goes_on_with_each_key_once(open_world, version):  # A2
    w = open_world(format_version=version).table("t")
    w.source.load("t", *[(n, "load") for n in range(6)])
    loaded = here(w.loaded())
    w.source.changes("t", U(0, "a"), I(6, "a"), D(1), name=FILE1)
    batch = here(w.merged())
    w.source.changes("t", U(0, "b"), U(6, "b"), D(2), I(1, "b"), name=FILE2)
    w.merged()
    w.source.changes("t", D(6), U(3, "c"), U(1, "c"), name=FILE3)
    wanted = [(0, "b"), (1, "c"), (3, "c"), (4, "load"), (5, "load")]
    assert w.merged().rows("t") == wanted
    for place in (batch, loaded):
        roll_back(w, place)
        then, refused = w.rows("t"), w.merge()["t"]
        assert stopped(refused, "rolled-back") and w.rows("t") == then
        w.cure(refused)
        assert w.merged().rows("t") == wanted
    w.source.changes("t", I(6, "d"), U(0, "d"), D(3), U(4, "d"), name=file_name(3))
    assert w.merged().rows("t") == [(0, "d"), (1, "c"), (4, "d"), (5, "load"), (6, "d")]


def test_a_rollback_over_a_change_of_columns_ends_with_all_values_or_names_the_columns(open_world):  # A16
    w = open_world(target={"AddColumnName": True}, changes={"new": "add", "gone": "drop"})
    columns = ("id INT8", "v WSTRING(9)", "n INT4")
    for table in ("added", "dropped", "renamed"):
        w.table(table, *columns).source.load(table, (1, "a", 1), (2, "b", 2))
    w.loaded()
    loaded = {t: here(w, t) for t in w.specs}
    for table in w.specs:
        w.source.changes(table, U(1, "x", 11), I(3, "c", 3))
    w.merged()
    w.table("added", *columns, "w INT4").table("dropped", *columns[:2])
    w.specs["renamed"]["columns"][2].update(name="m", renamed_from="n")
    w.declare("renamed")
    for table, values in {"added": (2, "y", 22, 222), "dropped": (2, "y"), "renamed": (2, "y", 22)}.items():
        w.source.changes(table, U(*values), name=FILE2)
    wanted = {
        "added": [(1, "x", 11, None), (2, "y", 22, 222), (3, "c", 3, None)],
        "dropped": [(1, "x"), (2, "y"), (3, "c")],
        "renamed": [(1, "x", 11), (2, "y", 22), (3, "c", 3)],
    }
    assert {t: w.rows(t) for t in w.merged().specs} == wanted
    for table, snapshot in loaded.items():
        roll_back(w, snapshot, table)
    then, refused = {t: w.rows(t) for t in w.specs}, w.merge()
    for table, result in refused.items():
        assert stopped(result, "rolled-back"), (table, result)
        w.cure(result)
    again = w.merge()
    for table, column in {"added": "w", "dropped": "n", "renamed": "m"}.items():
        named = again[table].failed and again[table].names(column) and w.rows(table) == then[table]
        assert named or w.rows(table) == wanted[table], (table, again[table], w.rows(table))


def test_commits_of_others_stop_nothing_and_a_gap_that_may_hide_a_rollback_stops_its_table(open_world):  # A3
    w = open_world()
    for table in ("commits", "gap", "rolled"):
        w.table(table).source.load(table, (1, "a"), (2, "b"), (3, "c"))
    w.loaded()
    loaded = here(w, "rolled")
    for table in w.specs:
        w.source.changes(table, U(1, "x"), I(4, "d"))
    w.merged()
    roll_back(w, loaded, "rolled")
    for table in w.specs:
        w.sql("DELETE FROM {t} WHERE id = 4", table)
        w.sql("INSERT INTO {t} VALUES (8, 'theirs')", table)
    for table in ("gap", "rolled"):
        w.sql("INSERT INTO {t} VALUES (9, 'theirs')", table)
        w.call("expire_snapshots", table, EVERYTHING)
    w.maintain(tables=["commits"])
    for table in w.specs:
        w.source.changes(table, U(2, "y"), name=FILE2)
    then = w.rows("rolled")
    for _ in range(2):
        done = w.merge()
        assert stopped(done["rolled"], "history-gone") and done["rolled"].decision and w.rows("rolled") == then
    assert stopped(done["gap"], "history-gone")
    assert w.rows("commits") == [(1, "x"), (2, "y"), (3, "c"), (8, "theirs")]
    w.cure(done["gap"])
    assert w.decide("rolled", restart="all").status == "replayed"
    assert w.merged().rows("gap") == [(1, "x"), (2, "y"), (3, "c"), (8, "theirs"), (9, "theirs")]
    assert w.rows("rolled") == [(1, "x"), (2, "y"), (3, "c"), (4, "d")]


def test_a_table_that_another_writer_made_anew_stops_until_it_is_loaded_again(open_world):  # A3
    w = changed_once(open_world)
    w.sql("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT * FROM {t} WHERE id < 4")
    w.source.changes("t", U(2, "y"), name=FILE2)
    then = w.rows("t")
    for _ in range(2):
        result = w.merge()["t"]
        assert result.failed and result.decision and w.rows("t") == then
    w.sql("DROP TABLE {t}")
    assert w.loaded().merged().rows("t") == [(1, "x"), (2, "y"), (4, "d")]


def test_a_policy_that_expires_tags_stops_nothing(open_world):  # A5
    w = changed_once(open_world)
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')")
    w.sql("INSERT INTO {t} VALUES (8, 'theirs')")
    w.call("expire_snapshots", "t", EVERYTHING)
    w.source.changes("t", U(2, "y"), name=FILE2)
    result = w.merge()["t"]
    assert result.status == "merged", f"stopped by {result.code}"
    assert w.rows("t") == [(1, "x"), (2, "y"), (4, "d"), (8, "theirs")]


@pytest.mark.parametrize("expired", [False, True], ids=["with its history", "without"])
def test_a_table_that_lost_its_tags_goes_on_or_stops_and_never_loads_again_over_its_rows(open_world, expired):  # A5
    w = changed_once(open_world)
    for tag in set(w.metadata("t").refs) - {"main"}:
        w.sql(f"ALTER TABLE {{t}} DROP TAG `{tag}`")
    if expired:
        for key in (8, 9):
            w.sql(f"INSERT INTO {{t}} VALUES ({key}, 'theirs')")
        w.call("expire_snapshots", "t", EVERYTHING)
    then = w.rows("t")
    assert w.load()["t"].status in ("unchanged", "failed") and w.rows("t") == then
    w.source.changes("t", U(2, "y"), name=FILE2)
    result = w.merge()["t"]
    if expired:
        assert stopped(result, "no-position") and w.rows("t") == then
    else:
        assert result.status == "merged" and w.rows("t") == [(1, "x"), (2, "y"), (4, "d")]


def changed_once(open_world):
    """Return a world with a table that had a load and a batch."""
    w = open_world().table("t")
    w.source.load("t", (1, "a"), (2, "b"), (3, "c"))
    w.loaded()
    w.source.changes("t", U(1, "x"), I(4, "d"), D(3))
    return w.merged()


def test_old_states_that_are_kept_alone_make_no_applied_file_late_and_hide_no_late_one(open_world):  # A12
    w = open_world().table("t").table("fine")
    for table in w.specs:
        w.source.load(table, (1, "a"))
    w.loaded()

    def batch(number: int) -> None:
        for table in w.specs:
            w.source.changes(table, I(10 + number, "x"), name=file_name(2 * number))
        w.merged()

    for number in range(5):
        batch(number)
        if number in (1, 3):
            w.sql(f"ALTER TABLE {{t}} CREATE TAG day{number} RETAIN 30 DAYS")
    w.call("expire_snapshots", "t", EVERYTHING)
    w.maintain(tables=["t"])
    w.new_process()
    assert {r.status for r in w.merge().values()} == {"unchanged"}
    for number in (5, 6):
        batch(number)
    rows = [(1, "a"), *((10 + n, "x") for n in range(7))]
    assert w.rows("t") == w.rows("fine") == rows
    w.source.changes("t", U(1, "late"), name=file_name(11))
    for status in ("merged", "unchanged"):
        if status == "merged":
            w.source.changes("fine", U(1, "new"), name=file_name(14))
        done = w.merge()
        assert stopped(done["t"], "late-file") and done["t"].names(file_name(11)) and done["fine"].status == status
    assert w.rows("t") == rows and w.rows("fine") == [(1, "new"), *rows[1:]]
