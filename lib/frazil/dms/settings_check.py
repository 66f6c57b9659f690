"""Checks what DMS's files show about their settings against the stated settings.

Only what a file proves can contradict a setting; the rest is proposed. The bytes prove little about nulls, so the user
states the null token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from frazil.config.spec import TableSpec
from frazil.dms.aws_json import EndpointError
from frazil.dms.endpoint import Endpoint
from frazil.dms.format_detection import read_head_of
from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.mappings import Mappings
from frazil.dms.settings_evidence import ANY_NAME, Evidence, FileFields, of_form

FILES_OF_A_KIND = 2
"""Number of load files, and of change files, to examine per table: the first and the last."""
TRANSACTIONS = re.compile(r"CDC_TXN-\d+\.")
DATE_FOLDER = re.compile(r"\d{4}([-_/]\d\d){1,3}|\d\d[-_/]\d{4}[-_/]\d\d|\d\d[-_/]\d\d[-_/]\d{4}|\d{6,10}")

Reader = Callable[[str], bytes]
"""Returns the first 64 KB or so of a path."""


@dataclass(frozen=True)
class Contradiction:
    """A setting that a file proves wrong."""

    setting: str
    stated: str
    seen: str
    file: str
    cure: str

    def __str__(self):
        return f"{self.setting} is {self.stated}, but {self.file}: {self.seen}"


def sniff(
    objects: TableObjects,
    read_head: Reader,
    spec: TableSpec | None = None,
    mappings: Mappings | None = None,
    endpoint: Endpoint | None = None,
) -> list[Evidence]:
    """Return what a table's first and last files show, load files first; with a spec it shows more, and with certainty.

    Only delimiters and names of the endpoint are used as hints. Parquet files describe themselves.
    """
    mappings, endpoint = mappings or Mappings(), endpoint or Endpoint()
    found: list[Evidence] = []
    for files, is_load in ((objects.loads, True), (objects.changes, False)):
        for file in _some(files):
            found += _of_file(file, is_load, read_head, spec, mappings, endpoint)
    return found


def _some(files: Sequence[DmsObject]) -> list[DmsObject]:
    filled = [f for f in files if f.size]
    return filled if len(filled) <= FILES_OF_A_KIND else [filled[0], filled[-1]]


def _of_file(
    file: DmsObject, is_load: bool, read_head: Reader, spec: TableSpec | None, mappings: Mappings, endpoint: Endpoint
) -> Iterator[Evidence]:
    wanted = len(mappings.file_columns(spec)) if spec else 1
    data = read_head(file.path)
    head = read_head_of(data, file.size, endpoint.delimiter, endpoint.row_delimiter, wanted // 2)
    together = bool(TRANSACTIONS.match(file.name))
    rows = head.rows or []
    by_op = bool(rows) and len(rows[0]) > 1 and all(r[0] in endpoint.op_values for r in rows)
    yield from of_form(file, head, wanted, by_op)
    if together:
        yield Evidence("PreserveTransactions", "true", f"is named {file.name}", True, file.path)
        return
    folder = file.path.rsplit("/", 1)[0]
    if not is_load and (date := re.search(rf"/({DATE_FOLDER.pattern})$", folder)):
        yield Evidence("DatePartitionEnabled", "true", f"lies in {date.group(1)}", False, file.path)
    if head.data_format == "csv" and rows:
        yield from FileFields(file, is_load, head, spec, mappings, endpoint).evidence()


def stated(endpoint: Endpoint, setting: str) -> str | None:
    """Return the stated value of a setting, in the form of `Evidence.proposed`; None if none is stated."""
    values = {
        "DataFormat": endpoint.data_format,
        "CompressionType": endpoint.compression,
        "CsvDelimiter": endpoint.delimiter,
        "CsvRowDelimiter": endpoint.row_delimiter,
        "Rfc4180": endpoint.rfc4180,
        "AddColumnName": endpoint.header,
        "IncludeOpForFullLoad": endpoint.op_in_load,
        "CdcHasOp": endpoint.op_in_changes,
        "TimestampColumnName": endpoint.timestamp_column,
        "CsvNullValue": endpoint.null_value,
        "PreserveTransactions": endpoint.preserve_transactions,
        "DatePartitionEnabled": endpoint.date_partition.enabled,
        "OpColumnName": endpoint.op_column,
    }
    value = values.get(setting)
    return str(value).lower() if isinstance(value, bool) else value


def agrees(endpoint: Endpoint, e: Evidence) -> bool:
    """Return whether evidence agrees with what is stated, or nothing is stated."""
    value = stated(endpoint, e.setting)
    if value is None or value == e.proposed:
        return True
    if e.setting == "TimestampColumnName":
        return bool(value) and e.proposed == ANY_NAME
    if e.setting == "CsvNullValue":
        return e.proposed == endpoint.no_sup_value
    always_csv = endpoint.preserve_transactions and TRANSACTIONS.match(e.file.rsplit("/", 1)[-1])
    return e.setting in ("DataFormat", "CompressionType") and bool(always_csv)


CURES = {
    "IncludeOpForFullLoad": "correct IncludeOpForFullLoad as the task has it, or, where the operation has another name or other values, "
    'state "FrazilSettings": {"OpColumnName": …, "OpValues": {…: "I", …: "U", …: "D"}}',
    "CdcHasOp": 'correct IncludeOpForFullLoad, CdcInsertsOnly, CdcInsertsAndUpdates, or state "FrazilSettings": '
    '{"CdcHasOp": true} or false, with OpColumnName and OpValues if others than DMS wrote the files',
    "DataFormat": "correct DataFormat, or clear out files of an earlier task",
    "CompressionType": "correct CompressionType, or clear out files of an earlier task",
}


def _shown(value: str | None) -> str:
    return value if value in ("true", "false") else repr(value or "")


def contradictions(endpoint: Endpoint, evidence: Iterable[Evidence]) -> list[Contradiction]:
    """Return the settings that a file proves wrong; evidence that is only likely contradicts nothing."""
    found = []
    for e in evidence:
        if e.certain and not agrees(endpoint, e):
            proposed = _shown(e.proposed) if e.proposed != ANY_NAME else "the column's name"
            cure = CURES.get(e.setting, f"set {e.setting} to {proposed} in the endpoint's JSON, as the task has it")
            value = stated(endpoint, e.setting)
            found.append(Contradiction(e.setting, _shown(value), e.evidence, e.file, cure))
    return found


def refuse(found: Sequence[Contradiction]) -> None:
    """Raise EndpointError with the first contradiction and its cure, and the settings of the others; do nothing without one."""
    if found:
        others = {c.setting for c in found[1:]} - {found[0].setting}
        more = f"; also contradicted: {', '.join(sorted(others))}" if others else ""
        raise EndpointError(f"{found[0]}{more}", found[0].cure)


def check_files(
    objects: TableObjects, read_head: Reader, spec: TableSpec, mappings: Mappings, endpoint: Endpoint
) -> list[Evidence]:
    """Examine a table's files and return what they show; raise EndpointError if one contradicts the settings."""
    found = sniff(objects, read_head, spec, mappings, endpoint)
    refuse(contradictions(endpoint, found))
    return found
