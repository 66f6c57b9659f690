"""Interrupts: the first one lets current work finish, the second one aborts it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from frazil_old.errors import FrazilError


class StoppedError(FrazilError):
    """A run that was interrupted twice: uncommitted work is aborted."""


@contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """Turn the first SIGINT (a kernel interrupt) or SIGTERM into an event, so that current work ends with its commit.

    The second one has its usual effect. Only the main thread receives signals; in others nothing changes.
    """
    stop, before = threading.Event(), {}

    def on_signal(number: int, frame) -> None:
        say(
            f"{signal.Signals(number).name}: stopping once the batches in progress are committed; a second one aborts them"
        )
        signal.signal(number, before[number])
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
