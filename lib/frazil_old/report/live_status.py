"""The status of work in progress: refreshed in an interactive notebook, a line from time to time elsewhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil_old.config.cell_parameters import shell
from frazil_old.errors import many, safe
from frazil_old.report.render import render

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil_old.results import TableResult


def watched() -> bool:
    """Return whether somebody may be watching: in a kernel that a Jupyter server started, not in papermill's."""
    return "JPY_SESSION_NAME" in os.environ and hasattr(shell(), "kernel")


def _displayed(value: Any) -> Any:
    """Display a value whose display can be updated, and return the handle; None if nobody watches."""
    if not watched():
        return None
    from IPython.display import display

    return display(value, display_id=True)


class ProgressBars:
    """A bar per table in progress."""

    def __init__(self):
        self.tasks: dict[str, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return a line per table in progress."""
        return [f"{safe(group)}: {done} of {total} tasks done" for group, (done, total) in self.tasks.items()]

    def _repr_html_(self) -> str:
        bars = [(safe(group), done, total) for group, (done, total) in self.tasks.items()]
        return render("live_status.html.j2", bars=bars, text="")


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Count the finished tasks and all tasks of a job group's running stages."""
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
    """While the block runs, show the finished tasks of each active job group: as bars, or as a line every `every_s` seconds."""
    stop, bars = threading.Event(), ProgressBars()
    if handle := _displayed(bars):
        every_s = min(every_s, 0.5)

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


class LiveStatus:
    """The newest line of each table. `set` is cheap and may be called from any thread."""

    def __init__(self, say: Callable[[str], None], every_s: float = 10.0):
        self.lines: dict[str, str] = {}
        self.say, self.every_s, self.shown_at = say, every_s, {}
        self.lock = threading.Lock()
        self.handle = _displayed(self)

    def __repr__(self) -> str:
        width = max((len(t) for t in self.lines), default=0)
        return (
            "\n".join(f"{t.ljust(width)}  {line}" for t, line in sorted(self.lines.items())) or "(waiting for changes)"
        )

    def _repr_html_(self) -> str:
        return render("live_status.html.j2", bars=[], text=repr(self))

    def set(self, table: str, line: str, important: bool = False) -> None:
        """Show a table's newest line; outside a notebook at most one every `every_s` seconds unless it is important."""
        table, line = safe(table), safe(line, lines=True)
        with self.lock:
            changed, self.lines[table] = self.lines.get(table) != line, line
            if self.handle is not None:
                self.handle.update(self)
            elif changed and (important or time.monotonic() - self.shown_at.get(table, -self.every_s) >= self.every_s):
                self.shown_at[table] = time.monotonic()
                for part in f"{table}: {line}".split("\n"):
                    self.say(part)


def status(pass_: TableResult) -> str:
    """Return the status line of a table's newest pass: its rate, the latency and commit time of its last batch, and what is pending."""
    live, rate = pass_.live, pass_.counts["changes"] / max(pass_.seconds, 1e-3)
    latency = "p50 {lag_p50_s:.1f} s, p99 {lag_p99_s:.1f} s".format_map(live) if "lag_p50_s" in live else "unknown"
    left = f", {many(round(live['pending']), 'file')} pending" if "pending" in live else ""
    return f"{rate:,.0f} changes/s, latency {latency}, commit {live['commit_s']:.2f} s{left}"
