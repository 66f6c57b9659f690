"""Maintenance during ingestion: no row changes, deletes that arrive during a rewrite are carried over, the ledger is exact."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

from frazil_old.config.settings import LatencySettings, MaintenanceSettings, ParameterError
from frazil_old.flows import cdc, ledger
from frazil_old.flows import maintenance as flow
from frazil_old.lake import (
    batch_branches,
    compaction,
    jvm,
    jvm_data_files,
    jvm_maintenance,
    maintenance_actions,
    maintenance_plan,
    snapshot_expiry,
    state_tags,
)
from frazil_old.lake.data_file_writer import DataFileWriter
from frazil_old.lake.maintenance_plan import measure
from frazil_old.lake.snapshot_log import KeptSnapshot, KeptSnapshots, read_kept_snapshots
from frazil_old.lake.state_tags import states_to_tag
from helpers import FILE1, FILE2, FILE3, D, I, U
from lake_reader import metadata_of

pytestmark = pytest.mark.spark
S = MaintenanceSettings()


def quiet(_):
    pass


@pytest.fixture(params=[3, 2], ids=["v3", "v2"])
def table(request, world):
    """A Frazil table of 400 rows in four files, one row of it updated, two deleted."""
    world.table("t").load("t", *[(i, "old") for i in range(100)])
    world.given["query_engines"] = ["spark"] if request.param == 3 else ["trino"]
    world.loaded()
    world.spark.sql(
        f"insert into {world.name('t')} select id, 'old' from range(100, 400, 1, 3)"
    )  # a file per partition
    world.spark.sql(
        f"""merge into {world.name("t")} t using (select explode(array(3, 150, 250)) id) c on t.id = c.id
            when matched and t.id = 250 then update set v = 'new' when matched then delete"""
    )
    assert files(world) >= 4
    assert world.iceberg("t").operations().current().formatVersion() == request.param
    return world


def files(world, table="t") -> int:
    return world.spark.sql(f"select * from {world.name(table)}.files where content = 0").count()


def meanwhile(monkeypatch, *steps):
    """Run a step each time that a file group has been rewritten or is about to be committed, before its deletes are read."""
    left, real = list(steps), compaction._after_the_batch_in_flight

    def during(spark, name):
        table = real(spark, name)
        if left:
            left.pop(0)()
        return table

    monkeypatch.setattr(compaction, "_after_the_batch_in_flight", during)


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_without_a_key_is_compacted_with_its_equal_rows(world, monkeypatch, version):
    name, real = f"{world.name('t').rsplit('.', 1)[0]}.keyless{version}", compaction._rewrite
    world.table("t").setup()
    world.spark.sql(f"create table {name} (a int, v string) using iceberg tblproperties ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')")  # fmt: skip
    for _ in range(3):
        world.spark.sql(
            f"insert into {name} select if(id % 4 = 0, null, cast(id % 10 as int)), 'v' from range(0, 40, 1, 1)"
        )

    def slow(*a):
        out = real(*a)
        world.spark.sql(f"delete from {name} where a = 3")
        return out

    monkeypatch.setattr(compaction, "_rewrite", slow)
    rows = f"select a, v, count(*) n from {name} group by a, v"
    before = {r.a: r.n for r in world.spark.sql(rows).collect()}
    assert compaction.compact(world.spark, name, S, "r", quiet)["file_groups"] == 1
    assert {r.a: r.n for r in world.spark.sql(rows).collect()} == {a: n for a, n in before.items() if a != 3}


def test_a_compaction_carries_deletes_over_that_arrived_during_the_rewrite(table, monkeypatch):
    real = compaction._rewrite

    def slow(*a):
        out = real(*a)
        table.spark.sql(f"delete from {table.name('t')} where id in (4, 5, 151, 250)")
        table.spark.sql(f"update {table.name('t')} set v = 'later' where id in (7, 399)")
        return out

    monkeypatch.setattr(compaction, "_rewrite", slow)
    before = table.rows("t")
    done = compaction.compact(table.spark, table.name("t"), S, "r", quiet)
    assert (done["file_groups"], done["carried_deletes"], done["attempts"]) == (1, 6, 1)
    changed = {7: "later", 399: "later"}
    assert table.rows("t") == sorted(((i, changed.get(i, v)) for i, v in before if i not in (4, 5, 151, 250)), key=repr)
    assert files(table) <= 3  # the new file, and those of the update meanwhile


def test_a_file_group_that_loses_a_race_computes_its_deletes_again(table, monkeypatch):
    before = table.rows("t")
    meanwhile(monkeypatch, lambda: table.spark.sql(f"delete from {table.name('t')} where id = 9"))
    done = compaction.compact(table.spark, table.name("t"), S, "r", quiet)
    assert (done["file_groups"], done["attempts"], done["carried_deletes"]) == (1, 2, 1)
    assert table.rows("t") == [r for r in before if r[0] != 9]


def test_a_file_group_that_loses_three_races_is_left_to_the_next_run_and_leaves_no_file(table, monkeypatch):
    steps = [lambda i=i: table.spark.sql(f"delete from {table.name('t')} where id = {i}") for i in (9, 10, 11)]
    meanwhile(monkeypatch, *steps)
    head = table.spark.sql(f"select count(*) from {table.name('t')}").first()[0]
    done = compaction.compact(table.spark, table.name("t"), S, "r", quiet)
    assert (done["file_groups"], done["given_up"], done["attempts"]) == (0, 1, 3)
    assert table.spark.table(table.name("t")).count() == head - 3
    again = compaction.compact(table.spark, table.name("t"), S, "r2", quiet)
    assert again["file_groups"] == 1
    assert table.spark.table(table.name("t")).count() == head - 3


@pytest.mark.parametrize("table", [3], ids=["v3"], indirect=True)
@pytest.mark.parametrize("asked", ["answers", "is down"])
def test_the_new_files_stay_after_a_commit_of_unknown_outcome(table, monkeypatch, asked):
    real, before = jvm_maintenance.commit_rewrite, table.rows("t")

    def lost(*a):
        real(*a)
        raise OSError("the answer was lost")

    def down(*_):
        raise OSError("the catalog is down")

    monkeypatch.setattr(jvm_maintenance, "commit_rewrite", lost)
    if asked == "answers":
        done = compaction.compact(table.spark, table.name("t"), S, "r", quiet)
        assert (done["file_groups"], done["attempts"]) == (1, 1)
    else:
        monkeypatch.setattr(compaction, "_happened", down)
        with pytest.raises(OSError, match="the catalog is down"):
            compaction.compact(table.spark, table.name("t"), S, "r", quiet)
    assert table.rows("t") == before


def test_a_batch_in_flight_wins_and_a_dead_one_does_not_count(world, monkeypatch):
    monkeypatch.setattr(compaction, "WAIT_FOR_WRITER_S", 0.0)
    world.table("t").load("t", (1, "a")).loaded()
    world.spark.sql(f"insert into {world.name('t')} values (2, 'b')")
    head, branch = world.head("t"), "frazil_" + batch_branches.new_batch()
    jvm.fork(world.spark, world.name("t"), branch, head)
    s = MaintenanceSettings()
    done = compaction.compact(world.spark, world.name("t"), s, "r", quiet)
    assert (done["file_groups"], done["given_up"], world.head("t")) == (0, 1, head)
    jvm.drop_branch(world.spark, world.name("t"), branch)
    dead = re.sub(r"_\d+_(?=[0-9a-f]{6}$)", "_99999999_", branch)
    jvm.fork(world.spark, world.name("t"), dead, head)
    assert compaction.compact(world.spark, world.name("t"), s, "r", quiet)["file_groups"] == 1


@pytest.mark.parametrize("table", [3], ids=["v3"], indirect=True)
@pytest.mark.parametrize("lost", [False, True], ids=["changed", "lost"])
def test_a_rewrite_that_would_change_a_row_is_not_committed(table, monkeypatch, lost):
    real, head, folder = (
        DataFileWriter.write,
        table.head("t"),
        Path(table.iceberg("t").location().removeprefix("file:")) / "data",
    )
    before = {p.name for p in folder.iterdir()}

    def spoilt(writer, rows):
        if lost and len(rows) < 100:  # the rows of one file
            return
        short = pc.utf8_slice_codeunits(rows["v"], 0, 2)
        real(writer, rows if lost else rows.set_column(rows.schema.names.index("v"), rows.schema.field("v"), short))

    monkeypatch.setattr(DataFileWriter, "write", spoilt)
    with pytest.raises(compaction.CompactionError, match="in both" if lost else "is not the same"):
        compaction.compact(table.spark, table.name("t"), S, "r", quiet)
    assert table.head("t") == head and {p.name for p in folder.iterdir()} == before


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_of_rows_that_are_all_deleted_no_file_is_left_and_ingestion_goes_on(table, lane):
    """A partition that emptied would otherwise stop compaction of its table for ever."""
    table.changes("t", *[D(i) for i in range(400) if i not in (3, 150)]).merged(lane=lane)
    assert table.rows("t") == [] and files(table)
    book = table.book(lane="rowdelta")
    done = compaction.compact(table.spark, table.name("t"), S, "r", quiet)
    assert done["file_groups"] == 1 and done["added_files"] == 0 and files(table) == 0
    table.changes("t", I(7, "back"), I(8, "new"), name=FILE2)
    assert not [r.note for r in cdc.run(book) if r.failed]
    table.changes("t", U(7, "again"), D(8), name=FILE3)
    assert not [r.note for r in cdc.run(book) if r.failed]
    assert table.rows("t") == [(7, "again")]


@pytest.mark.parametrize("table", [3], ids=["v3"], indirect=True)
def test_file_groups_stop_when_the_time_has_passed_and_the_next_run_goes_on(table, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(compaction, "MOST_FILES", 2)
        first = compaction.compact(table.spark, table.name("t"), MaintenanceSettings(max_run_s=0.0), "r", quiet)
    assert first["file_groups"] == 1
    before = table.rows("t")
    rest = compaction.compact(table.spark, table.name("t"), MaintenanceSettings(), "r2", quiet)
    assert rest["file_groups"] == 1
    assert files(table) == 1
    assert table.rows("t") == before


def test_a_file_group_gets_the_cores_that_ingestion_leaves(table, monkeypatch):
    context, seen = table.spark.sparkContext, []
    monkeypatch.setattr(
        compaction, "compact_group", lambda *a: seen.append(context.getLocalProperty("spark.scheduler.pool")) or {}
    )
    compaction.compact(table.spark, table.name("t"), MaintenanceSettings(), "r", print)
    assert set(seen) == {"maintenance"} and context.getLocalProperty("spark.scheduler.pool") is None
    pools = [context._jsc.sc().getPoolForName(name).get() for name in ("default", "maintenance")]
    assert pools[0].weight() > 10 * pools[1].weight()


@pytest.mark.parametrize("by_iceberg", [False, True], ids=["Frazil", "Iceberg"])
def test_compaction_sorts_as_the_table_is_sorted(world, monkeypatch, by_iceberg):
    monkeypatch.setattr(jvm_data_files, "why_by_iceberg", lambda *given: "a test wants it" if by_iceberg else "")
    world.table("t").load("t", *[(i, f"{(i * 37) % 100:02}") for i in range(100)]).loaded()
    world.spark.sql(f"insert into {world.name('t')} select id, '50' from range(100, 110)")
    world.spark.sql(f"alter table {world.name('t')} write ordered by v desc, id")
    before = world.rows("t")
    assert compaction.compact(world.spark, world.name("t"), MaintenanceSettings(), "r", quiet)["file_groups"] == 1
    after = [(r.v, r.id) for r in world.spark.table(world.name("t")).collect()]
    assert world.rows("t") == before
    assert after == sorted(after, key=lambda row: (-int(row[0]), row[1]))


def least_one(world):
    """Return the table, of which an expiry leaves one snapshot at least, as its property says."""
    text = "'history.expire.min-snapshots-to-keep' = '1'"
    world.spark.sql(f"alter table {world.name('t')} set tblproperties ({text})")
    return world.iceberg("t")


def test_ingestion_and_compaction_side_by_side_end_as_a_replay(new_world):
    """Updates all over the table in one thread while file groups are compacted in another; main is never wrong."""
    world = new_world()
    world.table("t").load("t", *[(i, "0") for i in range(300)]).loaded()
    want = dict.fromkeys(range(300), "0")
    spark = world.spark  # asked for once: a world writes its settings files anew each time it is asked
    stop, done, troubles = threading.Event(), [], []

    def keep_compacting():
        number = 0
        while not stop.is_set():
            number += 1
            try:
                done.append(compaction.compact(spark, world.name("t"), S, f"r{number}", quiet))
            except Exception as e:
                troubles.append(e)
                return

    other = threading.Thread(target=keep_compacting)
    other.start()
    for batch in range(3):
        changes = [U(i, f"b{batch}") for i in range(batch % 3, 300, 3)]
        want |= dict.fromkeys(range(batch % 3, 300, 3), f"b{batch}")
        gone = list(range(batch, 300, 50))
        changes += [D(i) for i in gone]
        for i in gone:
            want.pop(i, None)
        world.changes("t", *changes, name=f"20240101-10{batch:02}00000.csv").merged()
    stop.set()
    other.join()
    assert not troubles, troubles
    assert world.rows("t") == sorted(want.items(), key=repr)
    assert sum(d["file_groups"] for d in done) >= 1
    assert max(d["attempts"] for d in done) <= compaction.ATTEMPTS


@pytest.mark.parametrize("other", ["a batch", "another rewrite"])
def test_manifests_are_rewritten_beside_batches_and_left_alone_where_each_try_comes_too_late(world, monkeypatch, other):
    world.table("t").load("t", *[(i, "old") for i in range(100)]).loaded()
    number, expected, tried, real = 0, dict.fromkeys(range(100), "old"), [], jvm_maintenance.rewrite_manifests

    def batch():
        nonlocal number
        number += 1
        expected.update(dict.fromkeys((number, 50 + number), f"new {number}"))
        rows = [U(key, f"new {number}") for key in (number, 50 + number)]
        world.changes("t", *rows, name=f"20240101-1000{number:02d}000.csv").merged(lane="rowdelta")

    def slower(spark, table, of_data_only):  # than a batch, which commits when the table has been looked at
        tried.append(of_data_only)
        if other == "another rewrite":
            world.call("rewrite_manifests", "t")
        batch()
        return real(spark, table, of_data_only)

    def manifests() -> int:
        return world.spark.sql(f"select * from {world.name('t')}.manifests where content = 0").count()

    for _ in range(5):
        batch()
    before, said = manifests(), []
    monkeypatch.setattr(jvm_maintenance, "rewrite_manifests", slower)
    done = maintenance_actions.execute(world.spark, world.name("t"), "rewrite manifests", S, "r", said.append)
    if other == "a batch":
        assert (tried, done, said) == ([False, True], {"rewritten_manifests": before + 1}, [])
        assert manifests() == 2  # the batch that came during the second one
    else:
        assert (tried, done) == ([False, True, True], {"rewritten_manifests": 0})
        assert "left to the next run" in said[0]
    assert world.rows("t") == sorted(expected.items(), key=repr)


def test_a_run_tags_expires_and_tells_the_ledger_once(world, monkeypatch):
    monkeypatch.setattr(snapshot_expiry, "LEAST_SNAPSHOTS", 1)
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged()
    world.changes("t", I(2, "c"), name=FILE2).merged()
    settings = {"keep_hours": 0.0, "max_small_files": 1, "hourly_tags": 0, "daily_tags": 0}
    book = world.book(MaintenanceSettings, dry_run=False, **settings)
    kept = {s.snapshotId() for s in world.history("t")}
    (done,) = flow.run(book)
    assert done.status == "maintained", done.note
    assert done.counts["expired_snapshots"] >= 1
    assert world.rows("t") == [(1, "b"), (2, "c")]
    told = [r.snapshot_id for r in book.spark.table("lake.ops.commits").where(f"name = '{world.name('t')}'").collect()]
    assert kept < set(told)
    assert len(told) == len(set(told))
    ledger.record(book)  # as a run that was killed would do again
    assert book.spark.table("lake.ops.commits").where(f"name = '{world.name('t')}'").count() == len(told)
    assert ledger.commits(world.book(LatencySettings)).count() == 2  # though their snapshots are gone
    acts = ledger.actions(book).collect()
    assert {"compact", "expire snapshots"} <= {a.action for a in acts}
    assert all(a.ended_ms >= a.began_ms for a in acts)
    world.changes("t", D(1), name="20240101-100300000.csv").merged()
    assert world.rows("t") == [(2, "c")]


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_expiry_keeps_a_puffin_file_of_which_one_deletion_vector_is_live(world, lane):
    world.table("t").load("t", *[(i, "old") for i in range(100)])
    world.setup(query_engines=["spark"])
    world.loaded()
    world.spark.sql(f"insert into {world.name('t')} select id, 'old' from range(100, 400, 1, 3)")
    changes = {FILE1: [U(1, "new"), U(101, "new"), U(301, "new")], FILE2: [U(102, "new")], FILE3: [U(103, "new")]}
    changes["20240101-100300000.csv"] = [U(104, "new")]
    for name, some in changes.items():  # the first writes several vectors into a file, the others replace one of them
        world.changes("t", *some, name=name).merged(lane=lane)
    live = {r.file_path for r in world.spark.sql(f"select file_path from {world.name('t')}.files").collect()}
    assert len(live) < len(world.spark.sql(f"select 1 from {world.name('t')}.files").collect())  # one is shared
    assert snapshot_expiry.expire_snapshots(least_one(world), 0.0) == len(changes) + 2
    news = {1, 101, 102, 103, 104, 301}
    assert sorted(world.rows("t")) == [(i, "new" if i in news else "old") for i in range(400)]
    data = Path(world.iceberg("t").location().removeprefix("file:")) / "data"
    assert {p.name for p in data.glob("*.p*")} == {p.rsplit("/", 1)[1] for p in live}  # and what nobody needs is gone


def test_an_action_that_is_killed_is_in_the_ledger_once(world):
    world.table("t").load("t", (1, "a")).loaded()
    book = world.book(MaintenanceSettings)
    with pytest.raises(KeyboardInterrupt), ledger.action(book, "kill/1", world.name("t"), "expire snapshots", "test"):
        raise KeyboardInterrupt
    for _ in range(2):
        with ledger.action(book, "kill/2", world.name("t"), "expire snapshots", "test") as facts:
            facts["expired_snapshots"] = 7
    rows = book.spark.table("lake.ops.maintenance").where("id like 'kill/%'").orderBy("id").collect()
    assert [(r.id, r.status) for r in rows] == [("kill/1", "failed"), ("kill/2", "done")]
    assert json.loads(rows[1].counts) == {"expired_snapshots": 7}


def test_tags_keep_the_last_state_of_full_hours_and_survive_expiry(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged()
    s = MaintenanceSettings(keep_hours=0.0)
    assert states_to_tag(read_kept_snapshots(world.spark, world.name("t")), s) == []  # this hour is not over
    load = next(iter(world.history("t"))).parentId()
    jvm.tag(world.spark, world.name("t"), [("hour_20260101T10", load, 3_600_000)])
    snapshot_expiry.expire_snapshots(least_one(world), 0.0)
    kept = world.spark.sql(f"select v from {world.name('t')} version as of 'hour_20260101T10'").collect()
    assert [r.v for r in kept] == ["a"]


def test_the_last_state_of_each_full_hour_and_day_is_tagged(monkeypatch):
    hour, begin = state_tags.HOUR_MS, 20_000 * 24 * state_tags.HOUR_MS  # 2024-10-04T00Z
    monkeypatch.setattr(state_tags.time, "time", lambda: (begin + 26.5 * hour) / 1000)
    times = {1: 0.5, 2: 23.1, 3: 23.9, 4: 25.2, 5: 25.3, 6: 26.1}
    made = {i: KeptSnapshot(i, i - 1 or None, 0, None, "append", {}) for i in times}
    made[5] = replace(made[5], parent=3)  # rolled back: main goes on from 4
    made[6] = replace(made[6], parent=4)
    kept = KeptSnapshots(made, 6, [(round(begin + h * hour), i) for i, h in times.items()], {"hour_20241004T00": 1})
    s = MaintenanceSettings(hourly_tags=48, daily_tags=7)
    assert states_to_tag(kept, s) == [
        ("hour_20241004T23", 3, 48 * hour),
        ("hour_20241005T01", 4, 48 * hour),
        ("day_20241004", 3, 7 * 24 * hour),
    ]
    assert [t for t, *_ in states_to_tag(kept, replace(s, hourly_tags=2, daily_tags=0))] == ["hour_20241005T01"]


def test_branches_and_tags_change_although_somebody_commits_meanwhile(world, monkeypatch):
    world.table("t").load("t", (1, "a")).loaded()
    name, head, real = world.name("t"), world.head("t"), jvm.load_table
    raced, ids = [], iter((2, 3, 4))

    class Raced:
        """A table to which a row comes between the begin of the first change of its refs and its commit."""

        def __init__(self, table):
            self.refs, self.table = table.refs, table

        def manageSnapshots(self):
            refs = self.table.manageSnapshots()
            if not raced:
                raced.append(world.spark.sql(f"insert into {name} values ({next(ids)}, 'x')"))
            return refs

    monkeypatch.setattr(jvm, "load_table", lambda spark, of: Raced(real(spark, of)))
    for change in (
        lambda: jvm.tag(world.spark, name, [("hour_20260101T10", head, 3_600_000)]),
        lambda: jvm.fork(world.spark, name, "frazil_b", head),
        lambda: jvm.drop_branch(world.spark, name, "frazil_b"),
    ):
        raced.clear()
        change()
        assert raced
    monkeypatch.undo()
    assert {*world.iceberg("t").refs()} == {"main", "frazil", "hour_20260101T10"}
    assert world.spark.table(name).count() == 4


def test_a_dry_run_and_a_managed_table_change_nothing(world, monkeypatch):
    monkeypatch.setattr(snapshot_expiry, "LEAST_SNAPSHOTS", 1)
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b"), name=FILE1).merged()
    head, settings = world.head("t"), {"max_small_files": 0, "keep_hours": 0.0}
    assert flow.run(world.book(MaintenanceSettings, dry_run=True, **settings))[0].status == "planned"
    monkeypatch.setenv("JPY_SESSION_NAME", "03_maintenance.ipynb")
    assert flow.run(world.book(MaintenanceSettings, **settings))[0].status == "planned"
    managed = world.book(MaintenanceSettings, dry_run=False, managed_by="glue", **settings)
    assert flow.run(managed)[0].status == "managed"
    assert "glue" in flow.plan(managed)[0]["why"]
    assert world.head("t") == head
    s3 = MaintenanceSettings(catalog_options={"catalog-impl": "software.amazon.s3tables.iceberg.S3TablesCatalog"})
    assert "S3 Tables" in maintenance_plan.managed_by(s3)


def test_a_plan_says_what_why_and_at_what_cost_and_orphans_are_three_days_old(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged()
    h = measure(world.spark, world.name("t"), MaintenanceSettings(max_small_files=1))
    assert (h.rows, h.data_files, h.small_share, h.delete_files) == (1, 2, 1.0, 1)
    assert h.commit_p95_s > 0
    (action,) = maintenance_plan.plan(h, MaintenanceSettings(max_small_files=1))
    assert (action.action, bool(action.why), bool(action.cost)) == ("compact", True, True)
    with pytest.raises(ParameterError):
        maintenance_plan.plan(h, MaintenanceSettings(orphan_days=1.0))
    assert maintenance_actions.orphan_files(world.spark, world.name("t"), MaintenanceSettings(orphan_days=3.0)) == []


def test_maintenance_leaves_a_table_that_was_rolled_back_so_that_its_history_still_shows_it(world, monkeypatch):
    monkeypatch.setattr(snapshot_expiry, "LEAST_SNAPSHOTS", 1)
    world.table("t").load("t", (1, "a")).loaded()
    before = world.head("t")
    world.changes("t", I(2, "b"), name=FILE1).merged()
    world.call("rollback_to_snapshot", "t", f", snapshot_id => {before}")
    world.spark.sql(f"insert into {world.name('t')} values (9, 'theirs')")
    everything = {"keep_hours": 0.0, "hourly_tags": 0, "max_small_files": 0}
    (done,) = flow.run(world.book(MaintenanceSettings, dry_run=False, **everything))
    assert "was rolled back" in done.note
    world.changes("t", I(3, "c"), name=FILE2)
    assert "was rolled back" in world.merge()["t"].note
    assert world.rows("t") == [(1, "a"), (9, "theirs")]


def test_orphan_removal_leaves_tables_whose_files_others_use_or_lie_in_its_folder(world):
    world.table("outer").table("shared").load("outer", (1, "a")).load("shared", (1, "s")).loaded()
    inner = f"{world.name('outer')}.inner"
    world.spark.sql(f"CREATE NAMESPACE {world.name('outer')}")
    world.spark.sql(f"CREATE TABLE {inner} USING iceberg AS SELECT 1 AS id, 'i' AS v")
    world.spark.sql(f"ALTER TABLE {world.name('shared')} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    ten_days_ago = time.time() - 10 * 86_400
    for file in Path(world.catalog_options["warehouse"], world.space).rglob("*"):
        os.utime(file, (ten_days_ago, ten_days_ago))
    book = world.book(MaintenanceSettings, dry_run=False, orphan_days=3.0, keep_hours=0.0)
    refused = {r["table"]: r["action"] for r in flow.plan(book) if r["action"].startswith("cannot")}
    done = {r.table: r for r in flow.run(book)}
    for table, why in (("public.outer", "a namespace has the same name"), ("public.shared", "gc.enabled is false")):
        assert why in refused[table] and why in done[table].note
    assert world.spark.table(inner).collect() == [(1, "i")]
    assert world.rows("shared") == [(1, "s")]


def test_damaged_metadata_of_a_table_are_named_at_once_and_the_plan_of_others_goes_on(world):
    world.table("t").table("u").load("t", (1, "a")).load("u", (1, "b")).loaded()
    file = Path(metadata_of(world.catalog_options, f"{world.space}.t").removeprefix("file:"))
    file.write_text("{")
    book = world.book(MaintenanceSettings, max_small_files=0, hourly_tags=0)
    world.spark.sql(f"insert into {world.name('u')} values (2, 'c')")
    for rows in (flow.health(book), flow.plan(book)):
        t, u = rows
        assert t["action"].startswith("cannot") and file.name in t["action"]
        assert u["table"] == "public.u" and not u.get("action", "").startswith("cannot")


AUTOGROUP = Path("/proc/self/autogroup")
"""Where Linux says, if it shares the CPU out among sessions, how much of it this one gets."""


@pytest.mark.parametrize(("dry", "nice"), [(False, 10), (True, 0)])
def test_a_run_with_a_spark_of_its_own_lets_others_go_first_and_says_so_but_a_dry_run_does_not(
    tmp_path, catalog_options, dry, nice
):
    """Its JVM, where the work is done, has priority 10, and so has the session that a kernel leads."""
    code = f"""
