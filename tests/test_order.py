"""Order and meaning of changes: the last change per key is applied, whatever the files, commits and key changes between."""

import random

import pytest

from helpers import FILE1, FILE2, FILE3, D, I, U

pytestmark = pytest.mark.spark


def test_insert_update_delete_in_one_commit_leaves_nothing(world):
    world.table("t").changes("t", I(1, "a"), U(1, "b"), D(1))
    assert world.collapsed("t") == {1: None}


def test_delete_then_reinsert_keeps_latest(world):
    world.table("t").changes("t", I(1, "a"), D(1), I(1, "b"), D(2), I(2, "c"), U(2, "d"))
    assert world.collapsed("t") == {1: (1, "b"), 2: (2, "d")}


def test_a_newer_file_wins_over_an_older_one_even_with_earlier_commit_times(world):
    world.table("t")
    world.changes("t", U(1, "new", ts="2024-01-01 00:00:00.000000"), name=FILE2)
    world.changes("t", U(1, "old", ts="2024-01-02 00:00:00.000000"), name=FILE1)
    assert world.collapsed("t") == {1: (1, "new")}


def test_files_order_by_base_name_and_not_by_folder(world):
    world.table("t")
    world.changes("t", U(1, "second"), name="a/" + FILE2)
    world.changes("t", U(1, "first"), name="b/" + FILE1)
    assert world.collapsed("t") == {1: (1, "second")}


def test_a_collapsed_batch_carries_nothing_but_what_the_lanes_read(world):
    world.table("t").changes("t", U(2, "a", was=1))
    assert world.collapse("t").rows.column_names == ["op", "c0", "c1", "stored_key0"]


def test_a_key_change_deletes_the_old_row_and_writes_the_new(world):
    world.table("t").changes("t", U(2, "a", was=1))
    assert world.collapsed("t") == {1: None, 2: (2, "a")}


def test_an_update_whose_old_key_is_its_key_deletes_nothing(world):
    world.table("t").changes("t", U(1, "a", was=1))
    assert world.collapsed("t") == {1: (1, "a")}


def test_a_chain_of_key_changes_leaves_the_last_link(world):
    world.table("t").changes("t", I(1, "a"), U(2, "a", was=1), U(3, "b", was=2), U(4, "c", was=3))
    assert world.collapsed("t") == {1: None, 2: None, 3: None, 4: (4, "c")}


def test_a_chain_of_key_changes_over_files(world):
    world.table("t").changes("t", U(2, "a", was=1), name=FILE1).changes("t", U(3, "b", was=2), name=FILE2)
    assert world.collapsed("t") == {1: None, 2: None, 3: (3, "b")}


def test_two_rows_swap_their_keys(world):
    world.table("t").changes("t", U(99, "a", was=1), U(1, "b", was=2), U(2, "a", was=99))
    assert world.collapsed("t") == {1: (1, "b"), 2: (2, "a"), 99: None}


@pytest.mark.parametrize(
    "changes",
    [
        (U(2, "one", was=1), U(1, "two", was=2)),  # swapped by one statement
        (U(2, "one", was=1), U(3, "two", was=2), U(1, "three", was=3)),
        (U(2, "one", was=1), U(3, "two", was=2), U(4, "three", was=3)),  # SET id = id + 1
        (*(U(n + 1, "x", was=n) for n in (1, 2, 3)), *(U(n + 1, "x", was=n) for n in (2, 3, 4))),  # and again
    ],
)
@pytest.mark.parametrize("lane", ["merge", "rowdelta"])
def test_keys_changed_among_stored_rows_by_one_statement_stop_the_table(world, lane, changes):
    world.table("t").load("t", (1, "one"), (2, "two"), (3, "three")).loaded()
    before = world.rows("t")
    world.changes("t", *changes)
    (result,) = world.merge(lane=lane).values()
    assert result.failed and "a row was given the key of another one" in result.note and "(id=" in result.note
    assert "on_changed_load=reload" in result.note
    assert world.rows("t") == before


