"""What every kind of warehouse offers: a module, found by its name. Its functions only build texts and read answers.

* `NEEDS`: entries without which it cannot be set up. `DRIVER`: the function that connects; empty: none. `ARGUMENTS`:
  arguments of that function that are entries. `PINNED`: its tables are bound to metadata files. `EXCLUSIVE`: an open
  connection keeps other processes out.
* `made(w, tables)`: what `apply` makes, in order. `cloud_steps(w, tables)`: what a person must do. `files(w)`: its
  configuration files, each as properties.
* `refresh(w, table)`: statements that make it serve the newest state. `read_back(w, table)`: the query that shows what it
  serves, and `served(rows)` what the answer means.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from frazil_old.config.warehouses import Warehouse
from frazil_old.errors import FrazilError


class WarehouseError(FrazilError):
    """A warehouse is declared wrongly, cannot be reached, or refuses a statement."""


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake as a warehouse reads it: the names of both, and the address of its newest metadata file."""

    source: str
    target: str
    metadata: str = ""

    @property
    def namespace(self) -> str:
        """The lake's namespace of the table."""
        return self.target.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The table's name in its namespace."""
        return self.target.rpartition(".")[2]


@dataclass(frozen=True)
class Made:
    """Something that `apply` makes in a warehouse: the statement for it, that which drops it, and a query that finds it.

    The query's column `name`, or its first one, has the object's name, in any case, if it exists. `table`: the source
    table that it is for; empty: it serves several.
    """

    what: str
    name: str
    create: str
    drop: str
    find: str
    table: str = ""


@dataclass(frozen=True)
class Served:
    """What a warehouse serves of a table: the snapshot or the metadata file. `stopped`: why it refreshes no more."""

    snapshot: int | None = None
    metadata: str = ""
    stopped: str = ""


def family(w: Warehouse) -> ModuleType:
    """Return the module of a warehouse's kind; raise WarehouseError for entries that are missing."""
    module = importlib.import_module(f"frazil_old.warehouses.{w.entries.engine}")
    require_entries(w, module.NEEDS)
    return module


def require_entries(w: Warehouse, names: Sequence[str]) -> None:
    """Raise WarehouseError for entries that are missing."""
    if lacking := [n for n in names if not getattr(w.entries, n)]:
        raise WarehouseError(
            f"warehouse '{w.name}' ({w.entries.engine}) lacks {', '.join(lacking)}",
            f"add it to the section `warehouses` of params/{w.env}.yml",
        )


def unreadable(w: Warehouse) -> WarehouseError:
    """Return the error for a lake whose catalog the warehouse cannot read."""
    return WarehouseError(
        f"warehouse '{w.name}': {w.entries.engine} cannot read a lake whose catalog is of type '{w.catalog_kind}'",
        f"have the lake in Glue or a REST catalog (catalog_options in params/{w.env}.yml), or take this warehouse out",
    )


def makes_nothing(w: Warehouse, tables: Sequence[LakeTable]) -> list[Made]:
    """Return that `apply` has nothing to make."""
    return []


def no_files(w: Warehouse) -> dict[str, dict[str, str]]:
    """Return that no file is needed."""
    return {}


def reads_the_catalog(w: Warehouse, table: LakeTable) -> list[str]:
    """Return that nothing refreshes: each query reads the catalog."""
    return []


def shows_nothing(w: Warehouse, table: LakeTable) -> str:
    """Return that no query shows what is served."""
    return ""


def unknown(rows: Sequence[Sequence[Any]]) -> Served:
    """Return that nothing is known about what is served."""
    return Served()


def namespace_of(w: Warehouse, table: LakeTable) -> str:
    """Return the warehouse's schema of a table."""
    return w.entries.namespace or table.namespace


_METADATA = re.compile(
    r"""'((?:[^']|'')*\.metadata\.json)'|"([^"]*\.metadata\.json)"|^(\S+:/.*\.metadata\.json)$|([^\s'"=]+\.metadata\.json)"""
)
"""The address of a metadata file: a literal, whose folders may have blanks and quotes, a whole value, or a word."""


def metadata_in(rows: Sequence[Sequence[Any]]) -> Served:
    """Return the first address of a metadata file in any value of some rows."""
    for value in (str(v) for row in rows for v in row):
        if found := _METADATA.search(value):
            return Served(metadata=(found[1] or "").replace("''", "'") or found[2] or found[3] or found[4])
    return Served()


def snapshot_in(rows: Sequence[Sequence[Any]]) -> Served:
    """Return the snapshot's id that is the first value of the first row."""
    return Served(snapshot=int(rows[0][0])) if rows and rows[0][0] is not None else Served()


def object_in(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the JSON object that is the first value of the first row; empty if it is none."""
    try:
        found = json.loads(rows[0][0]) if rows else {}
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
