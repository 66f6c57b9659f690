"""What is pending for a table at one time: a listing, compared with its position. Its batches follow from one another."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property, partial
from itertools import dropwhile
from typing import TYPE_CHECKING

from msgspec import structs

from frazil.dms.applied import Applied, applied_files, batch_of
from frazil.dms.applied import Batch as AppliedBatch
from frazil.dms.file_columns import FileColumns
from frazil.dms.file_marks import mark_of
from frazil.dms.file_names import SHARED, load_number, order_of
from frazil.dms.load_rule import require_one_load, require_same_load
from frazil.dms.mappings import RENAMED, Written
from frazil.dms.pending import audit, findings, pending_files
from frazil.dms.position import ALL, Position, read_position
from frazil.dms.storage import DmsFile
from frazil.engine.batch_limits import Measure, next_batch
from frazil.engine.replay_files import as_files
from frazil.errors import FrazilError, many
from frazil.iceberg.columns import Columns, known_columns
from frazil.iceberg.create import ForeignTableError
from frazil.iceberg.snapshot_summary import POSITION
from frazil.iceberg.soundness import require_sound
from frazil.pipeline import quarantine
from frazil.pipeline.batch import Batch
from frazil.pipeline.batch_summary import DECISION

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table

BY_AUDIT = "audit"
"""The id of a stop that maintenance made: each look lists all files until what was found is mended, or decided."""
MOST_MEMORY = 1 << 30
"""The bytes that a batch's rows may have in memory, if the budget has more."""


class LoadWaitsError(FrazilError, code="load-waits"):
    """Changes of a table wait for its full load. Run 01_full_load once DMS has written all of it."""


