"""Finds keys that several live rows have, in a new load and in a table that is taken over; names them, however they were found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.errors import FrazilError
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_hashes import mixed
from frazil.iceberg.key_segments import Rows, read_keys
from frazil.iceberg.read_rows import rows_at

if TYPE_CHECKING:
    from frazil.iceberg.live_files import LiveFile
    from frazil.iceberg.table import LakeTable

AT_ONCE = 1 << 25
"""Rows whose keys are compared at once; of more, each pass compares those in a part of all hashes."""
NAMED = 3
"""Keys that a message names."""
Place = tuple["LiveFile", int]
"""Where a row is: its data file, and its position there."""


class DoubledKeyError(FrazilError, code="key-twice"):
    """A key has two live rows: another writer doubled it. Delete one of them by SQL, or restart the table."""

    def __init__(self, table: LakeTable, places: Iterable[Place]):
        problem = f"{table.name}: another writer gave keys a second row ({named(table, places)})"
        super().__init__(problem, "delete one row of each by SQL, or restart the table")


class DoubledInLoadError(FrazilError, code="load-duplicate-key"):
    """Two rows of a load have one key. Correct the key in the spec, or load the table again at the source."""


def named(table: LakeTable, places: Iterable[Place]) -> str:
    """Return the keys of some rows, as messages name them: `id=3, id=5`."""
    schema = key_schema(table)
    rows = (rows_at(table.io, file, np.array([position]), schema).to_pylist()[0] for file, position in places)
    names = dict.fromkeys(", ".join(f"{name}={value}" for name, value in row.items()) for row in rows)
    return ", ".join(names) + (", …" if len(names) >= NAMED else "")


def key_schema(table: LakeTable) -> pa.Schema:
    """Return the columns of a table's key, to read them."""
    return pa.schema([table.arrow_schema.field(name) for name in table.key])


def doubled(table: LakeTable, files: list[LiveFile]) -> list[Place]:
    """Return the places of some rows whose key another live row of these data files has too, at most `NAMED`."""
    parts = -(-sum(f.rows for f in files) // AT_ONCE) if table.key_ids else 0  # without a key nothing is doubled
    for part in range(parts):
        rows = each(partial(_rows, table, part, parts), files, files[0].path)
        if found := [*_doubled(files, rows)]:
            return found
    return []


def _doubled(files: list[LiveFile], rows: list[Rows]) -> Iterator[Place]:
    halves = [np.concatenate(half) for half in zip(*(r.keys for r in rows), strict=True)]
    sorted_half = np.sort(halves[0])  # several times as fast as an order of all rows
    twice = np.flatnonzero(np.isin(halves[0], sorted_half[1:][sorted_half[1:] == sorted_half[:-1]]))
    order = twice[np.lexsort([half[twice] for half in halves])]
    same = np.logical_and.reduce([k[order][1:] == k[order][:-1] for k in halves])
    starts = np.cumsum([0, *(len(r.keys[0]) for r in rows)])
    for row in order[1:][same][:NAMED]:
        number = np.searchsorted(starts, row, "right") - 1
        position, _ = rows[number].places(np.array([row - starts[number]]))
        yield files[number], int(position[0])


def _rows(table: LakeTable, part: int, parts: int, file: LiveFile) -> Rows:
    """Return the keys of a data file's live rows that are in one of several parts of all hashes."""
    rows = read_keys(table.io, file.path, table.key_ids).live(table.vectors.of(file))
    return rows if parts == 1 else rows.only(mixed(rows.keys[0]) % np.uint64(parts) == part)
