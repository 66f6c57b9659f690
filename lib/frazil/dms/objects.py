"""The objects that DMS wrote for a table: which are load files, which are change files, and in what order they apply."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from frazil.config.spec import TableSpec
from frazil.errors import FrazilError, nearest

LOAD = re.compile(r"^(SEGMENT\d+_)?LOAD([0-9A-Fa-f]+)\.(csv|csv\.gz|parquet)$")
CHANGES = re.compile(r"^\d{8}-\d{9,10}\.(csv|csv\.gz|parquet)$")


class SourceError(FrazilError):
    """Something about the folder or the files that DMS writes to is not as stated."""


@dataclass(frozen=True)
class DmsObject:
    """One file of a table. `name` is its base name, which orders change files; `etag` changes when it is written again."""

    name: str
    path: str
    size: int
    etag: str


@dataclass(frozen=True)
class TableObjects:
    """What lies in one table's folder: load files by counter, change files by time, and objects that are neither."""

    loads: tuple[DmsObject, ...] = ()
    changes: tuple[DmsObject, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def load_digest(self) -> str:
        """A digest over names and ETags of the load files: another one means that DMS loaded the table again."""
        lines = "\n".join(f"{o.path.rsplit('/', 2)[-2]}/{o.name} {o.etag}" for o in self.loads)
        return hashlib.sha256(lines.encode()).hexdigest()[:16] if self.loads else ""


def list_table(root: Path, spec: TableSpec) -> TableObjects:
    """List one table's folder, sub-folders included (parallel loads and date partitions lie one or more levels deeper).

    A missing table folder means a table without rows, as DMS writes none; a missing root or schema folder is an error.
    """
    schema = Path(root) / spec.schema_name
    if not Path(root).is_dir():
        raise SourceError(f"source folder {root} does not exist", "set parameter 'source' to the folder DMS writes to")
    if not schema.is_dir():
        there = [p.name for p in Path(root).iterdir() if p.is_dir()]
        raise SourceError(
            f"{root} has no folder for schema '{spec.schema_name}' ({spec.file})", nearest(spec.schema_name, there)
        )
    loads, changes, foreign = [], [], []
    for file in sorted((schema / spec.table_name).rglob("*")):
        if not file.is_file():
            continue
        stat = file.stat()
        entry = DmsObject(file.name, str(file), stat.st_size, f"{stat.st_size}-{stat.st_mtime_ns}")
        if LOAD.match(file.name):
            loads.append(entry)
        elif CHANGES.match(file.name):
            changes.append(entry)
        else:
            foreign.append(str(file))
    loads.sort(key=lambda o: (o.path.rsplit("/", 1)[0], int(LOAD.match(o.name).group(2), 16)))
    changes.sort(key=lambda o: o.name)
    names = [o.name for o in changes]
    if twice := [a for a, b in zip(names, names[1:], strict=False) if a == b]:
        raise SourceError(
            f"{spec.source}: two change files are named {twice[0]}", "let only one DMS task write a table to a folder"
        )
    return TableObjects(tuple(loads), tuple(changes), tuple(foreign))
