"""Detects a quoted text that does not end: it holds the rest of its file, and Spark would read it unchanged."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, lru_cache

from frazil.config.spec import TableSpec
from frazil.dms.endpoint import Endpoint
from frazil.dms.objects import DmsObject, SourceError
from frazil.dms.storage import chunks

BOM = b"\xef\xbb\xbf"
AT_ONCE = 4
"""Number of files that are scanned in parallel."""


def look(
    spec: TableSpec, endpoint: Endpoint, files: Sequence[DmsObject], hidden: bool, whole: bool = True
) -> Callable[[bool], None]:
    """Start to scan files for a quoted text that does not end, while a Spark job reads them.

    The returned function waits for the scan, and raises SourceError with the file and the row. Call it before the rows
    are committed, and say whether any row is bad. `hidden`: such a text may make no row bad
    (`read.may_hide_open_text`); otherwise files are only scanned if rows are bad. In files that are not read `whole` a
    text ends with its line.
    """
    text = [f for f in files if not f.is_parquet] if whole and endpoint.rfc4180 else []
    if hidden:
        for file in text:
            _begun(file, endpoint)

    def ended(bad: bool) -> None:
        for file in text if hidden or bad else ():
            try:
                row = _begun(file, endpoint).result()
            except Exception:
                _begun.cache_clear()  # to be tried again
                raise
            if row is not None:
                raise SourceError(
                    f"{spec.source}: {file.path} row {row}: a quoted text does not end, so nobody can tell where rows do",
                    "is the file cut off? Fetch it again; or have DMS write it again, or correct the row",
                )

    return ended


@lru_cache(maxsize=4096)
def _begun(file: DmsObject, endpoint: Endpoint) -> Future[int | None]:
    """Scan a file in a thread, once for all of its tables."""
    return _pool().submit(_open_row, file, endpoint)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE)


def _open_row(file: DmsObject, endpoint: Endpoint) -> int | None:
    """Return the row with a quoted text that does not end, or None."""
    try:
        if not sum(chunk.count(b'"') for chunk in chunks(file.path)) % 2:
            return None
        return open_row(b"".join(chunks(file.path)), endpoint)
    except (gzip.BadGzipFile, EOFError, zlib.error) as e:
        raise SourceError(f"{file.path} cannot be unpacked: {e}", "fetch it again") from None


def open_row(raw: bytes, endpoint: Endpoint) -> int | None:
    """Return the number (from 1) of the row with the start of a quoted text that does not end; None if all end.

    A quote in a field that does not begin with one is a plain character.
    """
    delimiter, end = endpoint.delimiter.encode(), endpoint.row_delimiter.encode()
    row, inside, closed = 1 - endpoint.header, False, True
    for before in raw.removeprefix(BOM).split(b'"')[:-1]:  # the text before each quote
        if inside:
            inside, closed = False, True
            continue
        row += before.count(end)
        inside = before.endswith((delimiter, end)) or (closed and not before)  # the latter: second of a pair
        closed = False
    return row if inside else None
