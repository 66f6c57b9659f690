"""The names of DMS's files: what kind of file a name means, and the time in it."""

from __future__ import annotations

import re
from datetime import datetime

from frazil.errors import FrazilError

LOAD = re.compile(r"(?:SEGMENT\d+_)?LOAD([0-9A-Fa-f]+)\.(?:csv|csv\.gz|parquet)")
CHANGES = re.compile(r"(\d{8})-(\d{9,10})\.(?:csv|csv\.gz|parquet)")
SHARED = re.compile(r"CDC_TXN-(\d{8})(\d{9})\.csv(?:\.gz)?")
"""A change file of one table, and one of all tables (PreserveTransactions). Their order is that of their names."""
OWN_RECORDS = re.compile(r"awsdms_.*|s3_validation_failures", re.IGNORECASE)
"""Folders in which DMS keeps its own records."""


class FileNameError(FrazilError, code="file-name"):
    """A file is named like DMS's change files, but its digits are no time. Give it the name that DMS wrote, or move it away."""


def base_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def load_number(name: str) -> int | None:
    """Return the number of a load file, whose digits are hexadecimal; None: it is no load file."""
    found = LOAD.fullmatch(name)
    return int(found[1], 16) if found else None


def is_change_file(name: str) -> bool:
    """Return whether a name is one of a change file, of one table or of all."""
    return bool(CHANGES.fullmatch(name) or SHARED.fullmatch(name))


def time_of_name(name: str) -> datetime:
    """Return the time in a change file's name, to the millisecond, in the zone of the file names.

    Raises FileNameError for digits that are no time.
    """
    digits = re.sub(r"\D", "", name)
    try:
        return datetime.strptime(f"{digits[:17]}000", "%Y%m%d%H%M%S%f")
    except ValueError:
        cure = "give it the name that DMS wrote, which decides when its changes are applied; or move it away"
        raise FileNameError(f"{name} is named like a change file, but its digits are no time", cure) from None


def name_at(time: datetime, like: str = "") -> str:
    """Return how the names begin of change files that are written at a time; `like` is a name of the same kind."""
    kind = "CDC_TXN-%Y%m%d%H%M%S" if SHARED.fullmatch(like) else "%Y%m%d-%H%M%S"
    return f"{time:{kind}}"
