"""Refreshes a warehouse after commits, in a thread of its own, and reads back what it serves.

Commits put their table into a set. The thread takes the whole set, refreshes, reads back, and takes the next one. So its
own duration limits the rate, and no commit waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil_old.config.warehouses import Warehouse
from frazil_old.errors import FrazilError, log
from frazil_old.warehouses.connect import connected, rows_of
from frazil_old.warehouses.family import LakeTable, Served, family

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


@dataclass(frozen=True)
class State:
    """A state of a table in the lake: snapshot, time of its commit, metadata file."""

    snapshot: int
    committed_ms: int
    metadata: str


@dataclass(frozen=True)
class Seen:
    """What a warehouse served of a table at a time, and what the lake had then.

    `status`: `served`, `late` (it serves an older state), `stopped` (it refreshes no more), `failed`, `unanswered` or
    `unknown` (it shows nothing). `why` explains it.
    """

    warehouse: str
    table: str
    newest: State
    served: Served
    status: str
    why: str = ""
    at_ms: int = 0


def place(metadata: str) -> str:
    """Return the address of a metadata file without what engines write differently."""
    return metadata.removeprefix("file:").replace("///", "/", 1).replace("s3a://", "s3://", 1)


def is_at(served: Served, newest: State) -> bool:
    """Return whether a warehouse serves a state."""
    if served.snapshot is not None:
        return served.snapshot == newest.snapshot
    return bool(served.metadata) and place(served.metadata) == place(newest.metadata)


def look(w: Warehouse, connection: Any, table: LakeTable, newest: State, refresh: bool = True) -> Seen:
    """Refresh a table if the warehouse needs it, read back what it serves, and compare that with a state."""
    module = family(w)
    bound = LakeTable(table.source, table.target, newest.metadata)
    for statement in module.refresh(w, bound) if refresh else ():
        rows_of(w, connection, statement)
    query = module.read_back(w, bound)
    served = module.served(rows_of(w, connection, query)) if query else Served()
    status, why = "late", "it serves an older state"
    if served.stopped:
        status, why = "stopped", served.stopped
    elif served == Served():
        status, why = "unknown", f"{w.entries.engine} does not show what it serves"
    elif is_at(served, newest):
        status, why = "served", ""
    return Seen(w.name, table.source, newest, served, status, why, round(time.time() * 1000))


def failed(w: Warehouse, table: LakeTable, newest: State, why: str, served: Served | None = None) -> Seen:
    """Return that a warehouse gave an error. `served`: what it was last seen to serve."""
    return Seen(w.name, table.source, newest, served or Served(), "failed", why, _now_ms())


class Refresher:
    """The thread of one warehouse. `newest` returns a table's state in the lake, `record` keeps what was seen."""

    def __init__(self, w: Warehouse, newest: Callable[[LakeTable], State], record: Callable[[Seen], None]):
        self.w, self._newest, self._record = w, newest, record
        self.first_pause_s = FIRST_PAUSE_S
        self._news = threading.Condition()
        self._waiting: dict[str, LakeTable] = {}
        self._busy: dict[str, LakeTable] = {}
        self._until: float | None = None
        self._last: dict[str, Seen] = {}
        self._connection: Any = None
        self._thread: threading.Thread | None = None

    def committed(self, table: LakeTable) -> None:
        """Have a table refreshed soon. This returns immediately."""
        with self._news:
            self._waiting[table.source] = table
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"frazil-{self.w.name}", daemon=True)
                self._thread.start()
            self._news.notify()

    def end(self) -> None:
        """Take no more commits, and finish those that wait within `refresh_wait_s`."""
        with self._news:
            self._until = time.monotonic() + self.w.entries.refresh_wait_s
            self._news.notify()

    def join(self) -> list[str]:
        """Wait for the end; return the source tables that are not served yet."""
        if self._thread is None:
            return []
        self._thread.join(max(0.0, self._until - time.monotonic()) + 0.2)
        with self._news:
            left = {**self._busy, **self._waiting}
            busy = self._thread.is_alive() and self._busy
        for source in busy or ():
            if seen := self._last.get(source):
                self._keep(
                    Seen(seen.warehouse, source, seen.newest, seen.served, "unanswered", "no answer in time", _now_ms())
                )
        return sorted(left)

    def _work(self) -> None:
        """Refresh until the end; an error costs a pause, which doubles, and never more."""
        pause = self.first_pause_s
        while taken := self._take():
            again = {t.source: t for t in taken if not self._turn(t)}
            pause = min(2 * pause, LONGEST_PAUSE_S) if again else self.first_pause_s
            if hasattr(family(self.w), "EXCLUSIVE"):
                self._close()
            with self._news:
                self._busy, self._waiting = {}, {**again, **self._waiting}
                if again:
                    self._pause(pause / 2)
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _pause(self, seconds: float) -> None:
        """Wait, with the lock, until time is up or the end is asked for."""
        ending = self._until is not None
        left = min(seconds, self._until - time.monotonic()) if ending else seconds
        self._news.wait_for(lambda: self._until is not None and not ending, max(0.0, left))

    def _take(self) -> list[LakeTable]:
        """Wait for tables and return all; none at the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._until is not None)
            if self._until is not None and time.monotonic() >= self._until:
                return []
            self._busy, self._waiting = self._waiting, {}
            return list(self._busy.values())

    def _turn(self, table: LakeTable) -> bool:
        """Refresh one table; return whether nothing is left to do for it."""
        state = State(0, 0, "")
        try:
            state = self._newest(table)
            last = self._last.get(table.source)
            if last and last.status == "served" and last.newest == state:
                return True
            if last is None:
                self._last[table.source] = Seen(self.w.name, table.source, state, Served(), "late", "not looked at yet")
            self._connection = self._connection or connected(self.w)
            seen = look(self.w, self._connection, table, state)
        except Exception as e:  # a warehouse must not disturb a run
            why = e.problem if isinstance(e, FrazilError) else f"{type(e).__name__}: {e}"
            log.warning("warehouse %s: %s: %s", self.w.name, table.source, why)
            self._connection = None
            before = self._last.get(table.source)
            seen = failed(self.w, table, state, why, before.served if before else None)
        self._keep(seen)
        return seen.status in ("served", "unknown", "stopped")

    def _keep(self, seen: Seen) -> None:
        self._last[seen.table] = seen
        try:
            self._record(seen)
        except Exception:
            log.warning("what warehouse %s serves was not recorded", self.w.name, exc_info=True)


def _now_ms() -> int:
    return round(time.time() * 1000)
