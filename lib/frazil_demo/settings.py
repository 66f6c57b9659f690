"""The target's settings that the simulator supports, read from DMS's JSON; other settings are refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from frazil_old.errors import FrazilError, nearest


class SimulatorError(FrazilError):
    """The simulator cannot write these settings, table mappings or values as DMS would."""


def _setting(name: str, default: Any, *choices: str) -> Any:
    return field(default=default, metadata={"name": name, "choices": choices})


@dataclass(frozen=True)
class Target:
    """The settings that decide how files or messages are written; fields have DMS's own names and defaults."""

    data_format: str = _setting("DataFormat", "csv", "csv", "parquet")
    compression: str = _setting("CompressionType", "none", "none", "gzip")
    delimiter: str = _setting("CsvDelimiter", ",")
    row_delimiter: str = _setting("CsvRowDelimiter", "\n")
    # The guide says that a null is written as NULL unless the setting says otherwise. Real files of a task without the
    # setting have nothing there, and so do the simulator's.
    null_value: str = _setting("CsvNullValue", "")
    rfc4180: bool = _setting("Rfc4180", True)
    header: bool = _setting("AddColumnName", False)
    use_no_sup: bool = _setting("UseCsvNoSupValue", False)
    no_sup_value: str = _setting("CsvNoSupValue", "")
    op_in_load: bool = _setting("IncludeOpForFullLoad", False)
    inserts_only: bool = _setting("CdcInsertsOnly", False)
    inserts_and_updates: bool = _setting("CdcInsertsAndUpdates", False)
    timestamp_column: str = _setting("TimestampColumnName", "")
    task_start_in_load: bool = _setting("UseTaskStartTimeForFullLoadTimestamp", False)
    date_partition: bool = _setting("DatePartitionEnabled", False)
    date_sequence: str = _setting(
        "DatePartitionSequence", "YYYYMMDD", "YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY"
    )
    date_delimiter: str = _setting("DatePartitionDelimiter", "SLASH", "SLASH", "DASH", "UNDERSCORE", "NONE")
    timezone: str = _setting("DatePartitionTimezone", "UTC")
    preserve_transactions: bool = _setting("PreserveTransactions", False)
    cdc_path: str = _setting("CdcPath", "")
    parquet_version: str = _setting("ParquetVersion", "parquet-1-0", "parquet-1-0", "parquet-2-0")
    milliseconds: bool = _setting("ParquetTimestampInMillisecond", False)
    encoding: str = _setting("EncodingType", "rle-dictionary", "plain", "plain-dictionary", "rle-dictionary")
    dictionary_limit: int = _setting("DictPageSizeLimit", 1 << 20)
    row_group: int = _setting("RowGroupLength", 10_000)
    page_size: int = _setting("DataPageSize", 1 << 20)
    statistics: bool = _setting("EnableStatistics", True)
    max_batch_interval_s: float = _setting("CdcMaxBatchInterval", 60.0)
    min_file_kb: int = _setting("CdcMinFileSize", 32_000)
    max_file_kb: int = _setting("MaxFileSize", 1_048_576)

    # --- of a Kafka or Kinesis target
    topic: str = _setting("Topic", "")
    message_format: str = _setting("MessageFormat", "json", "json", "json-unformatted")
    transaction_details: bool = _setting("IncludeTransactionDetails", False)
    partition_value: bool = _setting("IncludePartitionValue", False)
    partition_with_table: bool = _setting("PartitionIncludeSchemaTable", False)
    alter_operations: bool = _setting("IncludeTableAlterOperations", False)
    control_details: bool = _setting("IncludeControlDetails", False)
    null_and_empty: bool = _setting("IncludeNullAndEmpty", False)
    no_hex_prefix: bool = _setting("NoHexPrefix", False)
    max_bytes: int = _setting("MessageMaxBytes", 1_000_000)
    broker: str = _setting("Broker", "")
    stream_arn: str = _setting("StreamArn", "")

    op_undecided: bool = False
    """Not a setting of DMS: whether change rows have Op under CdcInsertsAndUpdates without IncludeOpForFullLoad.

    The guide contradicts itself on this.
    """

    @property
    def ops(self) -> str:
        """The operations that reach change files."""
        return "I" if self.inserts_only else "IU" if self.inserts_and_updates else "IUD"

    @property
    def op_in_changes(self) -> bool:
        """Whether the rows of per-table change files start with the operation."""
        if self.op_in_load or not (self.inserts_only or self.inserts_and_updates):
            return True
        return self.inserts_and_updates and self.op_undecided

    @property
    def keeps_unlogged(self) -> bool:
        """Whether a value that the log left out is written as CsvNoSupValue; otherwise it is looked up in the source."""
        return self.use_no_sup and (self.data_format == "csv" or self.preserve_transactions)

    @property
    def zone(self) -> ZoneInfo:
        """The zone of change file names and of date folders."""
        return ZoneInfo(self.timezone if self.date_partition else "UTC")


