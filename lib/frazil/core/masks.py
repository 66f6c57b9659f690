"""A column's values as the lake has them: exact, replaced where `replace` says it, and hashed where they are masked.

Replaced are values that a source has and a lake's type lacks, such as MySQL's zero dates.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.exact import Typed, arrow_type, as_text, typed, utf8
from frazil.core.exact_texts import if_any
from frazil.settings.column import Column

UNDECODED, UNDECODABLE = "U+FFFD", "\ufffd"
"""The only name that concerns a part of a text, and what is replaced of it."""
PATTERNS = {
    "zero_date": r"^[0-9]{4}-(00-[0-9]{2}|[0-9]{2}-00)([ T].*)?$",
    "before_year_1": r"(?i)^(-[0-9]+-[0-9]|0000-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]))|BC$",
    "after_year_9999": r"^[+]?[0-9]{5,}-[0-9]",
    "infinity": r"(?i)^[+]?inf(inity)?$",
    "-infinity": r"(?i)^-inf(inity)?$",
    "NaN": r"(?i)^[+-]?nan$",
    UNDECODED: UNDECODABLE,
}
"""The texts that each name means. Of a text with two names the later one in `replace` counts."""


def lake_values(column: Column, values: pa.Array) -> Typed:
    """Return the values of a column, and which have neither an exact value nor a replacement."""
    found, misfit = typed(values, arrow_type(column.value_type))
    if misfit is not None and column.replace:
        found, misfit = _replaced(column, values, found, misfit)
    return masked(found) if column.mask else found, misfit


def masked(values: pa.Array) -> pa.Array:
    """Return the SHA-256 of values in hex digits: of their text in the form that CSV has, or of their bytes."""
    plain = values if pa.types.is_binary(values.type) else as_text(values)[0].cast(pa.binary())
    return pa.array([None if v is None else hashlib.sha256(v).hexdigest() for v in plain.to_pylist()], pa.string())


def _replaced(column: Column, values: pa.Array, found: pa.Array, misfit: pa.Array) -> Typed:
    """Return values in which declared ones stand for some misfits, and the misfits that are left."""
    target = found.type
    texts = _named(values.filter(misfit))
    new, still = pa.nulls(len(texts), target), pa.array([True] * len(texts))
    for name, value in column.replace.items():
        alike = pc.fill_null(pc.match_substring_regex(texts, PATTERNS[name]), False)
        if name == UNDECODED and value is not None:
            stated, lacking = pc.replace_substring(texts, UNDECODABLE, value), None
        else:
            one, lacking = typed(pa.array([_stated(column, value)], pa.string()), target)
            stated = one[0]
        if lacking is None:
            new, still = pc.if_else(alike, stated, new), pc.and_not(still, alike)
    return pc.replace_with_mask(found, misfit, new), if_any(pc.replace_with_mask(misfit, misfit, still))


def _named(values: pa.Array) -> pa.Array:
    """Return values as texts that the patterns know: of a day or a moment outside the years 1 to 9999 its side."""
    if not (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
        is_text = pa.types.is_binary(values.type) or pa.types.is_string(values.type)
        return utf8(values) if is_text else as_text(values)[0]
    texts, outside = as_text(values)
    numbers = values.view(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    side = pc.if_else(pc.less(numbers, 0), "-0001-01-01", "+10000-01-01")
    return texts if outside is None else pc.if_else(outside, side, texts)


def _stated(column: Column, value: str | None) -> str | None:
    """Return a declared value in CSV's form: a moment may be stated by its day alone."""
    return f"{value} 00:00:00" if value and column.dms_type == "DATETIME" and len(value) == 10 else value
