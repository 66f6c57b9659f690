"""The output of Spark's JVM, in a log without credentials and control characters."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from frazil.errors import safe_output


class JvmOutput:
    """Copies a JVM's output to a file, line by line, until the JVM ends."""

    def __init__(self, file: str, source: int):
        self.file, self.lines = file, deque(maxlen=5000)
        with suppress(OSError):
            os.makedirs(os.path.dirname(file), exist_ok=True)
        self.thread = threading.Thread(target=self._copy, args=[source], daemon=True)
        self.thread.start()

    def _copy(self, source: int) -> None:
        with os.fdopen(source, "rb") as printed:
            for line in printed:
                text = safe_output(line.decode("utf-8", "replace"))
                self.lines.append(text)
                with (
                    suppress(OSError),
                    open(self.file, "a", encoding="utf-8") as log,
                ):  # a full disk must not stop Spark
                    log.write(text)

    def text(self, wait_s: float = 5.0) -> str:
        """Return the output of a JVM that has ended."""
        self.thread.join(wait_s)
        return "".join(self.lines)


@contextmanager
def jvm_output_to(file: str) -> Iterator[JvmOutput]:
    """Redirect the log of a JVM that starts in this block to a file, away from the cells' results.

    The JVM inherits file descriptors 1 and 2 for its whole life. Python's own are restored after the block.
    """
    read, write = os.pipe()
    kept = os.dup(1), os.dup(2)
    output = JvmOutput(file, read)
    for number in (1, 2):
        os.dup2(write, number)
    os.close(write)
    try:
        yield output
    finally:
        for saved, number in zip(kept, (1, 2), strict=True):
            os.dup2(saved, number)
            os.close(saved)