class Look:
    """The files of a table at one time, and what is applied of them."""

    def __init__(self, table: Table, audits: bool = False):
        stored, self.table = table.refresh(), table
        if (known := known_columns(stored)) is None:
            cure = "run 00_setup; or take the table over: call adopt(place) on it"
            raise ForeignTableError(f"{table.source}: {stored.name} exists, and Frazil has not set it up", cure)
        require_sound(stored)
        spec, position = table.read_spec(), stored.position
        self.reader = table.lake.source.reader(spec)
        self.audits = audits or is_by_audit(position)
        lists_all = self.audits or not (position.last and position.load)
        self.there = table.lake.source.look(spec, None if lists_all else position)
        self._carried = _carried(known, self.reader.table.written)
        self._columns: dict[DmsFile, FileColumns | None] = {}
        self._checked = False

    def next(self, most: int | None = None, loads: bool = False) -> Batch | None:
        """Return the next batch after the table's position; None: nothing is pending.

        `most` rows cut a batch of changes. With `loads` a load is taken as it is there: a person says that it is complete.
        Raises StoppedError, LoadWaitsError, and findings that need a decision.
        """
        position, now = self.table.stored.position, time.time()
        self._batch = partial(Batch, self.table.source, reader=self.reader, picked_up=now, there=self.there)
        if not self.audits:
            self.table.require_not_stopped()
        if position.quarantine and position.quarantine.path in position.accepted:
            return self._replay(position, position.quarantine.path)
        was_empty = position.load == "none" and not position.last  # as no change is applied, a load may still come
        if not position.load or (was_empty and self.there.loads):
            return self._load(position) if self._may_load(position, loads) else None
        return self._changes(position, most)

    # --- loads

    def _may_load(self, position: Position, loads: bool) -> bool:
        """Return whether the load is complete, as far as anybody says; changes that wait for it are an error."""
        source, there = self.table.source, self.there
        if waits := self.table.lake.source.gate.waits(source):
            raise LoadWaitsError(f"{source}: its load waits: {waits}", "run 01_full_load when it is complete")
        is_proven = there.loads and any(not SHARED.fullmatch(file.name) for file in there.changes)
        if loads or position.batch or is_proven:
            return True
        if pending := there.changes or there.loads:
            what = many(len(pending), "file")
            raise LoadWaitsError(f"{source}: {what} wait until the full load is applied", "run 01_full_load")
        return False

    def _load(self, position: Position) -> Batch:
        """Return the load of a table as a batch."""
        there = self.there
        if position.last != ALL:
            require_one_load(there, applied_before(self.table), self.table.source)
        columns = tuple(self._columns_of(file) for file in there.loads.values())
        mark, number = mark_of(there.storage, there.loads), position.batch + 1
        after = structs.replace(position, batch=number, load=mark, rows=None, stopped="", quarantine=None)
        return self._batch("load", position, after, there.loads, columns, left=there.changes)

    # --- rows that wait

    def _replay(self, position: Position, path: str) -> Batch:
        """Return the rows that wait in a side file as a batch; rows that newer changes may have overtaken stay."""
        rows, _ = quarantine.replayable(self.table.waiting(position))
        replay = as_files(rows, self.reader)
        reader = replace(self.reader, storage=replay.storage)
        columns = tuple(reader.columns(file, self._carried) for file in replay.files)
        files = {file.path: file for file in replay.files}
        accepted = {name: after for name, after in position.accepted.items() if name != path}
        after = structs.replace(position, batch=position.batch + 1, accepted=accepted)
        return self._batch("replay", position, after, files, columns, reader=reader, replay=replay)

    # --- changes

    def _changes(self, position: Position, most: int | None) -> Batch | None:
        """Return the next files of changes as a batch."""
        there, table, settings = self.there, self.table, self.table.lake.settings
        applied, accepted = applied_files(applied_batches(table)), self._accepted(position)
        files = pending_files(there, structs.replace(position, accepted=accepted), applied)
        undecided = self.require_in_order(position, applied, bool(files) and files[0].name in position.accepted)
        if not files:
            return None
        memory = min(MOST_MEMORY, table.lake.budget.size // (2 * settings.parallel_tables))
        found = next_batch(files, position, self._columns_of, self._measure, (settings.max_batch_mb << 20, memory))
        is_late = order_of(files[0].path) < order_of(position.last)
        if most is not None and not is_late:  # a late file is one batch, of which no position says a part
            found = replace(found, files=found.files[:1], left=(*found.files[1:], *found.left), end=found.begin + most)
        sound = structs.replace(position, stopped="", accepted=accepted)  # the audit's finding is mended
        after = found.position_after(sound, there.below(found.files[-1]))
        columns = tuple(self._columns_of(file) for file in found.files)
        left = (*found.left, *(file for file in there.changes if file.name in undecided))
        named = {file.name: file for file in found.files}
        begin, end = found.begin, found.end
        return self._batch("changes", position, after, named, columns, left=left, begin=begin, end=end)

    @cached_property
    def _undone(self) -> dict[str, str]:
        """The files that a person accepted by decisions that somebody rolled back since."""
        here, found = {snapshot.id for snapshot in self.table.stored.ancestors()}, dict[str, str]()
        for snapshot in self.table.stored.snapshots:
            if DECISION in snapshot.summary and snapshot.id not in here:
                found |= read_position(snapshot.summary[POSITION], self.table.source).accepted
        return found

    def _accepted(self, position: Position) -> dict[str, str]:
        """Return the files that a person accepted, also before somebody rolled the table back behind that decision."""
        last = order_of(position.last)
        before = {name: place for name, place in self._undone.items() if order_of(place) > last}
        return {**before, **position.accepted}

    def require_in_order(self, position: Position, applied: Applied, is_accepted: bool) -> set[str]:
        """Raise what stops the table, once for the files of this look; a file that a person accepted comes before.

        Returns the names of the files that wait for a decision.
        """
        if self._checked:
            return set()
        require_same_load(self.there, position, applied, self.table.source)
        found = (audit if self.audits else findings)(self.there, position, applied)
        if found and not is_accepted:
            raise found[0].raised(self.table.source)
        self._checked = not found
        return {name for finding in found for name in finding.names}

    def _columns_of(self, file: DmsFile) -> FileColumns | None:
        """Return the columns of a file. Files are looked at in order, and once: the one before tells what it carried."""
        if file not in self._columns:
            is_late = order_of(file.path) < order_of(self.table.stored.position.last)
            carried = () if is_late or load_number(file.name) is not None else self._carried
            first_of_both = [*[*self.there.loads.values()][:1], *self.there.changes[:1]]
            found = self._columns[file] = self.reader.columns(file, carried, first_of_both)
            self._carried = found.carried if found else self._carried
        return self._columns[file]

    def _measure(self, file: DmsFile) -> Measure:
        return self.reader.measure(file, self._columns_of(file))


def is_by_audit(position: Position) -> bool:
    """Return whether maintenance stopped a table by what it found among all files."""
    return position.stopped.startswith(f"{BY_AUDIT} ")


def applied_before(table: Table) -> Applied:
    """Return what was applied before a table was restarted."""
    return applied_files(dropwhile(lambda batch: not batch.position.load, applied_batches(table)))


def applied_batches(table: Table) -> list[AppliedBatch]:
    """Return what kept snapshots say of a table's batches, the newest first."""
    own, known, name = (s for s in table.stored.ancestors() if POSITION in s.summary), table.batches, table.source
    table.batches = {
        s.id: known.get(s.id) or batch_of(read_position(s.summary[POSITION], name), s.summary, s.committed_ms / 1000)
        for s in own
    }
    return [*table.batches.values()]


def _carried(known: Columns, written: Written) -> tuple[str, ...]:
    """Return the names that the newest applied file carried, as `FileColumns.carried` has them; none if it had all."""
    gone = {column.name for column in known.columns if not column.carried}
    renamed = {column.name for column in known.columns if column.renamed}
    names = [*(n for n, column in written.columns.items() if column not in gone), *written.added, *written.images]
    marked = [RENAMED + n for n, column in written.columns.items() if column in renamed - gone]
    return (*names, *marked) if gone or renamed else ()
