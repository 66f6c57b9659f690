"""One table, and the six steps that bring a batch into it. The loop, the plan and the notebooks call the same steps.

`next`, `columns`, `read` and `latest` only read. `write` leaves files that no reader sees. `commit` makes one swap: columns,
rows, deletes, position.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import structs

from frazil.core.changes import Changes, concat
from frazil.dms import quarantine_files
from frazil.dms.applied import Batch as AppliedBatch
from frazil.dms.position import Position
from frazil.engine.replay_files import WAITING, BatchFiles
from frazil.errors import FrazilError
from frazil.iceberg import commits
from frazil.iceberg.column_rules import same_columns
from frazil.iceberg.columns import Columns, known_columns, known_or_listed
from frazil.iceberg.commits import PositionMovedError
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.table import LakeTable
from frazil.pipeline import all_changes, decisions, explore, quarantine, row_origin, schema_changes
from frazil.pipeline.batch import Batch, BatchChanges, BatchColumns, BatchLatest, Commit, WrittenBatch
from frazil.pipeline.next_batch import Look
from frazil.settings.spec import TableSpec

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake


class StoppedError(FrazilError, code="stopped", decision=True):
    """A person, or the audit, stopped a table. Resume it by the stop's id when its cause is mended."""


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
        if 0 in stored.key_ids and (known := known_columns(stored)):  # the spec renames columns of the key
            same = same_columns(known, self.spec)
            stored.key_ids[:] = [same[name].id if name in same else 0 for name in self.spec.key]
        return stored

    def refresh(self) -> LakeTable:
        """Take over what was committed since the last look; a table that others made anew is opened anew."""
        if "stored" in vars(self):  # else it is opened now
            try:
                self.stored.refresh()
            except Exception:  # catalogs differ in what they raise then
                vars(self).pop("stored", None)
        return self.stored

    @property
    def known(self) -> Columns:
        """What the table knows of its columns, and of those of others that the spec lists now."""
        return known_or_listed(self.stored, self.spec)

    def require_key(self) -> None:
        """Raise NoKeyError unless the spec says how changes find their rows."""
        if self.spec.policy == "refuse":
            cure = f"write key: … into {self.spec.file}, or without_key: append"
            raise NoKeyError(f"{self.source} has no key, so its changes find no rows", cure)

    def read_spec(self) -> TableSpec:
        """Return the spec by which files are read now: as declared, with columns that files brought."""
        self.require_key()
        return schema_changes.read_spec(self.known, self.spec)

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

    def waiting(self, position: Position) -> pa.Table:
        """Return the rows that wait by a position."""
        rows = quarantine_files.stored(self.lake.state, position.quarantine)
        return WAITING.empty_table() if rows is None else rows

    # --- the steps

    def next(self, most: int | None = None) -> Batch | None:
        """Return the next batch: a load, changes, or a replay; None: nothing is pending. `most` rows cut a batch of changes."""
        return Look(self).next(most)

    def columns(self, batch: Batch) -> BatchColumns:
        """Return how a batch is read, and what the table's columns need before it."""
        reader, shown = batch.reader, [columns for columns in batch.columns if columns]
        own = all_changes.with_columns(self.spec)
        read, plan = schema_changes.follow(self.known, own, self.policy, shown, batch.kind == "load")
        spec = all_changes.without_columns(read)
        files, of_files = [*batch.files.values()], batch.columns
        if spec != reader.table.spec:
            reader = replace(self.lake.source.reader(spec), storage=reader.storage)
            both = zip(files, batch.columns, strict=True)
            of_files = tuple(reader.columns(file, its.carried if its else ()) for file, its in both)
        return BatchColumns(plan, BatchFiles(reader, files, of_files, batch.after.batch, batch.replay))

    def read(self, batch: Batch, columns: BatchColumns) -> BatchChanges:
        """Return the typed changes of a batch, in order, with its bad rows."""
        parts, found = list[Changes](), self.lake.tasks.read(columns.files, batch.begin, batch.end)
        for _, its, part in found:  # what a file lacks keeps its values in stored rows
            parts.append(replace(part, rows=part.rows.drop_columns([*its.lacks])))
        changes = concat(parts) if parts else all_changes.no_changes(columns.spec)
        return BatchChanges(_to_the_end(batch, columns), columns, changes)

    def latest(self, changes: BatchChanges) -> BatchLatest:
        """Return the last change of each key, and the rows that wait: bad ones, and changes that wait for a row of their key.

        Raises what `quarantine.require_admitted` does, unless the rows waited before.
        """
        batch, of = changes.batch, changes.columns.files
        waiting = self.waiting(batch.planned)
        if batch.replay:
            waiting = quarantine.replayable(waiting)[1]
        else:
            quarantine.require_admitted(changes.changes, of.paths, changes.columns.spec, self.lake.settings)
        kept = quarantine.kept(waiting, changes.changes, of, self.spec.key)
        found = kept.latest or all_changes.latest(changes.changes, of)
        if keys := found.contradicting.slice(0, 3).to_pylist():
            self.lake.say(f"{self.source}: DMS's sequence puts changes of {keys} before those that they follow")
        return BatchLatest(changes, found, kept)

    def write(self, latest: BatchLatest) -> WrittenBatch:
        """Write new rows and deletes where no reader sees them."""
        from frazil.pipeline.write import write_changes  # which imports PyIceberg's writers: an idle run needs none

        return write_changes(self, latest)

    def commit(self, written: WrittenBatch) -> Commit:
        """Make the swap of a written batch, exactly once; if others committed meanwhile, the files are written again."""
        batch = written.batch
        try:
            made = commits.commit(self.stored, written.written, written.again, batch.planned, written.position)
        except PositionMovedError:
            if self._last is None or self._last.position != written.position:
                raise
            return self._last  # the same batch, written twice
        seconds = time.time() - batch.picked_up
        self._last = Commit(self.source, batch.kind, made, written.position, written.counts, seconds)
        return self._last

    def apply(self, batch: Batch) -> Commit:
        """Bring one batch into the table."""
        from frazil.pipeline.load import write_load

        columns = self.columns(batch)
        if batch.kind == "load":
            return self.commit(write_load(self, batch, columns))
        return self.commit(self.write(self.latest(self.read(batch, columns))))


def _to_the_end(batch: Batch, columns: BatchColumns) -> Batch:
    """Return a batch as not cut if no later row of its file is this table's."""
    if batch.end is None:
        return batch
    of = columns.files
    file, its = of.files[-1], of.columns[-1]
    if its and any(True for _ in of.reader.rows(file, its, batch.end)):
        return batch
    return replace(batch, end=None, after=structs.replace(batch.after, rows=None))
