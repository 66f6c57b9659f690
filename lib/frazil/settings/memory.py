"""The memory that Python may use: one budget for the process. Batches are cut to their share; tasks on this machine take theirs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frazil.errors import FrazilError

GB = 1 << 30
RESERVE, LEAST = GB // 2, GB
"""What Java needs beside its heap and Python beside batches; and the least that batches need."""


class TooLittleMemoryError(FrazilError, code="memory"):
    """Too little memory is left for Python beside Spark's heap. Make `spark.driver.memory` smaller, or the container larger."""


def memory_limit(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes that this process may use: the least limit of its containers (cgroup v1, v2), else the machine's."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    paths = [line.split(":", 2)[-1].strip("/") for line in own.read_text().splitlines()] if own.exists() else []
    for top, name in ((groups, "memory.max"), (groups / "memory", "memory.limit_in_bytes")):
        for path in ("", *paths):
            files = [folder / name for folder in ((top / path), *(top / path).parents) if folder.is_relative_to(top)]
            found += [int(text) for f in files if f.exists() and (text := f.read_text().strip()).isdigit()]
    return min(found)


def default_heap() -> int:
    """Return the heap of a session that Frazil starts, in bytes: a quarter of the limit, 4 GB at most."""
    return min(4 * GB, memory_limit() // 4)


class Budget:
    """The bytes that batches may have together. Who wants more than is free waits; what is larger than all runs alone."""

    def __init__(self, heap: int, limit: int):
        self.size, self.used = limit - heap - RESERVE, 0
        self._turn, self._changed = threading.Lock(), threading.Condition()
        self.shown = f"{self.size / GB:.1f} GB for batches: {limit / GB:.1f} less {heap / GB:.1f} of heap and 0.5"
        if self.size < LEAST:
            room = (limit - RESERVE - LEAST) >> 20
            smaller = f"set spark.driver.memory to {room}m, in spark_options or where the job is submitted"
            cure = smaller if room >= 512 else "let the container have 2 GB or more"
            raise TooLittleMemoryError(f"{self.shown}; 1 GB is the least", cure)

    @contextmanager
    def take(self, size: int) -> Iterator[None]:
        """Hold some bytes during this block."""
        share = min(size, self.size)
        with self._turn, self._changed:  # who came first goes first, or a large one would never find room
            self._changed.wait_for(lambda: self.used + share <= self.size)
            self.used += share
        try:
            yield
        finally:
            with self._changed:
                self.used -= share
                self._changed.notify_all()


_lock = threading.Lock()
_of_process: list[Budget] = []


def budget(heap: int) -> Budget:
    """Return the budget of this process, which all its lakes share; the first call makes it."""
    with _lock:
        if not _of_process:
            _of_process.append(Budget(heap, memory_limit()))
        return _of_process[0]
