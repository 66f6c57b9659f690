"""Runs the steps for all tables: once, or for a time, each table on its own clock. Tables fail alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from frazil.iceberg.commits import pass_others
from frazil.iceberg.compaction import fold
from frazil.iceberg.expiry import expire, wants_expiry
from frazil.pipeline import decisions, ops_tables
from frazil.pipeline.batch import DONE
from frazil.pipeline.next_batch import Look
from frazil.pipeline.steps import Table
from frazil.results import Result, Results, added

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake

TICK_S, LONGEST_PAUSE_S = 0.01, 60.0
STATUSES = {"position-moved": "skipped", "load-waits": "waiting", "stopped": "stopped"}
"""The status of a table by the code of the error that ended its turn; after all others it has failed."""


def load(lake: Lake) -> Results:
    """Apply the load of every table that has none: whoever runs it says that DMS has written all load files."""
    return Results(each(lake, load_table))


def merge(lake: Lake) -> Results:
    """Apply everything that is pending; with `run_for_s` for so long, or until an interrupt."""
    left = dict.fromkeys(lake, lake.settings.max_batches or float("inf"))
    return Results(each(lake, partial(merge_table, left=left), lake.settings.run_for_s))


def load_table(table: Table) -> Result:
    """Apply the load of a table if it has none."""
    decisions.carry_out(table)
    batch = Look(table).next(loads=True)
    if batch is None or batch.kind != "load":
        return Result(table.source, "unchanged")
    done = table.apply(batch).result
    note = "no load files yet: counts as empty; its changes are applied as they come"
    return done if batch.files or batch.left else replace(done, status="empty", note=note)


def merge_table(table: Table, left: dict[Table, float]) -> Result:
    """Apply what is pending for a table, batch by batch; what came since waits for the next look. `left`: the batches that the run may still make."""
    lake, done = table.lake, Result(table.source, "unchanged")
    decisions.carry_out(table)
    look = Look(table)
    while left[table] and not lake.stop.is_set() and (batch := look.next()):
        made = table.apply(batch)
        left[table] -= 1
        counts = ", ".join(f"{name} {count:,}" for name, count in made.counts.items() if count)
        lake.say(f"{table.source}: {DONE[made.kind]} in {made.seconds:.2f} s: {counts}; files left {len(batch.left):,}")
        done = added(done, made.result)
    if not done.counts and table.segments is not None:
        table.segments.have(table.stored)
    keep_fast(table)
    return done


def keep_fast(table: Table) -> Result:
    """Do what keeps a table fast between batches: fold small files, expire, let the tag be the newest snapshot."""
    stored, settings = table.stored, table.lake.settings
    if "handle" in vars(stored):
        if settings.run_for_s:
            fold(stored)
        if wants_expiry(stored, settings.keep_hours):
            ops_tables.keep_facts(table)
            expire(stored, settings.keep_hours)
    if stored.own and stored.own.id != stored.head_id:
        pass_others(stored)
    return Result(table.source, "unchanged")


def each(lake: Lake, work: Callable[[Table], Result], run_for_s: float = 0.0) -> list[Result]:
    """Do `work` for each table; with `run_for_s` again every `trigger_s` seconds. A table that fails pauses longer each time."""
    turns = _Turns(lake, run_for_s)
    lake.source.gate.ask_again()
    working: dict[Future[Result], Table] = {}
    with stop_requests(lake), ThreadPoolExecutor(lake.settings.parallel_tables) as pool:
        while working or not turns.are_over:
            for table in turns.begin():
                working[pool.submit(attempt, table, work)] = table
            for future in wait(working, TICK_S, FIRST_COMPLETED).done:
                turns.end(working.pop(future), future.result())
            if not working and not turns.are_over:
                time.sleep(TICK_S)
    return [turns.results[table] for table in lake if table in turns.results]


class _Turns:
    """When each table begins again, and what its turns came to. A table in its turn is not due."""

    def __init__(self, lake: Lake, run_for_s: float):
        now = time.monotonic()
        self.lake, self.until, self.quiet_since = lake, now + run_for_s, now
        self.due_at = dict.fromkeys(lake, now)
        self.pause_s = dict.fromkeys(lake, 0.0)
        self.results: dict[Table, Result] = {}

    @property
    def are_over(self) -> bool:
        """Whether no table begins again: a run was stopped, or idle, or no turn is due before its end."""
        idle_s = self.lake.settings.idle_s
        is_idle = 0 < idle_s < time.monotonic() - self.quiet_since
        return self.lake.stop.is_set() or is_idle or not self.due_at

    def begin(self) -> list[Table]:
        """Return the tables that are due now."""
        due = [] if self.are_over else [table for table, at in self.due_at.items() if at <= time.monotonic()]
        self.due_at = {table: at for table, at in self.due_at.items() if table not in due}
        return due

    def end(self, table: Table, result: Result) -> None:
        """Take over the result of a turn, and let the next one be due: after a failure later each time."""
        now = time.monotonic()
        self.results[table] = added(self.results.get(table), result)
        if result.status in DONE.values():
            self.quiet_since = now
        longer_s = min(max(2 * self.pause_s[table], 1.0), LONGEST_PAUSE_S)
        self.pause_s[table] = longer_s if result.failed else self.lake.settings.trigger_s
        if now + self.pause_s[table] <= self.until:
            self.due_at[table] = now + self.pause_s[table]


def attempt(table: Table, work: Callable[[Table], Result]) -> Result:
    """Do `work` for one table; an error is its result."""
    began = time.monotonic()
    try:
        with table.busy:
            result = work(table)
    except Exception as error:
        result = result_of(table, error)
    return replace(result, seconds=time.monotonic() - began)


def result_of(table: Table, error: Exception) -> Result:
    """Return the result of a table that an error ended."""
    found = Result.of_error(table.source, error)
    return replace(found, status=STATUSES.get(found.code, found.status))


@contextmanager
def stop_requests(lake: Lake) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end the run after the batches in progress; the second has its usual effect."""
    before: dict[int, Any] = {}

    def on_signal(number: int, frame: object) -> None:
        lake.say(f"{signal.Signals(number).name}: stopping after the batches in progress; a second one aborts them")
        signal.signal(number, before[number])
        lake.stop.set()

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
