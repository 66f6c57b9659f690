"""Full load: a table's LOAD files become its rows, in one commit, once."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from frazil_old.config.spec import TableSpec
from frazil_old.dms.applied_files import key_of
from frazil_old.dms.changed_load import (
    is_other_load,
    load_as_json,
    loaded_before,
    require_one_load,
    require_replayable,
    require_same_load,
)
from frazil_old.dms.file_integrity import FileWatch
from frazil_old.dms.file_layout import LOAD_PHASE
from frazil_old.dms.late_files import last_before_load
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.load_gate import LoadGate, load_gate
from frazil_old.dms.pending_changes import AppliedState, with_known_loads
from frazil_old.dms.position import Position, after_load
from frazil_old.engine import load_files as engine
from frazil_old.engine.read_files import files_of_keys, plan_files
from frazil_old.errors import LOAD_AGAIN, FrazilError, many
from frazil_old.flows import quarantine
from frazil_old.flows.apply_batch import write_files
from frazil_old.flows.follow_source import follow_source
from frazil_old.flows.quarantine import OfBatch
from frazil_old.flows.schema_changes import follow, require_first_files
from frazil_old.flows.tasks_or_here import digests_of
from frazil_old.flows.warehouse_refresh import refreshing
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, commit, jvm
from frazil_old.lake.other_writers import COLUMNS, OtherWriterError, duplicates
from frazil_old.lake.rollback import RolledBackError
from frazil_old.lake.stored_applied_files import Update, remember_same
from frazil_old.lake.tables import LOAD, TableError, TableState, columns_of, load_of, read_table_state
from frazil_old.results import TableResult

EMPTY = "no load files yet: counts as empty; its changes are applied as they come"


class DuplicateKeyError(FrazilError):
    """A key occurs more than once in a load: the declared key is wrong, or two loads are mixed."""


def verdict(there: TableObjects, position: Position, on_changed_load: str) -> str:
    """Return what a table needs: `load`, `load nothing`, `reload`, `replay`, `refuse`, or `loaded` (nothing).

    DMS writes no load file for an empty table. `load nothing` records that, so that changes may start. A load file that
    arrives before the first change is applied still belongs to the first load.
    """
    if not position.loaded or position.awaits_load:
        of_none = "loaded" if position.loaded else "load nothing"
        return "load" if there.loads else of_none
    if on_changed_load == "replay":
        return "replay"
    return on_changed_load if is_other_load(there, position) else "loaded"


@refreshing
def run(book: Workbook) -> list[TableResult]:
    """Load every table that needs it.

    It is safe to run again at any time, also after a kill. Tables fail independently.
    """
    follow_source(book)
    if book.stream:
        from frazil_old.flows import stream_load

        return stream_load.run(book)
    gate = _gate(book)

    def work(spec: TableSpec) -> TableResult:
        there = book.objects(spec)
        try:
            base, there, action = _decide(book, spec, there)
        except TableError:
            require_first_files(book, spec, there)
            raise
        base.require_not_paused(spec.source)
        batch_branches.remove_abandoned_branches(book.spark, book.name(spec))
        if action == "refuse":
            require_same_load(there, base.position, load_of(book.spark, book.name(spec)), spec.source)
        elif action != "loaded" and (waits := load_waits(gate, spec.source, bool(there.loads))):
            return TableResult(spec.source, "waiting", waits)
        if action == "load nothing":
            position = after_load(base.position, there, batch_branches.new_batch())
            kept = Update(jvm.load_table(book.spark, book.name(spec)), base.record, position.batch, there.changes)
            kept.load(position.last, there, {}, replay=False)
            metadata = commit.CommitMetadata(position, {"frazil.kind": "load"}, kept.properties)
            commit.commit_batch(book.spark, book.name(spec), base, metadata, lambda branch, summary: None)
            if there.changes:
                note = "no load files, but change files: counts as empty when DMS loaded it"
                return TableResult(spec.source, "loaded", note)
            return TableResult(spec.source, "empty", EMPTY)
        if action == "loaded":
            return TableResult(spec.source, "unchanged", EMPTY if base.position.awaits_load else action)
        if action == "replay":
            load = load_of(book.spark, book.name(spec))
            require_replayable(there, base.position, load, book.source_table(spec), base.record)
        return apply_load(book, spec, there, base, action, gate)

    return book.each_table(work)


def _gate(book: Workbook) -> LoadGate | None:
    """Return the gate of `load_complete_when`, and say in which state the task is, if DMS was asked."""
    gate = load_gate(book.settings)
    if gate and gate.task:
        book.progress(f"the DMS task is {gate.task}")
    return gate


def load_waits(gate: LoadGate | None, table: str, has_files: bool) -> str:
    """Return what DMS's statistics miss before a table's load may be applied; empty if it may."""
    if not gate:
        return ""
    rows = gate.rows(table)
    lacks = f"no load file is there, of {many(rows, 'row')} by DMS" if rows and not has_files else ""
    return gate.waits(table) or lacks


class _RowsLackError(Exception):
    """The load files have another number of rows than DMS loaded."""


def apply_load(
    book: Workbook, spec: TableSpec, there: TableObjects, base: TableState, action: str, gate: LoadGate | None = None
) -> TableResult:
    """Apply a table's load files: `load`, `reload` or `replay`; `gate` knows how many rows they must have."""
    if action != "replay":
        require_one_age(book, spec, there, base)
    book.check_files(spec, there)
    size = sum(o.size for o in there.loads) / 1e6
    book.progress(f"{spec.source}: {action} of {many(there.loads, 'file')}, {size:.1f} MB")
    shaped = follow(book, spec, base, there.loads, LOAD_PHASE)
    load = _Load(book, shaped.spec, there, shaped.on(base), action)
    load.expected = gate.rows(spec.source) if gate else None
    try:
        return load.run()
    except _RowsLackError as e:
        return TableResult(spec.source, "waiting", str(e))


