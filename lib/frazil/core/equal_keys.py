"""Numbers by which equal keys are found: codes within a table, hashes that are the same everywhere."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


_MIX = 0x9E37_79B9_7F4A_7C15
"""An odd number with well-mixed bits; multiplication by it separates neighbours."""


def key_codes(rows: pa.Table, spec: TableSpec) -> np.ndarray:
    """Return a number per row that is the same for equal keys, and for no others."""
    import numpy as np

    codes = np.zeros(len(rows), "int64")
    for name in spec.key:
        part = _codes(rows[f"new_{spec.names.index(name)}"])
        if codes.any():
            _, codes = np.unique(codes, return_inverse=True)
            codes = codes * (int(part.max(initial=0)) + 1)
        codes = codes + part
    return codes


def key_hashes(rows: pa.Table, spec: TableSpec) -> np.ndarray:
    """Return a hash per row that depends only on the key, so that equal keys have equal hashes in every process."""
    import numpy as np

    hashes = np.zeros(len(rows), "uint64")
    for name in spec.key:
        part = _hashes(one_zero(rows[f"new_{spec.names.index(name)}"]))
        hashes = (hashes ^ part) * np.uint64(_MIX)
    return hashes ^ (hashes >> np.uint64(32))


def _hashes(values: pa.ChunkedArray) -> np.ndarray:
    """Hash each distinct value once; whole numbers are their own hash."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_integer(values.type) and not values.null_count:
        return values.to_numpy().astype("int64").view("uint64") * np.uint64(_MIX)
    encoded = values.combine_chunks().dictionary_encode("encode")
    distinct = [hashlib.blake2b(repr(v).encode(), digest_size=8).digest() for v in encoded.dictionary.to_pylist()]
    return np.frombuffer(b"".join(distinct), "uint64")[encoded.indices.to_numpy()]


def one_zero(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return reals with -0.0 as 0.0, which are one key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _codes(values: pa.ChunkedArray) -> np.ndarray:
    encoded = one_zero(values).combine_chunks().dictionary_encode("encode")
    return encoded.indices.to_numpy().astype("int64")
