"""Continuous ingestion: each table at its own intervals, stopped by time or by a signal, with a line per table."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from helpers import U

spark = pytest.mark.spark


@pytest.fixture
def two(world):
    """Tables `a` and `b` of one row each, loaded, with a change each."""
    for t in "ab":
        world.table(t).load(t, (1, "old")).changes(t, U(1, "new"))
    return world.loaded()


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
