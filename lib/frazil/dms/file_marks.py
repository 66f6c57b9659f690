"""Marks: whether files still have the bytes that were applied: on S3 by ETag; on this machine, where that is a time, by bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from frazil.dms.storage import DmsFile, Storage


def mark_of(storage: Storage, files: Mapping[str, DmsFile]) -> str:
    """Return the mark of files by their names or paths: a digest of their sizes and ETags; "none" without files.

    On this machine an ETag is a time, so a digest of their CRC-32 comes with it.
    """
    if not files:
        return "none"
    found = _digest(f"{path}:{f.size}:{f.etag}" for path, f in files.items())
    return f"{found}:{_bytes(storage, files)}" if storage.is_local else found


def are_unchanged(storage: Storage, files: Mapping[str, DmsFile], mark: str) -> bool:
    """Return whether files have the bytes that they had when they were marked. Here they are read only if a time is another one."""
    by_etag, is_local, by_bytes = mark.partition(":")
    found = _digest(f"{path}:{f.size}:{f.etag}" for path, f in files.items())
    return found == by_etag or bool(is_local) and _bytes(storage, files) == by_bytes


def are_same(storage: Storage, one: DmsFile, other: DmsFile) -> bool:
    """Return whether two files have the same bytes: by size, then ETag, then CRC-32."""
    if one.size != other.size:
        return False
    return one.etag == other.etag or storage.checksum(one) == storage.checksum(other)


def _bytes(storage: Storage, files: Mapping[str, DmsFile]) -> str:
    return _digest(f"{path}:{storage.checksum(file):08x}" for path, file in files.items())


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
