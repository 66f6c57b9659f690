"""The lock of a notebook: of several runs of one notebook and environment, one proceeds."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from frazil.config.jars import CACHE


@contextmanager
def run_lock(file: Path):
    """Hold a lock until this process and the child that inherits it have ended; yield None if another run holds it.

    The kernel frees it however they end; the process id in the file is only for people.
    """
    with _opened(file) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        with suppress(OSError):
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), f"{os.getpid()}\n".encode())
        yield lock


def _opened(file: Path) -> BinaryIO:
    """Open a lock file as far as its disk allows; if it cannot be created, use one in the user's own folder."""
    with suppress(OSError):
        return open(file, "ab")
    with suppress(OSError):
        return open(file, "rb")
    CACHE.mkdir(parents=True, exist_ok=True)
    return open(CACHE / f"{hashlib.sha256(str(file).encode()).hexdigest()}.lock", "ab")
