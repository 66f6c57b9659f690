"""Partial rows (CsvNoSupValue): what the source's log did not carry stays as it was, through chains of key changes too."""

import random

import pytest

from helpers import FILE2, D, I, U

pytestmark = pytest.mark.spark
NOT = "?not logged?"


@pytest.fixture
def partial(new_world):
    world = new_world(UseCsvNoSupValue=True, CsvNoSupValue=NOT, CsvNullValue="NULL")
    return world.table("t", "id INT8", "a WSTRING(99)", "b INT4")


def test_missing_null_and_empty_stay_three_things(partial):
    partial.load("t", *[(n, "old", 7) for n in range(1, 5)]).loaded()
    partial.changes("t", U(1, NOT, 8), U(2, None, NOT), U(4, NOT, NOT))
    partial.write("t", FILE2, f"U,2024-01-01 09:59:00.000000,3,,{NOT},,\n")
    partial.merged()
    assert partial.rows("t") == [(1, "old", 8), (2, None, 7), (3, "", 7), (4, "old", 7)]


def test_partial_rows_fold_into_each_other_and_a_delete_clears(partial):
    partial.load("t", *[(n, "old", 7) for n in range(1, 5)]).loaded()
    partial.changes("t", U(1, "new", NOT), U(1, NOT, 8))
    partial.changes("t", U(2, "x", NOT), D(2), U(2, NOT, 9), I(5, "five", 5), U(5, NOT, 6), name=FILE2).merged()
    assert partial.rows("t") == [(1, "new", 8), (2, None, 9), (3, "old", 7), (4, "old", 7), (5, "five", 6)]


def test_a_row_whose_key_changed_brings_its_unlogged_values_along(partial):
    partial.load("t", (1, "one", 1), (2, "two", 2), (3, "three", 3)).loaded()
    partial.changes("t", U(11, NOT, NOT, was=1), U(9, NOT, NOT, was=2), U(2, NOT, NOT, was=3), U(3, NOT, 33, was=9))
    partial.merged()
    assert partial.rows("t") == [(11, "one", 1), (2, "three", 3), (3, "two", 33)]


def test_a_long_chain_within_one_batch_ends_with_the_first_rows_values(partial):
    partial.load("t", (0, "first", 0)).loaded()
    partial.changes("t", *[U(n + 1, NOT, n if n == 20 else NOT, was=n) for n in range(40)]).merged()
    assert partial.rows("t") == [(40, "first", 20)]


def test_keys_changed_among_stored_partial_rows_stop_the_table_also_where_more_came_after(partial):
    partial.load("t", (1, "one", 1), (2, "two", 2)).loaded()
    partial.changes("t", U(2, NOT, NOT, was=1), U(3, NOT, NOT, was=2), U(2, NOT, 9, ts="2024-01-01 10:00:09.000000"))
    (result,) = partial.merge().values()
    assert result.failed and "a row was given the key of another one" in result.note
    assert partial.rows("t") == [(1, "one", 1), (2, "two", 2)]


def test_random_partial_histories_end_as_a_plain_replay_does(partial):
    rng = random.Random(4)
    state = {n: (n, f"load{n}", n) for n in range(0, 60, 2)}
    partial.load("t", *state.values()).loaded()
    changes = []
    for n in range(600):
        k, kind = rng.randrange(60), rng.choice("IUUUUKKD")
        values = tuple(v if kind == "I" or rng.random() < 0.4 else NOT for v in (rng.choice([f"v{n}", None]), n))
        new = rng.randrange(60)
        moves = kind == "K" and k in state and new not in state
        if kind == "D":
            state.pop(k, None)
            changes.append(D(k))
            continue
        old, at = (state.pop(k), new) if moves else (state.get(k, (k, None, None)), k)
        state[at] = (at, *[o if v == NOT else v for v, o in zip(values, old[1:], strict=True)])
        changes.append(I(at, *values) if kind == "I" else U(at, *values, was=k if moves else None))
    for f in range(6):
        partial.changes("t", *changes[f * 100 : f * 100 + 100], name=f"20240101-10{f:02}00000.csv")
    partial.merged(max_batch_files=1, max_batches=2)
    partial.merged()
    assert partial.rows("t") == sorted(state.values(), key=repr)
