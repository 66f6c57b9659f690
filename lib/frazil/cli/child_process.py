"""The child process of a run: signals are passed on to its notebook, and its end takes all that it started."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


@contextmanager
def pass_signals_on(child: subprocess.Popen) -> Iterator[list[int]]:
    """Pass the first SIGTERM or SIGINT on to the notebook, and yield the signals; the second one ends papermill and its children.

    A service manager signals this process alone, and papermill would die of the signal. A long-running cell completes
    its work in progress (`flows.interrupts`), and the notebook continues to its end. At any other moment the kernel ends.
    """
    import psutil

    came: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        came.append(number)
        if len(came) > 1:
            raise SystemExit(128 + number)
        for process in [p for p in _below(child) if is_kernel(p)] or [child]:
            with suppress(psutil.NoSuchProcess):
                process.terminate()

    def is_kernel(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):  # ended since, or a zombie
            return "ipykernel_launcher" in " ".join(process.cmdline())
        return False

    main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, on_signal) for n in (signal.SIGTERM, signal.SIGINT) if main}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _below(child: subprocess.Popen) -> list[psutil.Process]:
    """Return all descendants of a child process; none if it has ended."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        return psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
    return []


def end_child(child: subprocess.Popen) -> None:
    """End papermill, its kernel (which has its own process group), and the kernel's Spark."""
    import psutil

    family = _below(child)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(5)
    child.kill()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    child.wait()
