"""A column of a table spec: its DMS type, and what the lake makes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from frazil.errors import FrazilError, nearest

TYPES = {
    "BOOLEAN", "INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4", "UINT8", "NUMERIC", "REAL4", "REAL8",
    "STRING", "WSTRING", "CLOB", "NCLOB", "BYTES", "BLOB", "DATE", "TIME", "DATETIME",
}  # fmt: skip
TEXTS, LOBS = {"STRING", "WSTRING", "CLOB", "NCLOB"}, {"CLOB", "NCLOB", "BLOB"}

WIDER = {
    **dict.fromkeys(("INT1", "INT2", "INT4", "UINT1", "UINT2"), r"bigint"), "REAL4": "double",
    "NUMERIC": r"decimal\((\d+),\s*(\d+)\)",
}  # fmt: skip
"""What `lake` may say of a type besides `string`; a decimal must hold every digit of the column's own."""


class SpecError(FrazilError):
    """A table spec that cannot be right: correct the file that the message names."""


@dataclass(frozen=True)
class Column:
    """A source column, typed by the DMS data type of the source endpoint (dms type names, any case)."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""
    utc: bool = False
    """DATETIME only: the values are instants in UTC (`timestamp`), not wall-clock times (`timestamp_ntz`)."""
    lake: str = ""
    """The Spark SQL type in the lake, where it shall not be the usual one: `string`, or a wider one (see `WIDER`)."""
    mask: str = ""
    """`sha256`: the lake holds the hash of each value, as hex text, and messages never show the value."""
    renamed_from: tuple[str, ...] = ()
    """Names that the column had before, newest first: the lake's column is renamed, and files with them are still read."""
    source_id: int = 0
    """The number that the source's catalog gives the column, which a rename leaves as it is; 0: not known."""

    @property
    def dms_type(self) -> str:
        """The type's bare name, upper case: `NUMERIC` for `numeric(12,2)`."""
        return self.type.split("(")[0].strip().upper()

    @property
    def arguments(self) -> tuple[int, ...]:
        """The numbers between the type's brackets: `(12, 2)` for `numeric(12,2)`."""
        inside = re.search(r"\(([^)]*)\)", self.type)
        return tuple(int(x) for x in inside.group(1).split(",")) if inside else ()


def require_known(what: dict, allowed, where: str) -> None:
    """Raise SpecError for an entry that does not exist, with the nearest that does."""
    for name in what:
        if name not in allowed:
            raise SpecError(f"{where}: unknown entry '{name}'", nearest(name, allowed))


def parse_column(entry, where: str) -> Column:
    """Return one entry of `columns`; a SpecError names what is wrong with it."""
    if not isinstance(entry, dict) or not entry.get("name") or not entry.get("type"):
        raise SpecError(f"{where}: a column needs a name and a type, not {entry!r}", "write {name: id, type: INT8}")
    where = f"{where}: column '{entry['name']}'"
    require_known(entry, list(Column.__dataclass_fields__), where)
    old = entry.get("renamed_from") or ()
    old = tuple(str(n) for n in ([old] if isinstance(old, str) else old))
    column = Column(**{**entry, "name": str(entry["name"]), "type": str(entry["type"]), "renamed_from": old})
    if column.dms_type not in TYPES:
        raise SpecError(f"{where}: unknown DMS type '{column.type}'", nearest(column.dms_type, TYPES))
    if column.dms_type == "NUMERIC" and not (
        len(column.arguments) == 2 and 0 <= column.arguments[1] <= column.arguments[0] <= 38
    ):
        raise SpecError(f"{where}: '{column.type}' has no usable precision and scale", "write NUMERIC(p,s), p up to 38")
    if column.mask not in ("", "sha256"):
        raise SpecError(f"{where}: unknown mask '{column.mask}'", "write mask: sha256")
    if column.lake and not _is_wider(column):
        raise SpecError(
            f"{where}: '{column.lake}' may not hold every {column.type}",
            "write string, or for integers bigint, for REAL4 double, for NUMERIC a decimal with room for all its digits",
        )
    return column


def _is_wider(column: Column) -> bool:
    if column.lake == "string":
        return True
    found = re.fullmatch(WIDER.get(column.dms_type, "-"), column.lake)
    if not found or column.dms_type != "NUMERIC":
        return bool(found)
    (p, s), (wide, scale) = column.arguments, (int(found[1]), int(found[2]))
    return wide <= 38 and scale >= s and wide - scale >= p - s