import psutil
from frazil_old.config.spark_session import get_spark
from frazil_old.config.settings import MaintenanceSettings
spark = get_spark(MaintenanceSettings(root={str(tmp_path)!r}, dry_run={dry}, catalog_options={catalog_options!r}))
jvm = spark.sparkContext._gateway.proc.pid
lowest = {{psutil.os.getpriority(psutil.os.PRIO_PROCESS, t.id) for t in psutil.Process(jvm).threads()}}
print("of the JVM", *sorted(lowest), open(f"/proc/{{jvm}}/autogroup").read() if {AUTOGROUP.exists()} else "nice {nice}")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=550, start_new_session=True)  # fmt: skip
    assert re.search(f"of the JVM {nice} .*nice {nice}", ran.stdout), ran.stdout + ran.stderr
    assert ("lower priority (nice = 10)" in ran.stdout) is not dry


def test_small_files_that_are_each_alone_in_their_partition_are_not_planned_for_compaction(world):
    world.table("t").specs["t"]["partition"] = ["v"]
    world.table_file("t").load("t", *[(n, str(n)) for n in range(8)]).loaded()
    book = world.book(MaintenanceSettings, dry_run=False, hourly_tags=0, daily_tags=0, max_deleted_share=0.6)
    assert measure(world.spark, world.name("t"), S).small_files == 8
    assert flow.plan(book) == [] and flow.run(book)[0].status == "healthy"
    world.spark.sql(f"insert into {world.name('t')} values (9, '3')")
    assert [(r["action"], r["why"]) for r in flow.plan(book)] == [("compact", "9 files below 32 MB, allowed 5")]
    assert (flow.run(book)[0].status, files(world)) == ("maintained", 8)
    assert flow.plan(book) == []
