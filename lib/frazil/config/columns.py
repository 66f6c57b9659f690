"""A column of a table spec: its DMS type and its type in the lake."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

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
"""The values of `lake` allowed for a type, besides `string`. A decimal must hold every digit of the column's own type."""

_TIMES, _NUMBERS = ("DATE", "DATETIME"), ("NUMERIC",)
UNREPRESENTABLE = {
    "zero_date": (_TIMES, r"^[0-9]{4}-(00-[0-9]{2}|[0-9]{2}-00)([ T].*)?$"),
    "before_year_1": (_TIMES, r"(?i)^(-[0-9]+-[0-9]|0000-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]))|BC$"),
    "after_year_9999": (_TIMES, r"^[+]?[0-9]{5,}-[0-9]"),
    "infinity": (_TIMES + _NUMBERS, r"(?i)^[+]?inf(inity)?$"),
    "-infinity": (_TIMES + _NUMBERS, r"(?i)^-inf(inity)?$"),
    "NaN": (_NUMBERS, r"(?i)^[+-]?nan$"),
    "U+FFFD": (tuple(sorted(TEXTS)), "\ufffd"),
}
"""Values that a source may hold and a lake's type may not: the types concerned, and a pattern of the value's text.

The patterns exclude each other. `replace` declares what such values become.
"""


class SpecError(FrazilError):
    """Raised for an invalid table spec: correct the file that the message names."""


@dataclass(frozen=True)
class Column:
    """A source column, with the DMS data type of the source endpoint (DMS type names, any case)."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""
    utc: bool = False
    """DATETIME only: the values are instants in UTC (`timestamp`), not wall-clock times (`timestamp_ntz`)."""
    lake: str = ""
    """The Spark SQL type in the lake, if not the usual one: `string`, or a wider one (see `WIDER`)."""
    mask: str = ""
    """`sha256`: the lake holds the hash of each value as hex text, and messages never show the value."""
    renamed_from: tuple[str, ...] = ()
    """Earlier names of the column, newest first: the lake's column is renamed, and files with the old names are still read."""
    replace: tuple[tuple[str, str | None], ...] = ()
    """Replacements of values that the lake's type cannot hold, by the names in `UNREPRESENTABLE`: a text, or None for null."""
    source_id: int = 0
    """The number of the column in the source's catalog, which a rename does not change; 0: not known."""

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
    """Raise SpecError for an unknown entry, with the nearest known one."""
    for name in what:
        if name not in allowed:
            raise SpecError(f"{where}: unknown entry '{name}'", nearest(name, allowed))


def parse_column(entry, where: str) -> Column:
    """Parse one entry of `columns`; raise SpecError that names what is wrong with it."""
    if not isinstance(entry, dict) or not entry.get("name") or not entry.get("type"):
        raise SpecError(f"{where}: a column needs a name and a type, not {entry!r}", "write {name: id, type: INT8}")
    where = f"{where}: column '{entry['name']}'"
    require_known(entry, list(Column.__dataclass_fields__), where)
    old = entry.get("renamed_from") or ()
    old = tuple(str(n) for n in ([old] if isinstance(old, str) else old))
    given = {"name": str(entry["name"]), "type": str(entry["type"]), "renamed_from": old}
    column = Column(**{**entry, **given, "replace": _replace(entry.get("replace"), where)})
    if column.dms_type not in TYPES:
        raise SpecError(f"{where}: unknown DMS type '{column.type}'", nearest(column.dms_type, TYPES))
    if column.dms_type == "NUMERIC" and not (
        len(column.arguments) == 2 and 0 <= column.arguments[1] <= column.arguments[0] <= 38
    ):
        raise SpecError(f"{where}: '{column.type}' has no usable precision and scale", "write NUMERIC(p,s), p up to 38")
    if column.mask not in ("", "sha256"):
        raise SpecError(f"{where}: unknown mask '{column.mask}'", "write mask: sha256")
    for name, value in column.replace:
        _require_replacement(column, name, value, where)
    if column.lake and not _is_wider(column):
        raise SpecError(
            f"{where}: '{column.lake}' may not hold every {column.type}",
            "write string, or for integers bigint, for REAL4 double, for NUMERIC a decimal with room for all its digits",
        )
    return column


def unrepresentable(column: Column) -> dict[str, str]:
    """Return {name: the pattern of its text} of the values that `replace` may name for a column."""
    if column.lake == "string":
        return {}
    return {name: pattern for name, (kinds, pattern) in UNREPRESENTABLE.items() if column.dms_type in kinds}


def _replace(raw, where: str) -> tuple[tuple[str, str | None], ...]:
    if not isinstance(raw or {}, dict):
        raise SpecError(f"{where}: replace = {raw!r}", "write replace: {zero_date: null}")
    return tuple((str(n), None if value is None else str(value)) for n, value in (raw or {}).items())


def _require_replacement(column: Column, name: str, value: str | None, where: str) -> None:
    """Raise SpecError if the column's type can hold the value to replace, or cannot hold the replacement."""
    if name not in (known := unrepresentable(column)):
        what = f"{where}: replace: '{name}' is nothing that {column.type}{' as text' * bool(column.lake)} lacks"
        raise SpecError(what, nearest(name, known) if known else "leave it out")
    if value is None or name == "U+FFFD":
        return
    try:
        if column.dms_type == "DATE":
            date.fromisoformat(value)
        elif column.dms_type == "DATETIME":
            datetime.fromisoformat(value)
        elif not (number := Decimal(value)).is_finite() or round(number, column.arguments[1]) != number:
            raise ValueError
    except (ValueError, ArithmeticError):
        example = {"DATE": "9999-12-31", "DATETIME": "9999-12-31 23:59:59"}.get(column.dms_type, "0")
        raise SpecError(f"{where}: replace: {name}: {value!r} is no {column.type}", f"write null, or a value such as {example}") from None  # fmt: skip


def _is_wider(column: Column) -> bool:
    if column.lake == "string":
        return True
    found = re.fullmatch(WIDER.get(column.dms_type, "-"), column.lake)
    if not found or column.dms_type != "NUMERIC":
        return bool(found)
    (p, s), (wide, scale) = column.arguments, (int(found[1]), int(found[2]))
    return wide <= 38 and scale >= s and wide - scale >= p - s
