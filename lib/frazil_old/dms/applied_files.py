"""The record of the files that a table has applied: how to recognise each, and its place in the order.

The position is how far a table is; the record is the list of applied files. It is stored next to the position and
changes in the same commit. The newest files are in a table property; older ones are in segments, which are files that
are written once. A lost segment loses no row: its content is read from the folder again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from frazil_old.dms.file_names import LOAD
from frazil_old.dms.file_order import FilePlace

if TYPE_CHECKING:
    from frazil_old.dms.listing import DmsObject

log = logging.getLogger("frazil")

VERSION = 1
TAIL = 64
"""Maximum number of files in the property before they move to a segment."""
MOST_AWAITED = 200
"""Maximum number of recorded names of files that were listed but not applied yet."""
FILES, AWAITED, SEEN = "frazil.files", "frazil.awaited", "frazil.seen"
"""The properties: the record; names of files listed but not applied yet; the segment with newer ETags of unchanged files."""


class AppliedFile(NamedTuple):
    """One file. `etag` is empty for a file whose changes came with a load or an adoption: only its name identifies it.

    `content` is a digest of a local file's bytes; on S3 the ETag usually is one. `after` and `turn` are set for a file
    that was applied after files with later names.
    """

    name: str
    size: int
    etag: str
    content: str = ""
    batch: str = ""
    after: str = ""
    turn: int = 0

    @property
    def place(self) -> FilePlace:
        """The place in the order at which it was applied."""
        return self.after or self.name, self.turn


def key_of(file: DmsObject) -> str:
    """Return a file's name in the record; that of a load file includes its folder."""
    return "/".join(file.path.split("/")[-2:]) if LOAD.match(file.name) else file.name


def packed(files: Iterable[AppliedFile]) -> bytes:
    """Return a segment's bytes, column by column, in two parts."""
    columns = ["\n".join(map(str, column)) for column in zip(*files, strict=True)]
    front = [columns[0], columns[2], columns[5]]
    return b"".join(
        gzip.compress("\t".join(part).encode(), 1, mtime=0) for part in (front, [columns[i] for i in (1, 3, 4, 6)])
    )


def unpacked(data: bytes) -> list[AppliedFile]:
    """Return the files of a segment."""
    front = zlib.decompressobj(31)
    text = front.decompress(data).decode()
    if not front.eof:
        raise ValueError("the segment is truncated")
    names, etags, after = (column.split("\n") for column in text.split("\t"))
    back = gzip.decompress(front.unused_data).decode()
    sizes, contents, batches, turns = (column.split("\n") for column in back.split("\t"))
    rows = zip(names, map(int, sizes), etags, contents, batches, after, map(int, turns), strict=True)
    return [AppliedFile(*row) for row in rows]


