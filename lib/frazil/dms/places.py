"""Which rows, or messages, belong together: files of all tables and reads of a stream are divided by the same step."""

from __future__ import annotations

import numpy as np


def places_of(numbers: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the places that have each number from 0 to `count` - 1, in their order. A number below 0 is nobody's."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(count)))[1:]
