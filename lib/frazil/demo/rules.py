"""Which settings the stand-in honours, and which tables a task's selection rules mean; the rest is refused by name."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

from frazil.dms.endpoint import EndpointError, Mappings
from frazil.errors import nearest

SEQUENCE = "$AR_H_CHANGE_SEQ"

_HONOURED = {
    "DataFormat", "CompressionType", "CsvDelimiter", "CsvRowDelimiter", "CsvNullValue", "Rfc4180", "AddColumnName",
    "IncludeOpForFullLoad", "TimestampColumnName", "CdcMaxBatchInterval", "CdcMinFileSize", "MaxFileSize",
}  # fmt: skip
# They say where the bucket is and who may read it, or shape Parquet only: no effect on CSV files.
_WITHOUT_EFFECT = {
    "BucketName", "BucketFolder", "ServiceAccessRoleArn", "ExpectedBucketOwner", "CannedAclForObjects",
    "EncryptionMode", "ServerSideEncryptionKmsKeyId", "ParquetVersion", "ParquetTimestampInMillisecond",
    "EncodingType", "DictPageSizeLimit", "RowGroupLength", "DataPageSize", "EnableStatistics",
    "IgnoreHeaderRows", "ExternalTableDefinition", "DatePartitionSequence", "DatePartitionDelimiter",
}  # fmt: skip


def check_settings(file: Path) -> None:
    """Refuse S3 settings that would change what DMS writes, but that the stand-in does not know to honour."""
    raw = json.loads(Path(file).read_text(encoding="utf-8"))
    raw = raw["Endpoints"][0] if raw.get("Endpoints") else raw
    for name, value in raw.get("S3Settings", raw).items():
        off = value is None or value is False or value in ("", 0)
        if not off and name not in _HONOURED | _WITHOUT_EFFECT:
            hint = nearest(name, _HONOURED)
            raise EndpointError(f"{file}: the stand-in does not support {name} = {value!r}", f"remove it; {hint}")


def check_rules(mappings: Mappings, file: Path | None = None) -> None:
    """Refuse table mapping rules that the stand-in does not apply."""
    for rule in mappings.rules:
        kind, action = rule.get("rule-type"), rule.get("rule-action")
        where = f"{file or 'table mappings'}: rule '{rule.get('rule-name', rule.get('rule-id', '?'))}'"
        if kind == "selection" and action in ("include", "exclude", "explicit") and not rule.get("filters"):
            continue
        if kind == "transformation" and action == "add-column":
            if rule.get("expression") == SEQUENCE:
                continue
            raise EndpointError(f"{where}: expression {rule.get('expression')!r}", f"the stand-in knows {SEQUENCE}")
        if kind == "transformation" and action == "add-before-image-columns":
            wanted = rule.get("before-image-def", {}).get("column-filter", "pk-only")
            if wanted == "pk-only":
                continue
            raise EndpointError(f"{where}: column-filter '{wanted}'", "the stand-in knows pk-only")
        filtered = " with filters" if rule.get("filters") else ""
        raise EndpointError(
            f"{where}: the stand-in does not support {kind} / {action}{filtered}",
            "it knows selection rules without filters, add-column and add-before-image-columns",
        )
    if not any(r.get("rule-type") == "selection" for r in mappings.rules):
        raise EndpointError(f"{file or 'table mappings'}: no selection rule", "say which tables to include")


def selected(mappings: Mappings, names) -> list[str]:
    """Return the tables (`schema.table`) that the selection rules include and none excludes."""

    def meant(rule: dict, name: str) -> bool:
        at = rule.get("object-locator", {})
        patterns = (at.get("schema-name", "%"), at.get("table-name", "%"))
        return all(fnmatchcase(n, p.replace("%", "*")) for n, p in zip(name.split(".", 1), patterns, strict=True))

    rules = [r for r in mappings.rules if r.get("rule-type") == "selection"]
    taken = [r for r in rules if r["rule-action"] != "exclude"]
    dropped = [r for r in rules if r["rule-action"] == "exclude"]
    return [n for n in names if any(meant(r, n) for r in taken) and not any(meant(r, n) for r in dropped)]
