"""Turns the exceptions of the gzip, CSV and Parquet readers into one error that names the damaged file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from frazil.dms.listing import SourceError


@contextmanager
def refused_if_damaged(path: str) -> Iterator[None]:
    """Raise a SourceError that names the file and quotes its reader, if the block finds the file damaged."""
    import pyarrow as pa

    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise SourceError(f"{path} cannot be read: {type(error).__name__}: {reason}", "fetch it again") from None
