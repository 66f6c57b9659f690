"""DMS data types: the lake's Arrow type of each, and the exact value of a text in it.

`core.parquet_types` does the same for values of Parquet. `core.masks` hashes the values of masked columns.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from frazil_old.config.columns import Column
from frazil_old.config.lake_types import value_type

if TYPE_CHECKING:
    import pyarrow as pa


MISFIT = object()
"""Marks a text that is no exact value of its type."""
YES, NO = ("true", "t", "1", "y", "yes"), ("false", "f", "0", "n", "no")
REPLACEMENT = "\ufffd"
"""What DMS and decoders write for invalid bytes."""

_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_MOMENT = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?):(\d\d?)(?:\.(\d*))?\s*(Z|[+-]\d\d(?::?\d\d)?)?\s*", re.ASCII
)
_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INFINITE = re.compile(r"nan|[+-]?inf(inity)?", re.I)


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column's values, before any mask."""
    return arrow_of(value_type(column))


def arrow_of(kind: str) -> pa.DataType:
    """Return the Arrow type of one of Spark's."""
    import pyarrow as pa

    if kind.startswith("decimal"):
        return pa.decimal128(*map(int, re.findall(r"\d+", kind)))
    kinds = {
        "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
        "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"), "array<string>": pa.list_(pa.string()),
    }  # fmt: skip
    return kinds[kind]


