"""Names of the self-test's scratch tables: each names its process, so that tables of killed processes can be removed."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import time
from pathlib import Path

PREFIX = "frazil_selftest_"
FOREIGN_S = 86_400
"""After this many seconds another machine's scratch table counts as abandoned: a self-test takes seconds."""
_NAME = re.compile(rf"{PREFIX}([0-9a-f]{{8}})_(\d+)_(\d+)_(\d+)_[0-9a-f]+")


def new_name() -> str:
    """Return the name of a scratch table of this process."""
    pid = os.getpid()
    return f"{PREFIX}{_machine()}_{pid}_{_birth(pid)}_{int(time.time())}_{secrets.token_hex(4)}"


def is_abandoned(name: str) -> bool:
    """Return whether a table is a scratch table of a process that has ended, or of an earlier version."""
    found = _NAME.fullmatch(name)
    if not found:
        return name.startswith(PREFIX)
    if found[1] != _machine():
        return time.time() - int(found[4]) > FOREIGN_S
    return _birth(int(found[2])) != int(found[3])


def _birth(pid: int) -> int:
    """Return a process's start time in ticks since boot, as process ids are reused; -1 if there is no such process."""
    try:
        os.kill(pid, 0)
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except ProcessLookupError:
        return -1
    except OSError:  # another user's process, or a system without /proc
        return 0


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
