"""Exactly once: one snapshot per batch with its position, whatever is killed, moved, rolled back or repeated in between."""

import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from frazil_old.config.processes import host
from frazil_old.config.settings import FullLoadSettings, MaintenanceSettings
from frazil_old.flows import cdc, maintenance
from frazil_old.flows.plan import plan
from frazil_old.lake import batch_branches, commit, compaction, jvm, merge
from helpers import FILE1, FILE2, FILE3, D, I, Killed, U, small_files

pytestmark = pytest.mark.spark


def before_publish(monkeypatch, do, times=1):
    """Let `do` happen between the write to the branch and its publication."""
    real, left = jvm.publish, [times]

    def publish(*arguments):
        if left[0]:
            left[0] -= 1
            do()
        return real(*arguments)

    monkeypatch.setattr(jvm, "publish", publish)


# --- one snapshot, one position


def test_load_and_merge_are_one_snapshot_each(loaded):
    assert len(loaded.history("t")) == 2  # the first position, the load
    loaded.changes("t", I(4, "d"), U(1, "A"), D(2)).merged()
    assert len(loaded.history("t")) == 3
    assert loaded.rows("t") == [(1, "A"), (3, "c"), (4, "d")]
    assert loaded.branches("t") == []


def test_position_in_property_summary_and_tag_agree_with_the_snapshot(loaded):
    for name in (FILE1, FILE2):
        loaded.changes("t", U(1, name), name=name).merged()
        head, position = loaded.history("t")[0], loaded.position("t")
        summary = dict(head.summary())
        assert (position["snapshot"], position["sequence"]) == (head.snapshotId(), head.sequenceNumber())
        assert {**json.loads(summary["frazil.position"]), "snapshot": 0, "sequence": 0} == {
            **position,
            "snapshot": 0,
            "sequence": 0,
        }
        assert summary["frazil.batch"] == position["batch"]
        assert loaded.iceberg("t").refs().get("frazil").snapshotId() == head.snapshotId()
        assert position["last"] == name


def test_running_again_changes_nothing(loaded):
    loaded.changes("t", U(1, "A")).merged()
    head = loaded.head("t")
    assert {**loaded.setup(), **loaded.full_load()}["t"].status == "unchanged"
    assert loaded.merge()["t"].status == "unchanged"
    assert loaded.head("t") == head


def test_a_batch_that_changes_no_row_still_moves_the_position_with_a_snapshot(loaded):
    head = loaded.head("t")
    loaded.changes("t", D(77)).merged()
    assert loaded.position("t")["last"] == FILE1
    assert loaded.history("t")[1].snapshotId() == head
    assert loaded.history("t")[0].summary()["frazil.kind"] == "changes"
    assert loaded.merge()["t"].status == "unchanged"
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_that_was_set_to_copy_on_write_is_merged_too(loaded, spark):
    spark.sql(f"ALTER TABLE {loaded.name('t')} SET TBLPROPERTIES ('write.merge.mode' = 'copy-on-write')")
    loaded.changes("t", I(4, "d"), U(1, "A"), D(2)).merged()
    assert loaded.rows("t") == [(1, "A"), (3, "c"), (4, "d")]
    assert "added-delete-files" not in loaded.history("t")[0].summary()