def type_texts(column: Column, texts: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Return the values of a column's texts, and where a text is no exact value of its type (None: nowhere).

    A null stays null. Arrow casts a whole array in one step; if it rejects one, each unusual text is judged alone.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    target = arrow_type(column)
    if pa.types.is_string(target):
        return texts, _if_any(pc.match_substring(texts, REPLACEMENT))
    if pa.types.is_boolean(target):
        return _booleans(texts)
    try:
        values = _QUICK[_family(target)](texts, target)
    except (pa.ArrowInvalid, binascii.Error, ValueError):
        values = None
    return (values, None) if values is not None else _judged(column, texts, target)


def judge(column: Column, text: str) -> Any:
    """Return the exact value of one text in a column's type, or MISFIT."""
    import pyarrow as pa

    family = _family(arrow_type(column))
    if family == "string":
        return MISFIT if REPLACEMENT in text else text
    if family == "bool":
        return True if text.lower() in YES else False if text.lower() in NO else MISFIT
    value = _JUDGES[family](text, arrow_type(column))
    if value is not MISFIT:
        try:
            pa.array([value], arrow_type(column))
        except (pa.ArrowInvalid, OverflowError, ValueError):
            return MISFIT
    return value


def _if_any(mask: pa.Array) -> pa.Array | None:
    """Return a mask, or None if it is true nowhere."""
    import pyarrow.compute as pc

    return mask if pc.any(mask).as_py() else None


def _family(target: pa.DataType) -> str:
    """Return a type's kind of text: one word for all integers, all decimals, and so on."""
    import pyarrow.types as types

    families = {
        "int": types.is_integer, "decimal": types.is_decimal, "real": types.is_floating, "bool": types.is_boolean,
        "bytes": types.is_binary, "date": types.is_date, "moment": types.is_timestamp, "string": types.is_string,
    }  # fmt: skip
    return next(name for name, holds in families.items() if holds(target))


def _booleans(texts: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    lower = pc.utf8_lower(texts)
    yes, no = (pc.is_in(lower, pa.array(words)) for words in (YES, NO))
    values = pc.if_else(yes, True, pc.if_else(no, False, pa.scalar(None, pa.bool_())))
    return values, _if_any(pc.and_(pc.is_valid(texts), pc.is_null(values)))


# --- whole arrays, None where some text needs a look of its own


def _quick_integers(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    import pyarrow.compute as pc

    values = texts.cast(target)
    return None if _if_any(pc.match_substring(texts, "x", ignore_case=True)) is not None else values  # 0x1F


def _quick_decimals(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Cast decimals, or return None for longer texts and exponents: Arrow misses an overflow above 38 digits."""
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    short = longest <= _MOST_DIGITS - target.scale
    exponent = _if_any(pc.match_substring(texts, "e", ignore_case=True)) is not None
    return texts.cast(target) if short and not exponent else None


def _quick_reals(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    import pyarrow.compute as pc

    values = texts.cast(target)
    plain = pc.all(pc.and_(pc.is_finite(values), pc.not_equal(values, 0.0))).as_py()
    return values if plain is not False else None


def _quick_moments(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Cast times, or return None for texts under 19 characters: Arrow also accepts a day without a time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shortest = pc.min(pc.binary_length(texts)).as_py()
    values = texts.cast(pa.timestamp("us"))
    first = pc.min(values.cast(pa.int64())).as_py()
    if (shortest is not None and shortest < 19) or (first is not None and first < _FIRST_MOMENT):
        return None
    return pc.assume_timezone(values, "UTC") if target.tz else values


def _quick_days(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    values = texts.cast(target)
    first = pc.min(values.cast(pa.int32())).as_py()
    return None if first is not None and first < _FIRST_DAY else values


def _quick_bytes(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Convert the hex digits of all texts to bytes in one step: each text then begins at half its place."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(texts.is_valid()).buffers()[1] if texts.null_count else None
    texts = pc.fill_null(texts, "")
    offsets = np.frombuffer(texts.buffers()[1], "int32", len(texts) + 1, texts.offset * 4)
    data = texts.buffers()[2]
    if (offsets % 2).any() or data is None or _if_any(pc.starts_with(texts, "0x", ignore_case=True)) is not None:
        return None
    raw = binascii.unhexlify(memoryview(data)[offsets[0] : offsets[-1]])
    return pa.Array.from_buffers(
        target, len(texts), [known, pa.py_buffer(((offsets - offsets[0]) // 2).astype("int32")), pa.py_buffer(raw)]
    )


_MOST_DIGITS = 38
_NEVER = r"[^\s\S]"
_FIRST_DAY = date.min.toordinal() - date(1970, 1, 1).toordinal()
_FIRST_MOMENT = _FIRST_DAY * 86_400 * 10**6
_QUICK: dict[str, Callable] = {
    "int": _quick_integers, "decimal": _quick_decimals, "real": _quick_reals, "moment": _quick_moments, "date": _quick_days, "bytes": _quick_bytes,
}  # fmt: skip


# --- text by text


def _judged(column: Column, texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Cast the texts of the usual form together, and judge the others one by one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    usual = pc.fill_null(pc.match_substring_regex(texts, _usual_form(target)), True)
    values = _cast_usual(pc.if_else(usual, texts, pa.scalar(None, texts.type)), target)
    other = np.flatnonzero(~usual.to_numpy(zero_copy_only=False))
    found = [judge(column, text) for text in texts.take(pa.array(other)).to_pylist()]
    kept = pa.array([None if value is MISFIT else value for value in found], target)
    values = pc.replace_with_mask(values, pc.invert(usual), kept)
    misfit = np.zeros(len(texts), bool)
    misfit[other[[value is MISFIT for value in found]]] = True
    return values, _if_any(pa.array(misfit))


def _cast_usual(texts: pa.Array, target: pa.DataType) -> pa.Array:
    family = _family(target)
    return _QUICK[family](texts, target) if family in ("moment", "bytes") else texts.cast(target)


def _usual_form(target: pa.DataType) -> str:
    """Return the pattern of texts that Arrow certainly casts, and exactly."""
    family = _family(target)
    if family == "decimal":
        fraction = rf"(\.[0-9]{{1,{target.scale}}})?" if target.scale else ""
        whole = target.precision - target.scale
        return rf"^[+-]?[0-9]{{1,{whole}}}{fraction}$" if whole else _NEVER
    return {
        "int": rf"^-?[0-9]{{1,{9 if target.bit_width == 32 else 18}}}$" if family == "int" else "",
        "real": r"^[+-]?[1-9][0-9]{0,9}(\.[0-9]{1,9})?([eE][+-]?[0-2]?[0-9])?$",
        "date": f"^{_DAY}$".replace("[0-9]{4}", "[1-9][0-9]{3}"),
        "moment": f"^{_DAY}[ T]{_CLOCK}$".replace("[0-9]{4}", "[1-9][0-9]{3}", 1),
        "bytes": "^([0-9a-fA-F][0-9a-fA-F])*$",
    }[family]


def _number(text: str, target: pa.DataType) -> Any:
    """Return a decimal or integer as in the text, with any zeros after its digits; surrounding white space is ignored."""
    try:
        value = Decimal(text.strip()) if _REAL.fullmatch(text.strip()) else None
    except InvalidOperation:
        return MISFIT
    scale = getattr(target, "scale", 0)
    if value is None or value.adjusted() > 40 or value != (cut := _cut(value, scale)):
        return MISFIT
    return cut if scale or _family(target) == "decimal" else int(cut)


def _cut(value: Decimal, scale: int) -> Decimal:
    """Return a number without the digits after a number of places; exact if these are zeros."""
    from decimal import ROUND_DOWN, Context

    return value.quantize(Decimal(1).scaleb(-scale), ROUND_DOWN, Context(prec=100))


def _real(text: str, target: pa.DataType) -> Any:
    """Return a real: finite where the text has digits, and zero only where these are zeros."""
    import numpy as np

    trimmed = text.strip()
    if _INFINITE.fullmatch(trimmed):
        return float(trimmed)
    if not _REAL.fullmatch(trimmed):
        return MISFIT
    value = float(trimmed)
    with np.errstate(over="ignore"):
        kept = float(np.float32(value)) if target.bit_width == 32 else value
    vanished = kept == 0 and re.match(r"[^eE]*[1-9]", trimmed)
    return MISFIT if math.isinf(kept) or vanished else kept


def _day(text: str, target: pa.DataType) -> Any:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return MISFIT
    try:
        return date.fromisoformat(text)
    except ValueError:
        return MISFIT


def _moment(text: str, target: pa.DataType) -> Any:
    """Return a time to the microsecond; a zone only where the column holds instants."""
    found = _MOMENT.fullmatch(text)
    if not found or (found[8] and not target.tz) or (found[7] or "")[6:].strip("0"):
        return MISFIT
    try:
        value = datetime(*map(int, found.groups()[:6]), int((found[7] or "")[:6].ljust(6, "0")))
        if not target.tz:
            return value
        zone = datetime.strptime(found[8], "%z").tzinfo if found[8] else UTC
        return value.replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return MISFIT


def _hex(text: str, target: pa.DataType) -> Any:
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    return bytes.fromhex(digits) if re.fullmatch(r"([0-9a-fA-F]{2})*", digits) else MISFIT


_JUDGES: dict[str, Callable] = {
    "int": _number, "decimal": _number, "real": _real, "date": _day, "moment": _moment, "bytes": _hex,
}  # fmt: skip
