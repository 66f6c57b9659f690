"""What DMS wrote for a table: load files, and change files in the order in which they count, which is that of their names.

A continuous run lists what comes after the table's position, with an hour to spare: names of change files are times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from frazil.dms.date_partition import DatePartition
from frazil.dms.file_marks import are_same, are_unchanged
from frazil.dms.file_names import CHANGES, OWN_RECORDS, SHARED, begin_before, is_change_file, load_number, order_of
from frazil.dms.position import Position
from frazil.dms.storage import DmsFile, Storage
from frazil.errors import FrazilError

Files = Sequence[DmsFile]


class SameNameError(FrazilError, code="same-name", decision=True):
    """Two files of a table have the same name and other bytes. Move the one away that DMS did not write there."""


@dataclass(frozen=True)
class TableFiles:
    """The files of a table's folder: load files by folder and number, as paths below the folder; change files by name."""

    storage: Storage
    folder: str
    partition: DatePartition
    loads: dict[str, DmsFile]
    changes: tuple[DmsFile, ...]

    def below(self, file: DmsFile) -> str:
        """Return a file's path below the table's folder; of files of all tables the name."""
        return file.name if SHARED.fullmatch(file.name) else file.path[len(self.folder) + 1 :]


def start_after(folder: str, last: str, partition: DatePartition) -> str:
    """Return the key after which files may be new; `last` is the newest applied file, below the folder. Empty: all may be."""
    above, _, name = last.rpartition("/")
    if partition.enabled:
        return f"{folder}/{before}/" if (before := partition.before(above)) else ""
    return f"{folder}/{begin_before(name)}" if is_change_file(name) and not above else ""


def list_table(
    storage: Storage, folder: str, partition: DatePartition, position: Position | None = None, shared: Files = ()
) -> TableFiles:
    """Return a table's files, with those `shared` by all tables; with a position those that may be new.

    A folder that is not there has none. If the load seems to be another one than the position's, all are listed. Raises
    SameNameError for load files.
    """
    after = start_after(folder, position.last, partition) if position else ""
    found = _sorted(storage, folder, partition, storage.files(folder, after), shared)
    if after and position and found.loads and not are_unchanged(storage, found.loads, position.load):
        return list_table(storage, folder, partition, None, shared)
    return found


def list_shared(storage: Storage, folder: str, last: str = "") -> tuple[DmsFile, ...]:
    """Return the files of all tables in the folder `CdcPath`; with `last`, those that may be new."""
    after = f"{folder}/{begin_before(last, shared=True)}" if is_change_file(last) else ""
    return tuple(f for f in storage.files(folder, after) if f.size and SHARED.fullmatch(f.name))


def one_of_copies(storage: Storage, files: Files, parallel: bool = False) -> list[DmsFile]:
    """Return files without copies: the same bytes in two places are one file.

    Raises SameNameError for other bytes under one name, whatever its ending. Folders of a `parallel` load may have them, beside one another.
    """
    found = defaultdict[str, list[DmsFile]](list)
    for file in sorted(files, key=lambda f: f.path.count("/")):
        named = found[file.name.partition(".")[0]]
        if any(are_same(storage, other, file) for other in named):
            continue
        if named and not (parallel and all(_are_beside(other, file) for other in named)):
            both = " and ".join(storage.shown(f.path) for f in (named[0], file))
            cure = "move the one out of the table's folder that DMS did not write there; let one task write a table to a folder"
            raise SameNameError(f"{both} have the same name and other bytes", cure)
        named.append(file)
    kept = {file for named in found.values() for file in named}
    return [file for file in files if file in kept]


def _are_beside(one: DmsFile, other: DmsFile) -> bool:
    """Return whether two files are in different folders of the same depth."""
    folders = [file.path.rpartition("/")[0] for file in (one, other)]
    return folders[0] != folders[1] and folders[0].count("/") == folders[1].count("/")


def _sorted(storage: Storage, folder: str, partition: DatePartition, files: Files, shared: Files) -> TableFiles:
    """Sort files by their names. An empty file of CSV has no rows; another empty one is no file of DMS."""
    loads, changes = [], [*shared]
    for file in files:
        *above, name = file.path[len(folder) + 1 :].split("/")
        if any(map(OWN_RECORDS.fullmatch, above)) or not (file.size or name.endswith(".csv")):
            continue
        if CHANGES.fullmatch(name):
            changes.append(file)
        elif load_number(name) is not None:
            loads.append(file)
    loads.sort(key=lambda f: (f.path.rpartition("/")[0], load_number(f.name) or 0, f.name))
    changes.sort(key=lambda f: (order_of(f.path), f.name))
    own = {f.path[len(folder) + 1 :]: f for f in one_of_copies(storage, loads, parallel=True)}
    return TableFiles(storage, folder, partition, own, tuple(changes))
