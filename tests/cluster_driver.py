"""Run in a driver process of its own by test_cluster: steps of flows, and in some a process that is killed at a named point."""

import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import psutil

from frazil_old.config.settings import resolve
from frazil_old.engine import kept_batch, large_batch, load_files, message_batch, message_blocks, small_batch, tasks
from frazil_old.flows import cdc, full_load, maintenance, setup, stream_read, tasks_or_here
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import compaction, jvm, merge

FLOWS = {"setup": setup.create_tables, "full_load": full_load.run, "cdc_merge": cdc.run, "maintenance": maintenance.run}
POINTS = {
    "load files are read": (load_files, "write_in_tasks"),
    "changes are read": (large_batch, "collapse_files"),
    "messages are read": (message_blocks, "message_blocks"),
    "a row delta is written": (kept_batch.KeptBatch, "written"),
    "a MERGE is written": (merge, "merge"),
    "a branch is published": (jvm, "publish"),
    "files are compacted": (compaction, "rewrite_in_task"),
}  # fmt: skip
"""Where a process can be killed: what a flow calls there."""
ONE_TASK = ("files are compacted",)
"""Points whose job has one task: its executor is killed while it runs, and not when it has ended a task."""


def let_tasks_work() -> None:
    """Let Spark's tasks read every batch, a file each, and order it in several buckets."""
    load_files.IN_PROCESS = small_batch.MOST_MB = -1
    tasks.MOST_GROUP = 1
    large_batch.BUCKET_BYTES = 15_000
    stream_read.MOST = message_batch.MOST = 0
    tasks_or_here.MOST_HASHED = -1


class Killer(threading.Thread):
    """Kill an executor, its whole worker, or this driver, once an executor has ended a task since `start`."""

    def __init__(self, spark, victim: str, is_one_task: bool):
        super().__init__(daemon=True)
        self.store, self.victim, self.is_one_task = spark.sparkContext._jsc.sc().statusStore(), victim, is_one_task
        self.app, self.killed = spark.sparkContext.applicationId, False
        while len(self.executors()) < 2:  # one of the step before may be on its way
            time.sleep(0.05)
        self.before = {e.id(): e.completedTasks() for e in self.executors()}

    def executors(self) -> list:
        listed = self.store.executorList(True)
        return [e for e in (listed.apply(i) for i in range(listed.size())) if e.id() != "driver"]

    def is_hit(self, executor) -> bool:
        if self.is_one_task:
            return executor.activeTasks() > 0
        return executor.completedTasks() > self.before.get(executor.id(), 0)

    def run(self):
        while not (hit := [e.id() for e in self.executors() if self.is_hit(e)]):
            time.sleep(0.005)
        if self.victim == "driver":
            for process in psutil.Process().children(recursive=True):
                process.kill()
            os.kill(os.getpid(), signal.SIGKILL)
        self.kill(hit[0])
        self.killed = True

    def kill(self, executor: str) -> None:
        """Kill it while the other executor stands still, so that the job cannot end before the loss is known."""
        processes = {}
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "--executor-id" in line and self.app in line:
                processes[line[line.index("--executor-id") + 1]] = process
        others = [process for key, process in processes.items() if key != executor]
        for other in others:
            other.suspend()
        if self.victim == "worker":
            processes[executor].parent().kill()
        processes[executor].kill()
        while executor in [e.id() for e in self.executors()]:
            time.sleep(0.05)
        for other in others:
            other.resume()


@contextmanager
def called_at(point: str, act):
    """Call `act` when a flow first comes to a point."""
    place, name = POINTS[point]
    real, waiting = getattr(place, name), [act]

    def call(*arguments, **named):
        if waiting:
            waiting.pop()()
        return real(*arguments, **named)

    with mock.patch.object(place, name, call):
        yield


def run(env: str, flow: str, said: list[str], **settings) -> dict:
    """Run a flow and return what it says of each table."""
    book = Workbook(resolve(flow, {"env": env, **settings}).settings, said.append)
    return {r.table: {"status": r.status, "note": str(r.note), "counts": r.counts} for r in FLOWS[flow](book)}


def held(point: str, *arguments, **settings) -> None:
    """Let another thread run a flow up to a point, at which it stays for ever."""
    reached = threading.Event()

    def stay():
        reached.set()
        threading.Event().wait()

    with called_at(point, stay):
        threading.Thread(target=run, args=arguments, kwargs=settings, daemon=True).start()
        assert reached.wait(120), point


def step(spark, said: list[str], one: dict) -> dict | None:
    """Run one step: a flow; or one in which `kill` is lost `at` a point; or one that is held there."""
    of_flow, at, settings = (one["env"], one["flow"], said), one.get("at", ""), one.get("settings", {})
    if one.get("hold"):
        return held(at, *of_flow, **settings)
    if not one.get("kill"):
        return run(*of_flow, **settings)
    killer = Killer(spark, one["kill"], at in ONE_TASK)
    with called_at(at, killer.start):
        found = run(*of_flow, **settings)
    assert killer.ident, f"nobody came to the point: {at}"
    killer.join(60)
    return {**found, "killed": killer.killed}


def seen_by_executors(spark, hidden: list[str]) -> list[dict]:
    """Return what each executor sees of this machine."""

    def look(_):
        import frazil_old as frazil

        there = [p for p in hidden if os.path.isdir(p) and os.listdir(p)]
        yield {"there": there, "frazil": frazil.__file__, "path": sys.path, "folder": os.getcwd(), "variables": [*os.environ]}  # fmt: skip

    return spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect()


def main(folder: Path) -> None:
    """Do what `folder/steps.json` lists, and write what came of it to `folder/told.json`."""
    given = json.loads((folder / "steps.json").read_text())
    if given.get("host"):
        socket.gethostname = lambda: given["host"]
    let_tasks_work()
    said: list[str] = []
    first = given["steps"][0]["env"]
    spark = Workbook(resolve("setup", {"env": first}).settings, said.append).spark
    told = {"seen": seen_by_executors(spark, given.get("hidden", [])), "steps": [], "seconds": []}
    for one in given["steps"]:
        began = time.monotonic()
        told["steps"].append(step(spark, said, one))
        told["seconds"].append(round(time.monotonic() - began, 1))
    (folder / "told.json").write_text(json.dumps({**told, "said": [str(s) for s in said]}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
