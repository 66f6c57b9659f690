"""Which data files may hold a key, by the bounds that manifests have of the key's columns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

from frazil.iceberg.key_hashes import without_times

if TYPE_CHECKING:
    from frazil.iceberg.live_files import LiveFile


def _in_order(keys: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column of keys in order; nothing if one is NaN, which bounds leave out."""
    if pa.types.is_floating(keys.type) and pc.any(pc.is_nan(keys)).as_py():
        return []
    keys = without_times(keys)
    if pa.types.is_integer(keys.type):  # 1 M in 0.05 s instead of 0.4 s
        return np.sort(keys.to_numpy()).tolist()
    return sorted({*keys.to_pylist()})


def may_hold(files: Iterable[LiveFile], kinds: Sequence[Any], keys: Sequence[pa.ChunkedArray]) -> list[LiveFile]:
    """Return the files whose bounds have one of some keys between them, in each of its columns; `kinds` are Iceberg's types of these."""
    columns = [(kind, _in_order(values)) for kind, values in zip(kinds, keys, strict=True)]
    return [f for f in files if all(_overlaps(*c, b) for c, b in zip(columns, f.bounds, strict=False))]


def _overlaps(kind: PrimitiveType, keys: list[Any], bounds: tuple[bytes | None, bytes | None]) -> bool:
    """Return whether a key is between the bounds of a file; one without bounds, or keys, may hold any."""
    low, high = bounds
    if low is None or high is None or not keys:
        return True
    return bisect_left(keys, from_bytes(kind, low)) < bisect_right(keys, from_bytes(kind, high))
