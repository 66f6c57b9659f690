"""Exactly once: one snapshot per batch with its position, whatever is killed, moved, rolled back or repeated in between."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import pytest

from frazil_old.config.settings import FullLoadSettings
from frazil_old.flows.plan import plan
from helpers import FILE1, FILE2, FILE3, D, I, U

pytestmark = pytest.mark.spark


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


# --- a commit of unknown outcome


def test_the_limit_of_batches_holds_for_the_whole_run(world):
    world.table("t").load("t", (1, "a")).loaded()
    for name in (FILE1, FILE2, FILE3):
        world.changes("t", U(1, name), name=name)
    done = world.merge(max_batches=2, max_batch_files=1, run_for_s=0.5, trigger_s=0.1)["t"]
    assert (done.counts["batches"], world.rows("t")) == (2, [(1, FILE2)])


def test_plans_change_nothing(world):
    world.table("t").load("t", (1, "a")).setup()
    head = world.head("t")
    assert [p["action"] for p in plan(world.book(FullLoadSettings))] == ["load"]
    assert world.head("t") == head


# --- a writer on another host
