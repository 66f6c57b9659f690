"""Recognises the names of DMS's load files and change files, and reads the time in a change file's name."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

LOAD = re.compile(r"^(SEGMENT\d+_)?LOAD([0-9A-Fa-f]+)\.(csv|csv\.gz|parquet)$")
CHANGES = re.compile(r"^\d{8}-\d{9,10}\.(csv|csv\.gz|parquet)$")
SHARED = re.compile(r"^CDC_TXN-\d{17}\.csv(\.gz)?$")
"""A file with the changes of all tables (PreserveTransactions)."""
AHEAD = timedelta(days=1)
"""A name may be this far in the future: DMS writes local times if its time zone is set."""


def is_shared(name: str) -> bool:
    """Return whether a name is that of a file with the changes of all tables."""
    return bool(SHARED.match(name))


def is_data(name: str) -> bool:
    """Return whether a name has the form of a DMS file's."""
    return bool(CHANGES.match(name) or LOAD.match(name)) or is_shared(name)


def time_of_name(name: str) -> datetime:
    """Return the time in a change file's name, in the time zone of DMS's setting; ValueError if the digits are none."""
    digits = digits_of(name)
    parts = (digits[begin:end] for begin, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 17)))
    *time, milliseconds = map(int, parts)
    return datetime(*time, milliseconds * 1000)


def name_at(time: datetime, like: str = "") -> str:
    """Return the name, without its extension, of a change file of that time, in the form of `like`."""
    form = "CDC_TXN-%Y%m%d%H%M%S" if is_shared(like) else "%Y%m%d-%H%M%S"
    return f"{time:{form}}{time.microsecond // 1000:03}"


def states_a_time(name: str) -> bool:
    """Return whether the digits in a change file's name are a time, as they always are in DMS's names."""
    try:
        time_of_name(name)
    except ValueError:
        return False
    return True


def latest_possible(now: float) -> str:
    """Return the digits after which a change file's name is in the future, at `now` (epoch seconds)."""
    return f"{datetime.fromtimestamp(now, UTC) + AHEAD:%Y%m%d%H%M%S}999"


def digits_of(name: str) -> str:
    """Return the digits of the time in a change file's name; they compare like times."""
    return re.sub(r"\D", "", name.split(".")[0])


def is_change_file(name: str) -> bool:
    """Return whether a name is that of a DMS change file."""
    return bool(CHANGES.match(name) or is_shared(name)) and states_a_time(name)
