"""Lower priority, so that ingestion comes first: of the processes of a JVM (`nice`), and of jobs in one session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def job_properties(spark: SparkSession) -> dict[str, str | None]:
    """Return what a thread's Spark jobs are named and cancelled by; another thread can set it for its own ones."""
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    return {name: spark.sparkContext.getLocalProperty(name) for name in names}


@contextmanager
def low_priority(spark: SparkSession) -> Iterator[None]:
    """Let the Spark jobs of this block and thread use only cores that ingestion leaves free.

    Without that pool in the session, nothing changes.
    """
    context, pool = spark.sparkContext, "spark.scheduler.pool"
    before = context.getLocalProperty(pool)
    context.setLocalProperty(pool, "maintenance")
    try:
        yield
    finally:
        context.setLocalProperty(pool, before)


@contextmanager
def lowered(nice: int, say: Callable[[str], None] = print) -> Iterator[None]:
    """After the block has ended well, lower the priority of this process and of those that it started in the block.

    Python and Spark start at the usual priority: otherwise the start would take minutes on a busy machine. A kernel
    leads a session, and Linux first shares the CPU among sessions (autogroups). A process's `nice` counts only within
    its own session.
    """
    before = set(_children())
    yield
    if not nice:
        return
    started = [pid for pid in _children() if pid not in before]
    for thread in [t for pid in (os.getpid(), *started) for t in _threads(pid)]:
        with suppress(OSError):  # it has ended since
            os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # another system, or without autogroups
            Path("/proc/self/autogroup").write_text(str(nice))
    say(f"runs at lower priority (nice = {nice}), so that ingestion comes first")


def _children() -> Iterator[int]:
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, file.read_text().split())


def _threads(pid: int) -> list[int]:
    """Return a process's threads: each has its own priority, and the threads that it starts inherit it."""
    return [int(task.name) for task in Path(f"/proc/{pid}/task").glob("*")] or [pid]
