"""Compaction rewrites file groups at the same time: rows and row ids stay, failures and limits leave nothing half done."""

import json
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.flows import maintenance as flow
from frazil_old.lake import compaction
from helpers import FILE2, D, I, U
from lake_reader import duckdb_rows, lake_rows

pytestmark = pytest.mark.spark
PATIENCE_S = 120


def quiet(_):
    pass


@pytest.fixture(params=[3, 2], ids=["v3", "v2"])
def table(request, world, monkeypatch):
    """A loaded table of 400 rows in eight files, so of four groups of two files."""
    monkeypatch.setattr(compaction, "MOST_FILES", 2)
    world.table("t").load("t", *[(i, "old") for i in range(50)])
    world.given["query_engines"] = ["spark"] if request.param == 3 else ["trino"]
    world.loaded()
    world.spark.sql(f"insert into {world.name('t')} select id, 'old' from range(50, 400, 1, 7)")
    assert len(data_files(world)) == 8
    return world


only_v3 = pytest.mark.parametrize("table", [3], ids=["v3"], indirect=True)


def data_files(world) -> set[str]:
    rows = world.spark.sql(f"select file_path from {world.name('t')}.files where content = 0").collect()
    return {r.file_path for r in rows}


def unused_files(world) -> set[str]:
    """Return the names of files of the table that no snapshot uses."""
    known = world.spark.sql(f"select file_path from {world.name('t')}.all_files").collect()
    folder = Path(world.iceberg("t").location().removeprefix("file:")) / "data"
    return {p.name for p in folder.glob("*.p*")} - {r.file_path.rsplit("/", 1)[1] for r in known}


def rows_of(world) -> list[tuple]:
    """Return the rows as PyIceberg and DuckDB read them, which must be the same."""
    rows = lake_rows(world.catalog_options, f"{world.space}.t")
    assert rows == duckdb_rows(world.catalog_options, f"{world.space}.t")
    return rows


def row_ids(world) -> dict[int, int]:
    return dict(duckdb_rows(world.catalog_options, f"{world.space}.t", "id, _row_id"))


def compact(world, s=None, say=quiet) -> dict:
    return compaction.compact(world.spark, world.name("t"), s or MaintenanceSettings(), "r", say)


def around_writes(monkeypatch, before=quiet, after=quiet):
    """Call `before` and `after` the write of each file group, in its thread, with the number of the write.

    `before` may return a function that waits; it takes the one that says whether the compaction was stopped.
    """
    real, lock, count = compaction.rewrite_files, threading.Lock(), [0]

    def write(plan, stopped):
        with lock:
            count[0] += 1
            number = count[0]
        if waits := before(number):
            waits(stopped)
        new = real(plan, stopped)
        after(number)
        return new

    monkeypatch.setattr(compaction, "rewrite_files", write)


def slowly(stopped):
    """Wait for 20 seconds, unless the compaction is stopped."""
    until = time.monotonic() + 20
    while not stopped() and time.monotonic() < until:
        time.sleep(0.1)


@only_v3
def test_groups_are_written_at_the_same_time_as_jobs_of_their_caller(table, monkeypatch):
    context, both, properties, spans = table.spark.sparkContext, threading.Barrier(2), [], {}

    def before(number):
        both.wait(PATIENCE_S)  # no group gets past here alone
        names = ("spark.scheduler.pool", "spark.jobGroup.id")
        properties.append(tuple(context.getLocalProperty(name) for name in names))
        spans[number] = [time.monotonic()]

    around_writes(monkeypatch, before, lambda number: spans[number].append(time.monotonic()))
    rows = rows_of(table)
    context.setJobGroup("the table", "the table")
    try:
        done = compact(table)
        assert context.getLocalProperty("spark.scheduler.pool") is None
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)
    assert (done["file_groups"], done["added_files"], len(data_files(table))) == (4, 4, 4)
    assert properties == [("maintenance", "the table")] * 4
    for one, other in ((1, 2), (3, 4)):
        assert max(spans[one][0], spans[other][0]) < min(spans[one][1], spans[other][1])
    assert rows_of(table) == rows and not unused_files(table)


