"""Where keys lie in data files: the key columns of live data files, with an index that is made of them when a run begins.

Nothing is stored, and nothing has to be kept in step: a data file never changes. Whether a place is live, the table's
metadata say: its file is live, and no vector has the row. So a segment may know rows that are dead, or not live yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.errors import FrazilError
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_hashes import NullKeyError, key_numbers, mixed
from frazil.iceberg.live_files import LINEAGE, ROW_ID

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyroaring import BitMap64

    from frazil.iceberg.table import LakeTable

ROWS, MERGED, GROWTH = 1 << 24, 1 << 20, 4
"""The most rows of a segment that is read, and of a merged one: to sort more takes too long. The last is a factor: smaller segments merge with one that is at most this much larger."""
Matches = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows of a data file that have wanted keys: the keys' numbers, the rows' positions, and the row ids that they store (-1: none)."""


@dataclass(frozen=True)
class Rows:
    """The keys of one data file's rows, their positions (None: all, in order), and the row ids that they store (-1, or None: none)."""

    path: str
    keys: list[np.ndarray]
    position: np.ndarray | None = None
    row_id: np.ndarray | None = None

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions and the stored row ids of some rows, by their numbers."""
        position = rows if self.position is None else self.position[rows].astype(np.int64)
        return position, np.full(len(rows), -1) if self.row_id is None else self.row_id[rows]

    def only(self, chosen: np.ndarray) -> Rows:
        """Return those of the rows for which a mask is true."""
        position = np.flatnonzero(chosen).astype(np.int32) if self.position is None else self.position[chosen]
        row_id = None if self.row_id is None else self.row_id[chosen]
        return Rows(self.path, [half[chosen] for half in self.keys], position, row_id)

    def live(self, dead: BitMap64) -> Rows:
        """Return those of the rows that are not at the positions of deleted ones."""
        if not dead:
            return self
        position, _ = self.places(np.arange(len(self.keys[0])))
        return self.only(~np.isin(position, np.array(dead.to_array(), np.int64)))


class Segment:
    """The rows of some data files. `index` has for each row some bits of its key's hash and its number, in one sorted number."""

    def __init__(self, files: list[Rows]):
        self.starts = np.cumsum([0, *(len(f.keys[0]) for f in files)])
        self.rows = int(self.starts[-1])
        self.keys = [np.concatenate(half) for half in zip(*(f.keys for f in files), strict=True)]
        slices = map(slice, self.starts[:-1], self.starts[1:])
        self.files = [replace(f, keys=[k[part] for k in self.keys]) for f, part in zip(files, slices, strict=True)]
        self._row_bits = np.uint64((1 << self.rows.bit_length()) - 1)
        self.index = np.sort((mixed(self.keys[0]) & ~self._row_bits) | np.arange(self.rows, dtype=np.uint64))

    def pairs(self, keys: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs (number of a wanted key, number of a row) that have the same key. Keys in order of hash are found faster."""
        wanted = mixed(keys[0]) & ~self._row_bits
        n, at = np.arange(len(wanted)), np.searchsorted(self.index, wanted)
        found = [(n[:0], n[:0])]
        while len(n):
            n, at = n[at < self.rows], at[at < self.rows]
            near = (self.index[at] & ~self._row_bits) == wanted[n]
            n, at = n[near], at[near]
            row = (self.index[at] & self._row_bits).astype(np.int64)
            same = np.logical_and.reduce([mine[row] == theirs[n] for mine, theirs in zip(self.keys, keys, strict=True)])
            found.append((n[same], row[same]))
            at = at + 1
        return np.concatenate([n for n, _ in found]), np.concatenate([row for _, row in found])

    def find(self, keys: list[np.ndarray]) -> Iterator[tuple[str, Matches]]:
        """Yield the paths of the data files that have some of the keys, each with the rows that have them."""
        n, row = self.pairs(keys)
        order = np.argsort(row)
        n, row = n[order], row[order]
        borders = np.searchsorted(row, self.starts).tolist()
        for rows, start, first, end in zip(self.files, self.starts.tolist(), borders, borders[1:], strict=False):
            if first < end:
                yield rows.path, (n[first:end], *rows.places(row[first:end] - start))


class Segments:
    """The segments of a table, the smallest first."""

    def __init__(self) -> None:
        self.all: list[Segment] = []
        self._right_for: tuple[LakeTable | None, int] = None, 0
        """The table, and its rewinds, when they were last right: after a rollback, rows may be live that merges have left out."""

    def have(self, table: LakeTable) -> None:
        """Read the key columns of live files that no segment has. After a rollback everything is read again."""
        if self._right_for != (table, table.rewinds):
            self.all, self._right_for = [], (table, table.rewinds)
        live = table.live_files
        self.all = [s for s in self.all if any(f.path in live for f in s.files)]
        known = {f.path for s in self.all for f in s.files}
        missing = [file for path, file in live.items() if path not in known]
        parts = (rows // ROWS for rows in accumulate(file.rows for file in missing))
        for _, part in groupby(zip(missing, parts, strict=True), key=lambda one: one[1]):
            paths = [file.path for file, _ in part]
            self.all.append(Segment(each(lambda path: read_keys(table.io, path, table.key_ids), paths, paths[0])))
        self._merge(table)

    def add(self, rows: Rows) -> None:
        """Add the keys of a file that was just written; it need not be live yet."""
        self.all.append(Segment([rows]))

    def _merge(self, table: LakeTable) -> None:
        """Merge the smallest segments, without dead rows, as long as the next one is not much larger than they are together."""
        self.all.sort(key=lambda segment: segment.rows)
        count, rows = 1, self.all[0].rows if self.all else 0
        while count < len(self.all) and self.all[count].rows <= min(GROWTH * rows, MERGED - rows):
            rows += self.all[count].rows
            count += 1
        if count > 1:
            live, files = table.live_files, [f for s in self.all[:count] for f in s.files]
            self.all[:count] = [Segment([f.live(table.vectors.of(live[f.path])) for f in files if f.path in live])]


def read_keys(io: FileIO, path: str, key_ids: list[int]) -> Rows:
    """Read the keys of all rows of a data file, and the row ids that it stores. A row without a value in its key has none."""
    of_row_id = LINEAGE[ROW_ID]
    with io.new_input(path).open() as source:
        file = pq.ParquetFile(source, pre_buffer=True)
        names = names_by_id(file.schema_arrow)
        if not {*key_ids} <= {*names}:
            cure = "give its rows a value by UPDATE, or restart the table"
            raise NullKeyError(f"the data file {path} is older than a column of the key", cure)
        columns = file.read([names[i] for i in (*key_ids, of_row_id) if i in names], use_threads=False)
    keys, position = columns.select([names[i] for i in key_ids]), None
    if any(column.null_count for column in keys.columns):  # rows of others: null is equal to no key
        has_key = np.logical_and.reduce([column.is_valid().to_numpy() for column in keys.columns])
        position = np.flatnonzero(has_key).astype(np.int32)
        columns, keys = columns.take(position), keys.take(position)
    row_id = columns[names[of_row_id]].fill_null(-1).to_numpy() if of_row_id in names else None
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
