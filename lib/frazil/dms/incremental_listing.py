"""Finds new files in a table's folder without listing all old ones.

The names of change files are times, so those before a name are skipped. A local folder returns all names together, and
only new files are examined. S3 lists keys in order and can start anywhere: at an old change file, the listing goes on
at the next place where new files may be. Without date partitions, that is the folder itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from frazil.dms.endpoint import DatePartition
from frazil.dms.storage import Entry, Sieve, is_s3, walk
from frazil.source.file_names import CHANGES, LOAD, SHARED, moment, name_at

BACK = (2, 8, 32)
"""Numbers of date partitions before the time of the last file applied that are listed, until its partition is among them.

A file is in the partition of its commits, which may be earlier than the time in its name. If it is in none, as date
partitions were switched on later, the greatest number holds.
"""
MOST_PARTITIONS = 50
"""If more partitions than this would be listed one by one, everything is listed."""


@dataclass(frozen=True)
class Begin:
    """Where an incremental listing begins: at change files from the name `start` on; `last` is the last one applied.

    `partition` states how change files lie in folders by date. `load_folders` are the paths of folders that had load
    files in the listing before: they may lie among old change files.
    """

    last: str
    start: str
    partition: DatePartition = DatePartition()
    load_folders: frozenset[str] = frozenset()


class Data(Sieve):
    """Accepts only names of DMS's files."""

    def is_data(self, name: str) -> bool:
        """Return whether a name is that of a DMS file."""
        return bool(CHANGES.match(name) or LOAD.match(name) or SHARED.match(name))


class Since(Data):
    """Skips change files with a name before `start`."""

    def __init__(self, start: str):
        self.start = start

    def passed(self, names: list[str]) -> set[str]:
        """Return the names to skip."""
        return {name for name in names if name < self.start and CHANGES.match(name)}


def newest(folder: str, begin: Begin) -> list[Entry]:
    """Return all load files, the change files from `begin.start` on, and the foreign objects that the listing meets.

    Partitions before those listed are not read, as DMS fills them in order. Files that still arrive there are found by
    a full listing.
    """
    start = name_at(moment(begin.start))
    if not is_s3(folder):
        return list(walk(folder, sieve=Since(start)))
    # After ":" come the names that begin with a letter, and before "LOA" no load file.
    places = {start, ":", *(f"{path}/LOA"[len(folder) + 1 :] for path in begin.load_folders)}
    if not begin.partition.enabled:
        return list(_skipping(folder, start, sorted(places), begin.partition))
    for back in BACK:
        dated = _partitions(begin, back)
        if len(dated) > MOST_PARTITIONS:
            break
        found = list(_skipping(folder, start, sorted(places | {f"{p}/{start}" for p in dated}), begin.partition))
        above = {e.path[len(folder) + 1 : -len(e.name)] for e in found if e.name == begin.last}
        if above & {f"{p}/" for p in dated[1:]} or ("" in above and back == BACK[-1]):
            return found
    return list(walk(folder))


def _partitions(begin: Begin, back: int) -> list[str]:
    """Return the date partitions to skip to, from `back` before the time of the last file applied.

    Later ones are among them only if S3 lists old ones between: those whose names do not begin with the year.
    """
    form, last = begin.partition.form, moment(begin.last)
    step = timedelta(hours=1) if "%H" in form else timedelta(days=1)
    first = last - back * (step if "%d" in form else timedelta(days=31))
    end = last if form.startswith("%Y") else datetime.now(UTC).replace(tzinfo=None) + timedelta(days=2)
    return list(dict.fromkeys(f"{first + i * step:{form}}" for i in range(max(0, (end - first) // step) + 1)))


def _skipping(folder: str, start: str, places: list[str], partition: DatePartition) -> Iterator[Entry]:
    """Yield a folder's entries; at a change file before `start`, go on at the next of the places.

    Nothing is skipped in folders where the settings do not expect change files.
    """
    here: str | None = ""
    while here is not None:
        begin, here = here, None
        for entry in walk(folder, start_after=begin, page=100):
            place = entry.path[len(folder) + 1 :]
            above = place.rpartition("/")[0]
            if not (CHANGES.match(entry.name) and entry.name < start):
                yield entry
            elif place > begin and (not above or partition.names(above)):  # SeaweedFS may return keys before `begin`
                here = next((p for p in places if p > place), None)
                if here:
                    break
