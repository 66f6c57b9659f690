"""The one rule of loads: first load, load again and replay are one operation.

The load's rows take the place of all rows. Then every change file counts again that is not certainly from before the
load, by DMS's own clock: a load row has the time of its transfer, and a change file the time when it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from frazil.core.changes import OP, Changes
from frazil.core.key_changes import APPLY, LEAVE, events
from frazil.dms.applied import Applied
from frazil.dms.file_marks import is_same_load, is_unchanged
from frazil.dms.file_names import base_name, is_change_file
from frazil.dms.listing import TableFiles
from frazil.dms.pending import FileVanishedError, Finding
from frazil.dms.position import Position
from frazil.dms.storage import DmsFile, Storage
from frazil.errors import FrazilError, many

if TYPE_CHECKING:
    from frazil.dms.date_partition import DatePartition

APART_S, COPIED_S = 1.0, 26 * 3600.0
"""How far times of files may be apart that were written together, and how long after its name a file may land."""


class LoadChangedError(FrazilError, code="load-changed", decision=True):
    """The load files are not those that were applied. Restart the table, which loads it again and then applies its changes."""


class MixedLoadError(FrazilError, code="load-mixed", decision=True):
    """Some load files are older than the others. Move those of an older load away, as the new load has their rows."""


class LoadMissingError(FrazilError, code="load-missing", decision=True):
    """A table without load files has changes of rows that nobody inserted. Bring the load files, or say where the load is."""


class PlaceError(FrazilError, code="place"):
    """A place is no change file's name and no time. Write one of both."""


def require_same_load(there: TableFiles, position: Position, applied: Applied, storage: Storage, table: str) -> None:
    """Raise LoadChangedError if a table's load files are not those that were applied. That all of them are gone is normal."""
    if not there.loads or not position.load or is_same_load(storage, there.loads, position.load):
        return
    marks = {path: mark for path, mark in applied.marks.items() if not is_change_file(path)}
    new = [path for path in there.loads if path not in marks]
    other = [p for p, f in there.loads.items() if p in marks and not is_unchanged(storage, f, marks[p])]
    gone = [path for path in marks if path not in there.loads]
    kinds = {"new": new if marks else [], "written again": other, "gone": gone}
    shown = "".join(f"; {what}: {', '.join(paths[:5])}" for what, paths in kinds.items() if paths)
    problem = f"{table}: its {many(len(there.loads), 'load file')} are not those that were applied{shown}"
    cure = "if a load file is gone or came late, bring back what was applied; if DMS loaded the table again, restart it"
    raise LoadChangedError(problem, cure)


def require_one_load(
    there: TableFiles, applied: Applied, storage: Storage, partition: DatePartition, table: str
) -> None:
    """Raise MixedLoadError for load files that an earlier load applied, or that are older than a change before the others."""
    marks, loads = applied.marks, there.loads
    before = [path for path, file in loads.items() if path in marks and is_unchanged(storage, file, marks[path])]
    old = before if len(before) < len(loads) else []
    if old := old or _before_a_change(loads, there.changes, partition):
        problem = f"{table}: some of {many(len(loads), 'load file')} are older than the others: {', '.join(old[:5])}"
        cure = "move files of an older load away, as the new load has their rows; or have DMS load into an empty folder"
        raise MixedLoadError(problem, cure)


def _before_a_change(loads: Mapping[str, DmsFile], changes: Iterable[DmsFile], partition: DatePartition) -> list[str]:
    """Return load files that landed before a change file that itself landed before another load file: DMS loads first.

    The times of a change file that landed much later than its name says prove nothing: it was copied.
    """
    newest = max((f.landed for f in loads.values()), default=0.0)
    for change in changes:
        old = [path for path, f in loads.items() if f.landed < change.landed - APART_S]
        is_copied = abs(change.landed - partition.written_s(change.name)) > COPIED_S
        if old and newest > change.landed + APART_S and not is_copied:
            return old
    return []


def last_before(changes: Sequence[DmsFile], began: float | None, partition: DatePartition) -> str:
    """Return the newest change file that is certainly from before a load; empty: none is.

    `began` is the earliest time in the load's rows, in epoch seconds (None: its rows have no times).
    """
    older = [f.name for f in changes if began is not None and partition.written_s(f.name) < began]
    return max(older, default="")


def last_before_place(changes: Sequence[DmsFile], place: str, table: str) -> str:
    """Return the newest change file before a place: the name of a file that counts, or a time in the zone of file names.

    Raises PlaceError for a text that is neither.
    """
    name = base_name(place)
    if not is_change_file(name):
        try:
            time = datetime.fromisoformat(place)
        except ValueError:
            cure = "write 20240101-100000000.csv, or 2024-01-01 10:00:00 in the zone of the file names"
            raise PlaceError(f"{table}: '{place}' is no change file and no time", cure) from None
        time = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
        name = f"{time:%Y%m%d-%H%M%S}"
    return max((f.name for f in changes if f.name < name), default="")


def require_all_there(there: TableFiles, applied: Applied, last: str, table: str) -> None:
    """Raise FileVanishedError if files are gone that a load again would apply again: those after `last`, and the load's."""
    names = {f.name for f in there.changes}
    changes = [name for name in applied.marks if is_change_file(name) and name > last and name not in names]
    loads = [path for path in applied.marks if not is_change_file(path) and there.loads and path not in there.loads]
    if gone := sorted(changes) + loads:
        raise Finding(FileVanishedError, tuple(gone)).raised(table)


def require_load(changes: Changes, position: Position, key: Sequence[str], files: Sequence[str], table: str) -> None:
    """Raise LoadMissingError if the first changes after an empty load are of rows that nobody inserted.

    DMS writes no load file for an empty table. A change of a key that was never inserted shows that this one was not.
    """
    if position.load != "none" or position.last or not key:
        return
    of = events(changes, key)
    op = np.asarray(changes.facts[OP])[of.place]
    was_there = (of.step == LEAVE) | ((of.step == APPLY) & (op != "I"))
    wrong = of.place[was_there & (of.before < 0)].tolist()
    if wrong:
        file, row = (changes.facts[fact][wrong[0]].as_py() for fact in ("file", "number"))
        problem = f"{table}: the load is missing: {files[file]} row {row} changes a row that was never inserted"
        cure = "bring the load files; if another folder has them, run 01_full_load in an environment with that source; or accept the file"
        raise LoadMissingError(problem, cure)
