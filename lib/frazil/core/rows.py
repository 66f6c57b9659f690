"""Rows as their bytes have them: the fields of a block, before anything judges their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.errors import FrazilError

FETCH_AGAIN = "fetch the file again, or have DMS write it again"


class UnreadableFileError(FrazilError, code="file-unreadable"):
    """A file is damaged, or is not what its name says. Fetch it again, or have DMS write it again."""


@dataclass(frozen=True)
class Rows:
    """The rows of a block: `fields` has a column for each field, `numbers` the number of each row in its file, from 1.

    A field is typed as far as its parser could. `unreadable` has the numbers of rows whose fields are unknown, each with
    the reason; `fields` lacks them. `raw` returns the bytes of a row by its number.
    """

    fields: pa.RecordBatch
    numbers: np.ndarray
    unreadable: tuple[tuple[int, str], ...]
    raw: Callable[[int], bytes]
