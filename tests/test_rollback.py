"""Rollbacks: a table that was rolled back stops, and goes on by the statement that its error names; histories that expired."""

import pytest

from frazil_old.lake.rollback import RolledBackError
from frazil_old.lake.tables import read_table_state
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, D, I, U, small_files

pytestmark = pytest.mark.spark


def test_a_table_rolled_back_below_its_position_is_refused(loaded):
    before = loaded.head("t")
    loaded.changes("t", I(4, "d")).merged()
    loaded.call("rollback_to_snapshot", "t", f", snapshot_id => {before}")
    with pytest.raises(RolledBackError, match="to continue from the load: ALTER TABLE"):
        read_table_state(loaded.spark, loaded.name("t"))
    small_files(loaded, "t", (5, "e"))  # a newer snapshot on top hides nothing
    assert "was rolled back" in loaded.merge()["t"].note
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (3, "c"), (5, "e")]


@pytest.mark.parametrize("back", [1, 2, 3], ids=["to a compaction", "to the load", "to the start"])
def test_following_the_cure_of_a_rollback_applies_the_lost_changes_again(loaded, back):
    loaded.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")
    loaded.changes("t", I(4, "d"), D(1)).merged()
    loaded.call("rollback_to_snapshot", "t", f", snapshot_id => {loaded.history('t')[back].snapshotId()}")
    with pytest.raises(RolledBackError) as refusal:
        read_table_state(loaded.spark, loaded.name("t"))
    loaded.spark.sql(refusal.value.cure.split(": ", 1)[1])
    loaded.full_load()
    loaded.merged()
    assert loaded.rows("t") == [(2, "b"), (3, "c"), (4, "d")]


def test_after_a_rollback_a_reload_takes_another_load_and_never_the_applied_one_without_its_changes(loaded):
    before = loaded.head("t")
    loaded.changes("t", I(4, "d")).merged()
    loaded.call("rollback_to_snapshot", "t", f", snapshot_id => {before}")
    assert "was rolled back" in loaded.full_load(on_changed_load="reload")["t"].note
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (3, "c")]
    assert loaded.full_load(on_changed_load="replay")["t"].status == "replayed"
    loaded.merged()
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    loaded.call("rollback_to_snapshot", "t", f", snapshot_id => {before}")
    loaded.load("t", (4, "new"))
    assert loaded.full_load(on_changed_load="reload")["t"].status == "reloaded" and loaded.rows("t") == [(4, "new")]


def test_an_expired_history_is_accepted_while_the_tag_holds(loaded):
    small_files(loaded, "t", (4, "d"), (5, "e"), (6, "f"))
    loaded.call("expire_snapshots", "t", ", older_than => timestamp '2999-01-01', retain_last => 1")
    assert len(loaded.history("t")) == 1  # the load's own snapshot lies beyond the gap, held by the tag
    loaded.changes("t", D(4)).merged()
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (3, "c"), (5, "e"), (6, "f")]


def test_an_idle_table_that_was_compacted_more_than_once_goes_on(loaded):
    for _ in range(2):
        loaded.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")
    loaded.call("expire_snapshots", "t", ", older_than => timestamp '2999-01-01', retain_last => 1")
    assert loaded.changes("t", I(4, "d")).merged().rows("t") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


@pytest.mark.parametrize("change, after", [(I(4, "d"), [1, 2, 3, 4]), (D(1), [2, 3])], ids=["rows", "deletes"])
def test_a_rollback_whose_snapshots_expired_is_refused(loaded, change, after):
    before = loaded.head("t")
    loaded.changes("t", change).merged()
    loaded.call("rollback_to_snapshot", "t", f", snapshot_id => {before}")
    small_files(loaded, "t", (5, "e"), (6, "f"))
    loaded.call("expire_snapshots", "t", ", older_than => timestamp '2999-01-01', retain_last => 1")
    assert "may have been rolled back" in loaded.merge()["t"].note
    assert loaded.full_load(on_changed_load="replay")["t"].status == "replayed"
    assert [r[0] for r in loaded.merged().rows("t")] == after


