"""Reads control records of a stream: DMS sends a table's definition when the source alters the table.

Public examples show only create-table. An ALTER is assumed to have the same form: the whole table after it. A record
without even the table's key is not a definition. A column in a message exists, even if no definition lists it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from frazil_old.config.columns import TYPES, Column, SpecError, require_type

CREATE, RENAME = "create-table", "rename-column"
MAY_DROP, MAY_RETYPE = ("drop-column", "change-columns"), ("column-type-change", "change-columns")
DEFINING_OPERATIONS = (CREATE, "add-column", RENAME, *dict.fromkeys((*MAY_DROP, *MAY_RETYPE)))
"""Operations whose records may have a definition. DMS sends none for TRUNCATE, DROP TABLE and RENAME TABLE."""

_TYPES = {
    "BOOL": "BOOLEAN", "INT8": "INT1", "INT16": "INT2", "INT32": "INT4", "INT64": "INT8", "UINT8": "UINT1", "UINT16": "UINT2",
    "UINT32": "UINT4", "UINT64": "UINT8", "FLOAT": "REAL4", "DOUBLE": "REAL8", "TIMESTAMP": "DATETIME", "DATE32": "DATE",
    "TIME32": "TIME", "BINARY": "BYTES", "DECIMAL": "NUMERIC", "STRING": "WSTRING",
}  # fmt: skip
"""DMS types by Arrow's type names. Older records have DMS's own names, where INT8 and UINT8 have another width."""
_BOTH = {"INT8", "UINT8", "STRING", "NUMERIC", "TIME"}


@dataclass(frozen=True)
class Definition:
    """A table's columns in a control record, by their names in messages; None for a column of unknown type."""

    where: str
    operation: str
    columns: dict[str, Column | None]
    key: tuple[str, ...] = ()


def definition(text: str, operation: str, where: str) -> Definition | None:
    """Return the definition in a control record's JSON; None if it has none (IncludeControlDetails is off)."""
    try:
        table = json.loads(text)["control"]["table-def"]
        columns, key = table["columns"], tuple(map(str, table.get("primary-key") or ()))
        names = {str(c["type"]).upper() for c in columns.values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    own = bool(names & (TYPES - _BOTH))
    return Definition(where, operation, {n: _column(n, c, own) for n, c in columns.items()}, key) if columns else None


def _column(name: str, entry: dict, own: bool) -> Column | None:
    kind = str(entry["type"]).upper()
    kind = kind if own and kind in TYPES else _TYPES.get(kind, kind)
    if kind == "NUMERIC":  # Assumed: if the digits are given, then under these names.
        kind = f"NUMERIC({entry.get('precision')},{entry.get('scale', 0)})" if entry.get("precision") else ""
    try:
        return Column(name, require_type(kind), entry.get("nullable", True))
    except SpecError:
        return None
