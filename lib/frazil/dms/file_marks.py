"""Marks: whether files still have the bytes that were applied, though a copy has another time, and perhaps another ETag."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable

from frazil.dms.storage import DmsFile, Storage


def mark_of(storage: Storage, file: DmsFile) -> str:
    """Return a file's mark: size and ETag. On this machine the ETag is a time, so the CRC-32 of the bytes comes with it."""
    return ":".join([str(file.size), _etag(file), *_bytes(storage, file)])


def is_unchanged(storage: Storage, file: DmsFile, mark: str) -> bool:
    """Return whether a file has the bytes that it had when it was marked. They are read only if its ETag is another one."""
    size, etag, *checksum = mark.split(":")
    if file.size != int(size):
        return False
    return etag == _etag(file) or bool(checksum) and checksum == _bytes(storage, file)


def are_same(storage: Storage, one: DmsFile, other: DmsFile) -> bool:
    """Return whether two files have the same bytes: by size, then ETag, then CRC-32."""
    if one.size != other.size:
        return False
    return one.etag == other.etag or storage.checksum(one) == storage.checksum(other)


def mark_of_load(storage: Storage, files: dict[str, DmsFile]) -> str:
    """Return the mark of a load by its files, which have their paths below the table's folder; "none" without any."""
    if not files:
        return "none"
    found = [_digest(f"{path}:{f.size}:{_etag(f)}" for path, f in files.items())]
    if storage.is_local:
        found.append(_digest(f"{path}:{mark_of(storage, f).replace(_etag(f), '')}" for path, f in files.items()))
    return ":".join(found)


def is_same_load(storage: Storage, files: dict[str, DmsFile], mark: str) -> bool:
    """Return whether a load's files have the bytes that were applied. They are read only if an ETag is another one."""
    if mark.partition(":")[0] == _digest(f"{path}:{f.size}:{_etag(f)}" for path, f in files.items()):
        return True
    return ":" in mark and mark.partition(":")[2] == mark_of_load(storage, files).partition(":")[2]


def _etag(file: DmsFile) -> str:
    return f"{zlib.crc32(file.etag.encode()):08x}"


def _bytes(storage: Storage, file: DmsFile) -> list[str]:
    return [f"{storage.checksum(file):08x}"] if storage.is_local else []


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