def require_one_age(book: Workbook, spec: TableSpec, there: TableObjects, base: TableState | None) -> None:
    """Raise MixedLoadError for files of an older load, unless the parameter `old_load_files` accepts them."""
    if getattr(book.settings, "old_load_files", "refuse") == "accept":
        return
    applied: set[str] = set()
    if base and base.position.loaded:
        applied = loaded_before(there, base.position, load_of(book.spark, book.name(spec)))
        applied |= {o.path for o in there.loads if (f := base.record.files.get(key_of(o))) and f.etag == o.etag}
    require_one_load(there, applied, spec.source)


def _decide(book: Workbook, spec: TableSpec, there: TableObjects) -> tuple[TableState, TableObjects, str]:
    """Return the table's base, its files and what it needs. A replay, or a reload of another load, repairs a broken history.

    Load files with the applied bytes but another time count as the applied ones.
    """
    broken: FrazilError | None = None
    try:
        base = read_table_state(book.spark, book.name(spec))
    except (RolledBackError, OtherWriterError) as error:
        base, broken = read_table_state(book.spark, book.name(spec), checked=False), error
    state = AppliedState(book.name(spec), spec.source, base.position, base.stored, base.record)
    there, same = with_known_loads(there, state)
    action = verdict(there, base.position, book.settings.on_changed_load)
    if broken and action not in ("reload", "replay"):  # the applied load alone does not restore later changes
        raise broken
    if same:
        remember_same(jvm.load_table(book.spark, book.name(spec)), base.record, same, batch_branches.new_batch())
        book.progress(f"{spec.source}: {many(same, 'load file')} with another time, and the bytes that were applied")
    return base, there, action


