"""The exact value of a text in a type of the lake. Arrow casts a whole column; what it refuses is judged text by text."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.exact_one_text import DIGITS, SPACES, day, moment, number

TRUE, FALSE = ("true", "t", "1", "y", "yes"), ("false", "f", "0", "n", "no")
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The first day of year 1 and the last of year 9999, as days since 1970."""
FIRST_MOMENT = FIRST_DAY * 86_400_000_000

_REAL = rf"^([+-]?{DIGITS}|(?i:nan|[+-]?inf(inity)?))$"
_ZERO_OR_NOT_FINITE = r"^\s*([+-]?(0+\.?0*|\.0+)([eE][+-]?\d+)?|(?i:nan|[+-]?inf(inity)?))\s*$"
_HEX = "^([0-9a-fA-F]{2})*$"
_DAY = r"[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"


def of_texts(texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Return the values of texts in a type that is no text, and which have none (None: all have one)."""
    if pa.types.is_boolean(target):
        return _booleans(texts)
    if pa.types.is_floating(target):
        return _reals(texts, target)
    if pa.types.is_binary(target):
        return _bytes(texts)
    return _judged(texts, target)


def if_any(mask: pa.Array) -> pa.Array | None:
    """Return a mask in which null is false, or None if it is true nowhere."""
    return pc.fill_null(mask, False) if pc.any(mask).as_py() else None


def either(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    """Return where one of two masks is true; a mask that is None is true nowhere."""
    return one if other is None else other if one is None else pc.or_(one, other)


def none_but(fits: pa.Array, values: pa.Array) -> pa.Array:
    """Return values with null in place of those that do not fit."""
    return pc.if_else(fits, values, pa.scalar(None, values.type))


# --- types whose texts can be judged all at once


def _booleans(texts: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    lower = pc.utf8_lower(texts)
    yes, no = (pc.is_in(lower, pa.array(words)) for words in (TRUE, FALSE))
    return none_but(pc.or_(yes, no), yes), if_any(pc.and_(pc.is_valid(texts), pc.invert(pc.or_(yes, no))))


def _reals(texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Return the nearest reals. A number that only vanishes or only becomes infinite as a real has none."""
    lost = None
    try:
        values = texts.cast(target)
    except pa.ArrowInvalid:
        texts, lost = _only(pc.ascii_trim_whitespace(texts), _REAL)
        values = texts.cast(target)
    odd = pc.fill_null(pc.or_(pc.invert(pc.is_finite(values)), pc.equal(values, 0.0)), False)
    if not pc.any(odd).as_py():
        return values, lost
    meant = pc.match_substring_regex(texts.filter(odd), _ZERO_OR_NOT_FINITE)
    if pc.all(meant).as_py():
        return values, lost
    wrong = pc.replace_with_mask(odd, odd, pc.invert(meant))
    return none_but(pc.invert(wrong), values), either(wrong, lost)


def _bytes(texts: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    digits, lost = _only(pc.replace_substring_regex(texts, "^0[xX]", ""), _HEX)
    values = [text and binascii.unhexlify(text) for text in digits.cast(pa.binary()).to_pylist()]
    return pa.array(values, pa.binary()), lost


def _only(texts: pa.Array, pattern: str) -> tuple[pa.Array, pa.Array | None]:
    """Return the texts that match a pattern, null in place of others, and which are others."""
    fits = pc.match_substring_regex(texts, pattern)
    return none_but(fits, texts), if_any(pc.invert(fits))


def _content(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return where each text begins, and the bytes of all."""
    _, offsets, data = texts.buffers()
    at = np.frombuffer(offsets, "int32", len(texts) + 1, texts.offset * 4) if len(texts) else np.zeros(1, "int32")
    return at - at[0], np.frombuffer(data or b"", "uint8")[at[0] : at[-1]]


# --- types of which Arrow casts the usual texts, and Python judges the others


def _judged(texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    texts = _tidied(texts, target) if pa.types.is_timestamp(target) else texts
    if (values := _cast_at_once(texts, target)) is not None:
        return values, None
    judge = day if pa.types.is_date(target) else moment if pa.types.is_timestamp(target) else number
    usual = pc.fill_null(pc.match_substring_regex(texts, _usual(target)), True)
    values, others = _cast(none_but(usual, texts), target), pc.invert(usual)
    found = [judge(text.strip(SPACES), target) for text in texts.filter(others).to_pylist()]
    values = pc.replace_with_mask(values, others, pa.array(found, target))
    return values, if_any(pc.and_(others, pc.is_null(values)))


def _cast_at_once(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Return the values if Arrow casts all texts right.

    It reads `0x1F` as an integer, and a day as a moment. Decimals of more than 38 digits may be wrong, and those with
    some exponents end the process.
    """
    offsets, data = _content(texts)
    if pa.types.is_integer(target) and (data | 0x20 == ord("x")).any():
        return None
    longest = np.diff(offsets).max(initial=0)
    if pa.types.is_decimal(target) and (longest > 38 - target.scale or (data | 0x20 == ord("e")).any()):
        return None
    try:
        values = _cast(texts, target)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_timestamp(target) and len(texts) > texts.null_count:
        first, shortest = pc.min(values.view(pa.int64())).as_py(), pc.min(pc.binary_length(texts)).as_py()
        return values if first >= FIRST_MOMENT and shortest >= 19 else None
    if pa.types.is_date(target) and (pc.min(values.view(pa.int32())).as_py() or 0) < FIRST_DAY:
        return None
    return values


def _cast(texts: pa.Array, target: pa.DataType) -> pa.Array:
    return texts.cast(pa.timestamp("us")).view(target) if pa.types.is_timestamp(target) else texts.cast(target)


def _usual(target: pa.DataType) -> str:
    """Return the pattern of texts that Arrow surely casts right."""
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        return f"^{_DAY}$" if pa.types.is_date(target) else f"^{_DAY}[ T]{_CLOCK}$"
    if pa.types.is_integer(target):
        return rf"^-?[0-9]{{1,{9 if target.bit_width == 32 else 18}}}$"
    whole = target.precision - target.scale
    digits, fraction = f"[0-9]{{1,{whole}}}" if whole else "0?", rf"\.[0-9]{{1,{target.scale}}}"
    return f"^[+-]?{digits}({fraction})?$" if target.scale and whole else f"^[+-]?{digits}{fraction * (not whole)}$"


def _tidied(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return moments without what says nothing: a Z of instants, and zeros after the sixth digit of a second."""
    if target.tz and pc.any(pc.ends_with(texts, "Z")).as_py():
        texts = pc.replace_substring_regex(texts, "([0-9])Z$", r"\1")
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > 26:
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})0+$", r"\1")
    return texts
