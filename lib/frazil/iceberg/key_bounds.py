"""Which data files may hold a key, by the bounds that manifests have of the first column of the key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

if TYPE_CHECKING:
    from frazil.iceberg.live_files import LiveFile


def comparable(keys: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column of keys in order, as Iceberg's bounds are read: days and moments are numbers."""
    if pa.types.is_temporal(keys.type):
        keys = keys.cast(pa.int32() if pa.types.is_date32(keys.type) else pa.int64())
    if pa.types.is_integer(keys.type):  # 1 M in 0.05 s instead of 0.4 s
        return np.sort(keys.to_numpy()).tolist()
    return sorted({*keys.to_pylist()})


def may_hold(files: Iterable[LiveFile], kind: Any, keys: list[Any]) -> list[LiveFile]:
    """Return the files whose bounds have one of some keys between them; one without bounds may hold any. `kind` is Iceberg's type."""
    return [file for file in files if _overlaps(file, cast(PrimitiveType, kind), keys)]


def _overlaps(file: LiveFile, kind: PrimitiveType, keys: list[Any]) -> bool:
    low, high = file.bounds[0] if file.bounds else (None, None)
    if low is None or high is None:
        return True
    return bisect_left(keys, from_bytes(kind, low)) < bisect_right(keys, from_bytes(kind, high))
