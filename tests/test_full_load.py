"""The full load: keys that it holds twice, changes that wait for it, tables that were empty."""

import pytest

from helpers import LOAD1, I, U

pytestmark = pytest.mark.spark


def test_a_key_that_a_load_holds_twice_is_named_with_its_file(world):
    world.table("t").load("t", (1, "a"), (7, "x")).load("t", (7, "y"), name="LOAD00000002.csv").setup()
    note = world.full_load()["t"].note
    assert "id=7 is 2 times in" in note and LOAD1 in note and "LOAD00000002.csv" in note
    assert (world.rows("t"), world.branches("t")) == ([], [])


@pytest.mark.parametrize("numbers", [[-40000, -1, 0, 1, 32768, 32769], [-(2**63), 0, 2**63 - 1], [5]])
def test_whole_numbers_as_keys_are_told_apart_wherever_they_lie(world, numbers):
    rows = [(n, "a") for n in numbers]
    world.table("t").load("t", *rows).setup()
    assert world.full_load()["t"].counts["rows"] == len(numbers)
    world.load("t", *rows, (numbers[0], "b"))
    note = world.full_load(on_changed_load="reload")["t"].note
    assert f"id={numbers[0]} is 2 times in" in note and set(world.rows("t")) == set(rows)


def test_a_key_that_two_folders_of_a_load_hold_is_named_with_both(world):
    world.table("t").load("t", (7, "x"), name="p0/" + LOAD1).load("t", (7, "y"), name="p1/" + LOAD1).setup()
    note = world.full_load()["t"].note
    assert f"t/p0/{LOAD1}" in note and f"t/p1/{LOAD1}" in note


def test_changes_are_held_back_until_the_load_is_applied(world):
    world.table("t").changes("t", U(1, "newer")).setup()
    assert (world.merge()["t"].status, world.rows("t")) == ("waiting", [])
    world.load("t", (1, "older"), (2, "b")).full_load()
    world.merged()
    assert world.rows("t") == [(1, "newer"), (2, "b")]


def test_a_table_that_was_empty_at_its_load_takes_its_changes(world):
    world.table("t").setup()
    assert world.full_load()["t"].status == "empty"
    world.changes("t", I(1, "a"))
    world.merged()
    assert (world.rows("t"), world.full_load()["t"].status) == ([(1, "a")], "unchanged")
    world.load("t", (2, "b"))
    assert "on_changed_load=replay" in world.full_load()["t"].note
