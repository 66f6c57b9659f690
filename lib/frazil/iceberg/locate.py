"""Finds the live rows of keys: by segments in memory, or by a scan of key columns, here or in tasks that own whole files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from frazil.iceberg.doubled_keys import NAMED, DoubledKeyError, key_schema
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_hashes import key_numbers, mixed
from frazil.iceberg.key_segments import Matches, Rows, Segment, Segments, read_keys
from frazil.iceberg.read_rows import live_rows

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from frazil.iceberg.live_files import LiveFile
    from frazil.iceberg.table import LakeTable

BYTES_A_ROW = 30
"""Of segments in memory, for keys that are texts or have several columns; others need less."""
Scan = tuple["FileIO", list[int], list[np.ndarray]]
"""What scans look for, here or in a task: the field ids of the key, and the numbers of the wanted keys."""
Finder = Segments | Callable[[Scan, list["LiveFile"]], list[Matches]]
"""Finds keys: segments in memory, or a scan of data files: `scan_files`, here or in tasks that each have some of them."""


@dataclass(frozen=True)
class Found:
    """The live rows of keys in one data file: the keys' numbers, the rows' positions and row ids (-1: format v2)."""

    file: LiveFile
    n: np.ndarray
    position: np.ndarray
    row_id: np.ndarray


def scan_files(scan: Scan, files: list[LiveFile]) -> list[Matches]:
    """Find keys in the key columns of some data files. First 24 bits of each row's hash are looked at: few rows get further."""
    io, key_ids, keys = scan
    wanted, near = Segment([Rows("", keys)]), np.zeros(1 << 24, bool)
    near[_bucket(keys)] = True

    def look(file: LiveFile) -> Matches:
        rows = read_keys(io, file.path, key_ids)
        some = np.flatnonzero(near[_bucket(rows.keys)])
        row, n = wanted.pairs([half[some] for half in rows.keys])
        return n, *rows.places(some[row])

    return each(look, files, files[0].path) if files else []


def _bucket(keys: list[np.ndarray]) -> np.ndarray:
    return mixed(keys[0]) >> np.uint64(40)


def wants_segments(table: LakeTable, lasts: bool, budget_bytes: int) -> bool:
    """Return whether segments pay for themselves: in a run that lasts, of a table whose keys fit a budget of memory."""
    return lasts and sum(f.rows for f in table.live_files.values()) * BYTES_A_ROW <= budget_bytes


def locate(table: LakeTable, finder: Finder, keys: pa.Table) -> list[Found]:
    """Find the live rows of keys. A scan reads only data files that may hold some, by their bounds.

    Raises DoubledKeyError if a key has two live rows.
    """
    if not len(keys):
        return []
    numbers = key_numbers(keys.columns)
    order = np.argsort(mixed(numbers[0]))
    wanted = [half[order] for half in numbers]
    if isinstance(finder, Segments):
        finder.have(table)
        matches: Iterable[tuple[str, Matches]] = chain.from_iterable(segment.find(wanted) for segment in finder.all)
    else:
        kinds = [table.metadata.schema().find_type(number) for number in table.key_ids]
        from frazil.iceberg.key_bounds import may_hold  # by PyIceberg, which an idle run does not import

        files = [*may_hold(table.live_files.values(), kinds, keys.columns)]
        matches = zip((f.path for f in files), finder((table.io, table.key_ids, wanted), files), strict=True)
    found, live = [], table.live_files
    for path, (n, position, row_id) in matches:
        if path in live and len(n):
            found.append(_alive(table, live[path], (order[n], position, row_id)))
    found = [f for f in found if len(f.n)]
    _require_one_row_each(table, found)
    return found


def _alive(table: LakeTable, file: LiveFile, matches: Matches) -> Found:
    """Return the rows of a data file that are not deleted; those without a stored row id get the one that they inherit."""
    n, position, row_id = matches
    if dead := table.vectors.of(file):
        alive = ~np.isin(position, np.array((dead & BitMap64(position)).to_array(), np.int64))
        n, position, row_id = n[alive], position[alive], row_id[alive]
    if file.first_row_id is not None:
        row_id = np.where(row_id < 0, file.first_row_id + position, row_id)
    return Found(file, n, position, row_id)


def _require_one_row_each(table: LakeTable, found: list[Found]) -> None:
    """Raise DoubledKeyError if a key was found twice."""
    rows = np.bincount(np.concatenate([np.empty(0, int), *(f.n for f in found)]))
    if len(twice := np.flatnonzero(rows > 1)[:NAMED]):
        places = [(f.file, int(f.position[f.n == n][0])) for n in twice for f in found if n in f.n]
        raise DoubledKeyError(table, places)


def require_unique_keys(table: LakeTable, finder: Finder) -> None:
    """Raise DoubledKeyError if a key of rows that others added since the last batch has another live row."""
    checked = table.checked
    added = [file for file in table.live_files.values() if file.sequence > checked]
    keys = [some for f in added for some in live_rows(table.io, f, table.vectors.of(f), key_schema(table))]
    if keys:
        locate(table, finder, pa.concat_tables(keys).drop_null())