@pytest.mark.parametrize("lane", ["merge", "rowdelta"])
def test_a_row_may_pass_keys_that_are_free_or_set_free_before(world, lane):
    world.table("t").load("t", (1, "one"), (3, "three"), (8, "eight")).loaded()
    before, other = "2024-01-01 09:00:00.000000", "2024-01-01 10:00:09.000000"
    world.changes("t", U(2, "a", was=1), U(1, "b", was=2))  # there and back
    world.changes(
        "t", D(8, ts=before), U(8, "c", was=3), U(3, "c", was=8), U(8, "c", was=3), U(9, "d", was=8), name=FILE2
    )
    world.changes("t", I(5, "e"), U(6, "f", was=5), U(7, "g", was=6, ts=other), name=FILE3)
    world.merged(lane=lane)
    assert world.rows("t") == [(1, "b"), (7, "g"), (9, "d")]


def test_a_key_is_changed_and_the_old_key_used_again(world):
    world.table("t").changes("t", U(2, "a", was=1), I(1, "fresh"))
    assert world.collapsed("t") == {1: (1, "fresh"), 2: (2, "a")}


def test_a_key_is_changed_to_one_that_was_deleted_before(world):
    world.table("t").changes("t", D(2), U(2, "a", was=1))
    assert world.collapsed("t") == {1: None, 2: (2, "a")}


def test_one_part_of_a_composite_key_changes(world):
    world.table("t", "a INT8", "b WSTRING(9)", "v WSTRING(9)", key=("a", "b"))
    world.changes("t", I(1, "x", "v"), U(1, "y", "w", was=(1, "x")), U(2, "y", "w", was=(1, "y")))
    assert world.collapsed("t") == {(1, "x"): None, (1, "y"): None, (2, "y"): (2, "y", "w")}


@pytest.mark.parametrize("null", ["", "NULL"])
def test_a_key_that_was_an_empty_text_changes(new_world, null):
    world = new_world(CsvNullValue=null)
    world.table("t", "a INT8", "b WSTRING(9)", "v WSTRING(9)", key=("a", "b"))
    world.changes("t", I(1, "", "v"), I(2, "", "v"), U(2, "", "w"), U(1, "x", "w", was=(1, "")))
    assert world.collapsed("t") == {(1, ""): None, (1, "x"): (1, "x", "w"), (2, ""): (2, "", "w")}
    world.table("s", "id WSTRING(9)", "v WSTRING(9)").changes("s", U("y", "w", was=""), U("z", "w"))
    assert world.collapsed("s") == {"": None, "y": ("y", "w"), "z": ("z", "w")}


def test_without_before_image_columns_the_old_key_is_not_known(world):
    world.rules = {"rules": []}
    world.table("t").changes("t", U(2, "a", was=1))
    assert world.collapsed("t") == {2: (2, "a")}


def test_changes_that_contradict_the_sequence_are_counted_and_file_order_stands(world):
    def seq(hundredths, counter=1):
        return f"20240101000000{hundredths:02}{counter:019}"

    world.table("t").load("t", (1, "a")).loaded()
    world.changes(
        "t", U(1, "late", seq=seq(5)), U(1, "early", seq=seq(3)), U(2, "x", seq=seq(5, 60)), U(2, "y", seq=seq(5, 4))
    )
    world.merged()
    assert world.rows("t") == [(1, "early"), (2, "y")]
    assert any("1 change out of DMS's own sequence" in line for line in world.said)
    assert '"out_of_sequence":1' in world.history("t")[0].summary()["frazil.counts"]


def test_an_update_of_a_missing_key_inserts_and_a_delete_of_one_does_nothing(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(2, "b"), D(3), U(5, "e", was=4))
    world.merged()
    assert world.rows("t") == [(1, "a"), (2, "b"), (5, "e")]


def test_a_value_goes_to_null_and_back(world):
    world.table("t").load("t", (1, "a"), (2, None)).loaded()
    world.changes("t", U(1, None), U(2, "b")).merged()
    assert world.rows("t") == [(1, None), (2, "b")]
    world.changes("t", U(1, "c"), U(2, None), name=FILE2).merged()
    assert world.rows("t") == [(1, "c"), (2, None)]


