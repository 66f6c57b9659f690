"""Eight small cases in which a plain "newest row per key, then MERGE" goes wrong; each must come out right here."""

import pytest

from helpers import FILE1, FILE2, FILE3, D, I, U

pytestmark = pytest.mark.spark

EARLY, LATE = "2024-01-01 09:00:00.000000", "2024-01-01 09:59:00.000000"
KEYS = range(50)


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", *[(k, "old") for k in KEYS]).loaded()


def test_insert_and_update_with_one_timestamp(loaded):
    new = [k + 100 for k in KEYS]
    loaded.changes("t", *[c for k in new for c in (I(k, "first", ts=LATE), U(k, "second", ts=LATE))]).merged()
    assert [v for k, v in loaded.rows("t") if k >= 100] == ["second"] * 50


def test_the_same_with_the_timestamps_the_wrong_way_round(loaded):
    changes = [c for k in KEYS for c in (U(k, "first", ts=LATE), U(k, "second", ts=EARLY))]
    loaded.changes("t", *changes).merged()
    assert {v for _, v in loaded.rows("t")} == {"second"}, "the file's order counts, not the time"


def test_an_older_batch_that_is_written_again(loaded):
    loaded.changes("t", *[U(k, "new", ts=LATE) for k in KEYS], name=FILE2).merged()
    before = loaded.rows("t")
    loaded.changes("t", *[U(k, "older", ts=EARLY) for k in KEYS], name=FILE1)
    result = loaded.merge()["t"]
    assert result.failed and result.decision and "arrived late" in result.note
    assert loaded.rows("t") == before


def test_an_update_that_arrives_after_the_later_delete(loaded):
    loaded.changes("t", D(1, ts=LATE), name=FILE2).merged()
    loaded.changes("t", U(1, "risen", ts=EARLY), name=FILE1)
    assert loaded.merge()["t"].failed, "a row is not raised from the dead by a file that arrived late"
    assert 1 not in dict(loaded.rows("t"))
    (loaded.root / "source/public/t" / FILE1).unlink()
    loaded.changes("t", U(2, "x", ts=LATE), D(2, ts=EARLY), name=FILE3).merged()
    assert 2 not in dict(loaded.rows("t")), "within a file the order of rows counts"


def test_a_key_that_changes(loaded):
    loaded.changes("t", U(101, "moved", was=1), U(102, "moved", was=101)).merged()
    rows = dict(loaded.rows("t"))
    assert (1 in rows, 101 in rows, rows[102]) == (False, False, "moved") and len(rows) == 50


def test_an_update_that_does_not_carry_an_unchanged_column(new_world):
    w = new_world(UseCsvNoSupValue=True, CsvNoSupValue="?unlogged?")
    w.table("t", "id INT8", "v WSTRING(99)", "big NCLOB").load("t", (1, "a", "long"), (2, "b", "long"))
    w.loaded().changes("t", U(1, "A", "?unlogged?"), U(2, "B", None)).merged()
    assert w.rows("t") == [(1, "A", "long"), (2, "B", None)], "not carried, and null, are two things"


def test_one_value_that_is_no_number(new_world):
    w = new_world().table("t", "id INT8", "n INT4").load("t", (1, 1)).loaded()
    w.changes("t", U(1, 2), name=FILE1).changes("t", I(2, 3), I(3, "abc"), name=FILE2)
    w.table("other").load("other", (1, "a"))
    w.setup(), w.full_load()
    w.changes("other", U(1, "b"))
    done = w.merge(max_batch_files=1)
    note = done["t"].note
    assert all(s in note for s in (FILE2, "row 2", "column 'n'", "'abc'")), note
    assert dict(w.rows("t"))[1] == 2, "the batches before it stand"
    assert 3 not in dict(w.rows("t")) and w.rows("other") == [(1, "b")], "and other tables go on"