class _Load:
    """One load of one table."""

    def __init__(self, book: Workbook, spec: TableSpec, there: TableObjects, base: TableState, action: str):
        self.book, self.spec, self.there, self.base, self.action = book, spec, there, base, action
        self.files, self.name = list(there.loads), book.name(spec)
        self.began_ms = round(time.time() * 1000)
        before, replay = base.position, action == "replay"
        if last := last_before_load(there, before, book.source_table(spec), replay):
            old = [o for o in there.changes if (replay or before.last < o.name) and o.name <= last]
            book.progress(
                f"{spec.source}: {many(old, 'change file')} from before the load, up to {last}: their changes are in the load"
            )
            before = before if replay else replace(before, last=last, last_etag="", turn=0)
        batch = batch_branches.new_batch(load=True)
        self.position = after_load(before, there, batch, last if replay else None)
        self.watch = FileWatch(self.files, spec.source, digests_of(book, self.files))
        self.expected: int | None = None
        """How many rows DMS loaded, if that is known."""

    def run(self) -> TableResult:
        """Write the rows of the files and commit them, with the position, the applied files and the quarantine."""
        book, spec, base, there = self.book, self.spec, self.base, self.there
        written = write_files(book, spec, self.watch, LOAD_PHASE, self._require_rows)
        replay = self.action == "replay"

        def write(branch: str, properties: dict[str, str]) -> None:
            engine.put(book.spark, branch, written, properties, self.watch, replace=self.action != "load")
            if spec.key and (twice := duplicates(book.spark.table(branch), list(spec.key), 3)):
                raise _explain_duplicates(book, spec, self.files, twice)
            last = self.position.last or ("" if base.record.complete else base.position.last)
            kept.load(last, there, self.watch.contents(), replay)
            applied.update(kept.properties)

        applied = {LOAD: load_as_json(there), COLUMNS: columns_of(book.spark, self.name)}
        table, files = jvm.load_table(book.spark, self.name), (*there.loads, *there.changes)
        awaited = base.record.awaited if replay else ()
        kept = Update(table, base.record, self.position.batch, files, awaited)
        metadata, bad = commit.CommitMetadata(self.position, self._summary(), applied), written.tally.bad
        of_batch = OfBatch(bad, written.files, is_load=True)
        with quarantine.quarantined_with_commit(book, spec, base, metadata, of_batch) as with_quarantine:
            done = commit.commit_batch(book.spark, self.name, base, with_quarantine, write)
        kept.done()
        word = {"load": "loaded", "reload": "reloaded", "replay": "replayed"}[self.action]
        counts = {"rows": done.count("added-records"), **({"quarantined": bad.count} if bad.count else {})}
        return TableResult(spec.source, word, "", counts=counts)

    def _require_rows(self, rows: int) -> None:
        if self.expected not in (None, rows):
            raise _RowsLackError(f"{rows:,} rows are there, of {self.expected:,} by DMS")

    def _summary(self) -> dict[str, str]:
        counts = {"files": len(self.files), "bytes": sum(f.size for f in self.files), "began": self.began_ms}
        return {"frazil.kind": "load", "frazil.counts": json.dumps(counts)}


def _explain_duplicates(book: Workbook, spec: TableSpec, files: list[DmsObject], twice: list) -> DuplicateKeyError:
    """Return the error that shows keys with several rows (each with its number of rows), and the files that have them."""
    planned, read = plan_files(book.source_table(spec), files, LOAD_PHASE)
    paths = files_of_keys(planned, read, [key[:-1] for key in twice])
    lines = []
    for (*values, count), found in zip(twice, paths, strict=True):
        shown = ", ".join(f"{k}={v}" for k, v in zip(spec.key, values, strict=True))
        lines.append(f"{shown} is {count} times in " + ", ".join(found))
    return DuplicateKeyError(
        f"{spec.source}: the key ({', '.join(spec.key)}) is not unique in the load",
        f"correct the key in {spec.file}, {LOAD_AGAIN}; if load files of an older load are there, remove them: their rows are "
        "then not loaded; nothing was applied",
        [f"  {line}" for line in lines],
    )
