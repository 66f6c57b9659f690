"""One table, and the six steps that bring a batch into it. The loop, the plan and the notebooks call the same steps.

`next`, `columns`, `read` and `latest` only read. `write` leaves files that no reader sees. `commit` makes one swap: columns,
rows, deletes, position.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import structs

from frazil.core.changes import Changes, concat
from frazil.dms.applied import Batch as AppliedBatch
from frazil.dms.file_names import order_of
from frazil.dms.mappings import RENAMED
from frazil.dms.pending import LateFileError
from frazil.dms.position import Position, SideFile
from frazil.engine.empty_load import require_load
from frazil.engine.read import TableReader
from frazil.engine.waiting_rows import WAITING, as_files
from frazil.errors import Finding, FrazilError
from frazil.iceberg import side_files, swap
from frazil.iceberg.columns import Columns, Known, known_columns
from frazil.iceberg.doubled_keys import names_of
from frazil.iceberg.java import causes
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.locate import Found, locate, wants_segments
from frazil.iceberg.row_delta import write_batch, write_rows
from frazil.iceberg.stored_values import NoStoredRowError
from frazil.iceberg.swap import Change, PositionMovedError
from frazil.iceberg.table import LakeTable
from frazil.pipeline import all_changes, decisions, explore, facts, quarantine, row_origin, schema_changes
from frazil.pipeline.batch import Batch, BatchChanges, BatchColumns, BatchLatest, Commit, WrittenBatch
from frazil.pipeline.column_rules import same_columns
from frazil.pipeline.load import write_load
from frazil.pipeline.look import Look
from frazil.pipeline.quarantine import Kept
from frazil.settings.spec import TableSpec

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake

MADE_ANEW = {"NoSuchTableException", "NotFoundException", "IllegalStateException"}
"""What Java says of the handle of a table that others dropped."""


class StoppedError(FrazilError, code="stopped", decision=True):
    """A person, or the audit, stopped a table. Resume it by the stop's id when its cause is mended."""


class KeyTakenError(FrazilError, code="key-taken", decision=True):
    """One statement gave stored rows each other's keys, and the log does not say which is which. Restart the table, which loads it again."""


class NoKeyError(FrazilError, code="no-key"):
    """A table has no key, so changes cannot find their rows. Name the key in the spec, or let it `append` all changes."""


