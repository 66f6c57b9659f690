"""CDC: a table's change files are applied batch by batch, each in one commit that carries the position."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from frazil.config.spec import TableSpec
from frazil.dms.objects import TableObjects
from frazil.dms.position import Position, is_other_load, pending_changes, take_batch
from frazil.dms.read import CHANGE_PHASE
from frazil.flows import full_load, quarantine, streams, watch
from frazil.flows.apply import apply_batch
from frazil.flows.batch import of_files
from frazil.flows.loop import keep_on, show
from frazil.flows.shape import follow
from frazil.flows.source import follow_source
from frazil.flows.workbook import TableResult, Workbook
from frazil.lake import commit
from frazil.lake.commit import PositionMovedError
from frazil.lake.tables import read_base
from frazil.observe.board import Board


def _held(there: TableObjects, position: Position, pending: int, own: bool) -> str:
    """Say what waits, and for what: changes belong on top of the load that is there, and of no other.

    `own`: whether pending files hold changes of this table only. DMS writes the first one when the load is complete.
    """
    if position.awaits_load and there.loads and not (pending and own):
        return f"{len(there.loads)} load file(s) came after 01_full_load found none: run it again"
    waits = f"{pending} change file(s) wait until" if pending else ""
    if waits and not position.loaded:
        return f"{waits} the full load is applied: run 01_full_load"
    if waits and is_other_load(there, position):
        return f"{waits} the load files that changed are applied: run 01_full_load, see on_changed_load"
    return ""


def run(book: Workbook) -> list[TableResult]:
    """Apply what is pending, table by table, until nothing is left or `max_batches` is reached. Tables fail alone.

    With `run_for_s` each table is looked at again every `trigger_s` seconds for that long, or until an interrupt or SIGTERM,
    which both let the batches under way commit. A line per table shows how it goes.
    """
    if book.stream:
        follow_source(book)
        return streams.run(book)
    total = {spec.source: TableResult(spec.source, "unchanged", "nothing new") for spec in book.specs.values()}
    if watch.nothing_pending(book):
        return list(total.values())
    follow_source(book)

    def work(spec: TableSpec) -> TableResult:
        return _one_pass(book, spec, total[spec.source].counts.get("batches", 0), lambda so_far: show(board, so_far))

    if not book.settings.run_for_s:
        for result in book.each_table(work):
            total[result.table].add(result)
        book.lanes.save()
        return list(total.values())
    board = Board(book.progress)

    def done(spec: TableSpec, result: TableResult) -> None:
        total[spec.source].add(result)
        show(board, result)

    keep_on(book, work, done)
    book.lanes.save()
    return list(total.values())


def _one_pass(book: Workbook, spec: TableSpec, before: int, tell: Callable[[TableResult], None]) -> TableResult:
    """Apply what is pending behind one table's position now; what comes meanwhile waits, so that other tables get their turn.

    In a run that lasts, `tell` hears of each batch: a pass through a backlog is long.
    """
    s, name, began = book.settings, book.name(spec), time.monotonic()
    done, end = TableResult(spec.source, "unchanged", "nothing new"), ""
    if not before or commit.leaves_branches(name):
        commit.remove_abandoned_branches(book.spark, name)
    while not (book.stop.is_set() and done.counts) and (
        not s.max_batches or before + done.counts.get("batches", 0) < s.max_batches
    ):
        base = read_base(book.spark, name)
        quarantine.look_after(book, spec, base)
        there = book.objects(spec, base.position, watch=not done.counts)
        waiting = pending_changes(there, base.position, spec.source)
        end = end or (waiting[-1].name if waiting else "")
        pending = [o for o in waiting if o.name <= end]
        own = not book.endpoint.preserve_transactions
        if held := _held(there, base.position, len(pending), own):
            return TableResult(spec.source, "held", held, counts=done.counts)
        if not pending:
            break
        if base.position.awaits_load and there.loads:
            done.add(full_load.apply_load(book, spec, there, base, "load"))
            continue
        files = take_batch(pending, s.max_batch_mb << 20, s.max_batch_files)
        book.check_files(spec, replace(there, changes=tuple(files)))
        book.tell_of_others(files)
        try:
            shaped = follow(book, spec, base, files, CHANGE_PHASE)
            on = shaped.on(base)
            counts, done.live = apply_batch(book, shaped.spec, on, of_files(book, shaped.spec, on, files))
        except PositionMovedError as e:
            return TableResult(spec.source, "skipped", str(e), counts=done.counts)
        done.add(TableResult(spec.source, "merged", "", counts={"batches": 1, "files": len(files), **counts}))
        left = len(pending) - len(files)
        done.live["pending"] = len(waiting) - len(files)  # with what came since
        if s.run_for_s:
            tell(replace(done, seconds=time.monotonic() - began))
        else:
            book.progress(
                f"{spec.source}: batch of {len(files)} file(s), {counts['changes']:,} changes; {left} file(s) left"
            )
        if not left:
            break
    return done
