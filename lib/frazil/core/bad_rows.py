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

    def reasons(self, places: np.ndarray) -> list[str]:
        """Return the reasons for the rows at some places of the block."""
        values = [] if self.shown is None else _quoted(self.shown.take(pa.array(places)))
        return [f"{value} {self.words}" for value in values] or [self.words] * len(places)


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
    for at in np.unique(which[which >= 0]).tolist():
        places, fault = np.flatnonzero(which == at), faults[at]
        reasons = zip(rows.numbers[places].tolist(), fault.reasons(places), strict=True)
        found += [(number, fault.column, reason) for number, reason in reasons]
    rows_of = [(file, *one, rows.raw(one[0])) for one in sorted(found)]
    return pa.table([*zip(*rows_of, strict=True)], schema=BAD) if rows_of else BAD.empty_table()


def _quoted(values: pa.Array) -> list[str]:
    """Return values as messages show them."""
    if pa.types.is_binary(values.type):
        texts = [None if value is None else value.hex() for value in values.to_pylist()]
    else:  # a text is shown as it is, also where it has no value
        texts = (values if pa.types.is_string(values.type) else as_text(values)[0]).to_pylist()
    shown = ["a time of no clock or calendar" if text is None else repr(text[:MOST_SHOWN]) for text in texts]
    return ["no value" if is_none else text for is_none, text in zip(values.is_null().to_pylist(), shown, strict=True)]
