"""CDC: apply a table's change files batch by batch, each in one commit that carries the position."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_row_errors import BadRowError
from frazil_old.core.csv import RowBordersError
from frazil_old.dms.changed_load import is_other_load
from frazil_old.dms.file_integrity import ChangedWhileReadError, require_unchanged
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.pending_changes import AppliedState, with_known_loads
from frazil_old.dms.position import Position
from frazil_old.dms.source_errors import SourceError
from frazil_old.engine.read_files import FileToRead, count_tables
from frazil_old.engine.small_batch import are_small
from frazil_old.engine.tasks import groups_of, results_of_groups
from frazil_old.errors import FrazilError, many
from frazil_old.flows import pending_work, quarantine
from frazil_old.flows.apply_batch import apply_batch
from frazil_old.flows.continuous import process_continuously, show
from frazil_old.flows.file_batch import FileBatch, next_batch, require_whole_rows
from frazil_old.flows.follow_source import follow_source
from frazil_old.flows.schema_changes import follow
from frazil_old.flows.tasks_or_here import tasks_or_here
from frazil_old.flows.warehouse_refresh import refreshing
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, commit, jvm
from frazil_old.lake.commit import PositionMovedError
from frazil_old.lake.schema_evolution import SchemaError
from frazil_old.lake.stored_applied_files import await_files, remember_same
from frazil_old.lake.tables import TableState, read_table_state
from frazil_old.report.live_status import LiveStatus
from frazil_old.results import TableResult

MOST_CHANGED = 3  # so often may files change while a pass reads them


def _waits_for(listed: TableObjects, position: Position, pending: int, only_own_rows: bool) -> str:
    """Return what waits, and for what: changes apply only to the load that they belong to.

    `only_own_rows`: whether change files hold rows of this table only. DMS writes the first one when the load is complete.
    """
    if position.awaits_load and listed.loads and not (pending and only_own_rows):
        return f"{many(listed.loads, 'load file')} came after 01_full_load found none: run it again"
    waits = f"pending: {many(pending, 'change file')}, until" if pending else ""
    if waits and not position.loaded:
        return f"{waits} the full load is applied: run 01_full_load"
    if waits and is_other_load(listed, position):
        return f"{waits} the load files that changed are applied: run 01_full_load, see on_changed_load"
    return ""


@refreshing
def run(book: Workbook) -> list[TableResult]:
    """Apply pending changes to all tables until nothing is left or `max_batches` is reached. Tables fail independently.

    With `run_for_s` each table is checked every `trigger_s` seconds for that long, or until an interrupt or SIGTERM.
    Both let the batches in progress commit. Each table's progress is shown on one line.
    """
    if book.stream:
        follow_source(book)
        from frazil_old.flows import stream_cdc

        return stream_cdc.run(book)
    total = {spec.source: TableResult(spec.source, "unchanged", "nothing new") for spec in book.specs.values()}
    if still := pending_work.nothing_pending(book):
        return [TableResult(table, facts["status"], facts.get("note", "nothing new")) for table, facts in still.items()]
    follow_source(book)

    live = LiveStatus(book.progress) if book.settings.run_for_s else None

    applied: dict[str, dict[str, int]] = {}
    """The counts of each table's present pass, which a failure does not undo."""

    def report(so_far: TableResult, text: str) -> None:
        applied[so_far.table] = so_far.counts
        if live:
            show(live, so_far)
        else:
            book.progress(text)

    def work(spec: TableSpec) -> TableResult:
        return _one_pass(book, spec, total[spec.source].counts.get("batches", 0), report)

    def done(result: TableResult) -> None:
        counts = applied.pop(result.table, {})
        result.counts = counts if result.failed else result.counts
        total[result.table].add(result)
        if live:
            show(live, result)

    if live:
        process_continuously(book, work, done)
    else:
        for result in book.each_table(work):
            done(result)
    book.lanes.save()
    return list(total.values())


def _list_pending(
    book: Workbook, spec: TableSpec, base: TableState, may_list_fully: bool
) -> tuple[TableObjects, list[DmsObject]]:
    """List a table's files; return them, and those to apply, in order.

    After an error the next listing is a full one, so that the same error stops the table again.
    """
    state = AppliedState(book.name(spec), spec.source, base.position, base.stored, base.record)
    try:
        listed = book.objects(spec, base.position, may_list_fully, base.record)
        listed, same = with_known_loads(listed, state)
        found = book.require_applicable(spec, state, listed)
    except FrazilError:
        book.list_in_full(spec)
        raise
    if same := [*same, *found.same]:
        remember_same(jvm.load_table(book.spark, book.name(spec)), base.record, same, batch_branches.new_batch())
        book.progress(f"{spec.source}: {many(same, 'file')} with another time, and the bytes that were applied")
    names = {o.name for o in listed.changes}
    if given_up := [n for n in base.record.awaited if n in book.settings.go_on_without and n not in names]:
        await_files(jvm.load_table(book.spark, book.name(spec)), base.record, (), given_up)
        book.progress(f"{spec.source}: continues without {', '.join(given_up)}: their changes are lost")
    return listed, found.pending


def _apply_files(
    book: Workbook, spec: TableSpec, base: TableState, files: list[DmsObject], listed: TableObjects
) -> tuple[dict[str, int], dict[str, float]]:
    """Apply a batch. If a file has disappeared meanwhile, or one cannot be read, the table records that they existed."""
    try:
        shaped = follow(book, spec, base, files, CHANGE_PHASE)
        require_whole_rows(book, shaped.spec)
        batch = FileBatch(book, shaped.spec, shaped.on(base), files, listed)
        counts, live = apply_batch(book, shaped.spec, batch.base, batch)
    except PositionMovedError:
        raise
    except Exception as error:
        # A file that has gone or grown explains any error of its reader.
        try:
            require_unchanged(files, spec.source)
        except ChangedWhileReadError as changed:
            if changed.gone:
                _await_once(book, spec, base, files)
            raise changed from None
        if isinstance(error, BadRowError | RowBordersError | SchemaError | SourceError):
            _await_once(book, spec, base, files)
        raise
    batch.update.done()
    return counts, live


