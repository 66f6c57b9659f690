"""Where keys lie in data files: the key columns of live data files, with an index that is made of them when a run begins.

Nothing is stored, and nothing has to be kept in step: a data file never changes. Whether a place is live, the table's
metadata say: its file is live, and no vector has the row. So a segment may know rows that are dead, or not live yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.errors import FrazilError
from frazil.iceberg.data_files import LINEAGE, ROW_ID
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_hashes import NullKeyError, key_numbers, mixed

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from frazil.iceberg.delete_files import Vectors
    from frazil.iceberg.live_files import LiveFile
    from frazil.iceberg.table import LakeTable

ROWS, MERGED, GROWTH = 1 << 24, 1 << 20, 4
"""The most rows of a segment that is read, and of a merged one: to sort more takes too long. Later ones of a quarter of its rows are merged with it."""
ROW_ID_FIELD = LINEAGE[ROW_ID]


@dataclass(frozen=True)
class Rows:
    """The keys of one data file's rows, their positions (None: all, in order), and their row ids (-1: by position; None: all)."""

    path: str
    keys: list[np.ndarray]
    position: np.ndarray | None = None
    row_id: np.ndarray | None = None


class Segment:
    """The rows of some data files. `index` has for each row some bits of its key's hash and its number, in one sorted number."""

    def __init__(self, files: list[Rows]):
        self.starts = np.cumsum([0, *(len(f.keys[0]) for f in files)])
        self.rows = int(self.starts[-1])
        self.keys = [np.concatenate(half) for half in zip(*(f.keys for f in files), strict=True)]
        slices = map(slice, self.starts[:-1], self.starts[1:])
        self.files = [replace(f, keys=[k[part] for k in self.keys]) for f, part in zip(files, slices, strict=True)]
        bits = np.uint64(max(self.rows - 1, 1).bit_length())
        self._row_bits = (np.uint64(1) << bits) - np.uint64(1)
        self.index = np.sort((mixed(self.keys[0]) & ~self._row_bits) | np.arange(self.rows, dtype=np.uint64))

    def pairs(self, keys: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs (number of a wanted key, number of a row) that have the same key. Keys in order of hash are found faster."""
        wanted = mixed(keys[0]) & ~self._row_bits
        n, at, found = np.arange(len(wanted)), np.searchsorted(self.index, wanted), []
        while len(n):
            n, at = n[at < self.rows], at[at < self.rows]
            near = (self.index[at] & ~self._row_bits) == wanted[n]
            n, at = n[near], at[near]
            row = (self.index[at] & self._row_bits).astype(np.int64)
            same = np.logical_and.reduce([mine[row] == theirs[n] for mine, theirs in zip(self.keys, keys, strict=True)])
            found.append((n[same], row[same]))
            at = at + 1
        if not found:
            return n, n
        return np.concatenate([n for n, _ in found]), np.concatenate([row for _, row in found])

    def find(self, keys: list[np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield for each data file that has some of the keys: path, the keys' numbers, positions, stored row ids (-1: none)."""
        n, row = self.pairs(keys)
        order = np.argsort(row)
        n, row = n[order], row[order]
        borders = np.searchsorted(row, self.starts).tolist()
        for rows, start, first, end in zip(self.files, self.starts.tolist(), borders, borders[1:], strict=False):
            if first < end:
                at = row[first:end] - start
                row_id = np.full(len(at), -1) if rows.row_id is None else rows.row_id[at]
                yield rows.path, n[first:end], at if rows.position is None else rows.position[at], row_id


class Segments:
    """The segments of a table, the largest first."""

    def __init__(self) -> None:
        self.all: list[Segment] = []
        self._right_for: tuple[LakeTable | None, int] = None, 0
        """The table, and its rewinds, when they were last right: after a rollback, rows may be live that merges have left out."""

    def have(self, table: LakeTable) -> None:
        """Read the key columns of live files that no segment has. Rows that are dead are left out when segments are merged.

        After a rollback everything is forgotten: rows live again that were dead.
        """
        if self._right_for != (table, table.rewinds):
            self.all, self._right_for = [], (table, table.rewinds)
        live, ids = table.live_files, table.key_ids
        self.all = [s for s in self.all if any(f.path in live for f in s.files)]
        known = {f.path for s in self.all for f in s.files}
        missing = [file for path, file in live.items() if path not in known]
        for group in _by_rows(missing, ROWS):
            self.all.append(Segment(each(lambda file: read_keys(table.io, file.path, ids), group, group[0].path)))
        self._merge(live, table.vectors)

    def add(self, rows: Rows) -> None:
        """Add the keys of a file that was just written; it need not be live yet."""
        self.all.append(Segment([rows]))

    def _merge(self, live: Mapping[str, LiveFile], vectors: Vectors) -> None:
        """Merge the smallest segments as long as the one before them is not much larger than they are together."""
        self.all.sort(key=lambda segment: -segment.rows)
        first, rows = len(self.all) - 1, self.all[-1].rows if self.all else 0
        while first > 0 and self.all[first - 1].rows <= min(GROWTH * rows, MERGED - rows):
            first -= 1
            rows += self.all[first].rows
        if first < len(self.all) - 1:
            files = [_live_rows(f, live[f.path], vectors) for s in self.all[first:] for f in s.files if f.path in live]
            self.all[first:] = [Segment(files)] if files else []


def _by_rows(files: list[LiveFile], most: int) -> list[list[LiveFile]]:
    """Return files in groups of at most so many rows, or of one file."""
    groups: list[list[LiveFile]] = []
    rows = most + 1
    for file in files:
        if rows + file.rows > most:
            groups.append([])
            rows = 0
        groups[-1].append(file)
        rows += file.rows
    return groups


def _live_rows(rows: Rows, file: LiveFile, vectors: Vectors) -> Rows:
    dead = np.array(vectors.of(file).to_array(), np.int64)
    if not len(dead):
        return rows
    position = np.arange(len(rows.keys[0]), dtype=np.int32) if rows.position is None else rows.position
    keep = ~np.isin(position, dead)
    return Rows(
        rows.path, [k[keep] for k in rows.keys], position[keep], None if rows.row_id is None else rows.row_id[keep]
    )


def read_keys(io: FileIO, path: str, key_ids: list[int]) -> Rows:
    """Read the keys of all rows of a data file, and the row ids that it stores."""
    with io.new_input(path).open() as source:
        file = pq.ParquetFile(source, pre_buffer=True)
        names = names_by_id(file.schema_arrow)
        if not {*key_ids} <= {*names}:
            cure = "give its rows a value by UPDATE, or restart the table"
            raise NullKeyError(f"the data file {path} is older than a column of the key", cure)
        columns = file.read([names[i] for i in (*key_ids, ROW_ID_FIELD) if i in names], use_threads=False)
    keys, position = columns.select([names[i] for i in key_ids]), None
    if any(column.null_count for column in keys.columns):  # rows of others: null is equal to no key
        position = np.flatnonzero(
            np.logical_and.reduce([column.is_valid().to_numpy() for column in keys.columns])
        ).astype(np.int32)
        columns, keys = columns.take(position), keys.take(position)
    row_id = columns[names[ROW_ID_FIELD]].fill_null(-1).to_numpy() if ROW_ID_FIELD in names else None
    return Rows(path, key_numbers(keys.columns), position, row_id)


class NoFieldIdsError(FrazilError, code="no-field-ids"):
    """A data file was written outside Iceberg, and names its columns alone. Rewrite the table's data files with Spark's procedure."""


def names_by_id(schema: pa.Schema) -> dict[int, str]:
    """Return the names of a data file's columns by Iceberg's field ids."""
    try:
        return {int(field.metadata[b"PARQUET:field_id"]): field.name for field in schema}
    except (TypeError, KeyError):
        cure = "CALL system.rewrite_data_files on the table, with options => map('rewrite-all', 'true')"
        raise NoFieldIdsError(f"a data file with the columns {schema.names} has no field ids", cure) from None
