"""The names of DMS's files: what kind of file a name means, and the time in it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from frazil.errors import FrazilError

LOAD = re.compile(r"(?:SEGMENT\d+_)?LOAD([0-9A-Fa-f]+)\.(?:csv|csv\.gz|parquet)")
CHANGES = re.compile(r"[12]\d{7}-\d{9,10}\.(?:csv|csv\.gz|parquet)")
SHARED = re.compile(r"CDC_TXN-[12]\d{16}\.csv(?:\.gz)?")
"""A change file of one table, and one of all tables (PreserveTransactions)."""
OWN_RECORDS = re.compile(r"awsdms_.*|s3_validation_failures", re.IGNORECASE)
"""Folders in which DMS keeps its own records."""
LOOK_BACK = timedelta(hours=1)
"""How much earlier than the newest applied file a listing begins."""


class FileNameError(FrazilError, code="file-name"):
    """A file is named like DMS's change files, but its digits are no time. Give it the name that DMS wrote, or move it away."""


def base_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def load_number(name: str) -> int | None:
    """Return the number of a load file, whose digits are hexadecimal; None: it is no load file."""
    found = LOAD.fullmatch(name)
    return int(found[1], 16) if found else None


def is_change_file(path: str) -> bool:
    """Return whether a name is one of a change file, of one table or of all."""
    return bool(CHANGES.fullmatch(base_name(path)) or SHARED.fullmatch(base_name(path)))


def order_of(path: str) -> str:
    """Return what orders change files of both kinds: the digits of their names, which are times."""
    return re.sub(r"\D", "", base_name(path))


def time_of_name(name: str) -> datetime:
    """Return the time in a change file's name, to the millisecond, in the zone of the file names.

    Raises FileNameError for digits that are no time.
    """
    try:
        return datetime.strptime(f"{order_of(name)[:17]}000", "%Y%m%d%H%M%S%f")
    except ValueError:
        cure = "give it the name that DMS wrote, which decides when its changes are applied; or move it away"
        raise FileNameError(f"{name} is named like a change file, but its digits are no time", cure) from None


def begin_before(path: str, shared: bool = False) -> str:
    """Return how the names begin of change files, `shared` by all tables or not, an hour before one."""
    time = time_of_name(path) - LOOK_BACK
    return f"CDC_TXN-{time:%Y%m%d%H%M%S}" if shared else f"{time:%Y%m%d-%H%M%S}"
