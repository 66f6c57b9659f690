"""Commits of the Iceberg room: one swap on exactly what was seen, whatever others do in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyroaring import BitMap64

from frazil.iceberg import commits, compaction, expiry, java, row_delta
from frazil.iceberg.commits import PositionMovedError
from frazil.iceberg.locate import scan_files
from frazil.iceberg.read_rows import live_rows
from frazil.iceberg.snapshot_summary import TOKEN
from frazil.iceberg.soundness import RolledBackError, require_sound
from frazil.report.health import measure
from unit.iceberg_world import Kept, replace_position

pytestmark = pytest.mark.spark


def test_a_swap_is_made_on_exactly_the_metadata_that_were_seen(lake):
    w = Kept(lake, "exact", "bigint")
    w.apply_random()
    seen, change = w.table.location, row_delta.write_batch(w.table, w.segments, w.latest(*w.changes(100, 20)))
    w.sql("alter table {t} set tblproperties ('x' = 'y')")  # moves no ref and no snapshot
    with pytest.raises(Exception) as failed:
        w.table.swap(change)
    assert ("CommitFailedException", f"the table is no longer at {seen}") in java.causes(failed.value)
    w.table.refresh()
    w.apply_random()
    w.check()


def test_of_two_writers_at_one_position_one_commits(lake):
    w = Kept(lake, "two", "bigint")
    w.apply_random()
    other = w.opened()
    planned = other.position
    w.apply_random()
    batch = w.latest(*w.changes(100, 30))
    first = commits.written(other, row_delta.write_batch(other, scan_files, batch))
    with pytest.raises(PositionMovedError):
        commits.commit(
            other, first, lambda: row_delta.write_batch(other, scan_files, batch), planned, replace_position(planned)
        )
    w.check()
    assert other.position == w.table.position


def test_a_commit_is_found_by_its_token_however_often_it_is_made(lake, monkeypatch):
    monkeypatch.setattr(commits, "ATTEMPTS", 1)
    w = Kept(lake, "token", "bigint")
    new, gone = w.changes(100, 50)
    planned, batch = w.table.position, w.latest(new, gone)
    first = commits.written(w.table, row_delta.write_batch(w.table, w.segments, batch))
    done = [commits.commit(w.table, first, lambda: pytest.fail("written again"), planned, replace_position(planned)) for _ in "12"]  # fmt: skip
    assert done[0] == done[1] and done[0].summary[TOKEN] == first.token
    w.replay(new, gone)
    w.check()


@pytest.mark.parametrize("others", ["delete from {t} where n % 3 = 0", "alter table {t} set tblproperties ('a' = 'b')"])
def test_what_others_commit_between_write_and_commit_stays(lake, others):
    w = Kept(lake, f"between_{len(others)}", "bigint")
    w.apply_random()
    new, gone = w.changes(100, 20)
    planned, batch, written = w.table.position, w.latest(new, gone), []

    def write():
        written.append(row_delta.write_batch(w.table, w.segments, batch))
        return written[-1]

    first = commits.written(w.table, write())
    w.sql(others)
    if "delete" in others:
        w.rows = {k: v for k, v in w.rows.items() if v[2] % 3}
    commits.commit(w.table, first, write, planned, replace_position(planned))
    assert len(written) == (2 if "delete" in others else 1)  # an ALTER moves no row: the files are used again
    w.replay(new, gone)
    w.check()


def test_files_that_were_written_long_ago_are_written_again(lake, monkeypatch):
    w = Kept(lake, "old", "bigint")
    new, gone = w.changes(100, 20)
    planned, batch = w.table.position, w.latest(new, gone)
    first = commits.written(w.table, row_delta.write_batch(w.table, w.segments, batch))
    for file in first.change.add:
        os.remove(file.path.removeprefix("file://"))
    monkeypatch.setattr(commits, "OLDEST_S", 0)
    commits.commit(w.table, first, lambda: row_delta.write_batch(w.table, w.segments, batch), planned, replace_position(planned))  # fmt: skip
    w.replay(new, gone)
    w.check()


@pytest.mark.parametrize("opened", [False, True], ids=["one table", "opened again"])
def test_a_rollback_stops_the_table_and_its_cure_loses_nothing(lake, opened):
    w = Kept(lake, f"back_{opened}".lower(), "bigint")
    states = []
    for _ in range(4):
        done = w.apply_random()
        states.append((done.id, w.table.position, dict(w.rows)))
    number, position, rows = states[1]
    w.call("rollback_to_snapshot", f", snapshot_id => {number}")
    w.table.refresh()
    with pytest.raises(RolledBackError) as stopped:
        require_sound(w.table)
    lake.session.sql(stopped.value.cure)
    w.table.refresh()
    assert (require_sound(w.table), w.table.position) == ([], position)
    w.rows, w.ids = rows, {}
    if opened:
        w.table = w.opened()
    for _ in range(3):  # in the same process, whose segments know rows that were dead and live again
        w.apply_random()
    w.check()


def test_a_rollback_between_look_and_swap_is_never_written_over(lake):
    w = Kept(lake, "sneaky", "bigint")
    first = w.apply_random()
    w.apply_random()
    planned, batch = w.table.position, w.latest(*w.changes(100, 20))
    change = commits.written(w.table, row_delta.write_batch(w.table, w.segments, batch))
    w.call("rollback_to_snapshot", f", snapshot_id => {first.id}")
    for _ in "12":  # the second time it has looked before
        with pytest.raises(RolledBackError):
            commits.commit(w.table, change, lambda: row_delta.write_batch(w.table, w.segments, batch), planned, replace_position(planned))  # fmt: skip
    assert w.opened().head_id == first.id


@pytest.mark.parametrize("change", ["drop tag frazil", "create or replace tag frazil"])
def test_without_its_tag_the_newest_position_counts(lake, change):
    w = Kept(lake, change.partition(" ")[0], "bigint")
    w.apply_random()
    position = w.table.position
    w.sql("delete from {t} where n = 1")
    w.rows = {k: v for k, v in w.rows.items() if v[2] != 1}
    w.sql(f"alter table {{t}} {change}")
    w.table.refresh()
    assert w.table.position == position
    w.apply_random()
    w.check()
    ref = w.lake.catalog.load_table(w.name).metadata.refs["frazil"]
    assert ref.max_ref_age_ms == 2**63 - 1


def test_rows_are_read_in_blocks_of_few_bytes(lake, monkeypatch):  # B4
    w = Kept(lake, "long", "bigint")
    w.apply({(n,): ("eu", None, n, "x" * 10_000 + str(n)) for n in range(100)}, [])
    (file,) = w.table.live_files.values()
    schema = schema_to_pyarrow(w.table.metadata.schema())
    monkeypatch.setattr("frazil.iceberg.read_rows.BLOCK", 1 << 16)
    blocks = [*live_rows(w.table.io, file, BitMap64([0, 5]), schema)]
    assert max(map(len, blocks)) < 10 and sum(map(len, blocks)) == 98


def test_a_look_needs_no_jvm(lake, tmp_path):
    w = Kept(lake, "quiet", "bigint")
    w.apply_random()
    uri, warehouse = lake.options["uri"].removeprefix("jdbc:sqlite:"), lake.warehouse
    code = f"""
