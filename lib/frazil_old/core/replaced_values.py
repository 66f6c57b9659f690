"""Values that a lake's type lacks, such as MySQL's zero dates: a column's `replace` declares their replacements."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from frazil_old.config.columns import Column, unrepresentable
from frazil_old.core.parquet_types import as_texts

if TYPE_CHECKING:
    import pyarrow as pa

FFFD = "U+FFFD"
"""The only name that concerns a part of a text."""


def replaced_texts(column: Column, texts: pa.Array) -> pa.Array:
    """Return a column's texts with the declared replacements for those that its type lacks.

    In a text each U+FFFD is replaced; any other value as a whole.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    patterns = unrepresentable(column)
    original = texts
    for name, new in column.replace:
        if name == FFFD and new is not None:
            texts = pc.replace_substring(texts, "\ufffd", new)
            continue
        lacking = pc.fill_null(pc.match_substring_regex(original, patterns[name]), False)
        texts = pc.if_else(lacking, pa.scalar(_stated(column, new), pa.string()), texts)
    return texts


def _stated(column: Column, new: str | None) -> str | None:
    """Return a declared value in CSV's form: a spec may state a time by its day alone."""
    return datetime.fromisoformat(new).isoformat(" ") if new and column.dms_type == "DATETIME" else new


def as_texts_where_lacking(column: Column, values: pa.Array) -> pa.Array | None:
    """Return the texts of typed values, of which some are named by `replace`; None: none is.

    A time outside the years 1 to 9999 has a text that names it, so that its pattern can be recognized.
    """
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_floating(values.type):
        lacking = pc.invert(pc.is_finite(values))
        texts = as_texts(values)
    elif types.is_timestamp(values.type) or types.is_date(values.type):
        texts, lacking = times_as_texts(values)
    else:
        return None
    return texts if pc.any(pc.fill_null(lacking, False)).as_py() else None


def times_as_texts(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return times as texts, and which are outside the years 1 to 9999: their texts give the year."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wall = values.cast(pa.timestamp(values.type.unit)) if pa.types.is_timestamp(values.type) else values
    if pa.types.is_timestamp(wall.type) and wall.type.unit == "ns":  # which holds years near 2000 only
        return wall.cast(pa.string()), pa.array([False] * len(wall))
    first, last = (date.min, date.max) if pa.types.is_date(wall.type) else (datetime.min, datetime.max)
    before, after = pc.less(wall, pa.scalar(first, wall.type)), pc.greater(wall, pa.scalar(last, wall.type))
    years = _years(wall)
    named = pc.if_else(before, pc.min_element_wise(years, 0), pc.max_element_wise(years, 10_000))
    digits = pc.utf8_lpad(pc.abs(named).cast(pa.string()), 5, "0")
    texts = pc.binary_join_element_wise(pc.if_else(before, "-", "+"), digits, "-01-01", "")
    outside = pc.or_(before, after)
    usual = pc.if_else(outside, pa.scalar(None, wall.type), wall).cast(pa.string())
    return pc.if_else(outside, texts, usual), outside


def _years(wall: pa.Array) -> pa.Array:
    """Return the year of each time; Arrow's own function has only 16 bits."""
    import pyarrow as pa

    return pa.array(wall.to_numpy(zero_copy_only=False).astype("datetime64[Y]").astype("int64") + 1970)
