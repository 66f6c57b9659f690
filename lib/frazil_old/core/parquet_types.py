"""Parquet as DMS writes it: already typed values, and the exact value of each in its DMS type."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from frazil_old.config.columns import TEXTS, Column
from frazil_old.core.types import MISFIT, arrow_type, judge, type_texts

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ("INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4", "UINT8", "NUMERIC", "REAL4", "REAL8")
_COMPARED = {
    "BOOLEAN": {"bool", "number", "text"}, "TIME": {"time", "text"}, "DATE": {"date", "moment", "text"},
    "DATETIME": {"date", "moment", "text"}, "BYTES": {"bytes", "text"}, "BLOB": {"bytes", "text"},
    **dict.fromkeys(TEXTS, {"bool", "number", "text", "bytes", "date", "time", "moment"}),
    **dict.fromkeys(NUMBERS, {"number", "text"}),
}  # fmt: skip
"""The kinds of Parquet values that can have a value of each DMS type."""


def kind_of(written: pa.DataType) -> str:
    """Return the kind of a Parquet column: `number`, `text` and so on; empty: DMS never writes it."""
    import pyarrow.types as types

    kinds: dict[str, Callable[[Any], bool]] = {
        "bool": types.is_boolean,
        "number": lambda t: types.is_integer(t) or types.is_floating(t) or types.is_decimal(t),
        "text": lambda t: types.is_string(t) or types.is_large_string(t),
        "bytes": lambda t: types.is_binary(t) or types.is_large_binary(t) or types.is_fixed_size_binary(t),
        "date": types.is_date, "time": types.is_time, "moment": types.is_timestamp,
    }  # fmt: skip
    return next((kind for kind, holds in kinds.items() if holds(written)), "")


def can_be_compared(column: Column, written: pa.DataType) -> bool:
    """Return whether values of a Parquet type can have values of a column's DMS type."""
    import pyarrow.types as types

    kind = kind_of(written)
    if column.lake == "string" and column.dms_type not in TEXTS:
        return kind in _COMPARED[column.dms_type] | {"text"}
    if kind == "bytes" and column.dms_type in TEXTS and types.is_fixed_size_binary(written):
        return False
    return kind in _COMPARED[column.dms_type]


def type_values(column: Column, values: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Return a column's values in its lake type, and which have no exact value in it (None: all have one)."""
    import pyarrow.types as types

    target = arrow_type(column)
    kind = kind_of(values.type)
    if kind == "text" or (kind == "bytes" and types.is_string(target)):
        return type_texts(column, as_texts(values))
    if kind in ("moment", "date"):
        return _times(values, target)
    if types.is_string(target):
        return type_texts(column, as_texts(values))
    if kind == "bytes":
        return values.cast(target), None
    return _numbers(column, values, target)


# --- texts


def with_valid_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose texts show invalid bytes as U+FFFD: Arrow does not check them as it reads."""
    import pyarrow as pa

    columns = [as_texts(c.cast(pa.binary())) if kind_of(c.type) == "text" else c for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def as_texts(values: pa.Array) -> pa.Array:
    """Return values as texts in CSV's form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = kind_of(values.type)
    if kind == "text":
        return values.cast(pa.string())
    if kind == "bytes":
        try:
            return values.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:  # invalid bytes show as U+FFFD
            return pa.array([v if v is None else v.decode("utf-8", "replace") for v in values.to_pylist()], pa.string())
    if kind == "time":
        return pc.replace_substring_regex(values.cast(pa.string()), r"\.0*$|(\.\d*[1-9])0+$", r"\1")
    if values.type == pa.float32():
        values = values.cast(pa.float64())  # all digits of the value, not the shortest form among floats
    return values.cast(pa.string())


# --- moments and days


def _times(values: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Return days or moments in the lake's type; only those of the years 1 to 9999 are values.

    A moment is the same as a wall-clock time and as an instant in UTC, which is how DMS writes both.
    """
    from datetime import date, datetime

    import pyarrow as pa
    import pyarrow.compute as pc

    is_day = pa.types.is_date(values.type)
    wall = values.cast(pa.date32()) if is_day else values.cast(pa.int64()).cast(pa.timestamp(values.type.unit))
    if pa.types.is_string(target):
        return wall.cast(pa.string()), None
    kind, bounds = (pa.date32(), date) if pa.types.is_date(target) else (pa.timestamp("us"), datetime)
    found = wall.cast(kind, safe=False)
    first, last = pa.scalar(bounds.min, kind), pa.scalar(bounds.max, kind)
    is_outside = pc.or_(pc.less(found, first), pc.greater(found, last))
    is_cut = pc.not_equal(found.cast(wall.type, safe=False), wall)
    misfit = pc.fill_null(pc.or_(is_outside, is_cut), False)
    if not pc.any(misfit).as_py():
        return found.cast(target), None
    return pc.if_else(misfit, pa.scalar(None, kind), found).cast(target), misfit


# --- numbers


def _numbers(column: Column, values: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Cast integers and decimals as they are; judge each number alone if a cast could round it."""
    import pyarrow as pa
    import pyarrow.types as types

    both = [types.is_integer, types.is_decimal, types.is_boolean]
    if any(holds(values.type) and holds(target) for holds in both) or values.type == target:
        try:
            return values.cast(target), None
        except pa.ArrowInvalid:
            pass
    found = [None if v is None else _number(column, v, target) for v in values.to_pylist()]
    kept = pa.array([None if v is MISFIT else v for v in found], target)
    wrong = [v is MISFIT for v in found]
    return kept, pa.array(wrong) if any(wrong) else None


def _number(column: Column, value: Any, target: pa.DataType) -> Any:
    """Return the exact value of a number, or MISFIT."""
    import pyarrow.types as types

    if types.is_boolean(target):
        return bool(value) if value in (0, 1) else MISFIT
    if not types.is_floating(target):
        whole = isinstance(value, float) and value.is_integer()
        return judge(column, str(int(value) if whole else value))
    return _real(value, target.bit_width)


def _real(value: Any, bits: int) -> Any:
    import numpy as np

    with np.errstate(over="ignore"):
        near = float(np.float32(value)) if bits == 32 else float(value)
    if isinstance(value, float):
        return near if near == value or math.isnan(value) else MISFIT
    if math.isinf(near):
        return MISFIT
    return near if Decimal(int(near) if near == int(near) else repr(near)) == value else MISFIT
