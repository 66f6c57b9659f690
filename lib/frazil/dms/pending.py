"""Which files are pending after a table's position; and those that nobody can apply in order before a person decides."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import takewhile

from frazil.dms.applied import Applied
from frazil.dms.file_marks import are_unchanged
from frazil.dms.file_names import base_name, order_of
from frazil.dms.listing import TableFiles, one_of_copies, start_after
from frazil.dms.position import Position
from frazil.dms.storage import DmsFile, FileVanishedError
from frazil.errors import Finding, FrazilError

CLOCKS_S = 3600.0
"""How far this machine's clock may be behind that of DMS."""


class LateFileError(FrazilError, code="late-file", decision=True):
    """A file came late, after newer ones were applied. Restart the table, which applies all in order; or accept the file, which applies it now."""


class FileChangedError(FrazilError, code="file-changed", decision=True):
    """A file has changed since it was applied. Restart the table, which applies the file again; or accept it as it is."""


class HiddenFileError(FrazilError, code="file-hidden", decision=True):
    """A new file lies in a folder in which runs do not look. Correct DatePartition… in the endpoint's JSON, as the task has it; or move the file to where DMS wrote the others."""


class FutureFileError(FrazilError, code="file-in-future", decision=True):
    """A file is named after a time in the future. Give it the name that DMS wrote, or move it away."""


class RepeatedHourError(FrazilError, code="repeated-hour", decision=True):
    """Files are named in the hour that autumn repeats, so their names tell no order. Accept them one by one, as DMS wrote them."""


class SourceChangedError(FrazilError, code="source-changed", decision=True):
    """A table has been fed by files and its source is a stream, or the reverse. Adopt the table with the place where the new source's changes begin; or restart it, which loads it again."""


def findings(there: TableFiles, position: Position, applied: Applied) -> list[Finding]:
    """Return what stops a table, by its listed files: what is worst comes first."""
    last, since, partition = order_of(position.last), order_of(applied.since), there.partition
    old = [f for f in there.changes if order_of(f.path) <= last]
    new, names = there.changes[len(old) :], {f.name for f in there.changes}
    marks, decided = applied.marks, {*applied.marks, *position.accepted}
    changed = (f.name for f in old if f.name in marks and not are_unchanged(there.storage, {f.name: f}, marks[f.name]))
    late = (f.name for f in old if order_of(f.path) > since and f.name not in decided)
    future = (f.name for f in there.changes if partition.written_s(f.name) > time.time() + CLOCKS_S)
    repeated = sorted(takewhile(lambda f: partition.repeats(f.name), new), key=lambda f: f.landed)
    is_decided = any(f.name in position.accepted for f in repeated)
    begun = [base_name(position.last)] if position.rows is not None else []
    awaited = [*begun, *(name for name in applied.waiting if name not in marks)]
    return [
        *source_changed(position, landing=""),
        *_found(FileChangedError, changed),
        *_found(LateFileError, late, f"; changes up to {base_name(position.last)} are applied"),
        *_found(FutureFileError, future),
        *_found(RepeatedHourError, (f.name for f in repeated if not is_decided)),
        *_found(FileVanishedError, (name for name in awaited if name not in names)),
    ]


def audit(there: TableFiles, position: Position, applied: Applied) -> list[Finding]:
    """Return what stops a table, by all of its files, which a run cannot afford to list; maintenance can.

    `applied` is what kept snapshots and `ops.commits` say. A name older than the record counts as late only if the file
    landed after the oldest known batch, as nothing else says that it was not applied.
    """
    found = findings(there, position, applied)
    oldest = min(order_of(position.last), order_of(applied.since))
    known = {*applied.marks, *position.accepted}
    older = [f for f in there.changes if order_of(f.path) <= oldest and f.name not in known]
    after = start_after(there.folder, position.last, there.partition)
    hidden = (f.name for f in there.changes if f.path < after and order_of(f.path) > order_of(position.last))
    found += _found(HiddenFileError, hidden)
    if since := [f.name for f in older if f.landed > applied.known_s > 0]:
        detail = f"; the record of applied files begins with {applied.since}, and they landed later"
        found.append(Finding(LateFileError, tuple(since), detail))
    return found


def source_changed(position: Position, landing: str) -> Iterable[Finding]:
    """Yield what stops a table whose position is one of another kind of source; `landing`: the id of a stream's landing."""
    is_other = position.last and bool(position.landing) != bool(landing)
    return _found(SourceChangedError, [position.last] if is_other else [])


def pending_files(there: TableFiles, position: Position, applied: Applied) -> list[DmsFile]:
    """Return the change files to apply next, in order, up to an hour that autumn repeats.

    A file that is applied in part comes first: the position says how many of its rows are. A file that a person accepted
    comes at the place at which it was accepted. Raises SameNameError for one name with other bytes.
    """
    last = order_of(position.last)
    waits = {name: order_of(after) for name, after in position.accepted.items() if name not in applied.marks}
    begun = [f for f in there.changes if position.rows is not None and f.name == base_name(position.last)]
    due = [f for f in there.changes if f.name in waits and waits[f.name] <= last and not begun]
    upto = min((place for place in waits.values() if place > last), default="")
    others = (f for f in there.changes if order_of(f.path) > last and f.name not in waits)
    new = takewhile(lambda f: not (there.partition.repeats(f.name) or (upto and order_of(f.path) > upto)), others)
    return one_of_copies(there.storage, [*begun, *due, *new])


def _found(error: type[FrazilError], names: Iterable[str], detail: str = "") -> Iterator[Finding]:
    if named := tuple(dict.fromkeys(names)):
        yield Finding(error, named, detail)
