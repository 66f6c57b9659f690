"""The names of a DMS endpoint's settings, in the spelling of AWS's API; DMS accepts any case."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

S3 = (
    "AddColumnName", "AddTrailingPaddingCharacter", "BucketFolder", "BucketName", "CannedAclForObjects", "CdcInsertsAndUpdates",
    "CdcInsertsOnly", "CdcMaxBatchInterval", "CdcMinFileSize", "CdcPath", "CompressionType", "CsvDelimiter", "CsvNoSupValue",
    "CsvNullValue", "CsvRowDelimiter", "DataFormat", "DataPageSize", "DatePartitionDelimiter", "DatePartitionEnabled",
    "DatePartitionSequence", "DatePartitionTimezone", "DictPageSizeLimit", "EnableStatistics", "EncodingType", "EncryptionMode",
    "ExpectedBucketOwner", "ExternalTableDefinition", "GlueCatalogGeneration", "IgnoreHeaderRows", "IncludeOpForFullLoad",
    "MaxFileSize", "ParquetTimestampInMillisecond", "ParquetVersion", "PreserveTransactions", "Rfc4180", "RowGroupLength",
    "ServerSideEncryptionKmsKeyId", "ServiceAccessRoleArn", "TimestampColumnName", "UseCsvNoSupValue",
    "UseTaskStartTimeForFullLoadTimestamp",
)  # fmt: skip
STREAM = (
    "Broker", "IncludeControlDetails", "IncludeNullAndEmpty", "IncludePartitionValue", "IncludeTableAlterOperations",
    "IncludeTransactionDetails", "MessageFormat", "MessageMaxBytes", "NoHexPrefix", "PartitionIncludeSchemaTable",
    "SaslMechanism", "SaslPassword", "SaslUsername", "SecurityProtocol", "ServiceAccessRoleArn", "SslCaCertificateArn",
    "SslClientCertificateArn", "SslClientKeyArn", "SslClientKeyPassword", "SslEndpointIdentificationAlgorithm", "StreamArn",
    "Topic", "UseLargeIntegerValue",
)  # fmt: skip
"""Settings of Kafka and Kinesis targets."""
OWN = ("OpColumnName", "OpValues", "CdcHasOp")
"""Entries of `FrazilSettings`: DMS does not have these settings."""
ENDPOINT = (
    "$schema", "CertificateArn", "DatabaseName", "Endpoint", "EndpointArn", "EndpointIdentifier", "EndpointType", "Endpoints",
    "EngineDisplayName", "EngineName", "ExternalId", "ExtraConnectionAttributes", "FrazilSettings", "IsReadOnly",
    "KafkaSettings", "KinesisSettings", "KmsKeyId", "Marker", "Password", "Port", "ReplicationTasks", "ResourceIdentifier",
    "S3Settings", "ServerName", "SslMode", "Status", "TableStatistics", "Tags", "Username", "rules",
)  # fmt: skip
"""Keys of the documents with such settings."""


@dataclass(frozen=True)
class Named:
    """Settings under their API names, if these are known."""

    settings: dict[str, Any]
    unknown: tuple[str, ...] = ()
    misspelt: tuple[tuple[str, str], ...] = ()
    """Names that differ from a known one in more than case, with the right spelling."""
    contradicting: tuple[str, ...] = ()
    """Names that occur twice, in different spellings and with different values."""


def named(given: Iterable[tuple[str, Any]] | Mapping[str, Any], known: Iterable[str]) -> Named:
    """Return settings under their API names, whatever their case; unknown names stay as they are."""
    right = {name.lower(): name for name in known}
    settings, unknown, misspelt, contradicting = {}, [], [], []
    for name, value in given.items() if isinstance(given, Mapping) else given:
        found = right.get(name.lower())
        if found is None and (near := _nearest(name, right)):
            misspelt.append((name, near))
        elif found is None:
            unknown.append(name)
        if found in settings and settings[found] != value:
            contradicting.append(found)
        settings[found or name] = value
    return Named(settings, tuple(unknown), tuple(misspelt), tuple(contradicting))


def _nearest(name: str, right: Mapping[str, str]) -> str:
    """Return the known name that a misspelt one most likely means, with at most a few other letters; empty if none."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    near = difflib.get_close_matches(letters, right, n=1, cutoff=0.85)
    return right[near[0]] if near else ""
