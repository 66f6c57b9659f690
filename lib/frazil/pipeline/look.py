"""What is pending for a table at one time: a listing, compared with its position. Its batches follow from one another."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import dropwhile
from typing import TYPE_CHECKING

from msgspec import structs

from frazil.dms.applied import Applied, applied_files, batch_of
from frazil.dms.applied import Batch as AppliedBatch
from frazil.dms.change_place import ALL
from frazil.dms.file_columns import FileColumns
from frazil.dms.file_marks import mark_of
from frazil.dms.file_names import SHARED, load_number, order_of
from frazil.dms.load_rule import require_one_load, require_same_load
from frazil.dms.mappings import RENAMED, Written
from frazil.dms.pending import audit, findings, pending_files
from frazil.dms.position import Position, read_position
from frazil.dms.storage import DmsFile
from frazil.engine.file_batches import next_batch
from frazil.engine.waiting_rows import as_files
from frazil.errors import FrazilError, many
from frazil.iceberg.columns import Columns, known_columns
from frazil.iceberg.create import ForeignTableError
from frazil.iceberg.snapshots import POSITION
from frazil.iceberg.soundness import require_sound
from frazil.pipeline import quarantine
from frazil.pipeline.batch import Batch
from frazil.pipeline.facts import DECISION

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table

BY_AUDIT = "audit"
"""The id of a stop that maintenance made: each look lists all files until what was found is mended, or decided."""
MOST_MEMORY = 512 << 20
"""The bytes that a batch's rows may have in memory, if the budget has more."""
MB = 1 << 20


class LoadWaitsError(FrazilError, code="load-waits"):
    """Changes of a table wait for its full load. Run 01_full_load once DMS has written all of it."""


