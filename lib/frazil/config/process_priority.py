"""The priority of a run on a busy machine: maintenance lets ingestion run first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
    say(
        f"runs at lower priority (nice = {nice}), so that ingestion comes first; parameter 'nice' = 0: at the usual one"
    )


def _children() -> Iterator[int]:
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, file.read_text().split())


def _threads(pid: int) -> list[int]:
    """Return a process's threads: each has its own priority, and the threads that it starts inherit it."""
    return [int(task.name) for task in Path(f"/proc/{pid}/task").glob("*")] or [pid]
