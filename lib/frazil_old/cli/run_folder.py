"""The folder of a run: below `runs/<env>`, or a temporary folder if that cannot be written. Its lock: one run proceeds."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from frazil_old.config.jars import CACHE
from frazil_old.report import runs


class RunFolder:
    """The folder of one run. A full or read-only disk is `trouble`, which does not stop the run."""

    def __init__(self, home: Path, name: str, **facts: Any):
        self.home, self.trouble = home, runs.unusable(home)
        self.spare = Path(tempfile.gettempdir()) / f"frazil-{name}-{secrets.token_hex(8)}"
        """For files that do not fit into the folder; created on demand."""
        if self.trouble:
            self.spare.mkdir(mode=0o700)
        self.folder = self.spare if self.trouble else runs.new_folder(home, name)
        self.facts: dict[str, Any] = {"notebook": name, **facts, "began": time.time()}
        self._room = self.folder / ".room"
        with suppress(OSError):  # freed for the outcome if the disk is full by then
            self._room.write_bytes(b"0" * runs.ROOM)

    def keep(self, **facts: Any) -> None:
        """Add facts to the run's record."""
        self.facts |= facts
        with self.in_trouble():
            self.facts = runs.write(self.folder, **self.facts)

    def end(self, **facts: Any) -> None:
        """Record the run's result and index it."""
        with self.in_trouble():
            self._room.unlink(missing_ok=True)
        self.keep(**facts)
        if (executed := self.file(f"{self.facts['notebook']}.ipynb")).exists():
            with self.in_trouble(), suppress(ValueError):  # a notebook whose file was cut off
                runs.as_page(executed, self.folder / f"{executed.stem}.html")
        with self.in_trouble():
            runs.retain(self.home)
            runs.write_index(self.home)
        if self.spare != self.folder:
            with suppress(OSError):  # it is not empty
                self.spare.rmdir()

    def file(self, name: str) -> Path:
        """Return the path of a file of the run, in whichever folder it was written last."""
        return self.spare / name if (self.spare / name).exists() else self.folder / name

    @contextmanager
    def in_trouble(self) -> Iterator[None]:
        """Record a disk error in this block as the run's `trouble`."""
        try:
            yield
        except OSError as e:
            self.trouble = self.trouble or runs.unusable(self.home, e)

    def where_stored(self) -> str:
        """Return where the run is stored, and what went wrong."""
        spare = f"\n  {self.spare}" if self.spare != self.folder and self.spare.exists() else ""
        trouble = f"\n  {self.trouble}; free some, or name another folder in parameter 'runs'" if self.trouble else ""
        return f"  {self.folder}{spare}{trouble}"


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
