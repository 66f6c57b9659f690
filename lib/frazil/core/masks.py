"""Masks: of a masked column the lake holds the SHA-256 of each value's text, in hex digits."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from frazil.core.exact import as_text


def masked(values: pa.Array) -> pa.Array:
    """Return the hashes of typed values: of their text in the form that CSV has, or of their bytes."""
    plain = values if pa.types.is_binary(values.type) else as_text(values)[0].cast(pa.binary())
    return pa.array([None if v is None else hashlib.sha256(v).hexdigest() for v in plain.to_pylist()], pa.string())
