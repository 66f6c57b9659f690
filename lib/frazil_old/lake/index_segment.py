"""Segments of the key index: sorted keys and their places, in blocks. A block on disk is checked when it is first read.

A block has the columns of some rows, one after the other. The file ends with each block's first key and its CRC.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

BLOCK = 1024
"""Rows of a block on disk: a lookup of a key reads one."""
CHUNK = 1 << 20
"""A scan or a merge holds about this many rows at a time; larger segments are on disk."""


class DamagedError(ValueError):
    """A segment is not what was written: the index is built again."""


@dataclass(frozen=True)
class Layout:
    """The columns of a row: `width` numbers of its key; its file's number, its position and, on format v3, its row id."""

    width: int
    row_ids: bool = False

    @property
    def words(self) -> int:
        """The number of 64-bit words of a row."""
        return self.width + 1 + self.row_ids

    @property
    def keys(self) -> slice:
        """The columns of the key."""
        return slice(self.width)

    @property
    def places(self) -> slice:
        """The columns of the place."""
        return slice(self.width, None)

    def columns(self, blocks: np.ndarray) -> list[np.ndarray]:
        """Return the columns of a block, or of equal blocks, as views of their words."""
        import numpy as np

        rows = blocks.shape[-1] // self.words
        words = [blocks[..., at * rows : (at + 1) * rows] for at in range(self.words)]
        halves = words[self.width].view(np.int32)
        return [*words[: self.width], halves[..., :rows], halves[..., rows:], *words[self.width + 1 :]]


def sorted_rows(columns: list[np.ndarray], width: int) -> list[np.ndarray]:
    """Return rows sorted by key; among those with the same key only the first."""
    import numpy as np

    keys = columns[:width]
    if (keys[0][1:] > keys[0][:-1]).all():
        return columns
    order = np.argsort(keys[0], kind="stable")  # fast for a few sorted runs in sequence
    if width > 1 and (np.diff(keys[0][order]) == 0).any():
        order = np.lexsort(keys[::-1])
    columns = [c[order] for c in columns]
    first = np.ones(len(keys[0]), bool)
    first[1:] = np.any([k[1:] != k[:-1] for k in columns[:width]], axis=0)
    return columns if first.all() else [c[first] for c in columns]


