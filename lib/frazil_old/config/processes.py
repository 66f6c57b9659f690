"""Whether the process that started something still runs."""

from __future__ import annotations

import os
import socket
import time
import zlib
from functools import cache
from pathlib import Path

DAY_S, ROUNDING_S = 86_400, 2.0
"""Seconds for which another host's process counts as running, and by which rounded times may differ."""


@cache
def host() -> str:
    """Return a short name of this host or container: processes under the same name see each other."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    return f"{zlib.crc32(f'{socket.gethostname()}{processes}'.encode()):08x}"


def is_running(on: str, pid: int, began: float) -> bool:
    """Return whether the process runs that did something at `began`, in epoch seconds, on a host; process ids are reused.

    A process that has ended is listed as a zombie until its parent asks for its result, in many containers forever.
    """
    if on != host():
        return time.time() - began < DAY_S
    try:
        if not os.path.isdir("/proc"):
            os.kill(pid, 0)
            return True
        state, *facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:  # another user's
        return True
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(facts[18]) / os.sysconf("SC_CLK_TCK")
    return state not in "ZX" and started <= began + ROUNDING_S