def test_another_process_that_writes_to_the_sqlite_catalog_is_waited_for(loaded):
    """Of a SQLite file one connection may write at a time; here another one does, for most of the time."""
    locker = textwrap.dedent("""
        import sqlite3, sys, time
        db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
        print("ready", flush=True)
        while True:
            db.execute("BEGIN IMMEDIATE"); time.sleep(0.25); db.execute("COMMIT"); time.sleep(0.02)
    """)
    file = loaded.catalog_options["uri"].removeprefix("jdbc:sqlite:")
    other = subprocess.Popen([sys.executable, "-c", locker, file], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "ready\n"
        for lane, name in (("merge", FILE1), ("rowdelta", FILE2), ("merge", FILE3)):
            loaded.changes("t", U(1, name), I(int(name[9:15]), lane), name=name).merged(lane=lane)
            assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert dict(loaded.rows("t"))[1] == FILE3 and len(loaded.rows("t")) == 6


def test_two_tables_merged_at_once_do_not_mix_their_summaries(world):
    for name in "abcd":
        world.table(name).load(name, (1, name)).changes(name, *[U(n, name) for n in range(ord(name) - 90)])
    world.loaded().merged(parallel_tables=4)
    for name in "abcd":
        head = world.history(name)[0]
        assert json.loads(head.summary()["frazil.counts"])["changes"] == ord(name) - 90
        assert head.summary()["frazil.batch"] == world.position(name)["batch"]
        assert len(world.history(name)) == 3
        assert {v for _, v in world.rows(name)} == {name}


# --- killed


def test_a_load_killed_before_publishing_leaves_main_untouched_and_is_redone(world, monkeypatch):
    world.table("t").load("t", (1, "a"), (2, "b")).setup()
    head = world.head("t")

    def kill(*_):
        raise Killed

    monkeypatch.setattr(jvm, "publish", kill)
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)  # a process that is gone by the next run
    with pytest.raises(Killed):
        world.full_load()
    monkeypatch.undo()
    assert (world.rows("t"), world.head("t"), len(world.branches("t"))) == ([], head, 1)

    assert world.full_load()["t"].status == "loaded"
    assert (world.rows("t"), world.branches("t")) == ([(1, "a"), (2, "b")], [])
    assert len(world.history("t")) == 2


def test_a_merge_killed_while_writing_is_redone(loaded, monkeypatch):
    def kill(*_):
        raise Killed

    monkeypatch.setattr(merge, "merge", kill)
    loaded.changes("t", I(4, "d"), D(1))
    with pytest.raises(Killed):
        loaded.merge()
    monkeypatch.undo()
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (3, "c")]
    loaded.merged()
    assert loaded.rows("t") == [(2, "b"), (3, "c"), (4, "d")]


def test_the_branch_of_a_living_run_is_left_alone(loaded):
    living, dead = (
        commit.BRANCH_PREFIX + batch_branches.new_batch(),
        f"frazil_20240101T000000_{host()}_{2**22 + 1}_abcdef",
    )
    for branch in (living, dead, "frazil_mine"):
        jvm.fork(loaded.spark, loaded.name("t"), branch, loaded.head("t"))
    assert loaded.setup()["t"].note == "removed 1 branch(es) of killed runs"
    assert loaded.branches("t") == sorted([living, "frazil_mine"])


@pytest.mark.slow
def test_a_process_that_dies_between_write_and_publish_leaves_main_untouched(world):
    world.table("t").load("t", (1, "a"), (2, "b")).setup()
    head, here = world.head("t"), Path(__file__).parent
    program = textwrap.dedent(f"""
        import os, sys
        sys.path[:0] = {[str(here), str(here.parent / "lib")]!r}
        from frazil_old.config.settings import FullLoadSettings
        from frazil_old.flows import full_load
        from frazil_old.flows.workbook import Workbook
        from frazil_old.lake import jvm
        jvm.publish = lambda *_: os._exit(42)
        full_load.run(Workbook(FullLoadSettings(**{asdict(world.book(FullLoadSettings).settings)!r})))
    """)
    died = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FRAZIL_MASTER": "local[1]"},
        capture_output=True,
        timeout=180,
    )
    assert died.returncode == 42, died.stderr[-2000:]
    assert (world.rows("t"), world.head("t"), len(world.branches("t"))) == ([], head, 1)
    assert world.full_load()["t"].status == "loaded"
    assert (world.rows("t"), world.branches("t")) == ([(1, "a"), (2, "b")], [])


# --- others at work


