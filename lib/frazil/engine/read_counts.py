"""What was read of a batch or a load: rows by operation, bad rows, and the delays of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frazil.core.bad_rows import SHOWN, BadRows
from frazil.core.changes import OPERATIONS, Changes
from frazil.engine.collapsed_batch import Ages

if TYPE_CHECKING:
    import numpy as np

SAMPLED = 250_000
"""About this many changes count for the quantiles of delays; of n times as many, every n-th."""
BYTES_A_CHANGE = 64


def every_of(size: int) -> int:
    """Return that every n-th change in files of this size counts for the delays."""
    return max(1, size // BYTES_A_CHANGE // SAMPLED)


class Tally:
    """A count of what was read: `most_bad` bad rows of each file are kept, and every `every`-th change has its delays."""

    def __init__(self, most_bad: int = SHOWN, every: int = 1):
        self.good = dict.fromkeys(OPERATIONS, 0)
        self.bad, self.ages = BadRows(most_bad), Ages(every)

    @property
    def rows(self) -> int:
        """The number of good rows."""
        return sum(self.good.values())

    def add(self, order: int, changes: Changes, written_at_s: float | np.ndarray) -> None:
        """Add a block of changes: its file's place in the order, and when DMS wrote them."""
        import pyarrow.compute as pc

        self.bad.add(order, changes.bad)
        self.ages.add(changes.rows, written_at_s)
        for found in pc.value_counts(changes.rows["op"]).to_pylist():
            self.good[found["values"]] += found["counts"]

    def seen(self, quantiles: Sequence[float]) -> dict[str, Any]:
        """Return the counts of a batch, bad rows included, and the points of its delays."""
        ops = {op: self.good[op] + self.bad.operations.get(op, 0) for op in OPERATIONS}
        counts = {"changes": self.rows + self.bad.count, "bad": self.bad.count, **ops}
        return counts | {"out_of_sequence": 0, "passed": 0} | self.ages.points(quantiles)

    def to_dict(self) -> dict[str, Any]:
        """Return a form that JSON can hold."""
        return {"good": self.good, "bad": self.bad.to_dict(), "ages": self.ages.to_dict()}

    @staticmethod
    def together(parts: Iterable[Mapping[str, Any]]) -> Tally:
        """Return several tallies as one, given as the results of `to_dict`."""
        whole, parts = Tally(), list(parts)
        whole.good = {op: sum(part["good"][op] for part in parts) for op in OPERATIONS}
        whole.bad = BadRows.together(part["bad"] for part in parts)
        whole.ages = Ages.together([part["ages"] for part in parts])
        return whole
