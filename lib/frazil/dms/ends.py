"""Whether the last quoted text of each CSV file ends: if not, it holds the rest of the file, and Spark takes it as it is."""

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
"""So many files are looked through side by side."""


def look(
    spec: TableSpec, endpoint: Endpoint, files: Sequence[DmsObject], hidden: bool, whole: bool = True
) -> Callable[[bool], None]:
    """Begin to look through files for a quoted text that does not end, beside the job that reads them.

    What is returned waits until that is done and raises SourceError with the file and the row; it has to be called before
    the rows are committed, and told whether any is bad. `hidden` tells that such a text may make no row bad
    (`read.may_hide_open_text`); else nothing is looked at unless there are bad rows. In files that are not read `whole` a
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
    """Look through a file in a thread of its own, once for all tables that it is of."""
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
    """Return the number of the row (the first is 1) in which a quoted text begins that does not end; None: all do.

    A quote in a field that does not begin with one stands for itself.
    """
    delimiter, end = endpoint.delimiter.encode(), endpoint.row_delimiter.encode()
    row, inside, closed = 1 - endpoint.header, False, True
    for before in raw.removeprefix(BOM).split(b'"')[:-1]:  # what lies before each quote
        if inside:
            inside, closed = False, True
            continue
        row += before.count(end)
        inside = before.endswith((delimiter, end)) or (closed and not before)  # the latter is the second of a pair
        closed = False
    return row if inside else None
