"""Declares the settings of DMS targets that Frazil reads: meanings, and names, types and defaults as DMS documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from frazil_old.config.validation import Entries, Flag, Text, in_any_case


def _switch(value: Any) -> Any:
    """Return a boolean for the texts `true` and `false`, in any case."""
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def _digits(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _word(*known: str) -> Any:
    """Return the type of a setting with a list of allowed words; any case is accepted, and the listed spelling is the value."""
    words = {w.lower(): w for w in known}
    schema = {"enum": list(known)}, {"pattern": f"^({'|'.join(map(in_any_case, known))})$", "type": "string"}
    return Annotated[
        Literal[known], BeforeValidator(lambda v: words.get(str(v).lower(), v)), WithJsonSchema({"anyOf": list(schema)})
    ]


def _unescape(text: str) -> str:
    """Return a delimiter with the characters that DMS prints as `\\n`, `\\r`, `\\t`."""
    return text.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")


Switch = Annotated[Flag, BeforeValidator(_switch), WithJsonSchema({"enum": [True, False, "true", "false"]})]
Count = Annotated[
    int,
    Strict(),
    Field(ge=0),
    BeforeValidator(_digits),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+$"}),
]
Folder = Annotated[Text, AfterValidator(lambda text: text.strip("/"))]


def _setting(name: str, default: Any = "", example: Any = None, *, description: str) -> Any:
    """Declare a setting by its name in AWS's API."""
    return Field(default, alias=name, examples=None if example is None else [example], description=description)


class _Settings(Entries):
    """Settings; those that Frazil does not read are ignored."""

    model_config = ConfigDict(extra="ignore")


class S3Settings(_Settings):
    """Settings of an S3 target."""

    data_format: _word("csv", "parquet") = _setting("DataFormat", "csv", description="Format of the files.")
    null_value: Text = _setting(
        "CsvNullValue",
        None,
        "NULL",
        description="How CSV files write a null. Set it explicitly: some tasks write nothing instead of the documented `NULL`.",
    )
    delimiter: Annotated[Text, AfterValidator(lambda text: _unescape(text or ","))] = _setting(
        "CsvDelimiter", ",", description="What separates the fields of a CSV row."
    )
    row_delimiter: Annotated[Text, AfterValidator(lambda text: _unescape(text or "\n"))] = _setting(
        "CsvRowDelimiter", "\n", description="What ends a CSV row; `\\n` is the documented default."
    )
    rfc4180: Switch = _setting(
        "Rfc4180", True, True, description="Whether fields with delimiters or quotes are quoted as in RFC 4180."
    )
    header: Switch = _setting(
        "AddColumnName", False, True, description="Whether CSV files begin with the names of their columns."
    )
    op_in_load: Switch = _setting(
        "IncludeOpForFullLoad", False, True, description="Whether load files have the operation column too."
    )
    timestamp_column: Text = _setting(
        "TimestampColumnName",
        example="dms_commit_ts",
        description="Name of the column with the commit time; empty: there is none.",
    )
    max_batch_interval_s: Annotated[Count, AfterValidator(float)] = _setting(
        "CdcMaxBatchInterval", 60.0, 60, description="Seconds after which DMS writes a change file."
    )
    min_file_kb: Count = _setting(
        "CdcMinFileSize", 32_000, 32_000, description="Size in KB at which DMS writes a change file earlier."
    )
    max_file_kb: Count = _setting("MaxFileSize", 1_048_576, 1_048_576, description="Maximum size of a load file in KB.")
    compression: _word("none", "gzip") = _setting("CompressionType", "none", description="Compression of CSV files.")
    inserts_only: Switch = _setting("CdcInsertsOnly", False, False, description="Whether DMS writes inserts only.")
    inserts_and_updates: Switch = _setting(
        "CdcInsertsAndUpdates", False, False, description="Whether DMS writes inserts and updates only."
    )
    uses_no_sup_value: Switch = _setting(
        "UseCsvNoSupValue",
        False,
        False,
        description="Whether `CsvNoSupValue` stands for columns that the source's log does not contain.",
    )
    no_sup_value: Text = _setting(
        "CsvNoSupValue", None, description="The text for columns that the source's log does not contain."
    )
    preserve_transactions: Switch = _setting(
        "PreserveTransactions",
        False,
        False,
        description="Whether the changes of all tables are in files of transactions, under `CdcPath`.",
    )
    cdc_path: Folder = _setting("CdcPath", example="changes", description="Folder of the files of transactions.")
    partitioned: Switch = _setting(
        "DatePartitionEnabled", False, False, description="Whether change files are in folders by date."
    )
    partition_sequence: _word("YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY") = _setting(
        "DatePartitionSequence", "YYYYMMDD", description="Order of the parts of the date in the names of these folders."
    )
    partition_delimiter: _word("SLASH", "UNDERSCORE", "DASH", "NONE") = _setting(
        "DatePartitionDelimiter", "SLASH", description="What separates the parts of the date."
    )
    partition_timezone: Text = _setting(
        "DatePartitionTimezone",
        example="Asia/Tokyo",
        description="Time zone of these dates, by its IANA name; empty: UTC.",
    )
    parquet_timestamp_ms: Switch = _setting(
        "ParquetTimestampInMillisecond",
        False,
        False,
        description="Whether times in Parquet files have milliseconds only.",
    )
    bucket: Text = _setting("BucketName", example="my-bucket", description="Bucket that DMS writes to.")
    bucket_folder: Folder = _setting("BucketFolder", example="dms", description="Folder in the bucket.")


