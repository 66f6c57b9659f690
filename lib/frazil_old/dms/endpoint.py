"""The settings of a DMS S3 target, from the JSON that DMS accepts and prints, and a table as DMS delivers it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from frazil_old.config.spec import TableSpec
from frazil_old.core.csv import Dialect
from frazil_old.dms.aws_json import read_endpoint_document
from frazil_old.dms.file_names import time_of_name
from frazil_old.dms.mappings import Mappings
from frazil_old.dms.source_errors import EndpointError

if TYPE_CHECKING:
    from frazil_old.dms.endpoint_model import S3Settings


OPERATIONS = ("I", "U", "D")
SEQUENCES = {
    "YYYYMMDD": "%Y/%m/%d", "YYYYMMDDHH": "%Y/%m/%d/%H", "YYYYMM": "%Y/%m", "MMYYYYDD": "%m/%Y/%d", "DDMMYYYY": "%d/%m/%Y",
}  # fmt: skip
"""Values of DatePartitionSequence, and the `strftime` formats of their folders with the delimiter SLASH."""
DATE_DELIMITERS = {"SLASH": "/", "UNDERSCORE": "_", "DASH": "-", "NONE": ""}
"""Values of DatePartitionDelimiter."""


@dataclass(frozen=True)
class DatePartition:
    """How change files are distributed over folders by the date of the commit (`DatePartition...`)."""

    enabled: bool = False
    sequence: str = "YYYYMMDD"
    delimiter: str = "SLASH"
    timezone: str = ""

    @property
    def form(self) -> str:
        """The `strftime` format of the folder names."""
        return SEQUENCES[self.sequence].replace("/", DATE_DELIMITERS[self.delimiter])

    def names(self, folder: str) -> bool:
        """Return whether a folder is a date partition, by its path below the table's folder."""
        try:
            time = datetime.strptime(folder, self.form)
        except ValueError:
            return False
        return self.enabled and 1900 <= time.year < 2100 and f"{time:{self.form}}" == folder

    @staticmethod
    def of(folder: str) -> DatePartition | None:
        """Return the settings that give a date partition this name; None if none do."""
        forms = (DatePartition(True, sequence, delimiter) for sequence in SEQUENCES for delimiter in DATE_DELIMITERS)
        return next((form for form in forms if form.names(folder)), None)

    @property
    def repeats_an_hour(self) -> bool:
        """Whether file names are in a time zone with daylight saving: their order is then not always the order of changes."""
        if not (self.enabled and self.timezone):
            return False
        zone = ZoneInfo(self.timezone)
        years = range(2016, date.today().year + 2)
        return len({datetime(y, m, 1, tzinfo=zone).utcoffset() for y in years for m in range(1, 13)}) > 1

    def is_repeated(self, local: datetime) -> bool:
        """Return whether a time in a file's name is in an hour that autumn repeats."""
        zone = ZoneInfo(self.timezone or "UTC")
        return self.enabled and len({local.replace(tzinfo=zone, fold=n).utcoffset() for n in (0, 1)}) > 1

    def written_s(self, name: str) -> float:
        """Return when DMS wrote a change file, in epoch seconds, by its name."""
        zone = ZoneInfo(self.timezone) if self.enabled and self.timezone else UTC
        return time_of_name(name).replace(tzinfo=zone).timestamp()


@dataclass(frozen=True)
class Endpoint:
    """The S3 target's settings that affect its files; `endpoint_model.S3Settings` describes them under DMS's names."""

    null_value: str | None = None  # None: not set, which only Parquet allows
    delimiter: str = ","
    row_delimiter: str = "\n"
    rfc4180: bool = True
    header: bool = False  # not of Parquet
    op_in_load: bool = False
    timestamp_column: str = ""
    max_batch_interval_s: float = 60.0
    min_file_kb: int = 32_000
    max_file_kb: int = 1_048_576
    data_format: str = "csv"
    compression: str = "none"
    inserts_only: bool = False
    inserts_and_updates: bool = False
    no_sup_value: str | None = None
    preserve_transactions: bool = False
    cdc_path: str = ""
    date_partition: DatePartition = DatePartition()
    parquet_timestamp_ms: bool = False
    op_column: str = "Op"
    op_values: Mapping[str, str] = field(default_factory=lambda: {o: o for o in OPERATIONS}, hash=False)
    cdc_has_op: bool | None = None

    @property
    def op_in_changes(self) -> bool:
        """Whether change files have the operation column; without it each of their rows is an insert or an update."""
        if self.cdc_has_op is not None:
            return self.cdc_has_op
        return self.op_in_load or not (self.inserts_only or self.inserts_and_updates)

    @property
    def dialect(self) -> Dialect:
        """How fields and rows of its headerless files are separated."""
        return Dialect(self.delimiter, self.row_delimiter, self.rfc4180, null=self.null_value or "")

    @property
    def names_columns(self) -> bool:
        """Whether files name their columns: by a header, or as Parquet."""
        return (self.header or self.data_format == "parquet") and not self.preserve_transactions

    def check_order(self, mappings: Mappings, specs: Iterable[TableSpec]) -> None:
        """Raise EndpointError if file names repeat an hour each autumn and tables have no sequence column."""
        if not self.date_partition.repeats_an_hour:
            return
        if blind := [s.source for s in specs if not mappings.sequence_column(s)]:
            raise EndpointError(
                f"DatePartitionTimezone = {self.date_partition.timezone} has daylight saving, so file names repeat an hour "
                f"each autumn, and there is no sequence column for the order of {', '.join(blind)}",
                "remove DatePartitionTimezone at the endpoint (names are then in UTC), or add a column with $AR_H_CHANGE_SEQ "
                "by a transformation rule",
            )


