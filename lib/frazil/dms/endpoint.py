"""The settings of a DMS S3 target, read from the JSON that DMS itself accepts and prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from frazil.config.spec import TableSpec
from frazil.dms.documents import EndpointError, boolean, choice, number, read_endpoint_document
from frazil.dms.mappings import BeforeImage, Mappings, read_mappings
from frazil.errors import nearest
from frazil.source.setting_names import OWN

OPERATIONS = ("I", "U", "D")


@dataclass(frozen=True)
class DatePartition:
    """How change files are distributed over folders by date (`DatePartition...`)."""

    enabled: bool = False
    sequence: str = "YYYYMMDD"
    delimiter: str = "SLASH"
    timezone: str = ""

    @property
    def repeats_an_hour(self) -> bool:
        """Whether file names follow a clock that is set back each autumn, so that their order is not the order of changes."""
        if not (self.enabled and self.timezone):
            return False
        zone = ZoneInfo(self.timezone)
        years = range(2016, date.today().year + 2)
        return len({datetime(y, m, 1, tzinfo=zone).utcoffset() for y in years for m in range(1, 13)}) > 1


@dataclass(frozen=True)
class Endpoint:
    """The S3 target's settings about the bytes of its files; names in comments are DMS's own."""

    null_value: str | None = None  # CsvNullValue; None: not stated, which only Parquet allows
    delimiter: str = ","  # CsvDelimiter
    row_delimiter: str = "\n"  # CsvRowDelimiter
    rfc4180: bool = True  # Rfc4180
    header: bool = False  # AddColumnName; does not apply to Parquet
    op_in_load: bool = False  # IncludeOpForFullLoad
    timestamp_column: str = ""  # TimestampColumnName
    max_batch_interval_s: float = 60.0  # CdcMaxBatchInterval
    min_file_kb: int = 32_000  # CdcMinFileSize
    max_file_kb: int = 1_048_576  # MaxFileSize
    data_format: str = "csv"  # DataFormat: csv, parquet
    compression: str = "none"  # CompressionType: none, gzip
    inserts_only: bool = False  # CdcInsertsOnly
    inserts_and_updates: bool = False  # CdcInsertsAndUpdates
    no_sup_value: str | None = None  # CsvNoSupValue, if UseCsvNoSupValue is on
    preserve_transactions: bool = False  # PreserveTransactions
    cdc_path: str = ""  # CdcPath
    date_partition: DatePartition = DatePartition()  # DatePartition...
    parquet_timestamp_ms: bool = False  # ParquetTimestampInMillisecond
    bucket: str = ""  # BucketName
    bucket_folder: str = ""  # BucketFolder
    op_column: str = "Op"  # FrazilSettings.OpColumnName: another name for DMS's column Op
    op_values: Mapping[str, str] = field(default_factory=lambda: {o: o for o in OPERATIONS}, hash=False)
    """FrazilSettings.OpValues: the texts in that column, and which of I, U, D each means."""
    cdc_has_op: bool | None = None  # FrazilSettings.CdcHasOp; None: as DMS documents it

    @property
    def op_in_changes(self) -> bool:
        """Whether change files have the operation column; without it each of their rows is an insert or an update."""
        if self.cdc_has_op is not None:
            return self.cdc_has_op
        return self.op_in_load or not (self.inserts_only or self.inserts_and_updates)

    @property
    def names_columns(self) -> bool:
        """Whether files name their columns: by a header, or as Parquet."""
        return (self.header or self.data_format == "parquet") and not self.preserve_transactions

    def check_order(self, mappings: Mappings, specs: Iterable[TableSpec]) -> None:
        """Raise EndpointError if file names repeat an hour each autumn and tables have no sequence column for the order."""
        if not self.date_partition.repeats_an_hour:
            return
        if blind := [s.source for s in specs if not mappings.sequence_column(s)]:
            raise EndpointError(
                f"DatePartitionTimezone = {self.date_partition.timezone} has daylight saving, so file names repeat an hour "
                f"each autumn, and no sequence column tells the order of {', '.join(blind)}",
                "remove DatePartitionTimezone at the endpoint (names are UTC then), or add a column with $AR_H_CHANGE_SEQ "
                "by a transformation rule",
            )


def _unescape(text: str) -> str:
    """Return a delimiter with the characters that DMS prints as `\\n`, `\\r`, `\\t`."""
    return text.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")


def _date_partition(s: Mapping[str, Any], where: str) -> DatePartition:
    sequences = ("YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY")
    found = DatePartition(
        boolean(s, "DatePartitionEnabled", False, where),
        choice(s, "DatePartitionSequence", sequences, where),
        choice(s, "DatePartitionDelimiter", ("SLASH", "UNDERSCORE", "DASH", "NONE"), where),
        s.get("DatePartitionTimezone") or "",
    )
    try:
        _ = found.repeats_an_hour
    except (KeyError, ValueError, OSError):
        raise EndpointError(
            f"{where}: DatePartitionTimezone = {found.timezone!r} is no known time zone",
            "write an IANA name such as Europe/Berlin (on Windows also: pip install tzdata)",
        ) from None
    return found


def _op_values(given: Any, where: str) -> dict[str, str]:
    if given is None:
        return {o: o for o in OPERATIONS}
    if not isinstance(given, dict) or not given or not set(given.values()) <= set(OPERATIONS):
        raise EndpointError(
            f"{where}: FrazilSettings.OpValues = {given!r}",
            'map each text in the column to I, U or D: {"INSERT": "I", "UPDATE": "U", "DELETE": "D"}',
        )
    return dict(given)


def read_endpoint(path: Path) -> Endpoint:
    """Read S3 target settings from a JSON file; raise EndpointError for contradictions and unreadable settings.

    The file has the bare `S3Settings` object, or a document that holds it as `aws dms describe-endpoints` prints it.
    Settings that DMS does not know are next to it in `FrazilSettings`. Names may be in any case. A misspelt name is
    refused; `lint` reports other unknown ones.
    """
    raw = read_endpoint_document(path)
    return endpoint_from(raw["S3Settings"], raw["FrazilSettings"], str(path))


def endpoint_from(s: Mapping[str, Any], own: Mapping[str, Any], where: str) -> Endpoint:
    """Return the endpoint that `S3Settings` and `FrazilSettings` describe."""

    def on(name: str, default: bool = False) -> bool:
        return boolean(s, name, default, where)

    for name in own:
        if name not in OWN:
            raise EndpointError(f"{where}: unknown FrazilSettings.{name}", nearest(name, OWN))
    data_format = choice(s, "DataFormat", ("csv", "parquet"), where)
    has_op = boolean(own, "CdcHasOp", False, f"{where}: FrazilSettings") if own.get("CdcHasOp") is not None else None
    endpoint = Endpoint(
        null_value=s.get("CsvNullValue"),
        delimiter=_unescape(s.get("CsvDelimiter") or ","),
        row_delimiter=_unescape(s.get("CsvRowDelimiter") or "\n"),
        rfc4180=on("Rfc4180", True),
        header=on("AddColumnName") and data_format == "csv",
        op_in_load=on("IncludeOpForFullLoad"),
        timestamp_column=s.get("TimestampColumnName") or "",
        max_batch_interval_s=float(number(s, "CdcMaxBatchInterval", 60, where)),
        min_file_kb=number(s, "CdcMinFileSize", 32_000, where),
        max_file_kb=number(s, "MaxFileSize", 1_048_576, where),
        data_format=data_format,
        compression=choice(s, "CompressionType", ("none", "gzip"), where),
        inserts_only=on("CdcInsertsOnly"),
        inserts_and_updates=on("CdcInsertsAndUpdates"),
        no_sup_value=s.get("CsvNoSupValue") if on("UseCsvNoSupValue") else None,
        preserve_transactions=on("PreserveTransactions"),
        cdc_path=(s.get("CdcPath") or "").strip("/"),
        date_partition=_date_partition(s, where),
        parquet_timestamp_ms=on("ParquetTimestampInMillisecond"),
        bucket=s.get("BucketName") or "",
        bucket_folder=(s.get("BucketFolder") or "").strip("/"),
        op_column=own.get("OpColumnName") or "Op",
        op_values=_op_values(own.get("OpValues"), where),
        cdc_has_op=has_op,
    )
    for wrong, problem, cure in _impossible(endpoint, s, on):
        if wrong:
            raise EndpointError(f"{where}: {problem}", cure)
    return endpoint


def _impossible(e: Endpoint, s: Mapping[str, Any], on) -> Iterable[tuple[bool, str, str]]:
    """Yield the conditions that make reading impossible: whether each holds, a description, and its cure."""
    yield (
        e.null_value is None and (e.data_format == "csv" or e.preserve_transactions),
        "CsvNullValue is not stated",
        'add "CsvNullValue": "NULL" (the documented default) or "" (what some tasks write): see how a null looks in your files',
    )
    yield (
        e.inserts_only and e.inserts_and_updates,
        "CdcInsertsOnly and CdcInsertsAndUpdates are both on",
        "DMS takes one of them: turn the other off",
    )
    yield (
        e.inserts_and_updates and not e.op_in_load and e.cdc_has_op is None,
        "CdcInsertsAndUpdates is on and IncludeOpForFullLoad is off: DMS's documentation contradicts itself on whether change "
        "files have an Op column then",
        'look into a change file and add beside S3Settings "FrazilSettings": {"CdcHasOp": true} or false',
    )
    yield (
        on("UseCsvNoSupValue") and e.data_format == "csv" and not e.no_sup_value,
        "UseCsvNoSupValue is on and CsvNoSupValue is not stated",
        "state the text that DMS writes for a column that the source's log does not carry",
    )
    if e.preserve_transactions:
        yield not e.cdc_path, "PreserveTransactions is on and CdcPath is not stated", "state the folder: CdcPath"
        yield on("AddColumnName"), "PreserveTransactions and AddColumnName are both on", "turn AddColumnName off"
        yield (
            e.date_partition.enabled,
            "PreserveTransactions and DatePartitionEnabled are both on",
            "DMS cannot combine them: turn one off",
        )


__all__ = ["BeforeImage", "DatePartition", "Endpoint", "EndpointError", "Mappings", "read_endpoint", "read_mappings"]