class FrazilSettings(Entries):
    """Settings that DMS does not have; they are next to `S3Settings`."""

    op_column: Annotated[Text, AfterValidator(lambda text: text or "Op")] = _setting(
        "OpColumnName", "Op", "Op", description="Another name for DMS's column `Op`."
    )
    op_values: dict[Text, Literal["I", "U", "D"]] = Field(
        {o: o for o in "IUD"},
        alias="OpValues",
        min_length=1,
        examples=[{"INSERT": "I", "UPDATE": "U", "DELETE": "D"}],
        description="The texts in that column, and which of I, U, D each means.",
    )
    cdc_has_op: Switch = _setting(
        "CdcHasOp", None, True, description="Whether change files have that column; left out: as DMS documents it."
    )


class StreamSettings(_Settings):
    """Settings of a Kafka or Kinesis target."""

    broker: Text = _setting("Broker", example="host:9092,host:9092", description="Addresses of the Kafka brokers.")
    topic: Text = _setting("Topic", example="dms", description="Kafka topic; left out: `kafka-default-topic`.")
    stream: Text = _setting("StreamArn", description="ARN of the Kinesis stream.")
    null_and_empty: Switch = _setting(
        "IncludeNullAndEmpty",
        False,
        True,
        description="Whether messages have nulls and empty texts. Without it, both are left out and become null.",
    )
    transaction_details: Switch = _setting(
        "IncludeTransactionDetails",
        False,
        True,
        description="Whether messages have a commit time. Without it there is no latency, and no second proof of the order.",
    )
    table_alters: Switch = _setting(
        "IncludeTableAlterOperations", False, True, description="Whether DMS reports changes of the tables' columns."
    )


class EndpointDescription(_Settings):
    """An endpoint as `aws dms describe-endpoints` prints it."""

    engine: Text = _setting("EngineName", example="s3", description="Engine of the endpoint.")
    role: Text = _setting("EndpointType", example="target", description="`source` or `target`.")
    attributes: Text = _setting(
        "ExtraConnectionAttributes",
        example="addColumnName=true;csvNullValue=NULL;",
        description="Settings of older endpoints, as `name=value;`.",
    )
    s3: S3Settings = Field(None, alias="S3Settings", description="Settings of an S3 target.")
    kafka: StreamSettings = Field(None, alias="KafkaSettings", description="Settings of a Kafka target.")
    kinesis: StreamSettings = Field(None, alias="KinesisSettings", description="Settings of a Kinesis target.")
    frazil: FrazilSettings = Field(None, alias="FrazilSettings", description="Settings that DMS does not have.")


class EndpointDocument(S3Settings, StreamSettings, EndpointDescription):
    """Bare settings of a target, one endpoint, or the output of `aws dms describe-endpoints`. DMS accepts names in any case."""

    model_config = ConfigDict(title="endpoint of a DMS task")

    endpoints: list[EndpointDescription] = Field(
        [], alias="Endpoints", description="The endpoints: the target, and the source if it is known."
    )
    endpoint: EndpointDescription = Field(None, alias="Endpoint", description="The only endpoint.")
