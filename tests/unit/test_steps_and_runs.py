"""The six steps, decisions that are made once, and runs of several tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import frazil
from dms_writer import FILE1, FILE2, FILE3, D, I, U
from frazil.errors import FrazilError
from frazil.results import Results
from new_house import opened

pytestmark = pytest.mark.spark


@pytest.fixture
def loaded(open_world):
    """A world with a loaded table `t`, and one file of changes that are pending."""
    w = open_world(target={"PreserveTransactions": True, "CdcPath": "all"}).table("t")
    w.source.load("t", (1, "a"), (2, "b"))
    w.loaded()
    w.source.changes("t", U(1, "A"), I(3, "c"), D(2), I(4, "d"), name=FILE1)
    return w


def steps_of(w, settings: dict | None = None):
    return opened(w, settings or {})["public.t"]


def to_written(table, batch):
    return table.write(table.latest(table.read(batch, table.columns(batch))))


def test_four_steps_change_nothing_and_a_batch_that_is_written_or_committed_twice_counts_once(loaded):
    table, before = steps_of(loaded), loaded.metadata_file("t")
    batch = table.next()
    first, second = to_written(table, batch), to_written(table, batch)
    assert loaded.metadata_file("t") == before and loaded.rows("t") == [(1, "a"), (2, "b")]
    made = table.commit(first)
    assert {table.commit(one).snapshot.id for one in (first, second)} == {made.snapshot.id}
    assert loaded.rows("t") == [(1, "A"), (3, "c"), (4, "d")] and table.next() is None


def test_cells_cut_a_batch_inside_of_its_file_and_the_loop_goes_on_there(loaded):
    cells = frazil.steps(steps_of(loaded), most=2)
    batch = cells.next()
    latest = cells.latest(cells.read(batch, cells.columns(batch)))
    cells.commit(cells.write(latest))
    assert loaded.rows("t") == [(1, "A"), (2, "b"), (3, "c")]
    assert loaded.merged().rows("t") == [(1, "A"), (3, "c"), (4, "d")]
    rows = [f"I,{name},public,2024-01-01 10:00:00.000000,{id},e,,\n" for name, id in (("t", 5), ("o", 5), ("t", 6))]
    loaded.source.write("t", "../../all/CDC_TXN-20240102000000000.csv", "".join(rows))
    steps_of(loaded).apply(steps_of(loaded).next(most=2))
    assert loaded.rows("t")[3:] == [(5, "e")] and loaded.merged().rows("t")[3:] == [(5, "e"), (6, "e")]


def test_cells_show_an_error_and_pass_it_on_and_the_end_of_the_notebook_reports_it(loaded):
    loaded.source.write("t", FILE2, "U,2024-01-01 10:00:00.000000,1,x,,\nZ,2024-01-01 10:00:00.000000,1,x,,\n")
    loaded.merge()
    cells = frazil.steps(steps_of(loaded))
    batch = cells.next()
    changes = cells.read(batch, cells.columns(batch))
    latest = cells.latest(changes)
    shown = [latest, cells.write(latest), cells.commit(cells.write(latest))]
    assert {type(step.value) for step in shown} == {Results} and all("bad-row" in repr(step) for step in shown)
    with pytest.raises(FrazilError, match="Z"):
        frazil.finish(opened(loaded, {}), shown[-1])


def test_a_decision_of_a_schedule_is_made_once_however_often_it_is_repeated(loaded):
    loaded.merged()
    snapshot = loaded.metadata("t").current_snapshot_id
    again = {"public.t": {"restart": {"after": snapshot, "changes_from": "next"}}}
    loaded.source.load("t", (7, "g"))
    done = [loaded.new_process().merge(decide=again)["t"] for _ in range(2)]
    assert [r.status for r in done] == ["loaded", "unchanged"] and loaded.rows("t") == [(7, "g")]
    stop = {"public.t": {"stop": "a look at its source"}}
    assert [loaded.new_process().merge(decide=stop)["t"].status for _ in range(2)] == ["stopped"] * 2
    number = steps_of(loaded).stored.position.stopped.split()[0]
    loaded.source.changes("t", I(8, "h"), name=FILE3)
    resume = {"public.t": {"resume": number}}
    assert [loaded.new_process().merge(decide=resume)["t"].status for _ in range(2)] == ["merged", "unchanged"]


def test_a_run_goes_on_until_it_is_asked_to_stop_and_a_table_that_fails_stops_no_other(loaded):
    loaded.table("bad").source.load("bad", (1, "a"))
    loaded.loaded()
    loaded.source.write("bad", FILE1, "Z,2024-01-01 10:00:00.000000,1,x,,\n")
    run = loaded.process("merge", run_for_s=120.0, trigger_s=0.2)
    until = time.monotonic() + 60
    while len(loaded.rows("t")) == 2 and time.monotonic() < until:
        time.sleep(0.5)
    loaded.source.changes("t", I(9, "i"), name=FILE2)
    while (9, "i") not in loaded.rows("t") and time.monotonic() < until:
        time.sleep(0.5)
    os.kill(run.pid, signal.SIGTERM)
    done = run.results()
    assert (9, "i") in loaded.rows("t") and done["t"].counts["batches"] == 2
    assert done["t"].status == "merged" and done["bad"].code == "bad-row" and loaded.rows("bad") == [(1, "a")]


def test_a_plan_and_a_run_that_finds_nothing_start_no_spark(loaded):
    loaded.merged()
    script = "import sys, frazil\nlake = frazil.open('02_cdc_merge', 'w')\nlake.plan()\ndone = lake.merge()\nassert done.outcome == 'nothing', done\nassert not {'pandas', 'pyiceberg.table', 'sqlalchemy', 'pyspark'} & {*sys.modules}\nlake.lateness()\nassert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