class Table:
    """A table of the source and its table in the lake."""

    def __init__(self, lake: Lake, spec: TableSpec):
        self.lake, self.spec = lake, spec
        self.source, self.name = spec.source, spec.target
        self.policy = spec.changes or lake.settings.changes
        self.segments: Segments | None = None
        self.busy = threading.Lock()
        self.batches: dict[int, AppliedBatch] = {}
        """What snapshots say of their batches, which is read once."""
        self._last: Commit | None = None

    @cached_property
    def stored(self) -> LakeTable:
        """The table in the lake, as of the last look or commit."""
        stored = LakeTable(self.lake.catalog, self.spec.target, self.spec.key, lambda: self.lake.spark)
        if 0 in stored.key_ids and (known := known_columns(stored.metadata)):  # the spec renames columns of the key
            same = same_columns(known, self.spec)
            stored.key_ids[:] = [same[name].id if name in same else 0 for name in self.spec.key]
        return stored

    def refresh(self) -> LakeTable:
        """Take over what was committed since the last look; a table that others made anew is opened anew."""
        try:
            self.stored.refresh()
        except Exception as error:
            if not {name for name, _ in causes(error)} & MADE_ANEW:
                raise
            del self.stored
        return self.stored

    @property
    def known(self) -> Columns:
        """What the table knows of its columns, and of those of others that the spec lists now."""
        metadata, listed = self.stored.metadata, {c.name: c for c in self.spec.lake_columns}
        known = known_columns(metadata) or Columns(-1, ())
        own = {column.name for column in known.columns}
        others = partial(Known, carried=False, later=True, by="others")
        added = tuple(
            others(field.field_id, field.name, str(field.field_type), listed[field.name].type)
            for field in metadata.schema().fields
            if known.columns and field.name in listed and field.name not in own
        )
        return structs.replace(known, columns=(*known.columns, *added)) if added else known

    def require_key(self) -> None:
        """Raise NoKeyError unless the spec says how changes find their rows."""
        if self.spec.policy == "refuse":
            cure = f"write key: … into {self.spec.file}, or without_key: append"
            raise NoKeyError(f"{self.source} has no key, so its changes find no rows", cure)

    def read_spec(self) -> TableSpec:
        """Return the spec by which files are read now: as declared, with columns that files brought."""
        self.require_key()
        return schema_changes.read_spec(self.known, self.spec)

    def carried_names(self, reader: TableReader, known: Columns) -> tuple[str, ...]:
        """Return the names that the newest applied file carried, as `FileColumns.carried` has them; none if it had all."""
        gone = {column.name for column in known.columns if not column.carried}
        renamed = {column.name for column in known.columns if column.renamed}
        written = reader.table.written
        names = [*(n for n, column in written.columns.items() if column not in gone), *written.added, *written.images]
        marked = [RENAMED + n for n, column in written.columns.items() if column in renamed - gone]
        return (*names, *marked) if gone or renamed else ()

    def require_not_stopped(self) -> None:
        """Raise StoppedError if a person, or the audit, stopped the table."""
        if stopped := self.stored.position.stopped:
            stop, _, why = stopped.partition(" ")
            cure = f'decide {{"{self.source}": {{"resume": "{stop}"}}}} when its cause is mended'
            raise StoppedError(f"{self.source} is stopped: {why}", cure)

    restart, accept, adopt = decisions.restart, decisions.accept, decisions.adopt
    stop, resume = decisions.stop, decisions.resume
    replay, discard = decisions.replay, decisions.discard
    history, head, rows, blocks, find = explore.history, explore.head, explore.rows, explore.blocks, row_origin.find

    # --- the steps

    def look(self) -> Look:
        """Look at the source and the table; batches of one look follow from one another."""
        return Look(self)

    def next(self, most: int | None = None) -> Batch | None:
        """Return the next batch: a load, changes, or a replay; None: nothing is pending. `most` rows cut a batch of changes."""
        return self.look().next(most)

    def columns(self, batch: Batch) -> BatchColumns:
        """Return how a batch is read, and what the table's columns need before it."""
        reader, shown = batch.reader, [columns for columns in batch.columns if columns]
        own = all_changes.with_columns(self.spec)
        read, plan = schema_changes.follow(self.known, own, self.policy, shown, batch.kind == "load")
        spec = all_changes.without_columns(read)
        of_files = batch.columns
        if spec != reader.table.spec:
            reader = self.lake.source.reader(spec, reader.storage)
            of_files = tuple(
                reader.columns(file, its.carried if its else ())
                for file, its in zip(batch.files.values(), batch.columns, strict=True)
            )
        return BatchColumns(spec, plan, of_files, reader)

    def read(self, batch: Batch, columns: BatchColumns) -> BatchChanges:
        """Return the typed changes of a batch, in order, with its bad rows."""
        parts: list[Changes] = []
        last = len(batch.files) - 1
        for number, (file, its) in enumerate(zip(batch.files.values(), columns.of_files, strict=True)):
            begin, end = (0 if number else batch.begin), (batch.end if number == last else None)
            if its:  # what a file lacks keeps its values in stored rows
                read = columns.reader.read(file, its, begin, end, number)
                parts += [replace(part, rows=part.rows.drop_columns([*its.lacks])) for part in read]
        changes = concat(parts) if parts else all_changes.no_changes(columns.spec)
        return BatchChanges(_to_the_end(batch, changes), columns, changes)

    def latest(self, changes: BatchChanges) -> BatchLatest:
        """Return the last change of each key, and the rows that wait: bad ones, and changes that wait for a row of their key.

        Raises what `quarantine.require_admitted` does, unless the rows waited before.
        """
        batch, of = changes.batch, changes.files
        if not batch.replay:
            paths = [file.path for file in batch.files.values()]
            quarantine.require_admitted(changes.changes, paths, changes.columns.spec, self.lake.settings)
        kept = quarantine.kept(self._waiting(batch), changes.changes, of, changes.columns.spec.key)
        return BatchLatest(changes, kept.latest or all_changes.latest(changes.changes, of), kept)

    def write(self, latest: BatchLatest) -> WrittenBatch:
        """Write new rows and deletes where no reader sees them.

        Raises KeyTakenError, LoadMissingError, and the errors of `iceberg.row_delta`.
        """
        changes = latest.changes
        batch = changes.batch
        self._require_load(changes)
        self._require_not_older(changes)
        latest, change = self._written(latest)
        position = structs.replace(batch.after, quarantine=self._side_file(batch, latest.kept))
        counts = _counts(latest)
        summary = facts.of_batch(batch, counts, changes.times[0])
        again = partial(self._change, latest)
        return WrittenBatch(batch, swap.written(self.stored, change), position, summary, counts, again, changes.times)

    def commit(self, written: WrittenBatch) -> Commit:
        """Make the swap of a written batch, exactly once; if others committed meanwhile, the files are written again."""
        batch = written.batch
        delays = facts.delays(batch, *written.times) if written.times else {}
        summary = {**written.summary, **delays}

        def again() -> Change:
            return replace(written.again(), summary=summary)

        first = replace(written.written, change=replace(written.written.change, summary=summary))
        try:
            made = swap.commit(self.stored, first, again, batch.planned, written.position)
        except PositionMovedError:
            if self._last is None or self._last.position != written.position:
                raise
            return self._last  # the same batch, written twice
        seconds = time.time() - batch.picked_up
        self._last = Commit(self.source, batch.kind, made, written.position, written.counts, seconds)
        return self._last

    def apply(self, batch: Batch) -> Commit:
        """Bring one batch into the table."""
        columns = self.columns(batch)
        if batch.kind == "load":
            return self.commit(write_load(self, batch, columns))
        return self.commit(self.write(self.latest(self.read(batch, columns))))

    # --- rows that wait

    def replay_batch(self, look: Look, position: Position) -> Batch:
        """Return the waiting rows as a batch; those stay of which nobody knows whether they are the newest."""
        rows, stay = quarantine.replayable(self._stored_rows(position))
        replay = as_files(rows, look.reader)
        reader = self.lake.source.reader(look.spec, replay.storage)
        files = {file.path: file for file in replay.files}
        carried = self.carried_names(reader, look.known)
        columns = tuple(reader.columns(file, carried) for file in replay.files)
        path = position.quarantine.path if position.quarantine else ""
        accepted = {name: after for name, after in position.accepted.items() if name != path}
        after = structs.replace(position, batch=position.batch + 1, accepted=accepted)
        batch = Batch(self.source, "replay", position, after, files, columns, reader, picked_up=look.at_s)
        return replace(batch, replay=replay, stay=stay)

    def _stored_rows(self, position: Position) -> pa.Table:
        """Return the rows that wait by a position."""
        rows = side_files.stored(self.lake.state, position.quarantine)
        return WAITING.empty_table() if rows is None else rows

    def _waiting(self, batch: Batch) -> pa.Table:
        return self._stored_rows(batch.planned) if batch.stay is None else batch.stay

    def _side_file(self, batch: Batch, kept: Kept) -> SideFile | None:
        """Return the side file after a batch: the one of before, if nothing changed."""
        if kept.waiting is kept.before and batch.stay is None:
            return batch.planned.quarantine
        return side_files.store(self.lake.state, self.name, kept.waiting)

    # --- how a batch is written

    def _written(self, latest: BatchLatest) -> tuple[BatchLatest, Change]:
        """Write a batch; partial rows whose stored rows are missing wait, as bad rows do."""
        changes, before, doubted = latest.changes, latest.kept.before, set[str]()
        while True:
            try:
                return latest, self._change(latest)
            except NoStoredRowError as error:
                doubted |= quarantine.doubted_keys(latest.latest, error.places)
                kept = quarantine.kept(before, changes.changes, changes.files, changes.columns.spec.key, doubted)
                if kept.latest is None or kept.added == latest.kept.added:
                    raise
                latest = replace(latest, kept=kept, latest=kept.latest)

    def _change(self, latest: BatchLatest) -> Change:
        """Write the files of a batch for the table's present state."""
        stored, plan, found = self.stored, latest.changes.columns.plan, latest.latest
        if not self.spec.key:
            return write_rows(stored, "append", [found.rows], plan)
        self._have_segments()
        self._require_free(found.transient)
        return write_batch(stored, self.segments, found, plan)

    def _have_segments(self) -> None:
        if self.segments is None and wants_segments(
            self.stored, self.lake.settings.run_for_s > 0, self.lake.budget.size // 4
        ):
            self.segments = Segments()

    def _require_free(self, keys: pa.Table) -> None:
        """Raise KeyTakenError if keys are stored that one statement gave to other rows on the way."""
        if found := locate(self.stored, self.segments, keys):
            taken = ", ".join(names_of(self.stored, _places(found)))
            cure = "restart the table, which loads it again; or let the source log the changes of keys one by one"
            raise KeyTakenError(f"{self.source}: the key {taken} was given to another row by one statement", cure)

    def _require_load(self, changes: BatchChanges) -> None:
        """Raise LoadMissingError if changes of a table without a load are of rows that nobody inserted."""
        batch, names = changes.batch, [*changes.batch.files]
        if batch.kind == "changes":
            require_load(changes.changes, batch.planned, self.spec.key, names, self.source, self._are_stored)

    def _require_not_older(self, changes: BatchChanges) -> None:
        """Raise LateFileError if an accepted late file has changes from before those that are applied."""
        batch, (committed, _) = changes.batch, changes.times
        is_late = batch.kind == "changes" and order_of([*batch.files][0]) < order_of(batch.planned.last)
        if not is_late or np.isnan(committed).all():
            return
        newest = max(
            (float(s.summary[facts.NEWEST]) for s in self.stored.ancestors() if facts.NEWEST in s.summary), default=0.0
        )
        if np.nanmin(committed) < newest:
            detail = "; it has changes from before those that are applied, which it would undo"
            raise Finding(LateFileError, tuple(batch.files), detail).raised(self.source)

    def _are_stored(self, keys: pa.Table) -> np.ndarray:
        there = np.zeros(len(keys), bool)
        for found in locate(self.stored, self.segments, keys):
            there[found.n] = True
        return there


