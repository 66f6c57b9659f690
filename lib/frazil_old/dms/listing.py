"""Lists the objects that DMS wrote for a table: load files, and change files in the order in which to apply them.

The names of change files are times, so an incremental listing skips files before a given name. A local folder returns
all names together, and only new files are examined. S3 lists keys in order and can start at any key. At an old change
file, the listing continues at the next key where new files may be. Without date partitions, that key is in the table's
folder itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from frazil_old.config.spec import TableSpec
from frazil_old.dms.endpoint import DatePartition
from frazil_old.dms.file_names import CHANGES, LOAD, is_data, is_shared, name_at, states_a_time, time_of_name
from frazil_old.dms.file_order import in_order
from frazil_old.dms.source_errors import SourceError
from frazil_old.dms.storage import DmsObject, ListingFilter, is_s3, location, walk
from frazil_old.errors import nearest

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


class Since(ListingFilter):
    """Skips change files with a name before `start`."""

    def __init__(self, start: str):
        self.start = start

    def names_to_skip(self, names: list[str]) -> set[str]:
        """Return the names to skip."""
        return {name for name in names if name < self.start and CHANGES.match(name)}


def newest(folder: str, begin: Begin) -> list[DmsObject]:
    """Return all load files, the change files from `begin.start` on, and the foreign objects between them.

    Earlier partitions are not listed, as DMS fills partitions in order. A full listing finds files that arrive there
    later.
    """
    start = name_at(time_of_name(begin.start))
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
    form, last = begin.partition.form, time_of_name(begin.last)
    step = timedelta(hours=1) if "%H" in form else timedelta(days=1)
    first = last - back * (step if "%d" in form else timedelta(days=31))
    end = last if form.startswith("%Y") else datetime.now(UTC).replace(tzinfo=None) + timedelta(days=2)
    return list(dict.fromkeys(f"{first + i * step:{form}}" for i in range(max(0, (end - first) // step) + 1)))


def _walk_from(folder: str, start: str, places: list[str], partition: DatePartition) -> Iterator[DmsObject]:
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


CONTROL = re.compile(r"^(awsdms_.*|s3_validation_failures)$", re.IGNORECASE)
"""Folders in which DMS keeps its own records."""


def _is_control(path: str) -> bool:
    return any(CONTROL.match(folder) for folder in path.split("/")[:-1])


TABLE_WITHOUT_SPEC = "a table without a spec"
PART = 900
"""Number of recorded files in one part of a listing: one page of S3, with room for new files."""


@dataclass(frozen=True)
class TableObjects:
    """The content of one table's folder: load files by counter, change files by time, and the paths of other objects.

    `full` is true if every file is listed, or recorded and unchanged.
    """

    loads: tuple[DmsObject, ...] = ()
    changes: tuple[DmsObject, ...] = ()
    foreign: tuple[str, ...] = ()
    full: bool = field(default=False, compare=False)

    @property
    def load_digest(self) -> str:
        """A digest over names and ETags of the load files: if it changes, DMS loaded the table again."""
        lines = "\n".join(f"{o.path.rsplit('/', 2)[-2]}/{o.name} {o.etag}" for o in self.loads)
        return hashlib.sha256(lines.encode()).hexdigest()[:16] if self.loads else ""

    @property
    def ignored(self) -> str:
        """Describe the objects that are not the table's data, with examples; empty if there are none."""
        control = [f for f in self.foreign if _is_control(f)]
        others = [f for f in self.foreign if not _is_control(f)]
        return "; ".join(
            f"{len(paths)} {word}: {', '.join(p.rsplit('/', 1)[-1] or p for p in paths[:3])}{' …' if paths[3:] else ''}"
            for word, paths in (("of DMS's own records", control), ("not DMS's", others))
            if paths
        )