def test_a_compaction_between_write_and_publish_is_seen_and_the_batch_redone(loaded, monkeypatch):
    small_files(loaded, "t", (4, "d"), (5, "e"))
    loaded.changes("t", U(1, "A"), D(4), I(6, "f"))

    def compact():
        loaded.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")

    before_publish(monkeypatch, compact)
    loaded.merged()
    assert loaded.rows("t") == [(1, "A"), (2, "b"), (3, "c"), (5, "e"), (6, "f")]
    assert [s.operation() for s in loaded.history("t")][:2] == ["overwrite", "replace"]
    assert loaded.branches("t") == []


def test_a_compaction_at_the_last_moment_fails_the_swap_and_the_batch_is_redone(loaded, monkeypatch):
    small_files(loaded, "t", (4, "d"), (5, "e"))
    loaded.changes("t", U(1, "A"), D(4))
    real, left = jvm.publish, [1]

    def publish(table, branch, base, metadata):
        def late(**at):
            if left[0]:
                left[0] = 0
                loaded.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")
            return metadata.position(**at)

        return real(table, branch, base, replace(metadata, position=late))

    monkeypatch.setattr(jvm, "publish", publish)
    loaded.merged()
    assert loaded.rows("t") == [(1, "A"), (2, "b"), (3, "c"), (5, "e")]
    assert [s.operation() for s in loaded.history("t")][:2] == ["overwrite", "replace"]


def test_another_run_that_moves_the_position_first_wins_and_nothing_is_doubled(loaded, monkeypatch):
    loaded.changes("t", I(4, "d"), U(9, "i", was=3))
    real_write, first = merge.merge, [True]

    def write(*arguments):
        real_write(*arguments)
        if first.pop() if first else False:
            loaded.merged()

    monkeypatch.setattr(merge, "merge", write)
    result = loaded.merge()["t"]
    assert (result.status, "position moved" in result.note) == ("skipped", True)
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (4, "d"), (9, "i")]
    assert len(loaded.history("t")) == 3
    assert loaded.branches("t") == []


def test_a_position_that_an_operator_sets_meanwhile_is_not_overwritten(loaded, monkeypatch):
    loaded.changes("t", I(4, "d"))
    real, theirs = merge.merge, {}

    def write(*arguments):
        real(*arguments)
        theirs.update({**loaded.position("t"), "last": FILE3})
        loaded.spark.sql(
            f"ALTER TABLE {loaded.name('t')} SET TBLPROPERTIES ('frazil.position' = '{json.dumps(theirs)}')"
        )

    monkeypatch.setattr(merge, "merge", write)
    assert loaded.merge()["t"].status == "skipped"
    assert (loaded.position("t"), len(loaded.rows("t")), loaded.branches("t")) == (theirs, 3, [])


# --- a commit of unknown outcome


@pytest.mark.parametrize("trouble", [RuntimeError("connection reset"), TimeoutError()], ids=["bare", "network"])
def test_a_commit_that_happened_though_it_seemed_to_fail_is_found_and_not_repeated(loaded, monkeypatch, trouble):
    loaded.changes("t", I(4, "d"))
    real = jvm.publish

    def publish(*arguments):
        real(*arguments)
        raise trouble

    monkeypatch.setattr(jvm, "publish", publish)
    result = loaded.merge()["t"]
    assert (result.status, result.counts["added"]) == ("merged", 1)
    assert loaded.rows("t") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert len(loaded.history("t")) == 3


def test_a_java_error_after_the_commit_is_resolved_the_same_way(loaded, monkeypatch):
    loaded.changes("t", I(4, "d"))
    real = jvm.publish

    def publish(*arguments):
        real(*arguments)
        loaded.spark._jvm.java.util.ArrayList().get(7)

    monkeypatch.setattr(jvm, "publish", publish)
    assert loaded.merge()["t"].status == "merged"
    assert len(loaded.history("t")) == 3