def test_a_row_delta_and_a_merge_while_groups_are_written_are_carried_over(table, monkeypatch):
    both, v3 = threading.Barrier(2), "spark" in table.given["query_engines"]
    first = [*(U(i, "delta") for i in range(3, 400, 50)), D(60), U(120, "delta"), I(1000, "delta")]  # some of each file
    second = [*(U(i, "merge") for i in range(4, 400, 50)), D(61), U(120, "merge"), I(1001, "merge")]
    before, troubles = row_ids(table) if v3 else {}, []

    def after(number):
        if number > 2:  # a core is left to ingestion now
            return
        if both.wait(PATIENCE_S) == 0:
            try:
                table.changes("t", *first).merged(lane="rowdelta")
                table.changes("t", *second, name=FILE2).merged(lane="merge")
            except BaseException as error:
                troubles.append(error)
        both.wait(PATIENCE_S)

    around_writes(monkeypatch, after=after)
    done = compact(table)
    assert not troubles, troubles
    assert (done["file_groups"], done["given_up"]) == (4, 0) and done["carried_deletes"] >= 8
    expected = dict.fromkeys(range(400), "old")
    for change in (*first, *second):
        expected.update([change.values]) if change.op != "D" else expected.pop(change.values[0])
    assert rows_of(table) == sorted(expected.items(), key=repr)
    if v3:
        after_all = row_ids(table)
        assert {i: n for i, n in after_all.items() if i < 1000} == {i: before[i] for i in expected if i < 1000}
        assert not {after_all[1000], after_all[1001]} & {*before.values()}


@only_v3
@pytest.mark.parametrize("how", ["error", "interrupt"])
def test_one_failure_cancels_the_other_groups_and_leaves_no_file(table, monkeypatch, how):
    rows, both = rows_of(table), threading.Barrier(2)

    def before(number):
        if number <= 2:  # the first two are committed
            return None
        if both.wait(PATIENCE_S):
            return slowly  # it would take 20 seconds, were it not cancelled
        time.sleep(2)
        if how == "error":
            raise ValueError("no space")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return slowly

    around_writes(monkeypatch, before)
    with pytest.raises(ValueError if how == "error" else KeyboardInterrupt):
        compact(table)
    assert rows_of(table) == rows and len(data_files(table)) == 6
    until = time.monotonic() + 60  # a task that was killed removes its file a moment later
    while unused_files(table) and time.monotonic() < until:
        time.sleep(0.2)
    assert not unused_files(table)
    monkeypatch.undo()
    assert compact(table, MaintenanceSettings())["file_groups"] == 1
    assert rows_of(table) == rows


@only_v3
def test_a_group_that_others_hold_up_is_given_up_and_the_others_commit(table, monkeypatch):
    name, taken = table.name("t"), threading.Event()

    def others_wait(number):
        if number > 1:  # else one commits while the statement below runs, which then fails
            taken.wait(PATIENCE_S)

    def gone(number):
        if number == 1:  # another compaction replaces the first group's files while it is written
            table.spark.sql(f"delete from {name} where id < 10")
            table.call("rewrite_data_files", "t", ", where => 'id < 50', options => map('rewrite-all', 'true')")
            taken.set()

    around_writes(monkeypatch, others_wait, gone)
    done = compact(table)
    assert taken.is_set() and done["given_up"] == 1 and done["file_groups"] == 3
    assert rows_of(table) == [(i, "old") for i in sorted(range(10, 400), key=lambda i: repr((i, "old")))]


@only_v3
def test_no_group_begins_after_the_time_limit_and_those_that_began_are_committed(table, monkeypatch):
    rows, both, clock, said = rows_of(table), threading.Barrier(2), [0.0], []

    def before(number):
        both.wait(PATIENCE_S)
        clock[0] = 601.0

    around_writes(monkeypatch, before)
    fake = SimpleNamespace(monotonic=lambda: clock[0], time=time.time, sleep=time.sleep)
    monkeypatch.setattr(compaction, "time", fake)
    assert compact(table, say=said.append)["file_groups"] == 2
    assert "before file group 3 of 4" in said[0]
    assert rows_of(table) == rows and len(data_files(table)) == 6


@only_v3
def test_a_core_is_left_to_ingestion(table, monkeypatch):
    table.changes("t", U(1, "new")).merged()
    lock, running, most = threading.Lock(), [0], [0]

    def count(by):
        with lock:
            running[0] += by
            most[0] = max(most[0], running[0])

    around_writes(monkeypatch, lambda number: count(1), lambda number: count(-1))
    assert compact(table)["file_groups"] >= 2
    assert most == [1]  # of two cores


@only_v3
def test_a_plan_predicts_the_time_from_the_rate_of_earlier_runs(table):
    book = table.book(MaintenanceSettings, dry_run=False, max_small_files=1, hourly_tags=0)

    def cost() -> str:
        return next(row["cost"] for row in flow.plan(book) if row["action"] == "compact")

    assert "not known before its first run" in cost()
    (done,) = flow.run(book)
    assert done.counts["file_groups"] == 4 and done.counts["mb_per_s"] > 0 and done.counts["rewritten_bytes"] > 0
    assert any("mb per s" in text for text in table.said), table.said
    kept = book.spark.table("lake.ops.maintenance").where(f"action = 'compact' and name = '{table.name('t')}'")
    assert json.loads(kept.first().counts)["mb_per_s"] == done.counts["mb_per_s"]
    assert "MB/s, the rate of its last runs" in cost()
