"""Exact values in the lake's types, of Arrow arrays of any form: what has no exact value is null, and named by a mask.

A file's texts, Parquet's types and JSON's are judged by the same rules. `core.exact_texts` has those of texts. A time of
day is a text in the lake: of texts it stands as DMS wrote it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from frazil.core.exact_one_text import EXACT_REALS
from frazil.core.exact_texts import FIRST_DAY, LAST_DAY, either, if_any, none_but, of_texts

Typed = tuple[pa.Array, pa.Array | None]
"""Values, and which have none that is exact (None: all have one)."""
_DAY_OF = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
"""A day in each unit of time."""
_TYPES = {
    "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a type of the lake, as Spark names it."""
    return pa.decimal128(*map(int, re.findall(r"\d+", kind))) if kind.startswith("decimal") else _TYPES[kind]


def typed(values: pa.Array, target: pa.DataType) -> Typed:
    """Return values in a type of the lake, and which have no exact value in it (None: all have one).

    A null stays null. A real is read from the shortest digits of its double, and may be the nearest to a text, but to no
    other number.
    A moment counts as a wall-clock time and as an instant in UTC alike.
    """
    if types.is_string(target):
        return as_text(values)
    if types.is_binary(target) and _is_number(values.type):
        return pa.nulls(len(values), target), if_any(values.is_valid())
    if _is_time(values.type) and _is_time(target):
        return _times(values, target)
    if _is_number(values.type) and types.is_floating(target):
        return _reals(values, target)
    with suppress(pa.ArrowInvalid):
        if (found := _exact_cast(values, target)) is not None:
            return found, None
    texts, lost = as_text(values)
    if _is_number(values.type):  # whose digits are exact, whatever their form
        texts = pc.replace_substring_regex(_in_digits(texts, types.is_floating(values.type)), r"\.0*$", "")
    found, misfit = of_texts(texts, target)
    return found, either(lost, misfit)


def _exact_cast(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Cast values where Arrow's cast is exact or refused. It may be wrong where it changes the scale of a `decimal128`."""
    one = values.type
    if one == target or (types.is_integer(target) and (types.is_integer(one) or types.is_decimal(one))):
        return values.cast(target)
    if types.is_binary(target) and (types.is_large_binary(one) or types.is_fixed_size_binary(one)):
        return values.cast(target)
    if types.is_decimal(target) and (types.is_integer(one) or types.is_decimal(one)):
        return values.cast(pa.decimal256(76, max(target.scale, getattr(one, "scale", 0)))).cast(target)
    return None


def _is_number(kind: pa.DataType) -> bool:
    return types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind)


def _is_time(kind: pa.DataType) -> bool:
    return types.is_date(kind) or types.is_timestamp(kind)


def _fitting(values: pa.Array, fits: pa.Array) -> Typed:
    misfit = if_any(pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(fits, False))))
    return (values, None) if misfit is None else (none_but(fits, values), misfit)


# --- texts


def as_text(values: pa.Array) -> Typed:
    """Return values as texts in the form that CSV has.

    A text with U+FFFD has no value: it stands for bytes that could not be decoded. Nor have days and moments outside
    the years 1 to 9999, and times outside of one day; 24:00:00 is one.
    """
    kind = values.type
    if types.is_time(kind):
        return _times_of_day(values)
    if _is_time(kind):
        known, lost = _within_years(_wall(values))
        return known.cast(pa.string()), lost
    if types.is_decimal(kind):
        return _in_digits(values.cast(pa.string())), None
    if _is_number(kind) or types.is_boolean(kind):  # of a float all digits, not the fewest that tell it from others
        return values.cast(pa.float64() if types.is_float32(kind) else kind).cast(pa.string()), None
    texts = utf8(values)
    return _fitting(texts, pc.invert(pc.match_substring(texts, "\ufffd"))) if _has_byte(texts, 0xEF) else (texts, None)


def _in_digits(texts: pa.Array, of_reals: bool = False) -> pa.Array:
    """Return numbers without exponents. A real beyond 2^53 is a whole number, and not its shortest digits with zeros."""
    if not (_has_byte(texts, ord("E")) or _has_byte(texts, ord("e"))):
        return texts
    numbers = [None if text is None else Decimal(text) for text in texts.to_pylist()]
    exact = [Decimal(float(n)) if of_reals and n and n.is_finite() and abs(n) > EXACT_REALS else n for n in numbers]
    return pa.array([None if n is None else f"{n:f}" for n in exact], pa.string())


def utf8(values: pa.Array) -> pa.Array:
    """Return texts and bytes as texts; bytes that are no UTF-8 become U+FFFD."""
    values = values.cast(pa.binary())
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([v if v is None else v.decode("utf-8", "replace") for v in values.to_pylist()], pa.string())


def _has_byte(texts: pa.Array, byte: int) -> bool:
    data = texts.buffers()[2]
    return data is not None and bool((np.frombuffer(data, "uint8") == byte).any())


def _times_of_day(values: pa.Array) -> Typed:
    """Return times of day without zeros at the end. Arrow writes those outside of a day as words, so they have none."""
    numbers, day = values.view(pa.int32() if types.is_time32(values.type) else pa.int64()), _DAY_OF[values.type.unit]
    inside = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, day))
    texts = pc.replace_substring_regex(none_but(inside, values).cast(pa.string()), r"\.0*$|(\.\d*[1-9])0+$", r"\1")
    texts = pc.if_else(pc.equal(numbers, day), "24:00:00", texts)
    return texts, if_any(pc.and_(pc.is_valid(values), pc.is_null(texts)))


# --- days and moments


def _wall(values: pa.Array) -> pa.Array:
    return values.view(pa.timestamp(values.type.unit)) if types.is_timestamp(values.type) else values.cast(pa.date32())


def _within_years(wall: pa.Array) -> Typed:
    """Return days or moments of the years 1 to 9999, and which are of others."""
    is_day = types.is_date(wall.type)
    numbers, day = wall.view(pa.int32() if is_day else pa.int64()), 1 if is_day else _DAY_OF[wall.type.unit]
    first, last = max(FIRST_DAY * day, -(2**63)), min((LAST_DAY + 1) * day, 2**63) - 1
    return _fitting(wall, pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last)))


def _times(values: pa.Array, target: pa.DataType) -> Typed:
    wall, lost = _within_years(_wall(values))
    kind = pa.date32() if types.is_date(target) else pa.timestamp("us")
    if kind == wall.type:
        return wall.view(target), lost
    found = wall.cast(kind, safe=False)
    found, cut = _fitting(found, pc.equal(found.cast(wall.type, safe=False), wall))
    return found.view(target), either(lost, cut)


# --- reals


def _reals(values: pa.Array, target: pa.DataType) -> Typed:
    """Return numbers as reals that are equal to them; of integers and decimals the shortest digits must be equal."""
    lost = None
    if not types.is_floating(values.type):
        near, wide = as_text(values)[0].cast(pa.float64()), pa.decimal128(38, getattr(values.type, "scale", 0))
        values, lost = _fitting(near, pc.equal(typed(near, wide)[0], typed(values, wide)[0]))
    found = values.cast(target)
    found, misfit = _fitting(found, pc.or_(pc.equal(found.cast(values.type), values), pc.is_nan(values)))
    return found, either(lost, misfit)