@dataclass(frozen=True)
class AppliedFiles:
    """The content of the properties; `read` returns a segment's bytes.

    `modified` is the greatest modification time in a listing, by the storage's clock (epoch seconds). `whole` means
    that no applied file is missing. `moved` has two names: the first of the files applied after later names, and the last of
    these later names.
    """

    segments: tuple[tuple[str, int], ...] = ()
    tail: tuple[AppliedFile, ...] = ()
    modified: float = 0.0
    whole: bool = False
    moved: tuple[str, ...] = ()
    awaited: tuple[str, ...] = ()
    seen_in: str = ""
    read: Callable[[str], bytes] = lambda name: b""

    @staticmethod
    def of(properties: Mapping[str, str | None], read: Callable[[str], bytes], committed_ms: int = 0) -> AppliedFiles:
        """Return the record in a table's properties; a missing, damaged or newer one counts as empty.

        Files that arrived more than a minute after the last commit (`committed_ms`) cannot have been applied.
        """
        found = AppliedFiles(modified=committed_ms / 1000 + 60 if committed_ms else 0.0, read=read)
        try:
            found = replace(found, awaited=tuple(map(str, json.loads(properties.get(AWAITED) or "[]"))))
            stored = json.loads(properties.get(FILES) or "{}")
            if stored.get("version") != VERSION:
                return found
            return replace(
                found,
                segments=tuple((str(name), int(count)) for name, count in stored["segments"]),
                tail=tuple(AppliedFile(*file) for file in stored["tail"]),
                modified=float(stored["modified"]),
                whole=bool(stored["whole"]),
                moved=tuple(stored["moved"]),
                seen_in=properties.get(SEEN) or "",
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return found

    def to_text(self) -> str:
        """Return the text of the property `FILES`."""
        fields = {
            "segments": self.segments,
            "tail": self.tail,
            "modified": self.modified,
            "whole": self.whole,
            "moved": self.moved,
        }
        return json.dumps({"version": VERSION, **fields}, separators=(",", ":"))

    def look_from(self, last: str) -> str:
        """Return the name from which to list if the position is `last` and files with earlier names may follow it; else an empty text."""
        return self.moved[0] if self.moved and last <= self.moved[1] else ""

    @cached_property
    def seen(self) -> dict[str, str]:
        """Newer ETags of unchanged files, by name."""
        if not self.seen_in:
            return {}
        try:
            lines = gzip.decompress(self.read(self.seen_in)).decode().split("\n")
            return dict(line.split("\t") for line in lines if line)
        except Exception:  # whatever the storage raises: the files are read again
            log.warning("the newer ETags of applied files cannot be read: %s", self.seen_in, exc_info=True)
            return {}

    @cached_property
    def files(self) -> dict[str, AppliedFile]:
        """All files of the record, by name."""
        return {f.name: f for part in (*self._of_segments, self.tail) for f in part}

    def etags(self, place: FilePlace) -> dict[str, str]:
        """Return {name: ETag} of the change files applied up to `place`; an empty ETag matches any."""
        return {n: f.etag for n, f in self.files.items() if f.place <= place and "/" not in n}

    @cached_property
    def newest(self) -> dict[str, AppliedFile]:
        """The files in the property itself, by name."""
        return {f.name: f for f in self.tail}

    @cached_property
    def complete(self) -> bool:
        """Whether no applied file is missing."""
        return self.whole and len(self._of_segments) == len(self.segments)

    @cached_property
    def _of_segments(self) -> list[list[AppliedFile]]:
        """The files of each segment; none if a segment is lost or damaged."""
        try:
            return [unpacked(self.read(name)) for name, _ in self.segments]
        except Exception:  # whatever the storage raises: the record is a cache
            log.warning("a part of the record of applied files cannot be read: %s", self.segments, exc_info=True)
            return []

    def with_files(self, files: Iterable[AppliedFile], batch: str, write: Callable[[str, bytes], None]) -> AppliedFiles:
        """Return the record with more files; a tail that has grown too long moves to a new segment.

        Segments grow by doubling, so each file is written only a few times.
        """
        known = {f.name: f for f in (*self.tail, *files)}
        if len(known) <= TAIL:
            return replace(self, tail=tuple(known.values()))
        kept = list(zip(self.segments, self._of_segments, strict=True)) if self.complete else []
        merged = [*known.values()]
        while kept and len(kept[-1][1]) < 2 * len(merged):
            _, older = kept.pop()
            merged = [*older, *merged]
        together = {f.name: f for f in merged}
        name = f"applied-{batch}.gz"
        write(name, packed(together.values()))
        return replace(self, segments=(*[s for s, _ in kept], (name, len(together))), tail=(), whole=self.complete)


# --- unchanged bytes


def digest(chunks: Iterable[bytes]) -> str:
    """Return a digest of a local file's bytes."""
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
    return "sha256:" + found.hexdigest()[:40]


_MB = 1 << 20
_PARTS = (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512)
"""Part sizes in MB in which clients upload large objects; the ETag of such an object is computed from its parts' digests."""


def is_same(known: AppliedFile, size: int, chunks: Callable[[int], Iterable[bytes]]) -> bool | None:
    """Return whether a file has the applied bytes, by reading it; None if that cannot be determined.

    `chunks` yields the file's bytes in chunks of a given size.
    """
    if size != known.size:
        return False
    if known.content:
        return digest(chunks(_MB)) == known.content
    whole, _, parts = known.etag.partition("-")
    if len(whole) != 32:
        return None
    if not parts:
        return _md5(chunks(_MB)) == whole
    fitting = [n for n in _PARTS if -(-size // (n * _MB)) == int(parts)]
    return True if any(_etag_of_parts(chunks(_MB), n) == known.etag for n in fitting) else None


def _md5(chunks: Iterable[bytes]) -> str:
    found = hashlib.md5(usedforsecurity=False)
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()


def _etag_of_parts(chunks: Iterable[bytes], part: int) -> str:
    """Return the ETag of an object that is uploaded in parts of `part` chunks."""
    parts: list[Any] = []
    for number, chunk in enumerate(chunks):
        if number % part == 0:
            parts.append(hashlib.md5(usedforsecurity=False))
        parts[-1].update(chunk)
    return f"{_md5(found.digest() for found in parts)}-{len(parts)}"
