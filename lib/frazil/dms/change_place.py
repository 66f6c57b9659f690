"""Places among change files that a person names: a file, a time, all files, or none."""

from __future__ import annotations

from datetime import UTC, datetime

from frazil.dms.file_names import FileNameError, base_name, is_change_file, order_of, time_of_name
from frazil.dms.listing import TableFiles
from frazil.dms.position import NoPositionError
from frazil.errors import nearest

ALL, FIRST, OF_LOAD = "0", "first", "load"
"""The `last` of a position before all names; and the words for all change files, and for none: those after a load alone."""


def newest_before(there: TableFiles, place: str, table: str, through: bool = False) -> str:
    """Return the path of the newest change file before a place, or `through` it; empty: none is.

    Raises NoPositionError for a text that is no file of the table, and no time.
    """
    if place in (FIRST, OF_LOAD):
        return ALL if place == FIRST else ""
    try:
        found = _before_name(there, place, through) if is_change_file(place) else _before_time(there, place, table)
    except FileNameError as error:
        raise NoPositionError(f"{table}: '{place}' is no position", error.cure) from None
    if found is None:
        names = [file.name for file in there.changes[-20:]]
        raise NoPositionError(f"{table}: there is no change file {place}", nearest(place, names))
    return found


def _before_name(there: TableFiles, name: str, through: bool) -> str | None:
    """Return the newest change file before a name, or with it; None: no file has it, and older ones are there."""
    time_of_name(base_name(name))
    older = [f for f in there.changes if order_of(f.name) < order_of(name)]
    if through and any(f.name == base_name(name) for f in there.changes):
        return next(there.below(f) for f in there.changes if f.name == base_name(name))
    if not older:
        return name if through else ALL
    return None if through else there.below(older[-1])


def _before_time(there: TableFiles, place: str, table: str) -> str:
    try:
        time = datetime.fromisoformat(place)
    except ValueError:
        cure = "write the name of a change file, a time as 2024-01-01 10:00:00 in UTC, or load"
        raise NoPositionError(f"{table}: '{place}' is no position", cure) from None
    when = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    older = [f for f in there.changes if there.partition.written_s(f.name) <= when]
    return there.below(older[-1]) if older else ""
