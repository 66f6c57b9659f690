"""What decisions about files mean: the position that a person wants, and what the summary of its commit says of files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import dropwhile

import msgspec
from msgspec import structs

from frazil.dms.applied import FILES, WAITING, Batch, applied_files
from frazil.dms.file_marks import mark_of
from frazil.dms.file_names import FileNameError, base_name, is_change_file, order_of, time_of_name
from frazil.dms.listing import TableFiles
from frazil.dms.load_rule import require_all_there, require_one_load
from frazil.dms.pending import FileChangedError, FileVanishedError, FutureFileError, findings
from frazil.dms.position import ALL, NoPositionError, Position
from frazil.errors import FrazilError, nearest

FIRST, NEXT, OF_LOAD = "first", "next", "load"
"""Words for a place: before all change files; before those that are not applied; behind the load, before any change."""


class DecisionError(FrazilError, code="decision"):
    """A decision does not fit its table: it names what is not there, or lacks what it is about. Write it as the message of the table's stop says."""


def accepted(
    there: TableFiles, position: Position, batches: Iterable[Batch], name: str, table: str
) -> tuple[Position, dict[str, str]]:
    """Return the position by which a file is taken as it is, and what the summary says; they say nothing new if it was before.

    A late file is applied next, a changed one counts as applied, a vanished one is given up. Raises DecisionError.
    """
    applied, files = applied_files(batches), {f.name: f for f in there.changes}
    errors = {name: found.error for found in findings(there, position, applied) for name in found.names}
    error = errors.get(name)
    if error is FileChangedError:
        mark = mark_of(there.storage, {name: files[name]})
        return position, {FILES: msgspec.json.encode({name: mark}).decode()}
    if error is FileVanishedError:
        rows = None if name == base_name(position.last) else position.rows
        return structs.replace(position, rows=rows), {WAITING: " ".join(n for n in applied.waiting if n != name)}
    if name in applied.marks or name in position.accepted:
        return position, {}
    if name not in files or error is FutureFileError:
        others = {*(errors or files)} - {name}
        raise DecisionError(f"{table}: there is no file {name} that may be accepted", nearest(name, others))
    return structs.replace(position, accepted={**position.accepted, name: position.last}), {}


def restarted(
    there: TableFiles, position: Position, batches: Iterable[Batch], changes_from: str, table: str
) -> Position:
    """Return the position from which a table is loaded again, and then gets the changes from a place on.

    The place is a change file, a time, `first` or `next`; empty: DMS's clock decides. Raises what `load_rule` does of
    files that do not fit together, and NoPositionError.
    """
    before = [*dropwhile(lambda batch: not batch.position.load, batches)]
    applied, last = applied_files(before), ""
    if changes_from == NEXT:
        last = before[0].position.last if before else ""
    elif changes_from:
        last = _newest_before(there, changes_from, table)
    if changes_from != FIRST:
        require_one_load(there, applied, table)
    if changes_from:
        require_all_there(there, applied, last, table)
    kept = {name: place for name, place in position.accepted.items() if name in applied.marks}
    return Position(batch=position.batch + 1, last=last, accepted=kept)


def taken_over(there: TableFiles, place: str, table: str) -> Position:
    """Return the position of a table that another pipeline has fed up to a place, also with it. Raises NoPositionError.

    A file that is gone may be named if it comes before all others.
    """
    last, named = _newest_before(there, place, table), [f for f in there.changes if f.name == base_name(place)]
    if named:
        last = there.below(named[0])
    elif is_change_file(place) and last != ALL:
        names = [file.name for file in there.changes[-20:]]
        raise NoPositionError(f"{table}: there is no change file {place}", nearest(place, names))
    elif is_change_file(place):
        last = place
    return Position(batch=1, load=mark_of(there.storage, there.loads), last=last)


def _newest_before(there: TableFiles, place: str, table: str) -> str:
    """Return the path of the newest change file before a place, or at that time; empty: none is.

    Raises NoPositionError for a text that is no place.
    """
    if place in (FIRST, OF_LOAD):
        return ALL if place == FIRST else ""
    is_file = is_change_file(place)
    try:
        time = time_of_name(place) if is_file else datetime.fromisoformat(place)
    except (FileNameError, ValueError):
        cure = "write the name of a change file, a time as 2024-01-01 10:00:00 in UTC, or load"
        raise NoPositionError(f"{table}: '{place}' is no position", cure) from None
    when = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    written_s = there.partition.written_s
    older = [f for f in there.changes if (order_of(f.name) < order_of(place) if is_file else written_s(f.name) <= when)]
    if older:
        return there.below(older[-1])
    return ALL if is_file else ""