def _date_partition(s: S3Settings, where: str) -> DatePartition:
    found = DatePartition(s.partitioned, s.partition_sequence, s.partition_delimiter, s.partition_timezone)
    try:
        _ = found.repeats_an_hour
    except (KeyError, ValueError, OSError):
        raise EndpointError(
            f"{where}: DatePartitionTimezone = {found.timezone!r} is not a known time zone",
            "write an IANA name such as Europe/Berlin (on Windows also: pip install tzdata)",
        ) from None
    return found


def read_endpoint(path: Path) -> Endpoint:
    """Read S3 target settings from a JSON file; raise EndpointError for contradictions and unreadable settings.

    The file has the bare `S3Settings` object or the output of `aws dms describe-endpoints`. Settings that DMS does not
    know are next to it in `FrazilSettings`. Names may be in any case. A misspelt name raises EndpointError; `lint`
    reports other unknown names.
    """
    raw = read_endpoint_document(path)
    return endpoint_from(raw["S3Settings"], raw["FrazilSettings"], str(path))


def endpoint_from(settings: Mapping[str, Any], own: Mapping[str, Any], where: str) -> Endpoint:
    """Return the endpoint that `S3Settings` and `FrazilSettings` describe."""
    from frazil_old.config.validation import checked
    from frazil_old.dms.endpoint_model import FrazilSettings, S3Settings

    s = checked(S3Settings, dict(settings), where, EndpointError)
    stated = {**dict(s), **dict(checked(FrazilSettings, dict(own), f"{where}: FrazilSettings", EndpointError))}
    endpoint = Endpoint(
        **{
            **{f.name: stated[f.name] for f in fields(Endpoint) if f.name in stated},
            "header": s.header and s.data_format == "csv",
            "no_sup_value": s.no_sup_value if s.uses_no_sup_value else None,
            "date_partition": _date_partition(s, where),
        }
    )
    for wrong, problem, cure in _impossible(endpoint, s):
        if wrong:
            raise EndpointError(f"{where}: {problem}", cure)
    return endpoint


def _impossible(e: Endpoint, s: S3Settings) -> Iterable[tuple[bool, str, str]]:
    """Yield the conditions that make reading impossible: whether each is true, its description, and its cure."""
    yield (
        e.null_value is None and (e.data_format == "csv" or e.preserve_transactions),
        "CsvNullValue is not set",
        'add "CsvNullValue": "NULL" (the documented default) or "" (what some tasks write): check how your files write a null',
    )
    yield (
        e.inserts_only and e.inserts_and_updates,
        "CdcInsertsOnly and CdcInsertsAndUpdates are both on",
        "DMS accepts only one of them: turn the other off",
    )
    yield (
        e.inserts_and_updates and not e.op_in_load and e.cdc_has_op is None,
        "CdcInsertsAndUpdates is on and IncludeOpForFullLoad is off: DMS's documentation contradicts itself on whether change "
        "files have an Op column then",
        'check a change file, and add next to S3Settings "FrazilSettings": {"CdcHasOp": true} or false',
    )
    yield (
        s.uses_no_sup_value and e.data_format == "csv" and not e.no_sup_value,
        "UseCsvNoSupValue is on and CsvNoSupValue is not set",
        "set it to the text that DMS writes for a column that the source's log does not contain",
    )
    yield (
        s.uses_no_sup_value and e.data_format == "csv" and e.no_sup_value == e.null_value,
        "CsvNoSupValue and CsvNullValue are the same text: an update to null looks as if the log did not contain the column",
        "set CsvNoSupValue to a text that no column has, at the endpoint too, and load the tables again",
    )
    if e.preserve_transactions:
        yield not e.cdc_path, "PreserveTransactions is on and CdcPath is not set", "set CdcPath to the folder"
        yield s.header, "PreserveTransactions and AddColumnName are both on", "turn AddColumnName off"
        yield (
            e.date_partition.enabled,
            "PreserveTransactions and DatePartitionEnabled are both on",
            "DMS cannot combine them: turn one off",
        )


@dataclass(frozen=True)
class SourceTable:
    """A table's spec, and the endpoint settings and mappings by which DMS writes its files and messages."""

    spec: TableSpec
    endpoint: Endpoint
    mappings: Mappings

    @property
    def target_name(self) -> tuple[str, str]:
        """Return the schema and the table by which DMS names it in files and messages."""
        return self.mappings.target_name(self.spec)