class Segment:
    """Sorted rows in blocks of `block` rows: in memory as a single block, or mapped from a file."""

    def __init__(self, layout: Layout, words: np.ndarray, block: int = 0):
        self.layout, self.words = layout, words
        self.rows = len(words) // layout.words
        self.block = block or max(self.rows, 1)
        self.full, self.rest = divmod(self.rows, self.block)
        self.entry: dict[str, Any] | None = None
        """What the manifest says of the segment's file, if it has one."""
        self.first = self.sums = self.unread = None
        self.columns = [] if block else layout.columns(words)
        """The columns of a segment in memory, as views."""

    def __len__(self) -> int:
        return self.rows

    @classmethod
    def of(cls, layout: Layout, columns: list[np.ndarray]) -> Segment:
        """Keep sorted rows in memory."""
        import numpy as np

        segment = cls(layout, np.empty(len(columns[0]) * layout.words, np.int64))
        for to, column in zip(segment.columns, columns, strict=True):
            to[:] = column
        return segment

    @classmethod
    def load(cls, layout: Layout, folder: Path, entry: dict[str, Any]) -> Segment:
        """Map a segment's file; raise an error unless its length and its end are what was written."""
        import numpy as np

        name, rows, block, live = (entry[key] for key in ("name", "rows", "block", "live"))
        if not all(type(n) is int for n in (rows, block, live)) or rows < 1 or block < 1 or not 0 <= live <= rows:
            raise DamagedError(f"{name} has an entry that no segment has")
        size, blocks = rows * layout.words * 8, -(-rows // block)
        with open(folder / name, "rb") as file:
            file.seek(size)
            end = file.read()
        if len(end) != blocks * 12 or zlib.crc32(end) != entry["crc"]:
            raise DamagedError(f"{name} has another length or another end")
        mapped = np.memmap(folder / name, np.int64, "r", shape=(rows * layout.words,))
        segment = cls(layout, np.asarray(mapped), block)
        segment.first = np.frombuffer(end, np.int64, blocks)
        segment.sums, segment.unread = np.frombuffer(end, np.uint32, blocks, blocks * 8), np.ones(blocks, bool)
        segment.entry = entry
        return segment

    @property
    def bytes(self) -> int:
        """The size of the segment's rows, and of the first keys and CRCs of its blocks."""
        return self.words.nbytes + (0 if self.columns else 12 * len(self.first))

    @property
    def live(self) -> int:
        """The number of rows with a file."""
        return self.entry["live"] if self.entry else int((self.read(0, self.rows, self.layout.places)[0] >= 0).sum())

    def _check(self, blocks: np.ndarray) -> None:
        """Raise DamagedError if a block that was not read yet is not what was written."""
        import numpy as np

        words = self.block * self.layout.words
        for b in np.unique(blocks[self.unread[blocks]]).tolist():
            if zlib.crc32(self.words[b * words : (b + 1) * words]) != self.sums[b]:
                raise DamagedError(f"block {b} of {self.entry['name']} is damaged")
            self.unread[b] = False

    def read(self, start: int, stop: int, columns: slice = slice(None)) -> list[np.ndarray]:
        """Return columns of some rows in sequence."""
        import numpy as np

        if self.columns:
            return [c[start:stop] for c in self.columns[columns]]
        low, high = start // self.block, -(-stop // self.block)
        self._check(np.arange(low, high))
        words, whole = self.block * self.layout.words, min(high, self.full)
        parts = []
        if low < whole:
            equal = self.words[low * words : whole * words].reshape(-1, words)
            parts.append([c.reshape(-1) for c in self.layout.columns(equal)[columns]])
        if high > self.full:
            parts.append(self.layout.columns(self.words[self.full * words :])[columns])
        found = parts[0] if len(parts) == 1 else [np.concatenate(pair) for pair in zip(*parts, strict=True)]
        return [c[start - low * self.block : stop - low * self.block] for c in found]

    def take(self, column: int, rows: np.ndarray) -> np.ndarray:
        """Return one column of some rows, whose blocks were checked."""
        import numpy as np

        if self.columns:
            return self.columns[column][rows]
        width = self.layout.width
        block, at = np.divmod(rows, self.block)
        size = np.where(block < self.full, self.block, self.rest)
        start = block * (self.block * self.layout.words)
        if width <= column < width + 2:
            return self.words.view(np.int32)[2 * (start + width * size) + (column - width) * size + at]
        return self.words[start + (column - (column > width)) * size + at]

    def places(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return the columns of the places of some rows, whose blocks were checked."""
        return [self.take(self.layout.width + n, rows) for n in range(2 + self.layout.row_ids)]

    def key(self, row: int) -> int:
        """Return the first number of a row's key."""
        return int(self.read(row, row + 1, slice(1))[0][0])

    def lower(self, key: int) -> int:
        """Return the number of rows whose first number is lower."""
        import numpy as np

        return int(self._lower(np.array([key], np.int64))[0])

    def _lower(self, keys: np.ndarray) -> np.ndarray:
        """Return for each number how many rows have a lower first number."""
        import numpy as np

        if self.columns:
            return np.searchsorted(self.columns[0], keys)
        block = np.maximum(np.searchsorted(self.first, keys) - 1, 0)
        self._check(block)
        start = block * (self.block * self.layout.words)
        end, at = start + np.where(block < self.full, self.block, self.rest), start
        for half in (1 << n for n in reversed(range(self.block.bit_length()))):  # all keys together, each in its block
            less = self.words[np.minimum(at + (half - 1), end - 1)] < keys
            at = at + half * (less & (at + half <= end))
        return block * self.block + at - start

    def find(self, keys: list[np.ndarray]) -> np.ndarray:
        """Return each key's row, -1 if it is absent."""
        import numpy as np

        at = self._lower(keys[0])
        hit = np.full(len(at), -1, np.int64)
        open_ = np.arange(len(at))
        while len(open_):  # one round, unless two keys share their first number
            open_ = open_[at[open_] < self.rows]
            rows = at[open_]
            if not self.columns:
                self._check(rows // self.block)  # a next row may be in the next block
            near = self.take(0, rows) == keys[0][open_]
            open_, rows = open_[near], rows[near]
            same = np.ones(len(rows), bool)
            for n in range(1, self.layout.width):
                same &= self.take(n, rows) == keys[n][open_]
            hit[open_[same]] = rows[same]
            open_ = open_[~same]
            at[open_] += 1
        return hit


class Writer:
    """Writes sorted rows to a new file, block by block."""

    def __init__(self, folder: Path, layout: Layout):
        self.folder, self.layout, self.name = folder, layout, f"{secrets.token_hex(8)}.seg"
        self.rest: list[np.ndarray] = []
        self.rows = self.live = 0
        self.first, self.sums = [], []
        self.file = open(folder / self.name, "wb")  # noqa: SIM115  `of` closes it

    @classmethod
    def of(cls, folder: Path, layout: Layout, chunks: Iterable[list[np.ndarray]]) -> dict[str, Any] | None:
        """Write rows and return their segment's entry in the manifest; None if there are no rows."""
        writer = cls(folder, layout)
        try:
            for columns in chunks:
                writer._add(columns)
            entry = writer._end()
        except BaseException:
            (folder / writer.name).unlink(missing_ok=True)
            raise
        finally:
            writer.file.close()
        if not entry["rows"]:
            (folder / writer.name).unlink()
            return None
        return entry

    def _add(self, columns: list[np.ndarray]) -> None:
        import numpy as np

        self.rows, self.live = self.rows + len(columns[0]), self.live + int((columns[self.layout.width] >= 0).sum())
        if self.rest:
            columns = [np.concatenate(pair) for pair in zip(self.rest, columns, strict=True)]
        whole = len(columns[0]) // BLOCK * BLOCK
        if whole:
            self._write([c[:whole] for c in columns], BLOCK)
        self.rest = [c[whole:] for c in columns]

    def _write(self, columns: list[np.ndarray], size: int) -> None:
        """Write blocks of `size` rows."""
        import numpy as np

        blocks = np.empty((len(columns[0]) // size, size * self.layout.words), np.int64)
        for to, column in zip(self.layout.columns(blocks), columns, strict=True):
            to[...] = column.reshape(-1, size)
        self.first.append(columns[0][::size].copy())
        self.sums += [zlib.crc32(block) for block in blocks]
        self.file.write(blocks)

    def _end(self) -> dict[str, Any]:
        """Write the last rows, and the first keys and CRCs of all blocks."""
        import numpy as np

        if self.rest and len(self.rest[0]):
            self._write(self.rest, len(self.rest[0]))
        end = b"".join(f.tobytes() for f in self.first) + np.array(self.sums, np.uint32).tobytes()
        self.file.write(end)
        return {"name": self.name, "rows": self.rows, "live": self.live, "block": BLOCK, "crc": zlib.crc32(end)}


def merged(segments: list[Segment], without_deleted: bool) -> Iterator[list[np.ndarray]]:
    """Yield the sorted rows of several segments, oldest first, in parts; of a key the row in the newest segment."""
    import numpy as np

    layout, at = segments[0].layout, [0] * len(segments)
    least = step = max(CHUNK // len(segments), BLOCK)
    while True:
        bounds = [s.key(a + step) for s, a in zip(segments, at, strict=True) if a + step < len(s)]
        stops = [s.lower(min(bounds)) if bounds else len(s) for s in segments]
        if bounds and stops == at:  # more keys than a step share their first number
            step *= 2
            continue
        parts = [s.read(a, z) for s, a, z in zip(segments, at, stops, strict=True) if z > a][::-1]
        rows = parts[0] if len(parts) == 1 else [np.concatenate(column) for column in zip(*parts, strict=True)]
        rows = sorted_rows(rows, layout.width)
        live = rows[layout.width] >= 0
        yield [c[live] for c in rows] if without_deleted and not live.all() else rows
        if not bounds:
            return
        at, step = stops, least