class Look:
    """The files of a table at one time, and what is applied of them."""

    def __init__(self, table: Table):
        stored, self.table = table.refresh(), table
        known = known_columns(stored.metadata)
        if known is None:
            cure = "run 00_setup; or take the table over: call adopt(place) on it"
            raise ForeignTableError(f"{table.source}: {stored.name} exists, and Frazil has not set it up", cure)
        require_sound(stored)
        spec, position = table.read_spec(), stored.position
        self.reader = table.lake.source.reader(spec)
        self.audits = position.stopped.startswith(f"{BY_AUDIT} ")
        lists_all = self.audits or not (position.last and position.load)
        self.there = table.lake.source.look(spec, None if lists_all else position)
        self.at_s = time.time()
        self._carried = _carried(known, self.reader.table.written)
        self._columns: dict[DmsFile, FileColumns | None] = {}
        self._checked = False

    def next(self, most: int | None = None, loads: bool = False) -> Batch | None:
        """Return the next batch after the table's position; None: nothing is pending.

        `most` rows cut a batch of changes. With `loads` a load is taken as it is there: a person says that it is complete.
        Raises StoppedError, LoadWaitsError, and findings that need a decision.
        """
        position = self.table.stored.position
        if not self.audits:
            self.table.require_not_stopped()
        if position.quarantine and position.quarantine.path in position.accepted:
            return self._replay(position, position.quarantine.path)
        if self._awaits_load(position):
            return self._load(position) if self._may_load(position, loads) else None
        return self._changes(position, most)

    # --- loads

    def _awaits_load(self, position: Position) -> bool:
        """Return whether the next batch is a load: also of a table that was empty, as long as no change is applied."""
        return not position.load or (position.load == "none" and not position.last and bool(self.there.loads))

    def _may_load(self, position: Position, loads: bool) -> bool:
        """Return whether the load is complete, as far as anybody says; changes that wait for it are an error."""
        source, own = self.table.source, [f for f in self.there.changes if not SHARED.fullmatch(f.name)]
        if waits := self.table.lake.source.waits(source):
            raise LoadWaitsError(f"{source}: its load waits: {waits}", "run 01_full_load when it is complete")
        is_proven = own and self.there.loads
        if loads or position.batch or is_proven:
            return True
        if pending := self.there.changes or self.there.loads:
            problem = f"{source}: {many(len(pending), 'file')} wait until the full load is applied"
            raise LoadWaitsError(problem, "run 01_full_load")
        return False

    def _load(self, position: Position) -> Batch:
        """Return the load of a table as a batch."""
        there, source = self.there, self.table.source
        if position.last != ALL:
            require_one_load(there, applied_before(self.table), source)
        columns = tuple(self._columns_of(file) for file in there.loads.values())
        after = structs.replace(
            position, batch=position.batch + 1, load=mark_of(there.storage, there.loads),
            rows=None, stopped="", quarantine=None,
        )  # fmt: skip
        left = there.changes
        return Batch(source, "load", position, after, there.loads, columns, self.reader, self.at_s, there, left)

    # --- rows that wait

    def _replay(self, position: Position, path: str) -> Batch:
        """Return the rows that wait in a side file as a batch; those stay of which nobody knows whether they are the newest."""
        rows, _ = quarantine.replayable(self.table.waiting(position))
        replay = as_files(rows, self.reader)
        reader = replace(self.reader, storage=replay.storage)
        columns = tuple(reader.columns(file, self._carried) for file in replay.files)
        files = {file.path: file for file in replay.files}
        accepted = {name: after for name, after in position.accepted.items() if name != path}
        after = structs.replace(position, batch=position.batch + 1, accepted=accepted)
        source, there = self.table.source, self.there
        return Batch(source, "replay", position, after, files, columns, reader, self.at_s, there, replay=replay)

    # --- changes

    def _changes(self, position: Position, most: int | None) -> Batch | None:
        """Return the next files of changes as a batch."""
        there, table, settings = self.there, self.table, self.table.lake.settings
        applied, accepted = applied_files(applied_batches(table)), self._accepted(position)
        files = pending_files(there, structs.replace(position, accepted=accepted), applied)
        self._require_in_order(position, applied, bool(files) and files[0].name in position.accepted)
        if not files:
            return None
        most_memory = min(MOST_MEMORY, table.lake.budget.size // (2 * settings.parallel_tables))
        found = next_batch(
            files,
            position,
            lambda file: _shape(self._columns_of(file)),
            lambda file: self.reader.measure(file, self._columns_of(file)),
            (settings.max_batch_mb * MB, most_memory),
        )
        is_late = order_of(files[0].path) < order_of(position.last)
        if most is not None and not is_late:  # a late file is one batch, of which no position says a part
            found = replace(found, files=found.files[:1], left=(*found.files[1:], *found.left), end=found.begin + most)
        sound = structs.replace(position, stopped="", accepted=accepted)  # the audit's finding is mended
        after = found.position_after(sound, there.below(found.files[-1]))
        columns = tuple(self._columns_of(file) for file in found.files)
        named = {file.name: file for file in found.files}
        return Batch(
            table.source, "changes", position, after, named, columns, self.reader, self.at_s, there,
            found.left, found.begin, found.end,
        )  # fmt: skip

    def _accepted(self, position: Position) -> dict[str, str]:
        """Return the files that a person accepted, also before somebody rolled the table back behind that decision."""
        stored, last = self.table.stored, order_of(position.last)
        here = {snapshot.id for snapshot in stored.ancestors()}
        undone = (s for s in stored.snapshots if DECISION in s.summary and s.id not in here)
        known = [read_position(s.summary[POSITION], self.table.source).accepted for s in undone]
        before = {name: place for one in known for name, place in one.items() if order_of(place) > last}
        return {**before, **position.accepted}

    def _require_in_order(self, position: Position, applied: Applied, is_accepted: bool) -> None:
        """Raise what stops the table, once for the files of this look; a file that a person accepted comes before."""
        if self._checked:
            return
        require_same_load(self.there, position, applied, self.table.source)
        found = (audit if self.audits else findings)(self.there, position, applied)
        if found and not is_accepted:
            raise found[0].raised(self.table.source)
        self._checked = not found

    def _columns_of(self, file: DmsFile) -> FileColumns | None:
        """Return the columns of a file, which is looked at once: in order, so that the file before tells what it carried."""
        if file not in self._columns:
            first_of_both = [*[*self.there.loads.values()][:1], *self.there.changes[:1]]
            in_order = load_number(file.name) is None and order_of(file.path) >= order_of(
                self.table.stored.position.last
            )
            found = self.reader.columns(file, self._carried if in_order else (), first_of_both)
            self._carried = found.carried if found else self._carried
            self._columns[file] = found
        return self._columns[file]


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


def _shape(columns: FileColumns | None) -> tuple[object, ...]:
    """Return what must be equal of files that are one batch."""
    return (columns.names, columns.reading.roles, columns.dialect, columns.types) if columns else ()


def _carried(known: Columns, written: Written) -> tuple[str, ...]:
    """Return the names that the newest applied file carried, as `FileColumns.carried` has them; none if it had all."""
    gone = {column.name for column in known.columns if not column.carried}
    renamed = {column.name for column in known.columns if column.renamed}
    names = [*(n for n, column in written.columns.items() if column not in gone), *written.added, *written.images]
    marked = [RENAMED + n for n, column in written.columns.items() if column in renamed - gone]
    return (*names, *marked) if gone or renamed else ()
