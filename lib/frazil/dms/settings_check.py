"""Checks the settings against DMS's files.

If a file proves a setting wrong, that is an error, before any table is changed. If it only suggests another value, that
is a proposal. Files prove little about nulls, so the user sets the null token.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from frazil.dms.aws_json import EndpointError
from frazil.dms.endpoint import DatePartition, Endpoint
from frazil.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.settings_evidence import ANY_NAME, Fields, Shown, read_rows
from frazil.dms.source_table import SourceTable
from frazil.dms.storage import read_head


@dataclass(frozen=True)
class Evidence:
    """What one file shows about one setting. `certain`: no other value of the setting can have produced it."""

    setting: str
    proposed: str
    evidence: str
    certain: bool
    file: str
    stated: str | None
    """The setting's value in the endpoint, in the form of `proposed`; None if it is not set."""

    @property
    def agrees(self) -> bool:
        """Whether the endpoint's value is the proposed one, or is not set."""
        return self.stated in (None, self.proposed) or bool(self.stated and self.proposed == ANY_NAME)

    @property
    def contradicts(self) -> bool:
        """Whether the file proves the endpoint's value wrong."""
        return self.certain and not self.agrees


def check_files(objects: TableObjects, table: SourceTable) -> None:
    """Examine a table's files; raise EndpointError if one contradicts the settings."""
    refuse(evidence(objects, table))


def evidence(objects: TableObjects, table: SourceTable) -> list[Evidence]:
    """Return what the first and the last file of each kind show, load files first. Parquet files describe themselves."""
    stated = _stated(table.endpoint)
    kinds = ((objects.loads, LOAD_PHASE), (objects.changes, CHANGE_PHASE))
    filled = [([f for f in files if f.size], phase) for files, phase in kinds]
    return [
        Evidence(*shown, file.path, stated.get(shown[0]))
        for files, phase in filled
        for file in dict.fromkeys((*files[:1], *files[-1:]))
        for shown in _of_file(file, phase, table)
    ]


PARTITION = ("DatePartitionEnabled", "DatePartitionSequence", "DatePartitionDelimiter")
_CURES = {
    "IncludeOpForFullLoad": "correct IncludeOpForFullLoad as the task has it, or, where the operation has another name or other values, "
    'set "FrazilSettings": {"OpColumnName": …, "OpValues": {…: "I", …: "U", …: "D"}}',
    "CdcHasOp": 'correct IncludeOpForFullLoad, CdcInsertsOnly, CdcInsertsAndUpdates, or set "FrazilSettings": '
    '{"CdcHasOp": true} or false, with OpColumnName and OpValues if DMS did not write the files',
    "DataFormat": "correct DataFormat, or remove files of an earlier task",
    "CompressionType": "correct CompressionType, or remove files of an earlier task",
    **dict.fromkeys(
        PARTITION,
        f"set {', '.join(PARTITION)} in the endpoint's JSON as the task has them, or remove files of an earlier task",
    ),
}


def refuse(found: Iterable[Evidence]) -> None:
    """Raise EndpointError for contradictions: with the first one, its cure, and the settings of the others."""
    wrong = [e for e in found if e.contradicts]
    if not wrong:
        return
    first, others = wrong[0], {e.setting for e in wrong} - {wrong[0].setting}
    more = f"; also contradicted: {', '.join(sorted(others))}" if others else ""
    proposed = "the column's name" if first.proposed == ANY_NAME else _quoted(first.proposed)
    cure = _CURES.get(first.setting, f"set {first.setting} to {proposed} in the endpoint's JSON, as the task has it")
    raise EndpointError(f"{first.setting} is {_quoted(first.stated)}, but {first.file}: {first.evidence}{more}", cure)


def _quoted(value: str | None) -> str:
    return value if value in ("true", "false") else repr(value or "")


def _stated(endpoint: Endpoint) -> dict[str, str | None]:
    partition = endpoint.date_partition
    parts = (partition.sequence, partition.delimiter) if partition.enabled else (None, None)
    values = {
        "DataFormat": endpoint.data_format, "CompressionType": endpoint.compression,
        "CsvDelimiter": endpoint.delimiter, "CsvRowDelimiter": endpoint.row_delimiter, "Rfc4180": endpoint.rfc4180,
        "AddColumnName": endpoint.header, "CsvNullValue": endpoint.null_value, "OpColumnName": endpoint.op_column,
        "IncludeOpForFullLoad": endpoint.op_in_load, "CdcHasOp": endpoint.op_in_changes,
        "TimestampColumnName": endpoint.timestamp_column, "PreserveTransactions": endpoint.preserve_transactions,
        **dict(zip(PARTITION, (partition.enabled, *parts), strict=True)),
    }  # fmt: skip
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}


def _of_file(file: DmsObject, phase: int, table: SourceTable) -> Iterator[Shown]:
    """Yield what a file's path, bytes and rows show."""
    data, compression, whole = _unpacked(file)
    how = "begins with gzip's magic bytes" if compression == "gzip" else "is text"
    folder = file.path.rpartition("/{}/{}/".format(*table.target_name))[2].rpartition("/")[0]
    if phase == CHANGE_PHASE and folder:
        yield from _of_folder(folder, table.endpoint)
    if file.is_shared:  # always CSV, whatever the DataFormat
        yield "PreserveTransactions", "true", f"is named {file.name}", True
    elif data.startswith(b"PAR1"):
        yield "DataFormat", "parquet", "begins with PAR1", True
        return
    else:
        yield "DataFormat", "csv", how, True
        yield "CompressionType", compression, how, True
    text = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(data)
    columns = len(table.mappings.file_columns(table.spec))
    found = read_rows(text, whole, table.endpoint, max(columns // 2, 2))
    yield from found.evidence(table.endpoint, columns)
    if found.rows and not file.is_shared:
        yield from Fields(found.rows, file, phase, table).evidence()


def _of_folder(folder: str, endpoint: Endpoint) -> Iterator[Shown]:
    """Yield what the folder of a change file shows, if its name is a date."""
    stated = endpoint.date_partition
    if shown := stated if stated.names(folder) else DatePartition.of(folder):
        # PreserveTransactions excludes date partitions: these are from before it was switched on.
        for setting, value in zip(PARTITION, ("true", shown.sequence, shown.delimiter), strict=True):
            yield setting, value, f"is in {folder}", not endpoint.preserve_transactions


def _unpacked(file: DmsObject) -> tuple[bytes, str, bool]:
    """Return a file's first bytes, decompressed, its compression, and whether these are all its bytes."""
    data = read_head(file.path)
    whole = len(data) >= file.size
    if not data.startswith(b"\x1f\x8b"):
        return data, "none", whole
    inflate = zlib.decompressobj(31)
    try:
        return inflate.decompress(data), "gzip", whole and inflate.eof
    except zlib.error:
        return b"", "gzip", False
