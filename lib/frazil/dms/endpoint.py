"""The settings of a DMS S3 target and of its table mappings, read from the JSON that DMS itself takes."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path

from frazil.config.spec import TableSpec
from frazil.errors import FrazilError


class EndpointError(FrazilError):
    """Endpoint settings or table mappings that are missing, unreadable, or beyond what Frazil reads."""


@dataclass(frozen=True)
class Endpoint:
    """What the S3 target's settings say about the bytes of its files; names in comments are DMS's own."""

    null_value: str  # CsvNullValue
    delimiter: str = ","  # CsvDelimiter
    row_delimiter: str = "\n"  # CsvRowDelimiter
    rfc4180: bool = True  # Rfc4180
    header: bool = False  # AddColumnName
    op_in_load: bool = False  # IncludeOpForFullLoad
    timestamp_column: str = ""  # TimestampColumnName
    max_batch_interval_s: float = 60.0  # CdcMaxBatchInterval
    min_file_kb: int = 32_000  # CdcMinFileSize
    max_file_kb: int = 1_048_576  # MaxFileSize


@dataclass(frozen=True)
class BeforeImage:
    """The rule add-before-image-columns: which columns also come with their old value, under which names."""

    prefix: str = "BI_"
    suffix: str = ""
    columns: str = "pk-only"

    def names(self, spec: TableSpec) -> dict[str, str]:
        """Return {column: name of its before-image column} in file order."""
        lobs = {"CLOB", "NCLOB", "BLOB"}
        wanted = {
            "pk-only": lambda c: c.name in spec.key,
            "non-lob": lambda c: c.dms_type not in lobs,
            "all": lambda c: True,
        }[self.columns]
        return {c.name: f"{self.prefix}{c.name}{self.suffix}" for c in spec.columns if wanted(c)}


@dataclass(frozen=True)
class Mappings:
    """The transformation rules that add columns to what DMS writes."""

    rules: tuple[dict, ...] = ()

    def _of(self, spec: TableSpec, action: str) -> list[dict]:
        def meant(rule: dict) -> bool:
            at = rule.get("object-locator", {})
            pairs = ((spec.schema_name, at.get("schema-name", "%")), (spec.table_name, at.get("table-name", "%")))
            return rule.get("rule-action") == action and all(
                fnmatch.fnmatchcase(name, pattern.replace("%", "*")) for name, pattern in pairs
            )

        return [r for r in self.rules if r.get("rule-type") == "transformation" and meant(r)]

    def before_image(self, spec: TableSpec) -> BeforeImage | None:
        """Return the before-image rule that holds for a table, or None."""
        for rule in self._of(spec, "add-before-image-columns"):
            d = rule.get("before-image-def", {})
            prefix, suffix = d.get("column-prefix", ""), d.get("column-suffix", "")
            return BeforeImage(prefix if prefix or suffix else "BI_", suffix, d.get("column-filter", "pk-only"))
        return None

    def added(self, spec: TableSpec) -> dict[str, str]:
        """Return {added column: its expression} for a table, in rule order: {"seq": "$AR_H_CHANGE_SEQ"}."""
        return {r["value"]: r.get("expression", "") for r in self._of(spec, "add-column")}


def _json(path: Path, what: str) -> dict:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EndpointError(f"{what}: no file {path}", "save what DMS prints under that name, or correct it") from None
    except ValueError as e:
        raise EndpointError(f"{what}: {path} is not JSON: {e}", "save it again") from None


def read_endpoint(path: Path) -> Endpoint:
    """Read S3 target settings from a JSON file.

    Takes the bare `S3Settings` object, or a document that holds it as `aws dms describe-endpoints` prints it.
    """
    raw = _json(path, "endpoint settings")
    if raw.get("Endpoints"):
        raw = raw["Endpoints"][0]
    s = raw.get("S3Settings", raw)
    if s.get("DataFormat", "csv").lower() != "csv" or s.get("CompressionType", "none").lower() != "none":
        raise EndpointError(
            f"{path}: DataFormat {s.get('DataFormat', 'csv')}, CompressionType {s.get('CompressionType', 'NONE')}",
            "this version reads uncompressed CSV",
        )
    for name in ("PreserveTransactions", "CdcInsertsOnly", "CdcInsertsAndUpdates", "UseCsvNoSupValue"):
        if s.get(name):
            raise EndpointError(f"{path}: {name} is on", "this version does not read files written with it")
    if "CsvNullValue" not in s:
        raise EndpointError(
            f"{path}: CsvNullValue is not stated",
            'add "CsvNullValue": "NULL" (the documented default) or "" (what some tasks write): see how a null looks in your files',
        )
    return Endpoint(
        null_value=s["CsvNullValue"],
        delimiter=s.get("CsvDelimiter", ","),
        row_delimiter=s.get("CsvRowDelimiter", "\\n").replace("\\n", "\n").replace("\\r", "\r"),
        rfc4180=bool(s.get("Rfc4180", True)),
        header=bool(s.get("AddColumnName", False)),
        op_in_load=bool(s.get("IncludeOpForFullLoad", False)),
        timestamp_column=s.get("TimestampColumnName", ""),
        max_batch_interval_s=float(s.get("CdcMaxBatchInterval", 60)),
        min_file_kb=int(s.get("CdcMinFileSize", 32_000)),
        max_file_kb=int(s.get("MaxFileSize", 1_048_576)),
    )


def read_mappings(path: Path | None) -> Mappings:
    """Read the table mappings (`{"rules": [...]}`) of a replication task from a JSON file; no file: no rules."""
    return Mappings(tuple(_json(path, "table mappings").get("rules", ()))) if path else Mappings()
