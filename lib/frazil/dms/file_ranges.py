"""A listed file that is read at any place, as Parquet is."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from frazil.dms.storage import PIECE, DmsFile, Storage

AT_ONCE = 1 << 20
"""The bytes that a large file is read by."""


def open_file(storage: Storage, file: DmsFile) -> BinaryIO:
    """Return a file to be read at any place; a small one is read by one request."""
    if file.size <= PIECE:
        return io.BytesIO(b"".join(storage.pieces(file)))
    return io.BufferedReader(_FileRanges(storage, file), AT_ONCE)


class _FileRanges(io.RawIOBase):
    """A large file, of which each part is read when it is wanted."""

    def __init__(self, storage: Storage, file: DmsFile):
        self._storage, self._file, self._at = storage, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._file.size)
        found = self._storage.read(self._file, min(self._at, end), end)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
