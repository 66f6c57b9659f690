"""Checks of single files: damaged, too large once unpacked, or changed while they were read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil_old.dms.applied_files import digest
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.position import PositionError, named
from frazil_old.dms.source_errors import SourceError
from frazil_old.dms.storage import chunks, current_objects, is_s3, random_access
from frazil_old.errors import many

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def refused_if_damaged(path: str) -> Iterator[None]:
    """Raise a SourceError that names the file and quotes its reader, if the block finds the file damaged."""
    import pyarrow as pa

    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise SourceError(f"{path} cannot be read: {type(error).__name__}: {reason}", "fetch it again") from None


GZIP_MOST = 1032
"""The maximum compression factor of gzip."""
ROWS = 10_000
"""Rows of a Parquet file that are read together."""


def unpacked_bytes(files: Iterable[DmsObject], most: int) -> int | None:
    """Return the size of the rows of files in bytes, counted until it exceeds `most`; None if no file is packed.

    Files too small to hold more than `most` are not unpacked: a small batch costs nothing. Raise SourceError for a
    damaged file.
    """
    files = list(files)
    packed = [f for f in files if f.is_parquet or f.name.endswith(".gz")]
    if not packed or (not any(f.is_parquet for f in packed) and sum(f.size for f in packed) * GZIP_MOST <= most):
        return None
    total = sum(f.size for f in files if f not in packed)
    for file in packed:
        with refused_if_damaged(file.path):
            for size in _parquet(file) if file.is_parquet else map(len, chunks(file.path)):
                total += size
                if total > most:
                    return total
    return total


def _parquet(file: DmsObject) -> Iterator[int]:
    """Yield the bytes of a Parquet file's values, batch by batch; texts stay dictionary-encoded meanwhile."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = random_access(file.path)
    texts = [f.name for f in pq.read_schema(place) if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
    with pq.ParquetFile(place, read_dictionary=texts) as whole:
        for batch in whole.iter_batches(batch_size=ROWS):
            yield sum(_bytes(column) for column in batch.columns)


def _bytes(column: pa.Array) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return column.nbytes
    lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
    return pc.sum(lengths).as_py() or 0


class ChangedWhileReadError(PositionError):
    """Files changed after they were listed: nothing of the batch was applied."""

    decision = False

    def __init__(self, problem: str, cure: str, changed: list[str], gone: list[str]):
        super().__init__(problem, cure)
        self.changed, self.gone = changed, gone


def file_digests(paths: Sequence[str]) -> dict[str, str]:
    """Return digests of files by path; that of a missing file is empty."""
    return {path: _digest(path) for path in paths}


Digests = Callable[[Sequence[str]], dict[str, str]]


class FileWatch:
    """Computes digests of local files while they are read, and checks afterwards that no file has changed.

    `compute` returns the digests of files by path.
    """

    def __init__(self, files: Sequence[DmsObject], source: str, compute: Digests = file_digests):
        self.files, self.source = files, source
        local = [f.path for f in files if not is_s3(f.path)]
        self._digests: Future | None = None
        if local:
            pool = ThreadPoolExecutor(1)
            self._digests = pool.submit(compute, local)
            pool.shutdown(wait=False)

    def contents(self) -> dict[str, str]:
        """Return the digests by path."""
        return self._digests.result() if self._digests else {}

    def require_unchanged(self) -> None:
        """Raise ChangedWhileReadError for files that vanished or changed since they were listed."""
        self.contents()
        require_unchanged(self.files, self.source)


def require_unchanged(files: Sequence[DmsObject], source: str) -> None:
    """Raise ChangedWhileReadError for files that vanished or changed since they were listed."""
    now = current_objects([f.path for f in files])
    gone = [f.name for f, h in zip(files, now, strict=True) if h is None]
    changed = [f.name for f, h in zip(files, now, strict=True) if h and h.etag != f.etag]
    if gone:
        raise ChangedWhileReadError(
            f"{source}: {named(gone)}: {many(gone, 'file')} vanished after the listing: their changes are not applied",
            "fetch them again, and run again: nothing is lost; or continue without them by the parameter go_on_without, which loses "
            "their changes. If all files of the table are gone: a TRUNCATE at the source may have deleted them",
            changed,
            gone,
        )
    if changed:
        raise ChangedWhileReadError(
            f"{source}: {named(changed)}: {many(changed, 'file')} changed while being read: nothing of the batch was applied",
            "run again when DMS has finished writing them",
            changed,
            gone,
        )


def _digest(path: str) -> str:
    try:
        return digest(chunks(path, packed=True))
    except OSError:  # the file is gone: require_unchanged reports it
        return ""
