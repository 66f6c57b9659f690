"""Bad rows: what is wrong with a row, in words, and its bytes. Everything else is read from the bytes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.core.exact import as_text
from frazil.core.rows import Rows

BAD = pa.schema({"file": pa.int32(), "number": pa.int64(), "column": pa.string(), "reason": pa.string(), "raw": pa.binary()})  # fmt: skip
"""A bad row: the place of its file in the batch, its number there, the column concerned, the reason, and its bytes."""
MOST_SHOWN = 100
"""The most characters of a value that a reason shows."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with some rows of a block: `words`, after the value that a row has in `shown` (None: no value)."""

    mask: np.ndarray
    column: str
    words: str
    shown: pa.Array | None = None

    def reason(self, at: int) -> str:
        """Return the reason for the row at a place of the block."""
        return self.words if self.shown is None else f"{_quoted(self.shown, at)} {self.words}"


def as_mask(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return which values are true; null is not."""
    return np.asarray(values.fill_null(False))


def first_fault(faults: Sequence[Fault], count: int) -> np.ndarray:
    """Return, for each of `count` rows, the number of the fault that counts, which is the first; -1: the row is good."""
    found = np.full(count, -1, "int16")
    for number, fault in reversed([*enumerate(faults)]):
        found[fault.mask] = number
    return found


def described(rows: Rows, faults: Sequence[Fault], which: np.ndarray, file: int) -> pa.Table:
    """Return the bad rows of a block in order, as `BAD` has them."""
    found = [(number, "", reason) for number, reason in rows.unreadable]
    for at in np.flatnonzero(which >= 0).tolist():
        fault = faults[which[at]]
        found.append((int(rows.numbers[at]), fault.column, fault.reason(at)))
    rows_of = [(file, number, column, reason, rows.raw(number)) for number, column, reason in sorted(found)]
    return pa.Table.from_pylist([dict(zip(BAD.names, row, strict=True)) for row in rows_of], BAD)


def _quoted(values: pa.Array, at: int) -> str:
    """Return a value as messages show it."""
    one = values.slice(at, 1)
    if one.null_count:
        return "no value"
    if pa.types.is_binary(one.type):
        text = one[0].as_py().hex()
    else:  # a text is shown as it is, also where it has no value
        text = (one if pa.types.is_string(one.type) else as_text(one)[0])[0].as_py()
    return "a time of no clock or calendar" if text is None else repr(text[:MOST_SHOWN])