def _await_once(book: Workbook, spec: TableSpec, base: TableState, files: list[DmsObject]) -> None:
    """Record that files existed, unless the table knows: they are asked for if they are gone."""
    names = [o.name for o in files]
    if not {*names} <= {*base.record.awaited}:
        await_files(jvm.load_table(book.spark, book.name(spec)), base.record, names)


def _one_pass(
    book: Workbook, spec: TableSpec, batches_before: int, report: Callable[[TableResult, str], None]
) -> TableResult:
    """Apply what is pending after one table's position now; later files wait, so that other tables get their turn.

    `batches_before`: how many batches earlier passes of this run applied. `report` gets the result so far and a text
    after each batch, since a pass through a backlog takes long.
    """
    name, began = book.name(spec), time.monotonic()
    done, last_of_pass, changed_while_read = TableResult(spec.source, "unchanged", "nothing new"), "", 0
    if not batches_before or commit.leaves_branches(name):
        batch_branches.remove_abandoned_branches(book.spark, name)
    while _may_go_on(book, batches_before, done):
        base = read_table_state(book.spark, name)
        base.require_not_paused(spec.source)
        quarantine.settle_leftovers(book, spec, base)
        listed, pending = _list_pending(book, spec, base, may_list_fully=not done.counts)
        last_of_pass = last_of_pass or (pending[-1].name if pending else "")
        of_pass = _up_to(last_of_pass, pending)
        if why := _waits_for(listed, base.position, len(of_pass), not book.endpoint.preserve_transactions):
            return TableResult(spec.source, "waiting", why, counts=done.counts)
        if not of_pass:
            break
        if base.position.awaits_load and listed.loads:
            from frazil_old.flows import full_load

            done.add(full_load.apply_load(book, spec, listed, base, "load"))
            continue
        files = next_batch(book, spec, of_pass)
        book.check_files(spec, replace(listed, changes=tuple(files)))
        try:
            counts, done.live = _apply_files(book, spec, base, files, listed)
        except PositionMovedError as e:
            return TableResult(spec.source, "skipped", str(e), counts=done.counts)
        except ChangedWhileReadError as e:
            last_of_pass = _last_unchanged(book, spec, files, e, done)
            changed_while_read += 1
            if not last_of_pass or changed_while_read > MOST_CHANGED:
                break
            continue
        report_ignored(book, files)
        done.add(TableResult(spec.source, "merged", "", counts={"batches": 1, "files": len(files), **counts}))
        left = len(of_pass) - len(files)
        done.live["pending"] = len(pending) - len(files)  # including files that arrived since
        text = f"{spec.source}: batch of {many(files, 'file')}, {many(counts['changes'], 'change')}; {many(left, 'file')} left"
        report(replace(done, seconds=time.monotonic() - began), text)
        if not left:
            break
    return done


def _up_to(last: str, pending: list[DmsObject]) -> list[DmsObject]:
    """Return the pending files up to that of this name, in the order in which they are applied; none without it."""
    names = [o.name for o in pending]
    return pending[: names.index(last) + 1] if last in names else []


def _may_go_on(book: Workbook, batches_before: int, done: TableResult) -> bool:
    """Return whether a pass may apply another batch; a stopped run still applies one."""
    if book.stop.is_set() and done.counts:
        return False
    most = book.settings.max_batches
    return not most or batches_before + done.counts.get("batches", 0) < most


def _last_unchanged(
    book: Workbook, spec: TableSpec, files: list[DmsObject], error: ChangedWhileReadError, done: TableResult
) -> str:
    """Leave files that changed while they were read to a later batch; return the last file before them, or an empty text.

    Raise the error if files have gone.
    """
    book.list_in_full(spec)
    if error.gone:
        raise error
    done.note = f"{', '.join(error.changed)} changed while it was read: left for the next batch"
    book.progress(f"{spec.source}: {done.note}")
    if files[0].name in error.changed:
        return ""
    return max((o.name for o in files if o.name < min(error.changed)), default="")


def report_ignored(book: Workbook, files: Sequence[DmsObject]) -> None:
    """Report, once per file, the tables that this run does not take, and how many rows of theirs are ignored."""
    new = book.not_yet_reported([f for f in files if f.is_shared])
    if not new:
        return
    counts = tasks_or_here(book, "this process counts ignored rows", lambda here: _counts(book, new, here))
    for taken in book.specs.values():
        counts.pop(book.mappings.target_name(taken), None)
    if counts:
        named = ", ".join(f"{count:,} of {schema}.{table}" for (schema, table), count in sorted(counts.items()))
        book.progress(
            f"{new[0].name} … {new[-1].name}: rows of tables that this run does not process are ignored: {named}"
        )


def _counts(book: Workbook, files: Sequence[DmsObject], in_process: bool) -> Counter[tuple[str, str]]:
    """Return the number of rows by schema and table: counted in this process, or in a task for each group of files."""
    planned = [FileToRead(f.path, i, (), book.endpoint.dialect) for i, f in enumerate(files)]
    if in_process or are_small(files):
        return count_tables(planned)
    groups = groups_of(planned, [f.size for f in files], book.spark.sparkContext.defaultParallelism)
    return sum(results_of_groups(book.spark, groups, count_tables), Counter())
