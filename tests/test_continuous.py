"""Continuous ingestion: each table at its own intervals, stopped by time or by a signal, with a line per table."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

from frazil_old.flows import cdc
from frazil_old.flows.continuous import asleep
from frazil_old.flows.interrupts import stop_requests
from frazil_old.report import live_status
from helpers import FILE1, FILE2, U

spark = pytest.mark.spark


@pytest.fixture
def two(world):
    """Tables `a` and `b` of one row each, loaded, with a change each."""
    for t in "ab":
        world.table(t).load(t, (1, "old")).changes(t, U(1, "new"))
    return world.loaded()


def passes(monkeypatch, hook):
    """Call `hook(table)` before each pass over a table, and return the list of passes made."""
    real, made = cdc._one_pass, []

    def one_pass(book, spec, *rest):
        made.append(spec.source)
        hook(spec.target.rsplit(".", 1)[-1], made.count(spec.source))
        return real(book, spec, *rest)

    monkeypatch.setattr(cdc, "_one_pass", one_pass)
    return made


@spark
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_endless_run_with_its_batches_committed(two, monkeypatch, number):
    began = []

    def hook(table, times):
        if not began:
            began.append(table)
            os.kill(os.getpid(), number)  # arrives in the main thread while this batch is under way
            time.sleep(0.3)

    passes(monkeypatch, hook)
    before = signal.getsignal(number)
    done = two.merge(run_for_s=float("inf"), trigger_s=0.1, parallel_tables=1)
    assert signal.getsignal(number) is before
    table = began[0]
    assert done[table].status == "merged" and two.rows(table) == [(1, "new")]
    assert any("stopping once" in line for line in two.said)


@spark
def test_a_backlog_shows_each_batch_and_what_came_meanwhile(world, monkeypatch):
    files, lines = [f"20240101-10{n:02d}00000.csv" for n in range(8)], []
    world.table("t").load("t", (1, "old"))
    for name in files[:6]:
        world.changes("t", U(1, name), name=name)
    world.loaded()

    def shown(self, table, line, important=False):
        lines.append(line)
        for name in files[6:] if len(lines) == 1 else ():
            world.changes("t", U(1, name), name=name)
        if ", 0 file" in line and ", 0 file" not in "".join(lines[:-1]):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(live_status.LiveStatus, "set", shown)
    world.merge(run_for_s=120, trigger_s=0.1, max_batch_files=2)
    left = [line.rsplit(", ", 1)[1] for line in lines]
    assert left[:3] == ["4 files pending", "4 files pending", "2 files pending"], lines
    assert left[-1] == "0 files pending" and world.rows("t") == [(1, files[-1])]


@spark
def test_a_slow_table_does_not_hold_the_other_back(two, monkeypatch):
    def hook(table, times):
        while table == "a" and made.count("public.b") < 3:
            time.sleep(0.1)
        if table == "a":
            os.kill(os.getpid(), signal.SIGTERM)

    made = passes(monkeypatch, hook)
    done = two.merge(run_for_s=120, trigger_s=0.1, parallel_tables=2)
    assert {t: r.status for t, r in done.items()} == {"a": "merged", "b": "merged"}
    assert made.count("public.a") == 1


@spark
def test_a_table_that_failed_is_tried_again_and_goes_on(two, monkeypatch):
    def hook(table, times):
        if table == "a" and times == 1:
            raise OSError("the bucket did not answer")
        if table == "a":
            os.kill(os.getpid(), signal.SIGTERM)

    passes(monkeypatch, hook)
    done = two.merge(run_for_s=120, trigger_s=0.1)
    assert (done["a"].status, done["a"].note) == ("merged", "failed before, then continued")
    assert two.rows("a") == two.rows("b") == [(1, "new")]
    assert any("did not answer" in line for line in two.said)


@spark
def test_files_that_come_while_it_runs_are_applied_and_shown(two, monkeypatch):
    def hook(table, times):
        if (table, times) == ("a", 2):
            two.changes("a", U(1, "newer"), name=FILE2)
            os.kill(os.getpid(), signal.SIGTERM)

    passes(monkeypatch, hook)
    done = two.merge(run_for_s=120, trigger_s=0.1)
    assert two.rows("a") == [(1, "newer")] and done["a"].counts["batches"] == 2
    assert two.position("a")["last"] == FILE2 and two.position("b")["last"] == FILE1
    assert any("changes/s, latency p50" in line and "0 files pending" in line for line in two.said)


@pytest.fixture
def interruptible():
    """A process that a shell has started in the background ignores the first kind of signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_second_signal_is_not_held_back(interruptible):
    said = []
    with pytest.raises(KeyboardInterrupt), stop_requests(said.append) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set() and len(said) == 1
        signal.raise_signal(signal.SIGINT)


