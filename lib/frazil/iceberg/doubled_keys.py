"""Finds keys that several live rows have: in a new load, in a table that is taken over, and after commits of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from frazil.errors import FrazilError
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_hashes import mixed
from frazil.iceberg.key_segments import read_keys
from frazil.iceberg.read_rows import rows_at

if TYPE_CHECKING:
    from frazil.iceberg.live_files import LiveFile
    from frazil.iceberg.table import LakeTable

AT_ONCE = 1 << 25
"""Rows whose keys are compared at once; of more, each pass compares those in a part of all hashes."""
NAMED = 3
"""Keys that a message names."""


class DoubledKeyError(FrazilError, code="key-twice"):
    """A key has two live rows: another writer doubled it. Delete one of them by SQL, or restart the table."""


class DoubledInLoadError(FrazilError, code="load-duplicate-key"):
    """Two rows of a load have one key. Correct the key in the spec, or load the table again at the source."""


def doubled_error(table: LakeTable, names: list[str], count: int) -> DoubledKeyError:
    """Return the error of keys that have two live rows, of which some are named."""
    named = ", ".join(names) + (", …" if count >= NAMED else "")
    problem = f"{table.name}: another writer gave keys a second row ({named})"
    return DoubledKeyError(problem, "delete one row of each by SQL, or restart the table")


def names_of(table: LakeTable, places: Iterable[tuple[str, int]]) -> list[str]:
    """Return the keys of rows, as messages name them: `id=3`. A place is a data file's path, and a position."""
    schema = schema_to_pyarrow(Schema(*(table.metadata.schema().find_field(name) for name in table.key)))
    found = (rows_at(table.io, path, np.array([position]), schema).to_pylist()[0] for path, position in places)
    return [", ".join(f"{name}={value}" for name, value in row.items()) for row in found]


def doubled(table: LakeTable, files: list[LiveFile]) -> list[tuple[str, int]]:
    """Return the places of some rows whose key another live row of these data files has too, at most `NAMED`."""
    parts = -(-sum(f.rows for f in files) // AT_ONCE) if table.key_ids else 0  # without a key nothing is doubled
    found: list[tuple[str, int]] = []
    for part in range(parts):
        keys = each(partial(_keys, table, (part, parts)), files, files[0].path)
        found += _doubled(files, keys)
        if len(found) >= NAMED:
            break
    return found[:NAMED]


def _doubled(files: list[LiveFile], keys: list[tuple[list[np.ndarray], np.ndarray]]) -> Iterator[tuple[str, int]]:
    halves = [np.concatenate(half) for half in zip(*(k for k, _ in keys), strict=True)]
    order = np.lexsort(halves)
    same = np.logical_and.reduce([k[order][1:] == k[order][:-1] for k in halves])
    file = np.repeat(np.arange(len(files)), [len(position) for _, position in keys])
    position = np.concatenate([position for _, position in keys])
    for row in order[1:][same][:NAMED].tolist():
        yield files[file[row]].path, int(position[row])


def _keys(table: LakeTable, part: tuple[int, int], file: LiveFile) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the keys of a data file's live rows that are in one of several parts of all hashes, and their positions."""
    rows = read_keys(table.io, file.path, table.key_ids)
    position = np.arange(len(rows.keys[0])) if rows.position is None else rows.position
    chosen = np.ones(len(position), bool)
    if file.deletes:
        chosen = ~np.isin(position, np.array(table.vectors.of(file).to_array(), np.int64))
    if part[1] > 1:
        chosen &= mixed(rows.keys[0]) % np.uint64(part[1]) == part[0]
    return [k[chosen] for k in rows.keys], position[chosen]


def added_by_others(table: LakeTable) -> list[LiveFile]:
    """Return the live data files whose rows came after others' keys were looked at."""
    return [f for f in table.live_files.values() if f.sequence > table.checked]