import sys
from pyiceberg.catalog.sql import SqlCatalog
from frazil.iceberg.table import LakeTable
from frazil.iceberg.soundness import require_sound
table = LakeTable(SqlCatalog("lake", uri="sqlite:///{uri}", warehouse="{warehouse}"), "{w.name}", ["k0"], None)
print(table.position.batch, len(table.live_files), require_sound(table), "pyspark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "[]", "False"]


@pytest.mark.parametrize("version", [3, 2])
def test_a_compaction_that_is_overtaken_carries_over_what_was_deleted(lake, version):
    w = Kept(lake, f"carry_v{version}", "string", "int", partitioned="region", version=version)
    for _ in range(5):
        w.apply_random(300, 150)
    other = w.opened()
    for _ in range(3):
        sequence, live = other.head.sequence, other.live_files
        jobs = [(other.metadata, other.io, [live[p] for p in paths], [other.vectors.of(live[p]) for p in paths], 1 << 20) for paths in compaction.plan(other, 1 << 20)]  # fmt: skip
        groups = compaction.here(jobs)
        for _ in range(2):
            w.apply_random(300, 100)
        done = compaction.swap_wave(other, groups, sequence)
        assert done["carried"] and not done["lost"]
        w.table.refresh()
        w.check()
        other.refresh()
    w.apply_random(300, 100)
    w.check()


def test_a_compaction_leaves_out_what_others_brought_back_and_other_partitions(lake):
    w = Kept(lake, "brought", "bigint", partitioned="region")
    for _ in range(3):
        w.apply_random(300, 150)
    w.sql("delete from {t} where n % 2 = 0")
    w.table.refresh()
    sequence, live = w.table.head.sequence, w.table.live_files
    groups = compaction.here([(w.table.metadata, w.table.io, [live[p] for p in paths], [w.table.vectors.of(live[p]) for p in paths], 1 << 20) for paths in compaction.plan(w.table, 1 << 20)])  # fmt: skip
    w.call("rollback_to_snapshot", f", snapshot_id => {w.table.own.id}")
    w.table.refresh()
    assert compaction.swap_wave(w.table, groups, sequence) == {"lost": len(groups)}

    def altered(jobs):
        w.sql("alter table {t} replace partition field region with bucket(4, k0)")
        return compaction.here(jobs)

    assert compaction.compact(w.table, 1 << 20, 1, altered, waits=False)["groups"] == 1
    w.apply_random(300, 150)
    w.check()


def test_ingestion_and_compaction_side_by_side_end_as_the_replay(lake):
    w = Kept(lake, "beside", "bigint")
    for _ in range(5):
        w.apply_random(1000, 300)
    stop, done = threading.Event(), []

    def compacting():
        table = w.opened()
        while not stop.is_set():
            done.append(compaction.compact(table, 1 << 20, 2))

    thread = threading.Thread(target=compacting)
    thread.start()
    until = time.monotonic() + 120
    while sum(d.get("groups", 0) for d in done) < 3 and time.monotonic() < until:
        w.apply_random(1000, 200)
        time.sleep(0.5)
    stop.set()
    thread.join()
    assert sum(d.get("groups", 0) for d in done) >= 3, done
    w.table.refresh()
    w.check()


def test_small_files_are_folded_and_old_snapshots_expire(lake):
    w = Kept(lake, "fold", "bigint")
    for _ in range(17):
        w.apply_random(200, 60)
    assert compaction.fold(w.table)["files"] >= 16 and len(w.table.live_files) == 1
    w.check()
    gone = json.loads(w.table.bridge.expire(w.table.handle, 2**62, 1))
    w.table.refresh()
    assert len(gone) >= 16 and [s.id for s in w.table.ancestors()] == [w.table.head_id]
    w.apply_random(200, 60)
    w.check()


def test_upkeep_tags_past_states_and_keeps_what_they_name(lake, monkeypatch):
    w = Kept(lake, "upkeep", "bigint")
    states = [w.apply_random().id for _ in range(3)]
    now = datetime.now(UTC)
    later = now + timedelta(hours=2)
    wanted = {name: snapshot.id for name, snapshot, _ in expiry.missing_tags(w.table, later, timedelta(days=14))}
    assert {states[-1]} == {*wanted.values()} and f"{now:hour_%Y%m%d_%H}" in wanted
    assert [*expiry.missing_tags(w.table, now, timedelta(days=14))] == []  # the hour is not over
    w.table.handle.manageSnapshots().createTag("hour_old", states[0]).commit()
    health = measure(w.table)
    assert (health["rows"], health["snapshots"], health["files"]) == (len(w.rows), 3, len(w.table.live_files))
    w.table.refresh()
    monkeypatch.setattr(expiry, "missing_tags", lambda *_: [("day_old", w.table.head, timedelta(days=14))])
    assert expiry.keep_states(w.table, timedelta(days=14)) == ["day_old"] and w.table.tags["day_old"] == states[-1]
    assert expiry.expire(w.table, 0.0) == 1 and not expiry.wants_expiry(w.table, 0.0)
    assert {*w.table.tags.values()} == {states[0], states[-1]}
    assert expiry.remove_orphans(w.table, 3) == [] and not expiry.rewrite_manifests(w.table)
    monkeypatch.setattr(expiry, "MOST_METADATA", 0)
    for _ in range(2):
        w.apply_random()
    gone = [
        expiry.expire(w.table, hours) for hours in (1.0, 0.0) if expiry.wants_expiry(w.table, hours) == (hours == 0.0)
    ]
    assert gone == [0, 1]  # none is old; then one lies between two that are named
    w.check()
