"""Compares a listing with what is applied: files that are pending, late, changed, or named in the future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.source.applied_files import Applied, Place, Record, is_same, key_of
from frazil.source.file_names import digits_of, latest_possible

if TYPE_CHECKING:
    from frazil.dms.listing import DmsObject
    from frazil.dms.position import Position


@dataclass
class Arrived:
    """Change files by what to do with them.

    `pending` and `late` are in the order in which they would be applied. `changed` has each file, what was applied, if
    known, and whether the bytes certainly differ. `same` are files with a new ETag but unchanged bytes. `ahead` are
    pending files with names in the future.
    """

    pending: list[DmsObject] = field(default_factory=list)
    late: list[DmsObject] = field(default_factory=list)
    changed: list[tuple[DmsObject, Applied | None, bool]] = field(default_factory=list)
    same: list[DmsObject] = field(default_factory=list)
    ahead: list[DmsObject] = field(default_factory=list)


def arrived(files: Sequence[DmsObject], position: Position, record: Record, now: float) -> Arrived:
    """Classify the change files of a listing; local ones with another time and the same size are read."""
    found, pending = Arrived(), []
    here: Place = (position.last, position.turn)
    for o in files:
        known = record.newest.get(o.name)
        old = o.name <= position.last and o.name not in position.recent
        if not known and record.whole and (old or (record.moved and o.name >= record.moved[0])):
            known = record.files.get(o.name)
        place = known.place if known and known.after else (o.name, 0)
        if place > here:
            pending.append((place, o))
        elif known:
            _compare_with_record(o, known, record, found)
        elif o.name == position.last:
            if o.etag != position.last_etag:
                found.changed.append((o, None, False))
        elif o.name not in position.recent and _is_late(o, position, record):
            found.late.append(o)
    found.pending = [o for _, o in sorted(pending, key=lambda entry: entry[0])]
    latest = latest_possible(now)
    found.ahead = [o for o in found.pending if digits_of(o.name) > latest]
    return found


def _is_late(o: DmsObject, position: Position, record: Record) -> bool:
    """Return whether a file with a name before the position was never applied.

    The record decides, if it is complete. Else a file counts as late if it arrived after the last batch, or if its name
    is in the window that the position knows.
    """
    if record.complete:
        return True
    if record.modified and o.landed > record.modified:
        return True
    return bool(position.recent) and position.look_from <= o.name


def _compare_with_record(o: DmsObject, known: Applied, record: Record, found: Arrived) -> None:
    if not known.etag or o.etag in (known.etag, record.seen.get(o.name)):
        return
    same = is_same(known, o.size, o.chunks)
    if same:
        found.same.append(o)
    else:
        found.changed.append((o, known, same is False))


def same_loads(loads: Sequence[DmsObject], record: Record) -> tuple[list[DmsObject], list[DmsObject]]:
    """Return load files with their recorded ETags if their bytes are unchanged, and those whose new ETag was not recorded yet."""
    found, new = [], []
    for o in loads:
        known = record.files.get(key_of(o))
        if known and o.etag != known.etag:
            if o.etag != record.seen.get(known.name):
                known = known if is_same(known, o.size, o.chunks) else None
                new += [o] if known else []
            o = replace(o, etag=known.etag) if known else o
        found.append(o)
    return found, new
