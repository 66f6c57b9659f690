"""A column of a table spec: its DMS type and its type in the lake. Also what a spec says of earlier layouts."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, count

from frazil_old.errors import FrazilError, nearest

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
    """A source column; `spec_model.ColumnEntries` describes its entries."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""
    utc: bool = False
    lake: str = ""
    mask: str = ""
    renamed_from: tuple[str, ...] = ()
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


def require_type(type: str) -> str:
    """Return a DMS type; raise SpecError if there is none of that name, or if a number has no usable digits."""
    name, digits = Column("", type).dms_type, re.search(r"\((\s*\d+\s*),(\s*\d+\s*)\)", type)
    if name not in TYPES:
        raise SpecError(f"unknown DMS type '{type}'", nearest(name, TYPES))
    if name == "NUMERIC" and not (digits and int(digits[2]) <= int(digits[1]) <= 38):
        raise SpecError(f"'{type}' has no usable precision and scale", "write NUMERIC(p,s), p up to 38")
    return type


def require_fit(column: Column) -> None:
    """Raise SpecError if the column's type in the lake, or a replacement, cannot hold its values."""
    for name, value in column.replace:
        _require_replacement(column, name, value)
    if column.lake and not _is_wider(column):
        raise SpecError(
            f"lake: '{column.lake}' may not hold every {column.type}",
            "write string, or for integers bigint, for REAL4 double, for NUMERIC a decimal with room for all its digits",
        )


def unrepresentable(column: Column) -> dict[str, str]:
    """Return {name: the pattern of its text} of the values that `replace` may name for a column."""
    if column.lake == "string":
        return {}
    return {name: pattern for name, (kinds, pattern) in UNREPRESENTABLE.items() if column.dms_type in kinds}


def _require_replacement(column: Column, name: str, value: str | None) -> None:
    """Raise SpecError if the column's type can hold the value to replace, or cannot hold the replacement."""
    if name not in (known := unrepresentable(column)):
        what = f"replace: '{name}' is no value that {column.type}{' as text' * bool(column.lake)} lacks"
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
        raise SpecError(
            f"replace: {name}: {value!r} is no {column.type}", f"write null, or a value such as {example}"
        ) from None


def _is_wider(column: Column) -> bool:
    if column.lake == "string":
        return True
    found = re.fullmatch(WIDER.get(column.dms_type, "-"), column.lake)
    if not found or column.dms_type != "NUMERIC":
        return bool(found)
    (p, s), (wide, scale) = column.arguments, (int(found[1]), int(found[2]))
    return wide <= 38 and scale >= s and wide - scale >= p - s


@dataclass(frozen=True)
class PastLayout:
    """The fields of headerless files up to and including `until` (`spec_model.LayoutEntries` describes them)."""

    until: str
    columns: tuple[str, ...] = ()
    load: bool = False
    without: tuple[str, ...] = ()


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name that is unused in any case of its letters, with a number at its end if necessary."""
    there = {other.lower() for other in taken}
    return next(n for n in chain((name,), (f"{name}_{i}" for i in count(2))) if n.lower() not in there)
