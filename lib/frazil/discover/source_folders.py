"""The folders of a source: whether it has those of the specs, which no spec names, and which several tables share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from frazil.dms.file_names import OWN_RECORDS
from frazil.dms.mappings import Written
from frazil.dms.storage import Storage
from frazil.errors import FrazilError, nearest


class SourceFolderError(FrazilError, code="source-folder"):
    """The source's folder has no folder for a table's schema. Correct `source`, or the spec."""


class SameSourceError(FrazilError, code="same-source"):
    """Several specs read the same files or messages. Keep one spec; an added column in its key tells their rows apart."""


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


def folders_without_spec(storage: Storage, taken: Iterable[str], ignored: Iterable[str] = ()) -> list[str]:
    """Return the tables, as `schema.table`, whose folders no table of `taken` has; those with DMS's own records are left out.

    `ignored` are names in which `%` stands for any text.
    """
    known = set(taken)
    tops = [top for top in storage.folders() if top not in known and not OWN_RECORDS.fullmatch(top)]
    found = [f"{top}/{name}" for top in tops for name in storage.folders(top) if not OWN_RECORDS.fullmatch(name)]
    names = [folder.replace("/", ".", 1) for folder in found if folder not in known]
    patterns = [".*".join(map(re.escape, text.split("%"))) for text in ignored]
    return [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)]


def require_own_folders(written: Mapping[str, Written]) -> dict[str, SameSourceError]:
    """Return the error of each table, by source, whose files or messages are those of another one too."""
    found: dict[str, SameSourceError] = {}
    for source, own in written.items():
        sharing = [name for name, other in written.items() if (other.schema, other.table) == (own.schema, own.table)]
        problem = f"the task's rules write {' and '.join(sharing)} to one place, {own.schema}.{own.table}"
        cure = "keep one spec, with the rows of all; for rows that share a key, let a rule add a column with $AR_M_SOURCE_TABLE_NAME, and list it in the spec and its key"
        found |= {source: SameSourceError(problem, cure)} if len(sharing) > 1 else {}
    return found