def test_a_table_without_history_goes_on_where_others_removed_files_of_its_position(loaded):
    loaded.changes("t", I(4, "d")).merged()
    loaded.spark.sql(f"DELETE FROM {loaded.name('t')} WHERE id = 4")
    small_files(loaded, "t", (5, "e"))
    loaded.call("expire_snapshots", "t", ", older_than => timestamp '2999-01-01', retain_last => 1")
    note = loaded.merge()["t"].note
    assert "may have been rolled back" in note
    loaded.spark.sql(note[note.index("ALTER TABLE") :])
    assert loaded.changes("t", U(1, "x"), name=FILE2).merged().rows("t") == [(1, "x"), (2, "b"), (3, "c"), (5, "e")]


def test_an_expired_history_without_the_tag_is_refused(loaded):
    small_files(loaded, "t", (4, "d"), (5, "e"), (6, "f"))
    loaded.spark.sql(f"ALTER TABLE {loaded.name('t')} DROP TAG frazil")
    loaded.call("expire_snapshots", "t", ", older_than => timestamp '2999-01-01', retain_last => 1")
    with pytest.raises(RolledBackError, match="history of its position is gone"):
        read_table_state(loaded.spark, loaded.name("t"))


def test_a_table_whose_history_is_gone_is_mended_by_the_cure_it_names(world):
    world.table("t").load("t", (1, "a")).loaded().changes("t", U(1, "b")).merged()
    world.iceberg("t").manageSnapshots().removeTag("frazil").commit()
    world.spark.sql(f"INSERT INTO {world.name('t')} VALUES (9, 'foreign')")
    world.iceberg("t").expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    note = world.merge()["t"].note
    assert "history of its position is gone" in note and "run 01_full_load with on_changed_load=replay" in note
    assert world.full_load(on_changed_load="replay")["t"].status == "replayed"
    world.merged()
    assert world.rows("t") == [(1, "b")]


@pytest.mark.parametrize("policy", ["append", "multiset"])
def test_a_table_that_was_rolled_forward_again_repeats_no_batch(world, policy):
    world.rules = {"rules": []}
    world.table("t", key=()).specs["t"]["without_key"] = policy
    world.table_file("t").write("t", LOAD1, f"{ONE_COMMIT},1,a\n").loaded().write(
        "t", FILE1, f"I,{ONE_COMMIT},2,b\n"
    ).merged()
    newest, load = (snapshot.snapshotId() for snapshot in world.history("t")[:2])
    world.call("rollback_to_snapshot", "t", f", snapshot_id => {load}")
    note = world.merge()["t"].note
    world.spark.sql(note[note.index("ALTER TABLE") :])
    world.call("set_current_snapshot", "t", f", snapshot_id => {newest}")
    note = world.merge()["t"].note
    assert "newer than its position" in note and len(world.rows("t")) == 2
    world.spark.sql(note[note.index("ALTER TABLE") :])
    world.write("t", FILE2, f"I,{ONE_COMMIT},3,c\n").merged()
    assert [r[:2] for r in world.rows("t")] == [(1, "a"), (2, "b"), (3, "c")]


def test_after_a_rollback_to_the_start_files_that_came_late_keep_their_order(loaded):
    loaded.changes("t", U(1, "noon"), name=FILE2).merged()
    loaded.changes("t", U(1, "later", ts="2024-01-01 11:00:00"), name=FILE1).merged(late_files="after")
    loaded.call("rollback_to_snapshot", "t", f", snapshot_id => {loaded.history('t')[-1].snapshotId()}")
    note = loaded.merge()["t"].note
    loaded.spark.sql(note[note.index("ALTER TABLE") :])
    assert loaded.full_load()["t"].status == "loaded"
    assert loaded.merged().rows("t") == [(1, "later"), (2, "b"), (3, "c")]
