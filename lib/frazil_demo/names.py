"""The names of change files and of their date folders."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from frazil_demo.place import Place
from frazil_demo.settings import Target

_NAME = re.compile(r"(\d{8}-\d{9}|CDC_TXN-\d{17})\.")
_PARTS = {
    "YYYYMMDD": ("%Y", "%m", "%d"),
    "YYYYMMDDHH": ("%Y", "%m", "%d", "%H"),
    "YYYYMM": ("%Y", "%m"),
    "MMYYYYDD": ("%m", "%Y", "%d"),
    "DDMMYYYY": ("%d", "%m", "%Y"),
}
# Seen: SLASH and DASH. Assumed by their names: UNDERSCORE and NONE.
_BETWEEN = {"SLASH": "/", "DASH": "-", "UNDERSCORE": "_", "NONE": ""}


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)


class Names:
    """Names the change files of a folder by the time of writing, each later than those before.

    That holds across restarts and clock corrections. In a zone with daylight saving, the names of one hour in autumn
    repeat those of the hour before, as with DMS. No name is used twice.
    """

    def __init__(self, target: Target, place: Place, now: Callable[[], datetime] = utc_now):
        self._target, self._place, self._now, self._zone = target, place, now, target.zone
        self._last: dict[str, datetime] = {}
        self._used: dict[str, set[str]] = {}

    def date_folder(self, commit_time: datetime) -> str:
        """Return the folder of a change, below the table's and with a final slash; empty without date partitions."""
        if not self._target.date_partition:
            return ""
        parts = (commit_time.astimezone(self._zone).strftime(p) for p in _PARTS[self._target.date_sequence])
        return _BETWEEN[self._target.date_delimiter].join(parts) + "/"

    def next(self, folder: str) -> str:
        """Return the name, without extension, of the next change file anywhere below a folder."""
        used = self._used.get(folder)
        if used is None:
            used = {m[1] for name in self._place.names(folder) if (m := _NAME.match(name))}
            self._used[folder] = used
            if used:
                digits = re.sub(r"\D", "", max(used, key=lambda name: re.sub(r"\D", "", name)))
                local = datetime.strptime(digits + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=self._zone)
                self._last[folder] = local.astimezone(UTC)
        now, step = self._now(), timedelta(milliseconds=1)
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        if folder in self._last:
            now = max(now, self._last[folder] + step)
        while (name := self._text(now)) in used:
            now += step
        self._last[folder] = now
        used.add(name)
        return name

    def _text(self, moment: datetime) -> str:
        digits = moment.astimezone(self._zone).strftime("%Y%m%d%H%M%S%f")[:17]
        return f"CDC_TXN-{digits}" if self._target.preserve_transactions else f"{digits[:8]}-{digits[8:]}"