def test_a_chain_of_key_changes_over_batches(world):
    world.table("t").load("t", (1, "a"), (7, "z")).loaded()
    world.changes("t", U(2, "b", was=1), name=FILE1).changes("t", U(3, "c", was=2), name=FILE2).changes(
        "t", U(1, "d", was=3), name=FILE3
    )
    world.merged(max_batch_files=1)
    assert world.rows("t") == [(1, "d"), (7, "z")]


def test_keys_with_quotes_backslashes_and_dollars_are_found(world):
    keys = ["'", "O'Brien", "a\\", "${spark.app.name}", '"', "\n", "🚀", "", "zz"]
    world.table("t", "id WSTRING(99)", "v WSTRING(9)").load("t", *[(k, "old") for k in keys]).loaded()
    for n, k in enumerate(keys):
        world.changes("t", U(k, "new"), name=f"20240101-1000{n:02}000.csv")
    world.merged(max_batch_files=3)
    assert world.rows("t") == sorted([(k, "new") for k in keys], key=repr)


# --- random histories against a replay in plain Python


def random_history(rng, key) -> tuple[list, list, dict]:
    """Return rows of a load, changes after it, and the rows they lead to; `key(n)` makes a key, as a tuple."""
    keys = [key(n) for n in range(6)]
    load = [(*k, f"load{n}") for n, k in enumerate(keys) if rng.random() < 0.5]
    state = {row[:-1]: row for row in load}
    changes = []
    for n in range(rng.randint(1, 25)):
        k, v = rng.choice(keys), rng.choice([None, "", f"v{n}", f"line\n{n}", f'"{n}",'])
        free = [f for f in keys if f not in state]
        kind = rng.choice("IUUDK")
        if kind == "K" and k in state and free:  # the key itself is changed
            new = rng.choice(free)
            changes.append(U(*new, v, was=k if len(k) > 1 else k[0]))
            del state[k]
            state[new] = (*new, v)
        elif kind == "D":  # now and then of a key that is not there
            changes.append(D(*k))
            state.pop(k, None)
        else:  # now and then an insert of a key that is there, or an update of one that is not
            changes.append((I if kind == "I" else U)(*k, v))
            state[k] = (*k, v)
    return load, changes, state


def interleaved(rng, histories) -> list:
    """Mix the changes of several histories, each keeping its own order."""
    turns = [n for n, changes in enumerate(histories) for _ in changes]
    rng.shuffle(turns)
    ahead = [iter(changes) for changes in histories]
    return [next(ahead[n]) for n in turns]


ODD = ["plain", "O'Brien", "back\\", "${x}", "ü", "🚀"]
KEYS = {
    "numbers": (("id INT8", "v WSTRING(99)"), "id", lambda history: lambda n: (history * 100 - 3000 + n,)),
    "texts": (("id WSTRING(99)", "v WSTRING(99)"), "id", lambda history: lambda n: (f"{ODD[n]} {history}",)),
    "pairs": (
        ("a INT4", "b WSTRING(99)", "v WSTRING(99)"),
        ("a", "b"),
        lambda history: lambda n: (history * 10 + n % 2, ODD[n]),
    ),
}


def test_two_hundred_random_histories_end_as_a_plain_replay_does(world):
    rng, expected = random.Random(20240612), {}
    for name, (columns, key, keys_of) in KEYS.items():
        world.table(name, *columns, key=key)
        histories = [random_history(rng, keys_of(number)) for number in range(67)]
        world.load(name, *[row for load, _, _ in histories for row in load])
        changes = interleaved(rng, [changes for _, changes, _ in histories])
        cuts = sorted(rng.sample(range(1, len(changes)), 9))
        for n, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(changes)], strict=True)):
            world.changes(name, *changes[start:end], name=f"20240101-10{n:02}00000.csv")
        expected[name] = sorted([row for _, _, state in histories for row in state.values()], key=repr)
    world.loaded()
    world.merged(max_batches=1, max_batch_files=1)
    world.merged(max_batch_files=3, max_batch_mb=1)
    for name in KEYS:
        assert world.rows(name) == expected[name], name
        assert world.position(name)["last"] == "20240101-100900000.csv"
