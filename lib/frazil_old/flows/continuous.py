"""Continuous ingestion: process every table on its own clock until time is up or an interrupt stops the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from frazil_old.config.spec import TableSpec
from frazil_old.flows.workbook import Workbook
from frazil_old.report.live_status import LiveStatus, status
from frazil_old.results import TableResult

LOOK_S, LONGEST_PAUSE_S = 0.2, 60.0


def show(live: LiveStatus, result: TableResult) -> None:
    """Show the result of a table's turn, if it failed or did something."""
    if result.failed:
        live.set(result.table, f"failed: {result.note}", important=True)
    elif result.live:
        live.set(result.table, status(result))


def process_continuously(
    book: Workbook, work: Callable[[TableSpec], TableResult], done: Callable[[TableResult], None]
) -> None:
    """Run `work` for each table every `trigger_s` seconds for `run_for_s` seconds, and pass each result to `done`.

    Tables do not wait for each other: a slow one is processed less often. A failed one is tried again after a pause
    that doubles up to a minute. At the end no new work starts, and the run waits for work in progress. The end is
    earlier if nothing was applied for `idle_s` seconds.
    """
    s, until = book.settings, time.monotonic() + book.settings.run_for_s
    applied = time.monotonic()
    due = {spec.source: 0.0 for spec in book.specs.values()}
    pause = dict.fromkeys(due, s.trigger_s)
    flying: dict[Future, tuple[TableSpec, float]] = {}
    book.spark  # noqa: B018  built here, before threads ask for it
    with ThreadPoolExecutor(s.parallel_tables) as pool, book.interruptible():
        over = False
        while flying or not over:
            busy = {spec.source for spec, _ in flying.values()}
            for spec in [] if over else book.specs.values():
                if spec.source not in busy and due[spec.source] <= time.monotonic():
                    flying[pool.submit(book.attempt, spec, work)] = (spec, time.monotonic())
            ended, _ = wait(flying, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            if not flying:
                book.stop.wait(max(0.0, min(LOOK_S, min(due.values()) - time.monotonic())))
            for future in ended:
                spec, began = flying.pop(future)
                result = future.result()
                failing = min(max(2 * pause[spec.source], 1.0), LONGEST_PAUSE_S)
                pause[spec.source] = failing if result.failed else s.trigger_s
                due[spec.source] = (time.monotonic() if result.failed else began) + pause[spec.source]
                done(result)
                applied = time.monotonic() if result.counts.get("batches") else applied
            over = book.stop.is_set() or time.monotonic() >= min(until, asleep(applied, s.idle_s))


def asleep(applied: float, idle_s: float) -> float:
    """Return when a run ends in which nothing was applied since `applied`."""
    return applied + (idle_s or float("inf"))