def _counts(latest: BatchLatest) -> dict[str, int]:
    """Return what a batch has, writes and leaves waiting."""
    changes, kept, deleted = latest.changes, latest.kept, int(latest.latest.deleted.sum())
    batch, count = changes.batch, len(changes.changes.rows) + len(changes.changes.bad)
    found = {
        "files": len(batch.files),
        "changes": count,
        "written": len(latest.latest.deleted) - deleted,
        "deleted": deleted,
    }
    if batch.replay:
        return {
            "replayed": len(batch.replay.rows) - kept.added - kept.obsolete,
            "still_bad": kept.added + len(batch.stay or ()),
            **found,
        }
    return {**found, "quarantined": kept.added}


def _to_the_end(batch: Batch, changes: Changes) -> Batch:
    """Return a batch without its cut if the last file ended before it."""
    read = [n for table in (changes.facts, changes.bad) for n in table["number"][-1:].to_pylist()]
    if batch.end is None or batch.after.rows != batch.end or len(batch.files) > 1 or max(read, default=0) >= batch.end:
        return batch
    return replace(batch, end=None, after=structs.replace(batch.after, rows=None))


def _places(found: list[Found]) -> list[tuple[str, int]]:
    return [(f.file.path, int(position)) for f in found for position in f.position][:3]
