"""The key index: the place (data file, position) of each key's live row, kept on local disk and mapped into memory.

A key is one 64-bit number if that can hold it, else 128 bits of its SHA-256 (16 or 24 bytes per row). Format v3 adds
the row's id (8 bytes). Sorted segments are kept in order of age. The newest segment with a key is right; -1 as its file
means that the row is deleted. Scans and merges hold parts of segments, so memory does not grow with the rows.
`index_sync.Locator` lets an index follow its table, or builds it again.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier
from frazil_old.lake.index_segment import CHUNK, Layout, Segment, Writer, merged, sorted_rows

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger("frazil")
MANIFEST, VERSION = "manifest.json", 2
MOST_NUMBERS = 1 << 24
"""An index that has numbered as many data files is built again at the next start: a number takes memory."""
SEGMENT = re.compile(r"[0-9a-f]{16}\.seg")
GROWTH = 4
"""A segment is merged into the older one before it when that is less than this many times as large."""


def bytes_per_row(spec: TableSpec) -> int:
    """Return how many bytes a row takes in an index at most: numbers of the key, file and position, and the row's id."""
    return 8 * (len(key_numbers_sql(spec)) + 2)


def key_numbers_sql(spec: TableSpec, row: str = "") -> list[str]:
    """Return the SQL of a key's numbers: the key itself if 64 bits can hold it, else two halves of its digest.

    Spark computes the same numbers for batch and table, whatever the session's zone, its ANSI mode and a column's type
    before it was widened. Different keys get different numbers: unlike a fast hash, a digest has no collisions that
    could be made on purpose.
    """
    columns = [(f"{row}{identifier(k)}", lake_type(spec.column(k))) for k in spec.key]
    kinds = [kind for _, kind in columns]
    if kinds in (["int"], ["bigint"]):
        return [f"cast({columns[0][0]} as bigint)"]
    if kinds == ["int", "int"]:
        return [f"shiftleft(cast({columns[0][0]} as bigint), 32) | (cast({columns[1][0]} as bigint) & 4294967295)"]
    if kinds == ["date"]:
        return [f"cast(unix_date({columns[0][0]}) as bigint)"]
    forms = {"binary": "hex({})", "timestamp": "cast(unix_micros({}) as string)",
             **dict.fromkeys(("float", "double"), "cast(cast({} as double) + 0 as string)")}  # fmt: skip  # -0.0 is 0.0
    texts = [forms.get(kind, "cast({} as string)").format(c) for c, kind in columns]
    whole = ", ".join(f"cast(length({t}) as string), ':', {t}" for t in texts)
    digest = f"sha2(concat({whole}), 256)"
    return [f"cast(conv(substring({digest}, {at}, 16), 16, -10) as bigint)" for at in (1, 17)]


