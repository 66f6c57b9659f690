"""Masks a column's values: the lake holds the SHA-256 of each value's text, as Spark would write that text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from frazil_old.config.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

_FEWEST, _MOST = 1e-3, 1e7
"""Java writes reals outside these bounds with an exponent."""


def masked(column: Column, values: pa.Array) -> pa.Array:
    """Return what the lake holds of a column's values: themselves, or the hex digits of their SHA-256."""
    import pyarrow as pa

    if not column.mask:
        return values
    if pa.types.is_timestamp(values.type) and values.type.tz:
        values = values.cast(pa.int64())  # an instant is hashed as its microseconds
    single = pa.types.is_float32(values.type)
    hashes = [None if v is None else hashlib.sha256(_bytes(v, single)).hexdigest() for v in values.to_pylist()]
    return pa.array(hashes, pa.string())


def _bytes(value: Any, single: bool) -> bytes:
    if isinstance(value, bytes):
        return value
    texts: dict[type, Callable[[Any], str]] = {
        bool: lambda v: str(v).lower(),
        Decimal: lambda v: f"{v:f}",
        float: lambda v: java_real(v, single),
        datetime: lambda v: str(v).rstrip("0").rstrip(".") if v.microsecond else str(v),
    }
    return texts.get(type(value), str)(value).encode()


def java_real(value: float, single: bool = False) -> str:
    """Return a real's text as Java and Spark write it: `1.0E7`, `0.001`, `Infinity`."""
    import numpy as np

    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    shortest = np.format_float_scientific(np.float32(value) if single else value, trim="0")
    if value == 0 or _FEWEST <= abs(value) < _MOST:
        return np.format_float_positional(np.float32(value) if single else value, trim="0")
    digits, exponent = shortest.split("e")
    return f"{digits}E{int(exponent)}"