def list_table(
    root: Path | str, spec: TableSpec, begin: Begin | None = None, recorded: Recorded | None = None
) -> TableObjects:
    """List one table's folder with its sub-folders (parallel loads and date partitions are one or more levels deeper).

    With `begin`, old change files are skipped; load files are always listed. Without it, unchanged change files that
    are `recorded` are skipped. A missing table folder means a table without rows: DMS creates none for it. A missing root
    or schema folder is an error.
    """
    if CONTROL.match(spec.table_name):
        raise SourceError(f"{spec.source} contains DMS's own records, not data", f"remove {spec.file}")
    folder = f"{location(root)}/{spec.schema_name}/{spec.table_name}"
    entries = newest(folder, begin) if begin else walk(folder, listing_filter=recorded or ListingFilter())
    objects = classified(folder, _require_data(entries, spec.source))
    if not objects.loads and not objects.changes and not (recorded and recorded.skipped):
        _check_source(location(root), spec)
    names = [o.name for o in objects.changes]
    duplicates = [a for a, b in zip(names, names[1:], strict=False) if a == b]
    if duplicates := [*duplicates, *(recorded.duplicates if recorded else ())]:
        raise SourceError(
            f"{spec.source}: two change files are named {duplicates[0]}",
            "let only one DMS task write a table to a folder",
        )
    return objects


def with_transactions(
    objects: TableObjects, root: Path | str, cdc_path: str, begin: Begin | None = None, recorded: Recorded | None = None
) -> TableObjects:
    """Add the files of all tables (PreserveTransactions), in the folder `cdc_path`, to a table's objects.

    The table's own files, from before PreserveTransactions was switched on, come first. `begin` and `recorded` are
    as in `listing.list_table`.
    """
    after = name_at(time_of_name(begin.start), begin.last) if begin and is_shared(begin.last) else ""
    entries = walk(f"{location(root)}/{cdc_path}", start_after=after, listing_filter=recorded or ListingFilter())
    found = list(_require_data(entries, cdc_path))
    changes = (*objects.changes, *in_order(o for o in found if o.is_shared))
    return replace(objects, changes=changes, foreign=(*objects.foreign, *(o.path for o in found if not o.is_shared)))


class Recorded(ListingFilter):
    """Skips change files that are in the record of applied files and unchanged.

    `etags` has the ETag of each by name, or an empty text that matches any. `seen` has a newer ETag of the same bytes.
    `trusted` are names of files whose ETag is not compared. `skipped` are the skipped names; `duplicates` are those
    found in two folders.
    """

    def __init__(self, etags: Mapping[str, str], seen: Mapping[str, str], trusted: set[str] | None = None):
        self.etags, self.seen = etags, seen
        self.trusted = trusted or set()
        self.skipped: set[str] = set()
        self.duplicates: list[str] = []

    def cuts(self) -> list[str]:
        """Return names that divide the listing into parts of `PART` recorded files, for the folder itself and its date folders."""
        names = sorted(n for n in self.etags if CHANGES.match(n))[PART::PART]
        return sorted({*names, *(f"{n[:4]}/{n[4:6]}/{n[6:8]}" for n in names)})

    def names_to_skip(self, names: list[str]) -> set[str]:
        """Return the names of files to skip, whatever their ETags are."""
        found = self.trusted.intersection(names) if self.trusted else set()
        self.duplicates += found & self.skipped
        self.skipped |= found
        return found

    def known(self, name: str, etag: str) -> bool:
        """Return whether a file is recorded with this ETag."""
        known = self.etags.get(name)
        if known is None or (known and etag != known and etag != self.seen.get(name)):
            return False
        if name in self.skipped:
            self.duplicates.append(name)
        self.skipped.add(name)
        return True


def _require_data(entries: Iterable[DmsObject], source: str) -> Iterator[DmsObject]:
    """Yield the entries that are files; raise SourceError for one that has the name of a DMS file but cannot be one."""
    checked_folder = ""
    for e in entries:
        path, special, above = e.path, e.special, e.path.rpartition("/")[0]
        if above != checked_folder:
            if folder := next(filter(is_data, above.split("/")), ""):
                path, special = path[: path.index(f"/{folder}/")] + f"/{folder}", "a folder"
            checked_folder = above
        if special and is_data(path.rpartition("/")[2]):
            raise SourceError(
                f"{source}: {path} is {special}, not a file",
                "move it away, or put the file that DMS wrote in its place",
            )
        if special:
            continue
        if is_data(e.name) and not LOAD.match(e.name) and not states_a_time(e.name):
            raise SourceError(
                f"{source}: {path} is named like a change file, but its digits are not a time: DMS does not write such names",
                "move it away, or give it the name that DMS wrote: the name decides when its changes are applied",
            )
        yield e


