"""What DMS wrote for a table: load files, and change files in the order in which they count, which is that of their names.

A continuous run lists what comes after the table's position, with an hour to spare: names of change files are times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from frazil.dms.file_marks import are_same, is_same_load
from frazil.dms.file_names import OWN_RECORDS, SHARED, is_change_file, load_number, name_at, time_of_name
from frazil.dms.storage import DmsFile, Storage
from frazil.errors import FrazilError, nearest

if TYPE_CHECKING:
    from frazil.dms.date_partition import DatePartition
    from frazil.dms.position import Position

LOOK_BACK = timedelta(hours=1)
"""How much earlier than the newest applied file a listing begins."""
AT_ONCE = 32
"""Folders that are listed at the same time."""


class SourceFolderError(FrazilError, code="source-folder"):
    """The source's folder has no folder for a table's schema. Correct `source`, or the spec."""


class SameNameError(FrazilError, code="same-name", decision=True):
    """Two files of a table have the same name and other bytes. Move the one away that DMS did not write there."""


@dataclass(frozen=True)
class TableFiles:
    """The files of a table: load files by folder and number, change files by name, and the paths of what is neither.

    `loads` has them by their paths below the table's folder. `whole`: all are listed, not only those of late.
    """

    folder: str
    loads: dict[str, DmsFile]
    changes: tuple[DmsFile, ...]
    foreign: tuple[str, ...]
    whole: bool

    def below(self, file: DmsFile) -> str:
        """Return a file's path below the table's folder; of files of all tables the name."""
        return file.name if SHARED.fullmatch(file.name) else file.path[len(self.folder) + 1 :]


def start_after(folder: str, last: str, partition: DatePartition) -> str:
    """Return the key after which files may be new; `last` is the newest applied file, below the folder. Empty: all may be."""
    above, _, name = last.rpartition("/")
    if not is_change_file(name) or (partition.enabled and not (partition.sorts_by_time and partition.names(above))):
        return ""
    if partition.enabled:
        return f"{folder}/{partition.before(above)}/"
    return "" if above else f"{folder}/{name_at(time_of_name(name) - LOOK_BACK, name)}"


def list_table(storage: Storage, folder: str, partition: DatePartition, position: Position | None = None) -> TableFiles:
    """Return a table's files; with a position those that may be new. A folder that is not there has none.

    If the load seems to be another one than the position's, all are listed. Raises SameNameError for load files.
    """
    after = start_after(folder, position.last, partition) if position else ""
    found = _sorted(storage, folder, storage.files(folder, after), not after)
    if after and position and found.loads and not is_same_load(storage, found.loads, position.load):
        return list_table(storage, folder, partition)
    return found


def list_shared(storage: Storage, folder: str, last: str = "") -> tuple[DmsFile, ...]:
    """Return the files of all tables in the folder `CdcPath` by name; with `last`, those that may be new."""
    after = f"{folder}/{name_at(time_of_name(last) - LOOK_BACK, last)}" if SHARED.fullmatch(last) else ""
    return tuple(sorted((f for f in storage.files(folder, after) if _is_shared(f)), key=lambda f: f.name))


def list_each(tables: Iterable[Any], listed: Callable[[Any], TableFiles]) -> dict[Any, TableFiles | FrazilError]:
    """Return what `listed` says of each table, many at the same time; an error is its table's alone."""

    def look(table: Any) -> TableFiles | FrazilError:
        try:
            return listed(table)
        except FrazilError as error:
            return error

    tables = list(tables)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(tables, pool.map(look, tables), strict=True))


def one_of_copies(storage: Storage, files: Sequence[DmsFile], parallel: bool = False) -> list[DmsFile]:
    """Return files without copies: the same bytes in two places are one file.

    Raises SameNameError for other bytes under one name. Folders of a `parallel` load may have them, beside one another.
    """
    found: dict[str, list[DmsFile]] = {}
    for file in sorted(files, key=_depth):
        named = found.setdefault(file.name, [])
        if any(are_same(storage, other, file) for other in named):
            continue
        if named and not (parallel and _depth(named[0]) == _depth(file)):
            problem = (
                f"{storage.shown(named[0].path)} and {storage.shown(file.path)} have the same name and other bytes"
            )
            cure = "move the one out of the table's folder that DMS did not write there; let one task write a table to a folder"
            raise SameNameError(problem, cure)
        named.append(file)
    return [file for file in files if file in found[file.name]]


def require_schema_folder(storage: Storage, schema: str, table: str) -> None:
    """Raise SourceFolderError if there is no folder for a table's schema: DMS makes it with the first row."""
    tops = storage.folders()
    if schema in tops:
        return
    where = storage.shown("")
    if above := [top for top in tops if table in storage.folders(f"{top}/{schema}")]:
        places = " and ".join(storage.shown(top) for top in above)
        cure = "set source to it; of several, make an environment for each with the same catalog and specs, first the load's"
        raise SourceFolderError(f"{where} has no folder {schema}, but {places} has {schema}/{table}", cure)
    cure = nearest(schema, tops)
    if schema in where.split("/")[-2:]:
        cure = f"set source to the folder above {schema}/"
    raise SourceFolderError(f"{where} has no folder for the schema '{schema}' of {schema}.{table}", cure)


def folders_without_spec(storage: Storage, taken: Iterable[str]) -> list[str]:
    """Return the folders `schema/table` that no table of `taken` has; those with DMS's own records are left out."""
    known = set(taken)
    tops = [top for top in storage.folders() if top not in known and not OWN_RECORDS.fullmatch(top)]
    found = [f"{top}/{name}" for top in tops for name in storage.folders(top) if not OWN_RECORDS.fullmatch(name)]
    return [folder for folder in found if folder not in known]


def _sorted(storage: Storage, folder: str, files: Sequence[DmsFile], whole: bool) -> TableFiles:
    """Sort files by their names. An empty file of CSV has no rows; another empty one is no file of DMS."""
    loads: list[DmsFile] = []
    changes, foreign = [], []
    for file in files:
        above = file.path[len(folder) + 1 :].split("/")[:-1]
        if any(map(OWN_RECORDS.fullmatch, above)) or not (file.size or file.name.endswith(".csv")):
            foreign.append(file.path)
        elif load_number(file.name) is not None:
            loads.append(file)
        elif is_change_file(file.name) and not _is_shared(file):
            time_of_name(file.name)
            changes.append(file)
        else:
            foreign.append(file.path)
    loads.sort(key=lambda f: (f.path.rpartition("/")[0], load_number(f.name) or 0, f.name))
    changes.sort(key=lambda f: f.name)
    own = {f.path[len(folder) + 1 :]: f for f in one_of_copies(storage, loads, parallel=True)}
    return TableFiles(folder, own, tuple(changes), tuple(foreign), whole)


def _depth(file: DmsFile) -> int:
    return file.path.count("/")


def _is_shared(file: DmsFile) -> bool:
    return bool(SHARED.fullmatch(file.name)) and file.size > 0
