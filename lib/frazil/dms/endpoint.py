"""The target of a DMS task: those of its settings that decide how files and messages are read."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_pascal

from frazil.core.row_blocks import Dialect
from frazil.dms.date_partition import DatePartition
from frazil.errors import FrazilError
from frazil.settings.yaml_files import Entries, Fault

BESIDE = "ExtraConnectionAttributes"
"""The key of settings that older endpoints have as one text: `addColumnName=true;…`."""


class EndpointError(FrazilError, code="endpoint"):
    """What describes the DMS task is unreadable, or makes its output unreadable. Correct what is named, and the task if it says the same."""


class Target(Entries):
    """Settings by AWS's names, in any case; each value may be a text. What its own names do not resemble is passed over."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_pascal)

    @model_validator(mode="before")
    @classmethod
    def _in_any_case(cls, content: dict[str, Any]) -> dict[str, Any]:
        fields = [*cls.model_fields.values(), *DatePartition.model_fields.values()]
        right = {str(field.alias).lower(): str(field.alias) for field in fields}
        found: dict[str, Any] = {}
        for name, value in _stated(content):
            near = difflib.get_close_matches(name.lower(), right, n=1, cutoff=0.85)
            if near and near[0] != name.lower():
                raise Fault(f"there is no setting '{name}'", f"write {right[near[0]]}")
            setting = right[near[0]] if near else name
            if str(found.get(setting, value)).lower() != str(value).lower():
                problem = f"{setting} is {found[setting]!r} in {BESIDE} and {value!r} in the settings"
                raise Fault(problem, "keep the value by which DMS writes")
            found[setting] = value
        return {**found, "DatePartition": found}


def _stated(content: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return names and values of settings, first those that an endpoint has as one text."""
    parts = (part.partition("=") for part in (content.get(BESIDE) or "").split(";") if "=" in part)
    beside = [(name.strip(), value) for name, _, value in parts]
    return beside + [entry for entry in content.items() if entry[0] != BESIDE and entry[1] is not None]


class S3Target(Target):
    """Settings of an S3 target. What its files show by themselves, as their compression, is not here."""

    data_format: Annotated[Literal["csv", "parquet"], BeforeValidator(lambda word: str(word).lower())] = "csv"
    """Format of the files."""
    null: Annotated[str, Field(alias="CsvNullValue")] = ""
    """The text of a null in CSV files. It must be stated: some tasks write nothing instead of the documented `NULL`."""
    csv_delimiter: str = ","
    """What separates the fields of a CSV row: one ASCII character."""
    csv_row_delimiter: str = "\n"
    """What ends a CSV row: only a newline is read."""
    rfc4180: bool = True
    """Whether texts with delimiters or quotes are quoted as in RFC 4180."""
    add_column_name: bool = False
    """Whether CSV files begin with the names of their columns."""
    op_in_load: Annotated[bool, Field(alias="IncludeOpForFullLoad")] = False
    """Whether load files have the column `Op` too."""
    timestamp_column_name: str = ""
    """Name of the column with the commit time; empty: there is none."""
    cdc_inserts_only: bool = False
    """Whether DMS writes inserts only."""
    cdc_inserts_and_updates: bool = False
    """Whether DMS writes inserts and updates only."""
    cdc_has_op: bool | None = None
    """In `FrazilSettings`: whether change files have the column `Op`; left out: as DMS documents it."""
    use_csv_no_sup_value: bool = False
    """Whether `CsvNoSupValue` stands in columns that the source's log does not carry."""
    csv_no_sup_value: str = ""
    """The text in columns that the source's log does not carry."""
    preserve_transactions: bool = False
    """Whether the changes of all tables are in files of transactions, which are CSV, below `CdcPath`."""
    cdc_path: Annotated[str, BeforeValidator(lambda text: str(text).strip("/"))] = ""
    """Folder of the files of transactions."""
    date_partition: DatePartition = DatePartition()
    """How change files are in folders by date."""

    @property
    def op_in_changes(self) -> bool:
        """Whether change files have the column `Op`; without it each of their rows is an insert or an update."""
        if self.cdc_has_op is not None:
            return self.cdc_has_op
        return self.op_in_load or not (self.cdc_inserts_only or self.cdc_inserts_and_updates)

    @property
    def not_carried(self) -> str | None:
        """The text in columns that the source's log does not carry; None: there is no such text."""
        return self.csv_no_sup_value if self.use_csv_no_sup_value else None

    def dialect(self, header: bool) -> Dialect:
        """Return how CSV files separate fields and rows."""
        return Dialect(self.csv_delimiter, self.rfc4180, header, self.null)

    @field_validator("csv_delimiter", "csv_row_delimiter")
    @classmethod
    def _is_read(cls, text: str, about: ValidationInfo) -> str:
        sign = text.replace("\\n", "\n").replace("\\t", "\t")
        is_read = sign == "\n" if about.field_name == "csv_row_delimiter" else len(sign.encode()) == 1
        if not is_read:
            cure = "let DMS separate fields by one ASCII character and end rows by \\n, and load the tables again"
            raise Fault(f"files with {text!r} are not read", cure)
        return sign

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.preserve_transactions and not self.cdc_path:
            raise Fault("PreserveTransactions is on and CdcPath is not set", "set CdcPath to the folder")
        if "null" not in self.model_fields_set and (self.data_format == "csv" or self.preserve_transactions):
            cure = 'add "CsvNullValue": "NULL" (the documented default) or "" (what some tasks write): check how your files write a null'
            raise Fault("CsvNullValue is not set", cure)
        if self.not_carried == "":
            cure = "set it to the text that DMS writes for a column that the source's log does not carry"
            raise Fault("UseCsvNoSupValue is on and CsvNoSupValue is not set", cure)
        if self.not_carried == self.null:
            problem = "CsvNoSupValue and CsvNullValue are the same: an update to null looks as if the log did not carry the column"
            cure = "set CsvNoSupValue to a text that no column has, at the endpoint too, and load the tables again"
            raise Fault(problem, cure)
        return self


class StreamTarget(Target):
    """Settings of a Kafka or Kinesis target."""

    broker: str = ""
    """Addresses of the Kafka brokers: `host:9092,host:9092`."""
    topic: str = "kafka-default-topic"
    """Topic of Kafka."""
    stream_arn: str = ""
    """ARN of the Kinesis stream."""
    include_null_and_empty: bool = False
    """Whether messages have nulls and empty texts; without it both are left out, and become null."""
    include_transaction_details: bool = False
    """Whether messages have a commit time; without it there is no latency."""
    include_table_alter_operations: bool = False
    """Whether DMS reports changes of the tables' columns."""
    use_large_integer_value: bool = False
    """Whether integers beyond 2^53 are exact; without it DMS rounds them."""
    no_hex_prefix: bool = False
    """Whether bytes are written without `0x`."""

    @property
    def address(self) -> str:
        """The stream as the setting `source` names it; empty if neither a broker nor a stream is stated."""
        if self.stream_arn:
            return f"kinesis://{self.stream_arn.split(':')[3]}/{self.stream_arn.partition('/')[2]}"
        return f"kafka://{self.broker.replace(' ', '')}/{self.topic}" if self.broker else ""