def test_a_commit_that_did_not_happen_for_an_unknown_reason_fails_loudly_and_is_not_tried_again(loaded, monkeypatch):
    loaded.changes("t", I(4, "d"))
    calls = []

    def publish(*_):
        calls.append(1)
        raise RuntimeError("no route")

    monkeypatch.setattr(jvm, "publish", publish)
    assert loaded.merge()["t"].failed
    monkeypatch.undo()
    assert (len(calls), loaded.rows("t"), loaded.branches("t")) == (1, [(1, "a"), (2, "b"), (3, "c")], [])
    loaded.merged()
    assert len(loaded.rows("t")) == 4


def test_the_limit_of_batches_holds_for_the_whole_run(world):
    world.table("t").load("t", (1, "a")).loaded()
    for name in (FILE1, FILE2, FILE3):
        world.changes("t", U(1, name), name=name)
    done = world.merge(max_batches=2, max_batch_files=1, run_for_s=0.5, trigger_s=0.1)["t"]
    assert (done.counts["batches"], world.rows("t")) == (2, [(1, FILE2)])


def test_files_that_come_during_a_pass_wait_for_the_next(world, monkeypatch):
    world.table("t").load("t", (1, "a")).loaded().changes("t", U(1, "b"), name=FILE1)
    apply = cdc.apply_batch

    def with_a_newcomer(*arguments):
        world.changes("t", U(1, "c"), name=FILE2)
        return apply(*arguments)

    monkeypatch.setattr(cdc, "apply_batch", with_a_newcomer)
    assert world.merge()["t"].counts["files"] == 1
    assert world.rows("t") == [(1, "b")]


def test_plans_change_nothing(world):
    world.table("t").load("t", (1, "a")).setup()
    head = world.head("t")
    assert [p["action"] for p in plan(world.book(FullLoadSettings))] == ["load"]
    assert world.head("t") == head


# --- a writer on another host


def branch_of(host: str, age_s: int, kind: str = "") -> str:
    began = time.strftime("%Y%m%dt%H%M%S", time.gmtime(time.time() - age_s))
    return f"frazil_{began}_{host}_4711_0a0b0c{kind}"


def test_a_branch_of_another_host_is_judged_by_progress(world, monkeypatch):
    """A dead batch goes after ten times the usual, or once the position has passed it; a load may take its time."""
    for table in ("silent", "young", "passed", "loading"):
        world.table(table).load(table, (1, "a"))
    world.loaded()
    for table in world.specs:
        world.changes(table, U(1, "b"))
    world.merged()
    made = {"silent": branch_of("0badcafe", 3600), "young": branch_of("0badcafe", 5), "passed": branch_of("0badcafe", 6), "loading": branch_of("0badcafe", 7200, "_load")}  # fmt: skip
    for table, branch in made.items():
        jvm.fork(world.spark, world.name(table), branch, world.head(table))
    world.changes("passed", U(1, "c"), name=FILE2).merged(tables=["public.passed"])
    monkeypatch.setattr(compaction, "ATTEMPTS", 1)
    monkeypatch.setattr(compaction, "WAIT_FOR_WRITER_S", 0.1)
    asked = {"dry_run": False, "max_small_files": 0}
    kept = {r.table.split(".")[1]: r.counts for r in maintenance.run(world.book(MaintenanceSettings, **asked))}
    assert [t for t in made if world.branches(t)] == ["young", "loading"]
    assert kept["silent"]["file_groups"] == kept["passed"]["file_groups"] == 1, kept


def test_a_living_writer_whose_branch_was_removed_writes_its_batch_again(loaded, monkeypatch):
    def drop():
        for branch in loaded.branches("t"):
            jvm.drop_branch(loaded.spark, loaded.name("t"), branch)

    before_publish(monkeypatch, drop)
    loaded.changes("t", I(4, "d"), U(1, "A"), D(2)).merged(lane="merge")
    assert loaded.rows("t") == [(1, "A"), (3, "c"), (4, "d")] and loaded.branches("t") == []
