"""Finds the live rows of keys: by segments in memory, or by a scan of key columns, here or in tasks that own whole files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from frazil.iceberg.doubled_keys import NAMED, added_by_others, doubled, doubled_error, names_of
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_bounds import may_hold
from frazil.iceberg.key_hashes import key_numbers, mixed
from frazil.iceberg.key_segments import Rows, Segment, Segments, read_keys

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from frazil.iceberg.delete_files import Vectors
    from frazil.iceberg.live_files import LiveFile
    from frazil.iceberg.table import LakeTable

BYTES_A_ROW = 30
"""Of segments in memory, for keys that are texts or have several columns; others need less."""
Scan = tuple["FileIO", list[int], list[np.ndarray]]
"""What scans look for, here or in a task: the field ids of the key, and the numbers of the wanted keys."""
Places = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Numbers of wanted keys, positions of rows that have them, and the row ids that these store (-1: none)."""
Run = Callable[[Scan, list["LiveFile"]], list[Places]]
"""Scans data files: `scan_files`, here or in tasks that each have some of them."""


@dataclass(frozen=True)
class Found:
    """The live rows of keys in one data file: the keys' numbers, the rows' positions and row ids (-1: format v2)."""

    file: LiveFile
    n: np.ndarray
    position: np.ndarray
    row_id: np.ndarray


def wants_segments(table: LakeTable, lasts: bool, budget_bytes: int) -> bool:
    """Return whether segments pay for themselves: in a run that lasts, of a table whose keys fit a budget of memory."""
    return lasts and sum(f.rows for f in table.live_files.values()) * BYTES_A_ROW <= budget_bytes


def locate(table: LakeTable, segments: Segments | None, keys: pa.Table, run: Run | None = None) -> list[Found]:
    """Find the live rows of keys, all of them different. Without segments key columns are scanned, by a runner of tasks.

    Raises DoubledKeyError if a key has two live rows.
    """
    if not len(keys):
        return []
    numbers = key_numbers(keys.columns)
    order = np.argsort(mixed(numbers[0]))
    wanted = [k[order] for k in numbers]
    if np.logical_and.reduce([k[1:] == k[:-1] for k in wanted]).any():
        raise ValueError(f"{table.name}: a batch has a key twice")
    found = _found(table, segments, wanted, keys.columns, run)
    return [Found(f.file, order[f.n], f.position, f.row_id) for f in found]


def require_unique_keys(table: LakeTable, segments: Segments | None, run: Run | None = None) -> None:
    """Raise DoubledKeyError if a key that others added since the last batch has another live row."""
    added = added_by_others(table)
    if places := doubled(table, added):
        raise doubled_error(table, names_of(table, places), len(places))
    keys = [read_keys(table.io, file.path, table.key_ids).keys for file in added]
    if not sum(len(k[0]) for k in keys):
        return
    halves = [np.concatenate(half) for half in zip(*keys, strict=True)]
    order = np.argsort(mixed(halves[0]))
    wanted = [half[order] for half in halves]
    same = np.logical_and.reduce([k[1:] == k[:-1] for k in wanted])  # one of two is deleted
    _found(table, segments, [k[np.append(True, ~same)] for k in wanted], None, run)


def _found(
    table: LakeTable,
    segments: Segments | None,
    wanted: list[np.ndarray],
    values: list[pa.ChunkedArray] | None,
    run: Run | None,
) -> list[Found]:
    """Find the live rows of wanted keys, in order of their hash; the `values` of their columns make a scan short."""
    if segments is not None:
        segments.have(table)
        found = [*_by_segments(segments, table.live_files, table.vectors, wanted)]
    else:
        found = [*_by_scan(table, values, wanted, run or scan_files)]
    found = [f for f in found if len(f.n)]
    times = np.bincount(np.concatenate([f.n for f in found])) if found else np.zeros(1, int)
    if times.max() > 1:
        twice = np.flatnonzero(times > 1)
        at = [(f.file.path, f.position[f.n == n]) for n in twice[:NAMED].tolist() for f in found]
        places = [(path, int(position[0])) for path, position in at if len(position)]
        raise doubled_error(table, names_of(table, places), len(twice))
    return found


def _by_segments(
    segments: Segments, live: dict[str, LiveFile], vectors: Vectors, wanted: list[np.ndarray]
) -> Iterator[Found]:
    """Find keys in segments; the rows of files that are not live are left out."""
    for segment in segments.all:
        for path, n, position, row_id in segment.find(wanted):
            if path in live:
                yield _alive(vectors, Found(live[path], n, position, row_id))


def _by_scan(
    table: LakeTable, values: list[pa.ChunkedArray] | None, wanted: list[np.ndarray], run: Run
) -> Iterator[Found]:
    """Find keys in the key columns of the files that may hold some, by their bounds."""
    files = [*table.live_files.values()]
    if values is not None:
        kinds = [table.metadata.schema().find_type(number) for number in table.key_ids]
        files = may_hold(files, kinds, values)
    places = run((table.io, table.key_ids, wanted), files)
    for file, found in zip(files, places, strict=True):
        yield _alive(table.vectors, Found(file, *found))


def _alive(vectors: Vectors, found: Found) -> Found:
    """Leave out deleted rows; rows without a stored row id get the one that they inherit."""
    file, n, position, row_id = found.file, found.n, found.position, found.row_id
    if file.deletes and len(n):
        dead = vectors.of(file)
        alive = ~np.isin(position, np.array((dead & BitMap64(position)).to_array(), np.int64))
        n, position, row_id = n[alive], position[alive], row_id[alive]
    if file.first_row_id is not None:
        row_id = np.where(row_id < 0, file.first_row_id + position, row_id)
    return Found(file, n, position, row_id)


# --- scans


def scan_files(scan: Scan, files: list[LiveFile]) -> list[Places]:
    """Find keys in the key columns of some data files."""
    wanted = Wanted(scan[2])
    return each(lambda file: _scan(scan, file.path, wanted), files, files[0].path) if files else []


def _scan(scan: Scan, path: str, wanted: Wanted) -> Places:
    io, key_ids, _ = scan
    rows = read_keys(io, path, key_ids)
    n, row = wanted.among(rows.keys)
    row_id = np.full(len(n), -1) if rows.row_id is None else rows.row_id[row]
    return n, row if rows.position is None else rows.position[row], row_id


class Wanted:
    """Keys that scans look for. A scan first looks at 24 bits of each row's hash: few rows get further."""

    def __init__(self, keys: list[np.ndarray]):
        self.segment, self.near = Segment([Rows("", keys)]), np.zeros(1 << 24, bool)
        self.near[_bucket(keys)] = True

    def among(self, keys: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs (number of a wanted key, number of a row) among the keys of a data file's rows."""
        rows = np.flatnonzero(self.near[_bucket(keys)])
        row, n = self.segment.pairs([k[rows] for k in keys])
        return n, rows[row]


def _bucket(keys: list[np.ndarray]) -> np.ndarray:
    return mixed(keys[0]) >> np.uint64(40)