class KeyIndex:
    """The segments of one table, the data files they name, and the snapshot they reflect."""

    def __init__(self, folder: Path, identity: str, width: int, row_ids: bool = False):
        self.folder, self.identity, self.layout = folder, identity, Layout(width, row_ids)
        self.snapshot: int | None = None
        self.keys: int | None = None
        """The number of live keys, None if it has to be counted."""
        self.files: dict[int, str] = {}
        """The data files by their numbers, which are not used again."""
        self.marks: dict[str, str] = {}
        """Live data file → a string for its deletes: if it differs, another writer deleted rows of the file."""
        self.segments: list[Segment] = []
        self._numbers: dict[str, int] = {}
        self._next = self._loose = 0

    @property
    def bytes(self) -> int:
        """The size of the segments in bytes."""
        return sum(s.bytes for s in self.segments)

    def locate(self, keys: list[np.ndarray]) -> list[np.ndarray]:
        """Return the file's number, the position and the row id, if kept, of each key's row; all are -1 if there is no row."""
        import numpy as np

        kinds = (np.int32, np.int32, np.int64)[: 2 + self.layout.row_ids]
        place = [np.full(len(keys[0]), -1, kind) for kind in kinds]
        open_ = np.argsort(keys[0], kind="stable")
        keys = [k[open_] for k in keys]
        for segment in reversed(self.segments):
            at = segment.find(keys)
            known = at >= 0
            found = segment.places(at[known])
            live = found[0] >= 0
            for values, column in zip(found, place, strict=True):
                column[open_[known][live]] = values[live]
            open_, keys = open_[~known], [k[~known] for k in keys]
        return place

    def number(self, path: str) -> int:
        """Return the number of a data file; a new file gets a new number."""
        if path not in self._numbers:
            self._numbers[path] = self._next
            self.files[self._next] = path
            self._next += 1
        return self._numbers[path]

    def add(self, keys: list[np.ndarray], *place: np.ndarray) -> None:
        """Add the present places of some keys as the newest segment: file's number, position and, if kept, row id."""
        self.extend(keys, *place)
        self.compact()

    def extend(self, keys: list[np.ndarray], *place: np.ndarray) -> None:
        """Add places as `add` does, one of several times: `compact` then merges them together."""
        if not len(place[0]):
            return
        self.keys = None
        rows = sorted_rows([*keys, *place], self.layout.width)
        segment = None
        if len(rows[0]) > CHUNK:
            try:
                segment = self._on_disk([rows])
            except OSError as e:  # a full disk costs memory, but not the batch
                log.warning("the key index in %s stays in memory: %s", self.folder, e)
        self.segments.append(segment or Segment.of(self.layout, rows))
        self._loose += 1

    def compact(self) -> None:
        """Merge the segments that were added since the last time, and older ones that are not much larger."""
        count, self._loose = max(self._loose, 1), 0
        rows = sum(len(s) for s in self.segments[-count:])
        while count < len(self.segments) and len(self.segments[-count - 1]) < GROWTH * rows:
            rows += len(self.segments[-count - 1])
            count += 1
        if count == 1 or not self.segments:
            return
        parts = merged(self.segments[-count:], without_deleted=count == len(self.segments))
        try:
            segment = self._on_disk(parts) if rows > CHUNK else self._in_memory(parts)
        except OSError as e:
            log.warning("segments of the key index in %s are not merged: %s", self.folder, e)
            return
        self.segments[-count:] = [segment] if segment else []

    def _in_memory(self, parts: Iterable[list[np.ndarray]]) -> Segment | None:
        import numpy as np

        rows = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return Segment.of(self.layout, rows) if len(rows[0]) else None

    def _on_disk(self, parts: Iterable[list[np.ndarray]]) -> Segment | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        entry = Writer.of(self.folder, self.layout, parts)
        return entry and Segment.load(self.layout, self.folder, entry)

    def _rows(self, wanted: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Iterator[list[np.ndarray]]:
        """Yield the columns of rows, in parts, that no newer segment overrides; `wanted(file, pos)` is a mask of them."""
        import numpy as np

        segments = list(self.segments)
        for i, segment in enumerate(segments):
            for start in range(0, len(segment), CHUNK):
                file, pos, *_ = segment.read(start, min(start + CHUNK, len(segment)), self.layout.places)
                at = np.flatnonzero((file >= 0) & wanted(file, pos)) + start
                keys = [segment.take(n, at) for n in range(self.layout.width)]
                for newer in segments[i + 1 :]:
                    left = newer.find(keys) < 0
                    at, keys = at[left], [k[left] for k in keys]
                if len(at):
                    yield [*keys, *segment.places(at)]

    def forget(self, dead_files: Collection[int], dead_rows: Iterable[tuple[int, np.ndarray]]) -> None:
        """Drop the places in removed files, and of rows that others deleted (a file's number and their positions)."""
        import numpy as np

        bits = {}
        for number, positions in dead_rows:
            flags = np.zeros(positions.max(initial=-1) + 1, bool)
            flags[positions] = True
            bits[number] = len(flags), np.packbits(flags)
        if not dead_files and not bits:
            return
        whole = np.zeros(self._next, bool)
        whole[list(dead_files)] = True
        size, start = np.zeros(self._next, np.int64), np.zeros(self._next, np.int64)
        size[list(bits)] = [length for length, _ in bits.values()]
        start[list(bits)] = 8 * np.cumsum([0, *(len(b) for _, b in bits.values())])[:-1]
        dead = np.concatenate([np.zeros(0, np.uint8), *(b for _, b in bits.values())])

        def gone(file: np.ndarray, pos: np.ndarray) -> np.ndarray:
            found = whole[file]
            near = np.flatnonzero(pos < size[file])
            at = start[file[near]] + pos[near]
            found[near] |= dead[at >> 3] >> (7 - (at & 7)).astype(np.uint8) & 1 > 0
            return found

        for rows in self._rows(gone):
            file = rows[self.layout.width]
            # A deleted row must stay known as deleted: an older segment may still have another place for its key.
            self.extend(rows[: self.layout.width], np.full_like(file, -1), *rows[self.layout.width + 1 :])
        self.compact()

    def move(self, old: list[int], new: int, kept: np.ndarray) -> bool:
        """Move the live rows of some files to another file, in the same order, at its `kept` positions.

        If their numbers differ, change nothing and return False.
        """
        import numpy as np

        width, rank = self.layout.width, np.full(self._next, -1, np.int32)
        rank[old] = np.arange(len(old))

        def mine(file: np.ndarray, pos: np.ndarray) -> np.ndarray:
            return rank[file] >= 0

        there = [(rank[file], pos) for _, file, pos in (self._split(rows) for rows in self._rows(mine))]
        if sum(len(pos) for _, pos in there) != len(kept):
            return False
        size = np.zeros(len(old), np.int64)
        for of, pos in there:
            np.maximum.at(size, of, pos + 1)
        start = np.cumsum(size) - size
        place = np.zeros(size.sum(), np.int32)  # of an old position among the live ones
        for of, pos in there:
            place[start[of] + pos] = 1
        np.cumsum(place, out=place)
        del there
        for rows in self._rows(mine):
            keys, file, pos = self._split(rows)
            now = kept[place[start[rank[file]] + pos] - 1].astype(np.int32)
            self.extend(keys, np.full_like(file, new), now, *rows[width + 2 :])
        self.compact()
        return True

    def _split(self, rows: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Return the columns of the keys, the files and the positions."""
        width = self.layout.width
        return rows[:width], rows[width], rows[width + 1]

    def count(self) -> int:
        """Return the number of live keys. To count them, the keys of all segments but the oldest are looked up in older ones."""
        if self.keys is None:
            self.keys = sum(s.live for s in self.segments) - sum(map(self._hidden, range(1, len(self.segments))))
        return self.keys

    def _hidden(self, newer: int) -> int:
        """Return how many live rows of older segments one hides that no segment between hides."""
        segment, hidden = self.segments[newer], 0
        for start in range(0, len(segment), CHUNK):
            keys = segment.read(start, min(start + CHUNK, len(segment)), self.layout.keys)
            for older in reversed(self.segments[:newer]):
                at = older.find(keys)
                hidden += int((older.take(self.layout.width, at[at >= 0]) >= 0).sum())
                keys = [k[at < 0] for k in keys]
        return hidden

    def save(self, keep: Collection[str] = ()) -> dict[str, Any]:
        """Write new segments and swap in the manifest, which is returned.

        Segment files that it does not name are deleted, unless they are in `keep`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for s in self.segments:
            s.entry = s.entry or Writer.of(self.folder, self.layout, [s.read(0, len(s))])
        self.files = {n: path for n, path in self.files.items() if path in self.marks}
        self._numbers = {path: n for n, path in self.files.items()}
        files = [[n, path, self.marks[path]] for n, path in self.files.items()]
        entries = [s.entry for s in self.segments]
        manifest = {
            "version": VERSION, "identity": self.identity, "snapshot": self.snapshot, "keys": self.count(), "next": self._next,
            "files": files, "segments": entries, "of": [len(files), len(entries)],
        }  # fmt: skip
        write_manifest(self.folder, manifest)
        named = {*keep, *(e["name"] for e in entries)}
        for file in self.folder.glob("*.seg"):
            if file.name not in named:
                file.unlink(missing_ok=True)
        return manifest

    def load(self) -> bool:
        """Read the index from disk; return False if none is there for this table, or if it is damaged."""
        try:
            text = (self.folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            return False
        try:
            m = parsed(text)
            if m["identity"] != self.identity:
                return False
            segments = [Segment.load(self.layout, self.folder, e) for e in m["segments"]]
            live = sum(s.live for s in segments)
            if m["keys"] > live or (len(segments) == 1 and m["keys"] != live):
                raise ValueError(f"{live:,} live rows cannot be {m['keys']:,} keys")
        except Exception as e:  # whatever its files contain: an index is a cache
            log.warning("the key index in %s is built again: %s: %s", self.folder, type(e).__name__, e)
            return False
        self.files = {n: path for n, path, _ in m["files"]}
        self.marks = {path: mark for _, path, mark in m["files"]}
        self._numbers, self._next = {path: n for n, path in self.files.items()}, m["next"]
        self.snapshot, self.keys, self.segments = m["snapshot"], m["keys"], segments
        return True


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Swap in an index's manifest by a rename."""
    new = folder / f".{os.getpid()}.json"
    new.write_bytes(written(manifest))
    os.replace(new, folder / MANIFEST)


def written(manifest: dict[str, Any]) -> bytes:
    """Return the bytes of a manifest, which begin with their CRC."""
    text = json.dumps(manifest, separators=(",", ":")).encode()
    return f"{zlib.crc32(text)}\n".encode() + text


def parsed(text: bytes) -> dict[str, Any]:
    """Return the manifest of its bytes; raise an error unless it is whole."""
    crc, text = text.split(b"\n", 1)
    m = json.loads(text)
    if int(crc) != zlib.crc32(text) or m["version"] != VERSION:
        raise ValueError("its manifest is damaged or of another version")
    numbers = [n for n, _, _ in m["files"]]
    texts = [m["identity"], *(t for _, *two in m["files"] for t in two)]
    whole = [m["keys"], m["next"], *numbers, *(e["crc"] for e in m["segments"])]
    good = all(isinstance(t, str) for t in texts) and all(type(n) is int and n >= 0 for n in whole)
    good = good and type(m["snapshot"]) in (int, type(None)) and m["of"] == [len(numbers), len(m["segments"])]
    good = good and len({*numbers}) == len(numbers) == len({path for _, path, _ in m["files"]})
    good = good and max(numbers, default=-1) < m["next"] < MOST_NUMBERS
    if not good or not all(SEGMENT.fullmatch(e["name"]) for e in m["segments"]):
        raise ValueError("its manifest is not one")
    return m