def classified(folder: str, entries: Iterable[DmsObject]) -> TableObjects:
    """Sort entries by name into load files, change files and others.

    An empty CSV file has no rows; an empty Parquet or packed file is not a data file.
    """
    loads, changes, foreign = [], [], []
    for e in entries:
        is_whole = (e.size or e.name.endswith(".csv")) and not _is_control(e.path[len(folder) + 1 :])
        if is_whole and CHANGES.match(e.name):
            changes.append(e)
        elif is_whole and LOAD.match(e.name):
            loads.append(e)
        else:
            foreign.append(e.path)
    loads.sort(key=lambda o: (o.path.rsplit("/", 1)[0], int(LOAD.match(o.name).group(2), 16), o.name))
    changes.sort(key=lambda o: o.name)
    return TableObjects(tuple(loads), tuple(changes), tuple(sorted(foreign)))


def _check_source(root: str, spec: TableSpec) -> None:
    """Raise SourceError if the root or the schema's folder is missing: DMS creates the latter with its first table."""
    schemas = [e.name for e in walk(root, deep=False) if e.folder]
    if spec.schema_name in schemas:
        return
    if not schemas and (is_s3(root) or not Path(root).is_dir()):
        what = "is empty" if is_s3(root) else "does not exist"
        raise SourceError(f"source folder {root} {what}", "set parameter 'source' to the folder DMS writes to")
    cure, parts = nearest(spec.schema_name, schemas), str(root).split("/")
    if spec.schema_name in parts[-2:]:  # the folder of the schema or of the table itself
        above = "/".join(parts[: len(parts) - 1 - parts[::-1].index(spec.schema_name)])
        cure = f"set parameter 'source' to {above}: it holds {spec.schema_name}/"
    raise SourceError(f"{root} has no folder for schema '{spec.schema_name}' ({spec.file})", cure)


def folders_beside(root: Path | str, taken: Collection[str]) -> dict[str, str]:
    """Return {folder: what is in it} for the folders of a source that are not `taken` (`schema/table`, or a top folder)."""

    def folders(below: str) -> list[str]:
        return [e.name for e in walk(f"{location(root)}{below}", deep=False) if e.folder]

    tops = [t for t in folders("") if t not in taken]
    tables = [f"{t}/{name}" for t in tops if not CONTROL.match(t) for name in folders(f"/{t}")]
    own = [f for f in (*tops, *tables) if CONTROL.match(f.rsplit("/", 1)[-1])]
    without_spec = [f for f in tables if f not in taken and f not in own]
    return dict.fromkeys(own, "DMS's own records, no data") | dict.fromkeys(without_spec, TABLE_WITHOUT_SPEC)


def holds_data(root: Path | str, folder: str) -> bool:
    """Return whether a table's folder, or one below it, has load or change files."""
    entries = walk(f"{location(root)}/{folder}")
    return any(e.size and (CHANGES.match(e.name) or LOAD.match(e.name)) for e in entries)


@dataclass
class Watch:
    """Decides which listings of a table are full, and finds files that disappear between two of them, in this process."""

    full_every: int = 100
    load_folders: frozenset[str] = frozenset()
    """The paths of the folders that had load files in the last listing."""
    full: bool = True
    _listings: int = 0
    _missing: set[str] | None = None

    def is_due(self) -> bool:
        """Count a poll, and return whether it needs a full listing: the first, and every `full_every`th."""
        self.full = self._listings % self.full_every == 0
        self._listings += 1
        return self.full

    def vanished(self, recorded: Recorded) -> list[str]:
        """Return the applied files that this full listing does not have, but the one before had."""
        before, self._missing = self._missing, recorded.etags.keys() - recorded.skipped
        return [] if before is None else sorted(self._missing - before)
