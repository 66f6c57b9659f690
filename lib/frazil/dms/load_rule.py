"""The one rule of loads: first load, load again and replay are one operation.

The load's rows take the place of all rows. Then every change file counts again that is not certainly from before the
load, by DMS's own clock: a load row has the time of its transfer, and a change file the time when it was written.
"""

from __future__ import annotations

from collections.abc import Mapping

from frazil.dms.applied import Applied
from frazil.dms.file_marks import are_unchanged
from frazil.dms.file_names import is_change_file, order_of
from frazil.dms.listing import TableFiles
from frazil.dms.pending import FileVanishedError
from frazil.dms.position import Position
from frazil.errors import Finding, FrazilError, many

APART_S, COPIED_S = 1.0, 26 * 3600.0
"""How far times of files may be apart that were written together, and how long after its name a file may land."""


class LoadChangedError(FrazilError, code="load-changed", decision=True):
    """The load files are not those that were applied. Restart the table, which loads it again and then applies its changes."""


class MixedLoadError(FrazilError, code="load-mixed", decision=True):
    """Some load files are older than the others. Have DMS load into an empty folder; or move those of an older load away."""


class RecordGapError(FrazilError, code="record-gap", decision=True):
    """It is not known whether a load again would apply all change files. Have DMS load the table again, or say where to begin."""


def require_same_load(there: TableFiles, position: Position, applied: Applied, table: str) -> None:
    """Raise LoadChangedError if a table's load files are not those that were applied. That all of them are gone is normal.

    Maintenance asks it of all files: a run lists no folders whose names come before those of new files.
    """
    loads, storage = there.loads, there.storage
    if not loads or not position.load or are_unchanged(storage, loads, position.load):
        return
    marks = {path: mark for path, mark in applied.marks.items() if not is_change_file(path)}
    same = _as_marked(there, marks)
    kinds = {
        "new": [path for path in loads if marks and path not in marks],
        "written again": [path for path in loads if path in marks and path not in same],
        "gone": [path for path in marks if path not in loads],
    }
    shown = "".join(f"; {what}: {', '.join(paths[:5])}" for what, paths in kinds.items() if paths)
    problem = f"{table}: its {many(len(loads), 'load file')} are not those that were applied{shown}"
    cure = "restart the table, which loads what is there; bring back files that are gone"
    raise LoadChangedError(problem, cure)


def require_one_load(there: TableFiles, applied: Applied, table: str) -> None:
    """Raise MixedLoadError for load files that an earlier load applied, or that are older than a change before the others."""
    marks, loads = applied.marks, there.loads
    before = [path for path in _as_marked(there, marks) if loads[path].landed < applied.known_s]
    if old := before if 0 < len(before) < len(loads) else _before_a_change(there):
        problem = f"{table}: some of {many(len(loads), 'load file')} are older than the others: {', '.join(old[:5])}"
        cure = "have DMS load into an empty folder; or move older files away, if the new load has all their rows; or restart with changes_from=first, if they are one load"
        raise MixedLoadError(problem, cure)


def _as_marked(there: TableFiles, marks: Mapping[str, str]) -> list[str]:
    """Return the paths of load files that have the bytes of their marks."""
    marked = ((path, file) for path, file in there.loads.items() if path in marks)
    return [path for path, file in marked if are_unchanged(there.storage, {path: file}, marks[path])]


def _before_a_change(there: TableFiles) -> list[str]:
    """Return load files that landed before a change file that itself landed before another load file: DMS loads first.

    The times of a change file that landed much later than its name says prove nothing: it was copied.
    """
    landed = [f.landed for f in there.loads.values()] or [0.0]
    first, last, written_s = min(landed) + APART_S, max(landed) - APART_S, there.partition.written_s
    between = (f for f in there.changes if first < f.landed < last)
    change = next((f.landed for f in between if abs(f.landed - written_s(f.name)) <= COPIED_S), 0.0)
    return [path for path, f in there.loads.items() if f.landed < change - APART_S]


def last_before(there: TableFiles, began: float | None) -> str:
    """Return the path, below the table's folder, of the newest change file from certainly before a load; empty: none is.

    `began` is the earliest time in the load's rows, in epoch seconds (None: its rows have no times).
    """
    written_s = there.partition.written_s  # in an hour that autumn repeats, it may be the later time
    older = [f for f in there.changes if began is not None and written_s(f.name, fold=1) < began]
    return there.below(max(older, key=lambda f: order_of(f.path))) if older else ""


def require_all_there(there: TableFiles, applied: Applied, last: str, table: str) -> None:
    """Raise FileVanishedError if files are gone that a load again would apply again: those after `last`, and the load's.

    Raises RecordGapError if it is not known which these are.
    """
    if order_of(applied.since) > order_of(last):
        problem = f"{table}: which files were applied is known from {applied.since} on, and not from the load"
        raise RecordGapError(problem, "have DMS load it again; or say from which file on all change files are there")
    names, last = {f.name for f in there.changes}, order_of(last)
    changes = [name for name in applied.marks if is_change_file(name) and order_of(name) > last and name not in names]
    loads = [path for path in applied.marks if not is_change_file(path) and there.loads and path not in there.loads]
    if gone := sorted(changes) + loads:
        raise Finding(FileVanishedError, tuple(gone)).raised(table)
