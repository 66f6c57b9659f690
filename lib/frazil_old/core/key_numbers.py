"""Keys as numbers, by which equal keys are found.

There are codes within a table, and hashes that are the same everywhere. For the key index a key is itself if it fits 64
bits, else two halves of a digest, as in `key_index.key_numbers_sql`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


_MIX = 0x9E37_79B9_7F4A_7C15
"""An odd number with well-mixed bits; multiplication by it separates neighbours."""
PLAIN_SCALE = 6
"""Maximum digits after the point.

With more, Spark writes a decimal near zero with or without an exponent, by its ANSI mode.
"""


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


def has_numbers(spec: TableSpec) -> bool:
    """Return whether the numbers of a table's keys can be computed here.

    They cannot for reals, and for decimals with many digits after the point, which Spark writes in its own way.
    """
    from frazil_old.core.types import arrow_type

    return all(spec.column(k).mask or _text_form(arrow_type(spec.column(k))) for k in spec.key)


def key_numbers(keys: list[pa.Array]) -> list[np.ndarray]:
    """Return the numbers of keys, given their columns with the lake's types: one column of numbers, or two.

    No part of a key is null.
    """
    import numpy as np
    import pyarrow as pa

    kinds = [k.type for k in keys]
    if len(kinds) == 1 and pa.types.is_integer(kinds[0]):
        return [keys[0].cast(pa.int64()).to_numpy()]
    if kinds == [pa.int32(), pa.int32()]:
        high, low = (k.cast(pa.int64()).to_numpy() for k in keys)
        return [(high << 32) | (low & 0xFFFF_FFFF)]
    if kinds == [pa.date32()]:
        return [keys[0].cast(pa.int32()).cast(pa.int64()).to_numpy()]
    texts = [_text_form(k.type)(k).to_pylist() for k in keys]
    digests = [_digest(row) for row in zip(*texts, strict=True)]
    halves = np.frombuffer(b"".join(digests), ">i8").reshape(-1, 2)
    return [halves[:, 0].astype("int64"), halves[:, 1].astype("int64")]


def _digest(parts: tuple[str, ...]) -> bytes:
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(whole.encode()).digest()[:16]


def _text_form(kind: pa.DataType):
    """Return the function that writes keys of a type as Spark writes them; None for a type without a known one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind):
        return lambda values: values.cast(pa.string())
    if pa.types.is_binary(kind):
        return lambda values: pa.array([value.hex().upper() for value in values.to_pylist()], pa.string())
    if pa.types.is_decimal(kind) and kind.scale <= PLAIN_SCALE:
        return lambda values: values.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz:
        return lambda values: values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_timestamp(kind):
        return lambda values: pc.replace_substring_regex(values.cast(pa.string()), r"\.?0+$", "")
    return None