_FIELDS = {f.metadata["name"]: f for f in fields(Target) if f.metadata}
# Settings about the bucket's place and access, without effect on files.
_WITHOUT_EFFECT = {
    "BucketName", "BucketFolder", "ServiceAccessRoleArn", "ExpectedBucketOwner", "CannedAclForObjects",
    "EncryptionMode", "ServerSideEncryptionKmsKeyId", "IgnoreHeaderRows", "ExternalTableDefinition",
}  # fmt: skip


def _value(where: str, name: str, value: Any) -> Any:
    """Return a setting's value in its field's type; booleans and numbers may be texts, as in extra attributes."""
    default, choices = _FIELDS[name].default, _FIELDS[name].metadata["choices"]
    if choices:
        known = {c.lower(): c for c in choices}
        if str(value).lower() not in known:
            raise SimulatorError(f"{where}: {name} is {value!r}", nearest(str(value), choices))
        return known[str(value).lower()]
    if isinstance(default, bool):
        known = {"true": True, "false": False}
        if str(value).lower() not in known:
            raise SimulatorError(f"{where}: {name} is {value!r}", "write true or false")
        return known[str(value).lower()]
    try:
        value = type(default)(value)
    except ValueError:
        raise SimulatorError(f"{where}: {name} is {value!r}", "write a number") from None
    if name in ("CsvDelimiter", "CsvRowDelimiter"):
        return value.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")
    return value


def _check(target: Target, where: str) -> None:
    """Raise SimulatorError for settings that DMS does not combine, or that need each other."""
    tests = (
        (target.inserts_only and target.inserts_and_updates, "CdcInsertsOnly and CdcInsertsAndUpdates exclude each other"),
        (target.cdc_path and not target.preserve_transactions, "CdcPath is documented with PreserveTransactions only"),
        (target.preserve_transactions and not target.cdc_path.strip("/"), "PreserveTransactions needs a CdcPath"),
        (target.preserve_transactions and target.header, "AddColumnName does not go with PreserveTransactions"),
        (target.preserve_transactions and target.date_partition, "DatePartitionEnabled does not go with CdcPath"),
        (target.use_no_sup and not target.no_sup_value, "UseCsvNoSupValue needs a CsvNoSupValue"),
        (not target.delimiter or not target.row_delimiter, "CsvDelimiter and CsvRowDelimiter cannot be empty"),
    )  # fmt: skip
    for wrong, problem in tests:
        if wrong:
            raise SimulatorError(f"{where}: {problem}", "correct the settings")
    try:
        ZoneInfo(target.timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise SimulatorError(f"{where}: DatePartitionTimezone {target.timezone!r} is not known", "write an IANA name such as Europe/Berlin") from None  # fmt: skip


def read_json(file: Path, what: str) -> dict:
    """Read a JSON file that DMS accepts or prints."""
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SimulatorError(f"{what}: no file {file}", "save it there, or correct the name") from None
    except ValueError as e:
        raise SimulatorError(f"{what}: {file} is not JSON: {e}", "save it again") from None


def read_target(file: Path) -> Target:
    """Read the settings: the bare `S3Settings` object, or a document that holds it as `describe-endpoints` prints it.

    Raise SimulatorError for a setting that changes what DMS writes and that the simulator does not support.
    """
    raw = read_json(file, "endpoint settings")
    raw = raw["Endpoints"][0] if raw.get("Endpoints") else raw
    given = {}
    for name, value in (raw.get("KafkaSettings") or raw.get("KinesisSettings") or raw.get("S3Settings", raw)).items():
        if name in _FIELDS and value is not None:
            given[_FIELDS[name].name] = _value(str(file), name, value)
        off = value is None or value is False or value in ("", 0)
        if not off and name not in _FIELDS and name not in _WITHOUT_EFFECT:
            hint = nearest(name, _FIELDS)
            raise SimulatorError(f"{file}: the simulator does not support {name} = {value!r}", f"remove it; {hint}")
    if raw.get("KafkaSettings"):
        given.setdefault("topic", "kafka-default-topic")
    if raw.get("KinesisSettings"):
        given["topic"] = given["stream_arn"].rsplit("/", 1)[-1]
    target = Target(**given)
    _check(target, str(file))
    return target
