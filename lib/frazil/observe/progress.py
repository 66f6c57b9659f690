"""Signs of life from long work: how far Spark is with each table, now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Count the finished and all tasks of a job group's running stages."""
    tracker, done, total = spark.sparkContext.statusTracker(), 0, 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info and info.status == "RUNNING" else ():
            if found := tracker.getStageInfo(stage):
                done, total = done + found.numCompletedTasks, total + found.numTasks
    return done, total


@contextmanager
def heartbeat(
    spark: SparkSession, groups: set[str], say: Callable[[str], None], every_s: float = 10.0
) -> Iterator[None]:
    """While the block runs, say every so often how many tasks of each job group in work are done."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(every_s):
            for group in sorted(groups):
                done, total = _tasks(spark, group)
                if total:
                    say(f"{group}: {done} of {total} tasks done")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
