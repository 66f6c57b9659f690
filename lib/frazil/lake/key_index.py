"""The key index: the place (data file, position) of each key's live row, kept on local disk and mapped into memory.

A key is one 64-bit number if that can hold it, else 128 bits of its SHA-256 (16 or 24 bytes per row). Format v3 adds
the row's id (8 bytes). Sorted segments are kept in order of age. The newest segment with a key is right; -1 as its file
means that the row is deleted.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.config.lake_types import lake_type
from frazil.config.spec import TableSpec
from frazil.config.sql import identifier

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger("frazil")
GROWTH = 4
"""A segment is merged into the older one before it when that is less than this many times as large."""


def bytes_per_row(spec: TableSpec) -> int:
    """Return how many bytes a row takes in an index at most: numbers of the key, file and position, and the row's id."""
    return 8 * (len(key_sql(spec)) + 2)


def key_sql(spec: TableSpec, row: str = "") -> list[str]:
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


class Segment:
    """Sorted keys, each with its `place`: its file's number, its position and, on format v3, its row id.

    On disk the columns follow each other in one file.
    """

    def __init__(self, keys: list[np.ndarray], place: list[np.ndarray], name: str = ""):
        self.keys, self.place, self.name = keys, place, name

    @property
    def file(self) -> np.ndarray:
        """The number of each row's file, -1 if the row is deleted."""
        return self.place[0]

    @property
    def pos(self) -> np.ndarray:
        """The position of each row in its file."""
        return self.place[1]

    def __len__(self) -> int:
        return len(self.file)

    @classmethod
    def of(cls, keys: list[np.ndarray], place: list[np.ndarray]) -> Segment:
        """Sort rows into a segment; among rows with the same key the first is kept."""
        import numpy as np

        order = np.argsort(keys[0], kind="stable")  # fast for two sorted runs in sequence
        if len(keys) > 1 and (np.diff(keys[0][order]) == 0).any():
            order = np.lexsort(keys[::-1])
        segment = cls(keys, place).take(order)
        first = np.ones(len(order), bool)
        if len(order):
            first[1:] = np.any([k[1:] != k[:-1] for k in segment.keys], axis=0)
        return segment if first.all() else segment.take(first)

    def take(self, rows: np.ndarray) -> Segment:
        """Return a segment of some rows, given by their numbers or as a mask."""
        return Segment([k[rows] for k in self.keys], [p[rows] for p in self.place])

    def at(self, file: np.ndarray, pos: np.ndarray) -> Segment:
        """Return a segment of the same rows at other places."""
        return Segment(self.keys, [file, pos, *self.place[2:]])

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the segment and return its entry in the manifest; a large segment is mapped from then on."""
        crc, self.name = 0, f"{secrets.token_hex(8)}.seg"
        with open(folder / self.name, "wb") as out:
            for column in (*self.keys, *self.place):
                data = memoryview(column.tobytes() if not column.flags.c_contiguous else column).cast("B")
                crc = zlib.crc32(data, crc)
                out.write(data)
        entry = {"name": self.name, "rows": len(self), "crc": crc}
        if len(self) > 1 << 20:
            mapped = self._mapped(folder, entry, len(self.keys), len(self.place))
            self.keys, self.place = mapped.keys, mapped.place
        return entry

    @classmethod
    def _mapped(cls, folder: Path, entry: dict, width: int, places: int) -> Segment:
        import numpy as np

        rows, raw = entry["rows"], np.memmap(folder / entry["name"], np.uint8, "r")
        columns, start = [], 0
        for kind in (np.int64,) * width + (np.int32, np.int32, np.int64)[:places]:
            end = start + rows * np.dtype(kind).itemsize
            columns.append(raw[start:end].view(kind))
            start = end
        if len(raw) != start:
            raise ValueError(f"{entry['name']} has not the length that the manifest says")
        return cls(columns[:width], columns[width:], entry["name"])

    @classmethod
    def load(cls, folder: Path, entry: dict, width: int, places: int) -> Segment:
        """Map a segment's file; raise ValueError if it is not what was written."""
        segment, crc = cls._mapped(folder, entry, width, places), 0
        for column in (*segment.keys, *segment.place):
            crc = zlib.crc32(memoryview(column).cast("B"), crc)
        if crc != entry["crc"]:
            raise ValueError(f"{entry['name']} is damaged")
        return segment

    def find(self, keys: list[np.ndarray]) -> np.ndarray:
        """Return each key's index in the segment, -1 if it is absent."""
        import numpy as np

        at = np.searchsorted(self.keys[0], keys[0])
        hit = np.full(len(at), -1, np.int64)
        open_ = np.arange(len(at))
        while len(open_):  # one round, unless two keys share their first number
            open_ = open_[at[open_] < len(self)]
            open_ = open_[self.keys[0][at[open_]] == keys[0][open_]]
            same = np.all([k[at[open_]] == q[open_] for k, q in zip(self.keys, keys, strict=True)], axis=0)
            hit[open_[same]] = at[open_[same]]
            open_ = open_[~same]
            at[open_] += 1
        return hit