def test_a_live_status_speaks_now_and_then_and_at_once_where_it_matters():
    said = []
    shown = live_status.LiveStatus(said.append, every_s=60)
    for n in range(5):
        shown.set("t", f"line {n}")
    shown.set("t", "failed: x", important=True)
    assert said == ["t: line 0", "t: failed: x"]
    shown.set("longer", "y")
    assert repr(shown) == "longer  y\nt       failed: x"
    assert "<pre>" in shown._repr_html_()


SLEEPING = """
import json, os, signal, sys, time
from frazil_old.config.settings import CdcMergeSettings
from frazil_old.flows.workbook import Workbook

spark = Workbook(CdcMergeSettings(**json.load(sys.stdin))).spark
jvm = spark.sparkContext._gateway.proc.pid
os.kill(jvm, signal.SIGSTOP)
time.sleep(8)
os.kill(jvm, signal.SIGCONT)
time.sleep(5)
print(spark.sql("select sum(id) from range(9)").first()[0])
"""


@spark
def test_a_session_outlives_a_machine_that_slept(two):
    """Spark takes an executor for lost that was silent for two minutes; here for three seconds."""
    short = {
        "spark.executor.heartbeatInterval": "1s",
        "spark.network.timeout": "3s",
        "spark.storage.blockManagerTimeoutIntervalMs": "1000",
    }
    settings = asdict(two.book(spark_options=short).settings)
    ran = subprocess.run(
        [sys.executable, "-c", SLEEPING], input=json.dumps(settings), capture_output=True, text=True, timeout=240
    )
    assert ran.stdout.split() == ["36"], ran.stderr[-3000:]
    (log,) = two.root.rglob("spark.log")
    assert "Removing executor" not in log.read_text()


ENDING = """
import json, os, signal, sys, threading
from frazil_old.config.settings import CdcMergeSettings
from frazil_old.flows import cdc
from frazil_old.flows.workbook import Workbook

def stop_by_itself():
    threading.excepthook = lambda *_: None  # the timer of the other table finds no JVM any more
    threading.Timer(1.0, context._jsc.sc().stop).start()
    book.spark.sql("select java_method('java.lang.Thread', 'sleep', 60000L) from range(2)").toArrow()

def kill():
    os.kill(context._gateway.proc.pid, signal.SIGKILL)
    book.spark.sql("select 1").toArrow()

def one_pass(book, spec, *rest):
    done = real(book, spec, *rest)
    {end}()
    return done

book, real, cdc._one_pass = Workbook(CdcMergeSettings(**json.load(sys.stdin))), cdc._one_pass, one_pass
context = book.spark.sparkContext
cdc.run(book)
"""


@spark
@pytest.mark.parametrize("end", ["kill", "stop_by_itself"])
def test_a_run_whose_spark_has_ended_ends_and_says_so(two, end):
    settings = two.book(run_for_s=300, trigger_s=0.1).settings
    ran = subprocess.run(
        [sys.executable, "-c", ENDING.replace("{end}", end)], input=json.dumps(asdict(settings)), capture_output=True, text=True, timeout=240
    )  # fmt: skip
    assert ran.returncode == 1 and "Spark's JVM was killed by signal 9" in ran.stderr.splitlines()[-2], ran.stderr[
        -3000:
    ]
    assert "spark.log" in ran.stderr.splitlines()[-1]
    assert "new" in str(two.rows("a") + two.rows("b"))  # what it had committed holds


@spark
def test_a_run_ends_when_nothing_was_applied_for_a_while(two, monkeypatch):
    """Each batch begins the wait again; looks that find nothing do not."""
    came: list[float] = []

    def hook(table, times):
        if (table, times) == ("a", 4):
            two.changes("a", U(1, "newer"), name=FILE2)
            came.append(time.monotonic())

    made = passes(monkeypatch, hook)
    two.merge(run_for_s=60, trigger_s=0.5, idle_s=6.0)
    assert 6.0 <= time.monotonic() - came[0] < 40 and two.rows("a") == [(1, "newer")]
    assert made.count("public.b") > 4


def test_a_run_without_idle_s_has_no_end_of_its_own():
    assert (asleep(10.0, 0.0), asleep(10.0, 5.0)) == (float("inf"), 15.0)
