"""Compare this host's clock with others before a run writes: that of the runs folder's file system, and that of S3."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from frazil.dms.storage import is_s3, server_time
from frazil.lake.clock_checks import require_same_time


def require_right_clock(file: Path, places: Iterable[str] = ()) -> None:
    """Raise ClockError if this host's clock differs from another one by more than a minute.

    `file` is one that the run has written: a network file system gives it its own time. S3 is asked for its time in
    each bucket of `places`, once.
    """
    buckets = {p.split("://", 1)[1].split("/")[0]: p for p in places if is_s3(p)}
    for place in [*([str(file)] if file.is_file() else []), *buckets.values()]:
        if times := server_time(place):
            require_same_time(*times, f"that of {place}")