class KeyIndex:
    """The segments of one table, the data files they name, and the snapshot they reflect."""

    def __init__(self, folder: Path, identity: str, width: int, row_ids: bool = False):
        self.folder, self.identity, self.width, self.places = folder, identity, width, 2 + row_ids
        self.snapshot: int | None = None
        self.files: list[str] = []
        self.marks: dict[str, str] = {}
        """Live data file → a string for its deletes: if it differs, another writer deleted rows of the file."""
        self.segments: list[Segment] = []
        self._entries: dict[str, dict] = {}
        self._numbers: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        """The size of the index's rows in bytes."""
        return sum(len(s) for s in self.segments) * 8 * (self.width + self.places - 1)

    def locate(self, keys: list[np.ndarray]) -> list[np.ndarray]:
        """Return the file's number, the position and the row id, if kept, of each key's row; all are -1 if there is no row."""
        import numpy as np

        place = [np.full(len(keys[0]), -1, kind) for kind in (np.int32, np.int32, np.int64)[: self.places]]
        open_ = np.argsort(keys[0], kind="stable")
        for segment in reversed(self.segments):
            at = segment.find([k[open_] for k in keys])
            known = np.flatnonzero(at >= 0)
            live = known[segment.file[at[known]] >= 0]
            for found, column in zip(place, segment.place, strict=True):
                found[open_[live]] = column[at[live]]
            open_ = open_[at < 0]
        return place

    def number(self, path: str) -> int:
        """Return the number of a data file; a new file gets a new number."""
        if len(self._numbers) != len(self.files):
            self._numbers = {f: i for i, f in enumerate(self.files)}
        if path not in self._numbers:
            self._numbers[path] = len(self.files)
            self.files.append(path)
        return self._numbers[path]

    def add(self, keys: list[np.ndarray], *place: np.ndarray) -> None:
        """Add the present places of some keys as the newest segment: file's number, position and, if kept, row id."""
        import numpy as np

        if not len(place[0]):
            return
        self.segments.append(Segment.of(keys, list(place)))
        while len(self.segments) > 1 and len(self.segments[-2]) < GROWTH * len(self.segments[-1]):
            new, old = self.segments.pop(), self.segments.pop()
            keys, place = (
                [np.concatenate(pair) for pair in zip(*columns, strict=True)]
                for columns in ((new.keys, old.keys), (new.place, old.place))
            )
            merged = Segment.of(keys, place)
            gone = merged.file < 0
            self.segments.append(merged.take(~gone) if gone.any() and not self.segments else merged)

    def forget(self, dead_files: set[int], dead_rows: dict[int, Any]) -> None:
        """Drop entries for removed files, and for rows that others deleted (file's number → their positions)."""
        import numpy as np

        whole = np.zeros(len(self.files) + 1, bool)  # -1, a deleted row, indexes the last entry
        whole[list(dead_files)] = True
        size = np.zeros(len(self.files) + 1, np.int64)
        for number, positions in dead_rows.items():
            size[number] = positions.max(initial=-1) + 1
        start = np.cumsum(size) - size
        dead = np.zeros(size.sum(), bool)
        for number, positions in dead_rows.items():
            dead[start[number] + positions.astype(np.int64)] = True
        for i, segment in enumerate(self.segments):
            gone = whole[segment.file]
            near = np.flatnonzero(segment.pos < size[segment.file])
            gone[near] |= dead[start[segment.file[near]] + segment.pos[near]]
            # A deleted row must stay known as deleted: an older segment may still have another place for its key.
            if gone.any():
                self.segments[i] = segment.at(np.where(gone, np.int32(-1), segment.file), segment.pos)

    def move(self, old: list[int], new: int, kept: np.ndarray) -> bool:
        """Move the live rows of some files to another file, in the same order, at its `kept` positions.

        If their numbers differ, change nothing and return False.
        """
        import numpy as np

        rank = np.full(len(self.files) + 1, -1, np.int64)
        rank[old] = np.arange(len(old))
        live = self._known([rank[s.file] >= 0 for s in self.segments])
        places = np.concatenate([rank[s.file[m]] << 32 | s.pos[m] for s, m in zip(self.segments, live, strict=True)])
        if len(places) != len(kept):
            return False
        now, start = np.empty(len(places), np.int32), 0
        now[np.argsort(places)] = kept
        for i, (segment, mine) in enumerate(zip(self.segments, live, strict=True)):
            if count := int(mine.sum()):
                pos = segment.pos.copy()
                pos[mine] = now[start : start + count]
                self.segments[i] = segment.at(np.where(mine, np.int32(new), segment.file), pos)
                start += count
        return True

    def _renumber(self) -> None:
        """Number live files only, once most numbered files are gone."""
        import numpy as np

        numbers, live = np.full(len(self.files) + 1, -1, np.int32), list(self.marks)
        numbers[[self.number(f) for f in live]] = np.arange(len(live))
        self.segments = [s.at(numbers[s.file], s.pos) for s in self.segments]
        self.files, self._numbers = live, {}

    def count(self) -> int:
        """Count the live keys, segment by segment."""
        if len(self.segments) == 1:
            return int((self.segments[0].file >= 0).sum())
        return sum(int(live.sum()) for live in self._known([s.file >= 0 for s in self.segments]))

    def _known(self, some: list[np.ndarray]) -> list[np.ndarray]:
        """Restrict the selected rows of each segment to those that no newer segment overrides."""
        for i, segment in enumerate(self.segments):
            for newer in self.segments[i + 1 :]:
                some[i][newer_at(segment, newer)] = False
        return some

    def save(self) -> None:
        """Write new segments, swap in the manifest by a rename, and delete the segment files that it does not name."""
        if len(self.files) > 2 * len(self.marks) + 1000:
            self._renumber()
        self.folder.mkdir(parents=True, exist_ok=True)
        entries = [self._entries.get(s.name) or s.save(self.folder) for s in self.segments]
        self._entries = {e["name"]: e for e in entries}
        manifest = {
            "version": 1, "identity": self.identity, "snapshot": self.snapshot,
            "files": self.files, "marks": self.marks, "segments": entries, "of": [len(self.files), len(self.marks), len(entries)],
        }  # fmt: skip
        text = json.dumps(manifest, separators=(",", ":"))
        new = self.folder / f".{os.getpid()}.json"
        new.write_text(f"{zlib.crc32(text.encode())}\n{text}")
        os.replace(new, self.folder / "manifest.json")
        for file in self.folder.glob("*.seg"):
            if file.name not in self._entries:
                file.unlink(missing_ok=True)

    def load(self) -> bool:
        """Read the index from disk; return False if none is there for this table, or if it is damaged."""
        try:
            crc, text = (self.folder / "manifest.json").read_text().split("\n", 1)
            m = json.loads(text)
            if int(crc) != zlib.crc32(text.encode()) or (m["version"], m["identity"]) != (1, self.identity):
                return False
            snapshot, files, marks = m["snapshot"], list(map(_text, m["files"])), dict(m["marks"])
            list(map(_text, [*marks, *marks.values()]))
            segments = [Segment.load(self.folder, e, self.width, self.places) for e in m["segments"]]
            counts = [len(files), len(marks), len(segments)]
            if m.get("of", counts) != counts or type(snapshot) not in (int, type(None)):  # the first version lacks it
                return False
            if any(s.file.max(initial=-1) >= len(files) for s in segments) or not marks.keys() <= {*files}:
                return False
        except Exception as e:  # whatever its files contain: an index is a cache
            log.warning("the key index in %s is built again: %s: %s", self.folder, type(e).__name__, e)
            return False
        self.snapshot, self.files, self.marks = snapshot, files, marks
        self.segments, self._entries = segments, {e["name"]: e for e in m["segments"]}
        return True


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def newer_at(old: Segment, new: Segment) -> np.ndarray:
    """Return the indexes in an older segment of the keys that a newer one has too."""
    at = old.find(new.keys)
    return at[at >= 0]
