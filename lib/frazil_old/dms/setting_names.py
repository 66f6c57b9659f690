"""The names of DMS's settings, in the spelling of AWS's API: any case is taken, and a misspelt name refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frazil_old.dms.source_errors import EndpointError


def known_names(
    given: Iterable[tuple[str, Any]] | Mapping[str, Any], known: Sequence[str], where: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return settings under their known names, whatever their case, and the unknown names, which stay as they are.

    Raise EndpointError for a misspelt name, and for one with two values.
    """
    right = {name.lower(): name for name in known}
    settings, unknown = {}, []
    for name, value in given.items() if isinstance(given, Mapping) else given:
        found = right.get(name.lower())
        if found is None:
            if near := _nearest(name, right):
                raise EndpointError(f"{where}: unknown setting '{name}'", f"write {near}")
            unknown.append(name)
        if found in settings and settings[found] != value:
            raise EndpointError(
                f"{where}: {found} occurs twice, with different values", "keep the value that the task has"
            )
        settings[found or name] = value
    return settings, tuple(unknown)


S3_NAMES = (
    "AddColumnName", "AddTrailingPaddingCharacter", "BucketFolder", "BucketName", "CannedAclForObjects", "CdcInsertsAndUpdates",
    "CdcInsertsOnly", "CdcMaxBatchInterval", "CdcMinFileSize", "CdcPath", "CompressionType", "CsvDelimiter", "CsvNoSupValue",
    "CsvNullValue", "CsvRowDelimiter", "DataFormat", "DataPageSize", "DatePartitionDelimiter", "DatePartitionEnabled",
    "DatePartitionSequence", "DatePartitionTimezone", "DictPageSizeLimit", "EnableStatistics", "EncodingType", "EncryptionMode",
    "ExpectedBucketOwner", "ExternalTableDefinition", "GlueCatalogGeneration", "IgnoreHeaderRows", "IncludeOpForFullLoad",
    "MaxFileSize", "ParquetTimestampInMillisecond", "ParquetVersion", "PreserveTransactions", "Rfc4180", "RowGroupLength",
    "ServerSideEncryptionKmsKeyId", "ServiceAccessRoleArn", "TimestampColumnName", "UseCsvNoSupValue",
    "UseTaskStartTimeForFullLoadTimestamp",
)  # fmt: skip
STREAM_NAMES = (
    "Broker", "IncludeControlDetails", "IncludeNullAndEmpty", "IncludePartitionValue", "IncludeTableAlterOperations",
    "IncludeTransactionDetails", "MessageFormat", "MessageMaxBytes", "NoHexPrefix", "PartitionIncludeSchemaTable",
    "SaslMechanism", "SaslPassword", "SaslUsername", "SecurityProtocol", "ServiceAccessRoleArn", "SslCaCertificateArn",
    "SslClientCertificateArn", "SslClientKeyArn", "SslClientKeyPassword", "SslEndpointIdentificationAlgorithm", "StreamArn",
    "Topic", "UseLargeIntegerValue",
)  # fmt: skip
"""Settings of Kafka and Kinesis targets."""
OWN_NAMES = ("OpColumnName", "OpValues", "CdcHasOp")
"""Entries of `FrazilSettings`: DMS does not have these settings."""
ENDPOINT_NAMES = (
    "$schema", "CertificateArn", "DatabaseName", "Endpoint", "EndpointArn", "EndpointIdentifier", "EndpointType", "Endpoints",
    "EngineDisplayName", "EngineName", "ExternalId", "ExtraConnectionAttributes", "FrazilSettings", "IsReadOnly",
    "KafkaSettings", "KinesisSettings", "KmsKeyId", "Marker", "Password", "Port", "ReplicationTasks", "ResourceIdentifier",
    "S3Settings", "ServerName", "SslMode", "Status", "TableStatistics", "Tags", "Username", "rules",
)  # fmt: skip
"""Keys of the documents with such settings."""


def _nearest(name: str, right: Mapping[str, str]) -> str:
    """Return the known name that a misspelt one most likely means, with at most a few other letters; empty if none."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    near = difflib.get_close_matches(letters, right, n=1, cutoff=0.85)
    return right[near[0]] if near else ""
