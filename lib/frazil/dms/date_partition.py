"""Date partitions: how DMS divides change files into folders by time, and in which zone their names are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator, ConfigDict, field_validator

from frazil.dms.file_names import time_of_name
from frazil.settings.yaml_files import Entries, Fault

FORMS = {"YYYYMMDD": "%Y/%m/%d", "YYYYMMDDHH": "%Y/%m/%d/%H", "YYYYMM": "%Y/%m", "MMYYYYDD": "%m/%Y/%d", "DDMMYYYY": "%d/%m/%Y"}  # fmt: skip
DELIMITERS = {"SLASH": "/", "UNDERSCORE": "_", "DASH": "-", "NONE": ""}
_upper = BeforeValidator(lambda word: str(word).upper())


class DatePartition(Entries):
    """How change files are in folders by date: the settings `DatePartition…` of an S3 target."""

    model_config = ConfigDict(
        extra="ignore", alias_generator=lambda name: f"DatePartition{name.title()}", validate_by_name=True
    )
    enabled: bool = False
    """Whether change files are in folders by date."""
    sequence: Annotated[Literal["YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY"], _upper] = "YYYYMMDD"
    """Order of the parts of the date in the names of these folders."""
    delimiter: Annotated[Literal["SLASH", "UNDERSCORE", "DASH", "NONE"], _upper] = "SLASH"
    """What separates the parts of the date."""
    timezone: str = ""
    """IANA name of the zone in which DMS names these folders and their files; empty: UTC."""

    def before(self, folder: str) -> str:
        """Return the partition one step earlier: an hour, a day or a month.

        Empty if the folder is no partition, or if partitions do not sort by time.
        """
        form = FORMS[self.sequence].replace("/", DELIMITERS[self.delimiter])
        try:
            time = datetime.strptime(folder, form)
        except ValueError:
            return ""
        step = timedelta(hours=1) if "%H" in form else timedelta(days=1)  # a month begins at its first day
        is_own = self.enabled and form.startswith("%Y") and f"{time:{form}}" == folder
        return f"{time - step:{form}}" if is_own else ""

    def written_s(self, name: str, fold: int = 0) -> float:
        """Return when DMS wrote a change file, in epoch seconds, by its name; `fold` 1: the second time of a repeated hour."""
        zone = ZoneInfo(self.timezone) if self.enabled and self.timezone else UTC
        return time_of_name(name).replace(tzinfo=zone, fold=fold).timestamp()

    def repeats(self, name: str) -> bool:
        """Return whether a change file's name is in an hour that autumn repeats, so it does not tell the order."""
        return self.written_s(name) < self.written_s(name, fold=1)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name and name not in available_timezones():
            cure = "write an IANA name such as Europe/Berlin (on Windows also: pip install tzdata)"
            raise Fault(f"{name!r} is not a known time zone", cure)
        return name
