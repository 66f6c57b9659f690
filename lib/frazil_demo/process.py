"""Shared by the embedded servers: free ports on loopback, and stopping by process id."""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports on which nothing listens now."""
    with ExitStack() as open_:
        sockets = [open_.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def stop_process(
    process: subprocess.Popen | None,
    patience_s: float,
    ask: signal.Signals = signal.SIGTERM,
    insist: signal.Signals = signal.SIGKILL,
) -> None:
    """Ask a process to end, and force it after `patience_s`; do nothing if it is not running."""
    if process and process.poll() is None:
        process.send_signal(ask)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.send_signal(insist)
            process.wait(5)
