"""Finds new files in a table's folder without listing all old ones.

The names of change files are times, so files before a given name are skipped. A local folder returns all names together,
and only new files are examined. S3 lists keys in order and can start at any key. At an old change file, the listing
continues at the next key where new files may be. Without date partitions, that key is in the table's folder itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from frazil.dms.endpoint import DatePartition
from frazil.dms.storage import Entry, ListingFilter, is_s3, walk
from frazil.source.file_names import CHANGES, LOAD, SHARED, moment, name_at

BACK = (2, 8, 32)
"""How many date partitions before the last applied file's time to list; larger numbers follow until the file is found.

A file is in the partition of its commit time, which may be earlier than the time in its name. It is in no partition if
date partitions were switched on later; then the largest number applies.
"""
MOST_PARTITIONS = 50
"""If there are more partitions than this to list one by one, the whole folder is listed."""


@dataclass(frozen=True)
class Begin:
    """Where an incremental listing begins: at the change file name `start`; `last` is the last file applied.

    `partition` describes the folders by date. `load_folders` are the paths of folders that had load files in the
    previous listing: their keys may be between those of old change files.
    """

    last: str
    start: str
    partition: DatePartition = DatePartition()
    load_folders: frozenset[str] = frozenset()


class Data(ListingFilter):
    """Accepts only names of DMS's files."""

    def is_data(self, name: str) -> bool:
        """Return whether a name is that of a DMS file."""
        return bool(CHANGES.match(name) or LOAD.match(name) or SHARED.match(name))


class Since(Data):
    """Skips change files with a name before `start`."""

    def __init__(self, start: str):
        self.start = start

    def names_to_skip(self, names: list[str]) -> set[str]:
        """Return the names to skip."""
        return {name for name in names if name < self.start and CHANGES.match(name)}


def newest(folder: str, begin: Begin) -> list[Entry]:
    """Return all load files, the change files from `begin.start` on, and the foreign objects between them.

    Earlier partitions are not listed, as DMS fills partitions in order. A full listing finds files that arrive there
    later.
    """
    start = name_at(moment(begin.start))
    if not is_s3(folder):
        return list(walk(folder, listing_filter=Since(start)))
    # Names that begin with a letter sort after ":", and those of load files after "LOA".
    places = {start, ":", *(f"{path}/LOA"[len(folder) + 1 :] for path in begin.load_folders)}
    if not begin.partition.enabled:
        return list(_walk_from(folder, start, sorted(places), begin.partition))
    for back in BACK:
        dated = _partitions(begin, back)
        if len(dated) > MOST_PARTITIONS:
            break
        found = list(_walk_from(folder, start, sorted(places | {f"{p}/{start}" for p in dated}), begin.partition))
        above = {e.path[len(folder) + 1 : -len(e.name)] for e in found if e.name == begin.last}
        if above & {f"{p}/" for p in dated[1:]} or ("" in above and back == BACK[-1]):
            return found
    return list(walk(folder))


def _partitions(begin: Begin, back: int) -> list[str]:
    """Return the date partitions to list, from `back` before the last applied file's time.

    Later ones are included only if their names do not begin with the year: then S3 lists old ones between them.
    """
    form, last = begin.partition.form, moment(begin.last)
    step = timedelta(hours=1) if "%H" in form else timedelta(days=1)
    first = last - back * (step if "%d" in form else timedelta(days=31))
    end = last if form.startswith("%Y") else datetime.now(UTC).replace(tzinfo=None) + timedelta(days=2)
    return list(dict.fromkeys(f"{first + i * step:{form}}" for i in range(max(0, (end - first) // step) + 1)))


def _walk_from(folder: str, start: str, places: list[str], partition: DatePartition) -> Iterator[Entry]:
    """Yield a folder's entries; at a change file before `start`, continue at the next of the keys `places`.

    Nothing is skipped in folders where the settings do not expect change files.
    """
    next_start: str | None = ""
    while next_start is not None:
        begin, next_start = next_start, None
        for entry in walk(folder, start_after=begin, page=100):
            place = entry.path[len(folder) + 1 :]
            above = place.rpartition("/")[0]
            if not (CHANGES.match(entry.name) and entry.name < start):
                yield entry
            elif place > begin and (not above or partition.names(above)):  # SeaweedFS may return keys before `begin`
                next_start = next((p for p in places if p > place), None)
                if next_start:
                    break
