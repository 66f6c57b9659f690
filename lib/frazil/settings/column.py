"""A column of a table spec: its DMS type, and its type in the lake."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from frazil.errors import nearest
from frazil.settings.settings_model import Names
from frazil.settings.yaml_files import Entries, Fault

LAKE_TYPES = {
    "BOOLEAN": "boolean", "INT1": "int", "INT2": "int", "INT4": "int", "INT8": "bigint",
    "UINT1": "int", "UINT2": "int", "UINT4": "bigint", "UINT8": "decimal(20,0)", "NUMERIC": "decimal",
    "REAL4": "float", "REAL8": "double", "STRING": "string", "WSTRING": "string", "CLOB": "string", "NCLOB": "string",
    "BYTES": "binary", "BLOB": "binary", "DATE": "date", "TIME": "string", "DATETIME": "timestamp",
}  # fmt: skip
"""The type in the lake of each DMS type, as Spark names it; of NUMERIC and DATETIME the column says more."""
WIDER = {**dict.fromkeys(("INT1", "INT2", "INT4", "UINT1", "UINT2"), "bigint"), "REAL4": "double"}
"""The wider type that `lake` may name for a DMS type; NUMERIC may have any decimal with room for its digits."""
_TIMES = ("DATE", "DATETIME")
REPLACEABLE = {
    **dict.fromkeys(("zero_date", "before_year_1", "after_year_9999"), _TIMES),
    **dict.fromkeys(("infinity", "-infinity"), (*_TIMES, "NUMERIC")),
    "NaN": ("NUMERIC",),
    "U+FFFD": ("STRING", "WSTRING", "CLOB", "NCLOB"),
}
"""Values that a source has and a lake's type lacks, with the DMS types concerned."""


class Column(Entries):
    """A column of the source."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the column at the source."""
    type: str
    """DMS type of the source endpoint, in any case: `INT8`, `WSTRING(80)`, `NUMERIC(12,2)` …"""
    comment: str = ""
    """Comment of the lake's column."""
    utc: bool = False
    """`DATETIME`: the values are instants in UTC. Otherwise they are wall-clock times."""
    lake: str = ""
    """Another type in the lake: `string` (the text as DMS wrote it), `bigint`, `double`, a wider `decimal(p,s)`."""
    mask: Literal["", "sha256"] = ""
    """`sha256`: the lake holds the SHA-256 of the value's text. Values that can be guessed are not hidden by that."""
    renamed_from: Names = ()
    """Earlier names, the newest first: the lake's column is renamed, and files with an old name are still read."""
    replace: dict[str, str | None] = {}
    """What to store instead of a value that the lake's type lacks: null, or a value of the type."""

    @property
    def dms_type(self) -> str:
        """The type's bare name: `NUMERIC` of `numeric(12,2)`."""
        return self.type.split("(")[0].strip().upper()

    @property
    def arguments(self) -> tuple[int, ...]:
        """The numbers in the type's brackets: (12, 2) of `numeric(12,2)`."""
        return tuple(map(int, re.findall(r"-?\d+", self.type.partition("(")[2])))

    @property
    def value_type(self) -> str:
        """The type of the column's values in the lake, before any mask, as Spark names it."""
        if self.lake:
            return self.lake
        if self.dms_type == "NUMERIC":
            return "decimal({},{})".format(*self.arguments)
        return "timestamp_ntz" if self.dms_type == "DATETIME" and not self.utc else LAKE_TYPES[self.dms_type]

    @property
    def lake_type(self) -> str:
        """The type of the lake's column, as Spark names it."""
        return "string" if self.mask else self.value_type

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.dms_type not in LAKE_TYPES:
            raise Fault(f"'{self.type}' is no DMS type", nearest(self.dms_type, LAKE_TYPES), "type")
        if self.dms_type == "NUMERIC":
            precision, scale = self.arguments if len(self.arguments) == 2 else (0, 0)
            if not (0 < precision <= 38 and 0 <= scale <= precision):
                raise Fault(f"'{self.type}' has no usable digits", "write NUMERIC(p,s), p up to 38", "type")
        if self.lake and self.lake != "string" and not self._is_wider():
            cure = "write string; or bigint for integers, double for REAL4, a decimal with room for all digits"
            raise Fault(f"'{self.lake}' may not hold every {self.type}", cure, "lake")
        known = [n for n, types in REPLACEABLE.items() if self.dms_type in types and self.lake != "string"]
        if wrong := [name for name in self.replace if name not in known]:
            raise Fault(f"'{wrong[0]}' is no value that {self.type} lacks", nearest(wrong[0], known), "replace")
        return self

    def _is_wider(self) -> bool:
        found = re.fullmatch(r"decimal\((\d+), *(\d+)\)", self.lake)
        if self.dms_type != "NUMERIC" or not found:
            return self.lake in (LAKE_TYPES[self.dms_type], WIDER.get(self.dms_type))
        (precision, scale), (wide, wide_scale) = self.arguments, map(int, found.groups())
        return wide <= 38 and wide_scale >= scale and wide - wide_scale >= precision - scale
