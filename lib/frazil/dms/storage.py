"""Where DMS's files lie: a folder on this machine, or on S3. A file is read as it was listed, or not at all."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import reduce
from pathlib import Path

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import LocalStore, ObjectStore, S3Store

from frazil.dms.file_names import base_name, is_change_file, load_number
from frazil.errors import FrazilError

PIECE = 8 << 20
KEPT = 64 << 20
"""The bytes that are read at a time, so a smaller file is read by one request; and those of small files that are kept for a second reading."""


class StorageError(FrazilError, code="storage"):
    """A folder or file cannot be reached. Correct the address, or allow what the message names."""


class ChangedWhileReadError(FrazilError, code="file-changed-while-read"):
    """A file is no longer as it was listed. Run again once nothing writes it any more."""


class FileVanishedError(FrazilError, code="file-vanished", decision=True):
    """A file that was listed is gone before it was applied. Bring it back; or accept it, which gives up its changes."""


class DmsFile(msgspec.Struct, frozen=True, gc=False):
    """A file as it was listed: `path` below the source, `size` in bytes, the store's ETag, and when it landed (epoch seconds)."""

    path: str
    size: int
    etag: str
    landed: float

    @property
    def name(self) -> str:
        """The name without folders."""
        return base_name(self.path)


def store_at(address: str) -> ObjectStore:
    """Return the store of a folder: a path, or `s3://bucket/folder` with the process's own credentials and region."""
    if not address.startswith("s3://"):
        if not Path(address).is_dir():
            raise StorageError(f"there is no folder {address}", "correct the setting that names it")
        return LocalStore(prefix=address)
    from obstore.auth.boto3 import Boto3CredentialProvider

    bucket, _, folder = address.removeprefix("s3://").partition("/")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return S3Store(
        bucket,
        prefix=folder or None,
        config={"endpoint": endpoint} if endpoint else {},
        client_options={"allow_http": endpoint.startswith("http://")},
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=60)},
        credential_provider=None if "AWS_ACCESS_KEY_ID" in os.environ else Boto3CredentialProvider(),
    )


class Storage:
    """The files below an address: a folder, or `s3://bucket/folder`; or those in a `store`, which messages call so."""

    def __init__(self, address: str, store: ObjectStore | None = None):
        self.address = address.rstrip("/")
        self.is_local = store is None and "://" not in address
        self.store = store or store_at(self.address)
        self._kept: dict[DmsFile, bytes] = {}
        self._free, self._counting = KEPT, threading.Lock()

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return Storage, (self.address,)

    def shown(self, path: str) -> str:
        """Return the address of a path."""
        return f"{self.address}/{path}".rstrip("/")

    def files(self, folder: str, after: str = "") -> list[DmsFile]:
        """Return the files below a folder by path; with `after`, those whose path comes after it."""
        with self._explained(folder):
            if self.is_local:
                _require_files(Path(self.address, folder))
            found = obstore.list(self.store, folder, offset=after or None, chunk_size=1000)
            entries = [entry for chunk in found for entry in chunk]
        files = [DmsFile(e["path"], e["size"], e["e_tag"] or "", e["last_modified"].timestamp()) for e in entries]
        return sorted(files, key=lambda file: file.path)

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of the folders in a folder."""
        with self._explained(folder):
            found = obstore.list_with_delimiter(self.store, folder or None)
        return sorted(map(base_name, found["common_prefixes"]))

    def pieces(self, file: DmsFile, size: int = PIECE) -> Iterator[bytes]:
        """Yield the bytes of a file in pieces of some size; a small file is read once, and kept.

        Raises ChangedWhileReadError, FileVanishedError if it is not as it was listed.
        """
        if file.size <= PIECE:
            yield self._whole(file)
        else:
            yield from (self.read(file, at, min(at + size, file.size)) for at in range(0, file.size, size))

    def read(self, file: DmsFile, begin: int, end: int) -> bytes:
        """Return some bytes of the file that was listed. Raises ChangedWhileReadError, FileVanishedError if it is another one."""
        if begin == end:
            return b""
        with self._explained(file.path):
            found = obstore.get(self.store, file.path, options={"if_match": file.etag, "range": (begin, end)})
            data = found.bytes().to_bytes()
            # on this machine, others may write it while it is read
            if self.is_local and obstore.head(self.store, file.path)["e_tag"] != file.etag:
                raise PreconditionError
        return data

    def checksum(self, file: DmsFile) -> int:
        """Return the CRC-32 of a file's bytes."""
        return reduce(lambda found, piece: zlib.crc32(piece, found), self.pieces(file), 0)

    def create(self, path: str, data: bytes) -> bool:
        """Write a new file; return whether it is new, as a file that is there is never written over."""
        with self._explained(path):
            try:
                obstore.put(self.store, path, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def _whole(self, file: DmsFile) -> bytes:
        data = self._kept.get(file)
        if data is None:
            data = self.read(file, 0, file.size)
            with self._counting:  # files of a batch are read at once
                if file.size > self._free:
                    self._kept, self._free = {}, KEPT
                self._kept[file] = data
                self._free -= file.size
        return data

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Raise what a store reports as an error that names the address and a cure."""
        where = self.shown(path)
        try:
            yield
        except PreconditionError:
            cure = "run again once nothing writes it any more"
            raise ChangedWhileReadError(f"{where} has changed since it was listed", cure) from None
        except FileNotFoundError:
            cure = "bring it back; or accept it by its name, which gives up its changes"
            raise FileVanishedError(f"{where} is gone since it was listed", cure) from None
        except (BaseError, OSError) as error:
            what = str(error).split("\n")[0]
            cure = "check the address, AWS_REGION, and that this process may list and read it"
            raise StorageError(f"{where} cannot be reached: {what}", cure) from error


def _require_files(folder: Path) -> None:
    """Raise StorageError for a pipe, a socket, a folder or a broken link that has a name of DMS's files: a listing passes it over."""
    if odd := next(_no_files(folder), None):
        raise StorageError(f"{odd} is no regular file", "bring back the file that DMS wrote, or move this away")


def _no_files(folder: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                continue
            if is_change_file(entry.name) or load_number(entry.name) is not None:
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from _no_files(Path(entry.path))
