"""Executors that are processes of their own: loads, large batches and compactions end as on one machine, though one is killed."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

from dms_writer import D, I, U, file_name
from world import HERE

pytestmark = [pytest.mark.spark, pytest.mark.acceptance, pytest.mark.slow]
KEYS = 300


def kill_an_executor(driver: int, done: threading.Event, killed: list[int]) -> None:
    """Kill the first executor of a driver that has begun to work."""
    while not done.is_set() and not killed:
        family = psutil.Process(driver).children(recursive=True) if psutil.pid_exists(driver) else []
        for process in family:
            line = process.cmdline() if process.is_running() else []
            if "--executor-id" in line and process.cpu_times().user > 4:
                process.kill()
                killed.append(process.pid)
                return
        time.sleep(0.1)


def test_flows_on_executors_end_with_the_same_rows_though_one_is_killed(open_world, monkeypatch):
    monkeypatch.setenv("FRAZIL_MASTER", "local-cluster[2,1,900]")
    packages = {"spark.executorEnv.PYTHONPATH": str(HERE.parent / "lib"), "spark.executor.memory": "900m"}
    w = open_world(spark_options=packages).table("t", "id INT8", "v NCLOB")
    rows = {n: f"loaded {n}" for n in range(KEYS)}
    for part in range(3):
        w.source.load("t", *[(n, rows[n]) for n in range(part, KEYS, 3)], name=f"LOAD{part + 1:08d}.csv")
    for number in range(4):
        keys = range(number * 20, number * 20 + 100)
        w.source.changes("t", *[U(k, f"{number} " + "x" * 100_000) for k in keys], D(number), I(KEYS + number, "new"), name=file_name(number))  # fmt: skip
        rows |= dict.fromkeys(keys, f"{number} " + "x" * 100000) | {KEYS + number: "new"}
        rows.pop(number)
    for verb in ("setup", "load", "merge", "maintain"):
        process, done, killed = w.process(verb), threading.Event(), []
        if verb == "merge":
            threading.Thread(target=kill_an_executor, args=(process.pid, done, killed)).start()
        found = process.results(timeout=500)["t"]
        done.set()
        assert found.went_well, found
    assert sorted(w.rows("t")) == sorted(rows.items())
    assert w.batches("t") == 2
