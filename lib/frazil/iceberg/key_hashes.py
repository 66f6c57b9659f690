"""Keys as numbers: the key itself if 64 bits hold it, else 128 bits of a hash. Each process computes the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import FrazilError

_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""An odd number for each half of a hash."""
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)


class NullKeyError(FrazilError, code="key-null"):
    """A row of the table has no value in its key. Give it one, or delete it."""


def key_numbers(columns: list[pa.ChunkedArray]) -> list[np.ndarray]:
    """Return the numbers of keys: one for each key, or two. A widened column has the same.

    Raises NullKeyError for a null: NumPy would make reals of such a column, and no key would be found.
    """
    if any(column.null_count for column in columns):
        raise NullKeyError("rows have no value in a column of the key", "give them one, or delete them")
    plain = [_plain(column) for column in columns]
    if len(plain) == 1 and isinstance(plain[0], np.ndarray):
        return plain
    return [_hashed(plain, factor) for factor in _FACTORS]


def without_times(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return days and moments as the integers that Iceberg has for them, and other values as they are."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_temporal(values.type) else values


def _plain(values: pa.ChunkedArray) -> np.ndarray | pa.Array:
    """Return integers, days, times and the bits of reals as 64-bit numbers, and all else as bytes."""
    values = without_times(values)
    if pa.types.is_floating(values.type):
        return pc.add(values.cast(pa.float64()), 0.0).to_numpy().view(np.uint64)  # -0.0 is 0.0
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64()).to_numpy().view(np.uint64)
    if pa.types.is_decimal(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    return values.cast(pa.large_binary()).combine_chunks()


def _hashed(columns: list[np.ndarray | pa.Array], factor: np.uint64) -> np.ndarray:
    """Return 64 bits of the hash of each key."""
    total = np.full(len(columns[0]), factor)
    for values in columns:
        number = values if isinstance(values, np.ndarray) else _hashed_bytes(values, factor)
        total = mixed((total ^ number) * factor)
    return total


def _hashed_bytes(values: pa.LargeBinaryArray, factor: np.uint64) -> np.ndarray:
    """Return 64 bits of the hash of each text, made of its length and of eight bytes at a time."""
    _, offsets, content = values.buffers()
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    padded = (content.to_pybytes() if content else b"") + bytes(8)
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))  # the eight bytes from each place on
    at, left = bounds[:-1], np.diff(bounds)
    total, rows = left.astype(np.uint64) * factor, np.flatnonzero(left)
    while len(rows):
        bits = np.minimum(left[rows], 8).astype(np.uint64) * np.uint64(8)
        word = words[at[rows]] & (_ALL_BITS >> (np.uint64(64) - bits))
        total[rows] = mixed((total[rows] ^ word) * factor)
        at, left = at + 8, left - 8
        rows = rows[left[rows] > 0]
    return total


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers of which each bit depends on all bits of those given, and different ones for different ones."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
