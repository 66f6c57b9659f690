"""Progress of long work: bars in an interactive notebook, a line from time to time elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.errors import safe
from frazil.report.render import render

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Count the finished tasks and all tasks of a job group's running stages."""
    tracker, done, total = spark.sparkContext.statusTracker(), 0, 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info and info.status == "RUNNING" else ():
            if found := tracker.getStageInfo(stage):
                done, total = done + found.numCompletedTasks, total + found.numTasks
    return done, total


def watched() -> bool:
    """Tell whether somebody may be watching: in a kernel that a Jupyter server started, not in papermill's."""
    if "JPY_SESSION_NAME" not in os.environ:
        return False
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


class Bars:
    """A bar per table at work."""

    def __init__(self):
        self.tasks: dict[str, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return a line per table at work."""
        return [f"{safe(group)}: {done} of {total} tasks done" for group, (done, total) in self.tasks.items()]

    def _repr_html_(self) -> str:
        bars = [(safe(group), done, total) for group, (done, total) in self.tasks.items()]
        return render("live_status.html.j2", bars=bars, text="")


@contextmanager
def heartbeat(
    spark: SparkSession, groups: set[str], say: Callable[[str], None], every_s: float = 10.0
) -> Iterator[None]:
    """While the block runs, show the finished tasks of each active job group: as bars, or as a line every `every_s` seconds."""
    stop, bars, handle = threading.Event(), Bars(), None
    if watched():
        from IPython.display import display

        handle, every_s = display(bars, display_id=True), min(every_s, 0.5)

    def beat() -> None:
        while not stop.wait(every_s):
            bars.tasks = {g: tasks for g in sorted(groups.copy()) if (tasks := _tasks(spark, g))[1]}
            if handle:
                handle.update(bars)
            else:
                for line in bars.lines():
                    say(line)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        bars.tasks = {}
        if handle:
            handle.update(bars)
