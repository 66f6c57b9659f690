"""Checks the settings against DMS's files: what do the first rows of a CSV file show?

If a file proves a setting wrong, that is an error, before any table is changed. If it only suggests another value, that
is a proposal. Files prove little about nulls, so the user sets the null token.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from frazil_old.core.csv import Dialect
from frazil_old.core.field_meaning import HAVE_EMPTY
from frazil_old.core.field_roles import UNKNOWN, field_roles, fields_by_role
from frazil_old.dms.endpoint import DatePartition, Endpoint, SourceTable
from frazil_old.dms.file_columns import first_and_last, rows_of_text
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE, field_names, op_is_stated, stated_layout
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.source_errors import EndpointError
from frazil_old.dms.storage import decoded, read_head


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
        for file in first_and_last(files)
        for shown in _of_file(file, phase, table)
    ]


PARTITION = ("DatePartitionEnabled", "DatePartitionSequence", "DatePartitionDelimiter")
_CURES = {
    "IncludeOpForFullLoad": "correct IncludeOpForFullLoad as the task has it, or, where the operation has another name or other values, "
    'set "FrazilSettings": {"OpColumnName": …, "OpValues": {…: "I", …: "U", …: "D"}}',
    "CdcHasOp": 'correct IncludeOpForFullLoad, CdcInsertsOnly, CdcInsertsAndUpdates, or set "FrazilSettings": '
    '{"CdcHasOp": true} or false, with OpColumnName and OpValues if DMS did not write the files',
    "Rfc4180": "fetch the file again if it was cut off, or correct its quotes; if all files are so, set Rfc4180 in the endpoint's JSON as "
    "the task has it: with another value, quotes are read as a part of texts, or texts as quoted",
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
    data, compression, whole = unpacked(file)
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
    text, columns = decoded(data), len(table.mappings.file_columns(table.spec))
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


def unpacked(file: DmsObject, n: int = 1 << 16) -> tuple[bytes, str, bool]:
    """Return a file's first `n` bytes, decompressed, its compression, and whether these are all its bytes."""
    data = read_head(file.path, n)
    whole = len(data) >= file.size
    if not data.startswith(b"\x1f\x8b"):
        return data, "none", whole
    inflate = zlib.decompressobj(31)
    try:
        return inflate.decompress(data), "gzip", whole and inflate.eof
    except zlib.error:
        return b"", "gzip", False


FIELD_DELIMITERS = (",", ";", "|", "\t", "\x01", "~", "^")
"""The delimiters to try if the endpoint's does not fit."""
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
NUMBER = re.compile(r"[+-]?\d[\d.eE+-]*")
SEQUENCE_DIGITS = re.compile(r"\d{35}")
NULL_WORDS = ("NULL", "null", "\\N")
OPERATION_WORDS = {"INSERT", "UPDATE", "DELETE", "I", "U", "D"}
ANY_NAME = "any name"
LONGEST = 40
"""Maximum number of a value's characters in evidence."""

Shown = tuple[str, str, str, bool]
"""A setting, the value that a file shows, how it shows that, and whether no other value can have produced the file."""


@dataclass(frozen=True)
class RowsRead:
    """The complete rows at the beginning of a CSV file, if they have equal lengths, and the settings that give these rows."""

    rows: list[list[str]]
    row_delimiter: str
    delimiter: str = ""
    """Empty if no delimiter gives rows with enough fields."""
    quotes: tuple[bool, ...] = ()
    """The values of Rfc4180 that give such rows."""
    is_only_other: bool = False
    """Whether it is the only delimiter that gives such rows, and not the endpoint's."""

    def evidence(self, endpoint: Endpoint, columns: int) -> Iterator[Shown]:
        """Yield what the rows show without the fields' roles; `columns` is the number of the table's columns."""
        if self.delimiter:
            width, begin = len(self.rows[0]), {r[0] for r in self.rows}
            certain = self.is_only_other and (begin <= {*endpoint.op_values} or width >= columns > 1)
            yield "CsvDelimiter", self.delimiter, f"{width} fields in each of {len(self.rows)} rows", certain
        if self.row_delimiter:
            yield "CsvRowDelimiter", self.row_delimiter, f"{self.row_delimiter!r} ends every line", True
        if len(self.quotes) == 1:
            how = "with" if self.quotes[0] else "without"
            yield "Rfc4180", str(self.quotes[0]).lower(), f"rows have equal length only if read {how} quotes", True


def read_rows(text: str, whole: bool, endpoint: Endpoint, least: int) -> RowsRead:
    """Read a text with the endpoint's delimiter if that gives equally long rows of `least` fields or more, else with another."""
    end, stated = _row_delimiter(text, endpoint.row_delimiter), endpoint.delimiter

    def rows(delimiter: str, quotes: bool) -> list[list[str]]:
        found = list(rows_of_text(text, Dialect(delimiter, end or "\n", quotes)))
        found = [row for row in (found if whole else found[:-1]) if any(row)]
        return found if len({len(row) for row in found}) == 1 else []

    def fitting_rows(delimiter: str) -> dict[bool, list[list[str]]]:
        both = {quotes: rows(delimiter, quotes) for quotes in (True, False)}
        return {quotes: found for quotes, found in both.items() if found and len(found[0]) >= least}

    fitting = {stated: fitting_rows(stated)}
    if not fitting[stated]:
        fitting = {d: found for d in FIELD_DELIMITERS if d != stated and (found := fitting_rows(d))}
    if not fitting:
        return RowsRead(rows(stated, True), end)
    best = max(fitting, key=lambda d: len(next(iter(fitting[d].values()))[0]))
    return RowsRead(
        next(iter(fitting[best].values())), end, best, tuple(fitting[best]), best != stated and len(fitting) == 1
    )


def _row_delimiter(text: str, stated: str) -> str:
    """Return the endpoint's delimiter if it is not a line break and the text has it, else the line break of all lines.

    It is empty if line breaks differ, or there are none.
    """
    if stated not in ("\n", "\r\n", "\r") and stated in text:
        return stated
    newlines, both = text.count("\n"), text.count("\r\n")
    if newlines:
        return "\r\n" if both == newlines else "" if both else "\n"
    return "\r" if "\r" in text else ""


# --- what the fields show


class Fields:
    """The rows of a CSV file: whether the first is a header, which fields are DMS's own, and the role of each."""

    def __init__(self, rows: list[list[str]], file: DmsObject, phase: int, table: SourceTable):
        spec, endpoint, mappings = table.spec, table.endpoint, table.mappings
        self.spec, self.mappings, self.endpoint, self.phase = spec, mappings, endpoint, phase
        self.first, self.width = rows[0], len(rows[0])
        self.columns = {*mappings.file_columns(spec).values()}
        known = self.columns & {*self.first}
        begins_with_op = self.first[0].lower() in ("op", endpoint.op_column.lower())
        then_op = len(rows) > 1 and rows[1][0] in endpoint.op_values
        has_header = (begins_with_op and (known or then_op)) or (len(known) > 1 and known == self.columns)
        self.is_data = not known and any(TIME.fullmatch(f) or NUMBER.fullmatch(f) for f in self.first)
        self.header, self.body = (self.first, rows[1:]) if has_header else ([], rows)
        self.roles: tuple[str, ...] = ()
        if self.header:
            names = field_names(table)
            self.roles = tuple(field_roles(self.header, names, op_is_stated(endpoint, phase), file.path))
        self.op = self._op()
        self.time = self._time()
        self.own = (self.op is not None) + (self.time is not None)
        self.expected = 0
        if not self.header:
            observed = replace(
                endpoint,
                op_in_load=self.op is not None,
                cdc_has_op=self.op is not None,
                timestamp_column="" if self.time is None else ANY_NAME,
            )
            roles = stated_layout(replace(table, endpoint=observed), phase)
            self.expected = len(roles) - self.own
            self.roles = roles if len(roles) == self.width else ()

    def _op(self) -> int | None:
        """Return the index of the operation; None if there is none."""
        if self.header:
            return self.roles.index("op") if "op" in self.roles else None
        return 0 if self.body and all(r[0] in self.endpoint.op_values for r in self.body) else None

    def _time(self) -> int | None:
        """Return the index of the commit time; without a header, only if there are more fields than the spec has columns."""
        at = 0 if self.op is None else 1
        if self.header and self.endpoint.timestamp_column:
            return self.roles.index("ts") if "ts" in self.roles else None
        if self.header:
            may_be = not self.columns.issuperset(self.header[at : at + 1])
        else:
            may_be = self.width > len(self.columns) + at
        return at if may_be and self._matches(TIME, at) else None

    def _matches(self, form: re.Pattern[str], at: int) -> bool:
        """Return whether a field has this form in every row."""
        return bool(self.body) and at < self.width and all(form.fullmatch(r[at]) for r in self.body)

    def _shown(self, value: str) -> str:
        """Return a value in a form that messages may show: short, and hidden if columns are masked or left out."""
        if self.spec.has_hidden_columns and value not in self.endpoint.op_values:
            return "…"
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"

    def evidence(self) -> Iterator[Shown]:
        """Yield what header, operations, times, nulls and added columns show."""
        if self.header:
            yield "AddColumnName", "true", f"first line is column names: {', '.join(self.header[:4])}", True
        else:
            shown = ", ".join(map(self._shown, self.first[:4]))
            yield "AddColumnName", "false", f"first line is data: {shown}", self.is_data
        if self.body:
            yield from self._from_header() if self.header else self._from_positions()
            yield from self._of_nulls()
            yield from self._of_sequence()

    def _from_header(self) -> Iterator[Shown]:
        """Yield what a header shows."""
        has_op, setting = self.op is not None, self._op_setting
        seen = f"header {'has' if has_op else 'lacks'} the column {self.endpoint.op_column} that DMS adds"
        yield setting, str(has_op).lower(), seen, True
        unknown = [i for i, role in enumerate(self.roles) if role.startswith(UNKNOWN)]
        for at in () if has_op else unknown:
            if (words := {r[at] for r in self.body}) and {w.upper() for w in words} <= OPERATION_WORDS:
                yield "OpColumnName", self.header[at], f"has the values {', '.join(sorted(words))}", False
        name_set, index = self.endpoint.timestamp_column, self.time
        if index is not None:
            seen = f"field {index + 1} is a time: {self.body[0][index]}"
            yield "TimestampColumnName", self.header[index], seen, True
        elif name_set:
            elsewhere = f" at position {has_op + 1}, where DMS writes it" if name_set in self.header else ""
            name = next((self.header[i] for i in unknown if self._matches(TIME, i)), "")
            other = f", and its column {name} has times" if name else ""
            yield "TimestampColumnName", name, f"header lacks {name_set}{elsewhere}{other}", True
        names = self.mappings.file_columns(self.spec)
        for column in (names.get(key, key) for key in self.spec.key):
            for name in (self.header[i] for i in unknown):
                if name.startswith(column) or name.endswith(column):
                    prefix, _, suffix = name.partition(column)
                    rule = " and ".join(f"column-{k} {v}" for k, v in (("prefix", prefix), ("suffix", suffix)) if v)
                    yield "add-before-image-columns", rule, f"header has {name} next to the key {column}", False

    def _from_positions(self) -> Iterator[Shown]:
        """Yield what fields without names show."""
        first, fits, setting = sorted({r[0] for r in self.body}), bool(self.roles), self._op_setting
        if self.op is not None:
            seen = f"first field is {', '.join(first)} in all {len(self.body)} rows of {self.width} fields"
            yield setting, "true", seen, fits
        elif not {*first} & {*self.endpoint.op_values}:
            seen = f"first field is {self._shown(first[0])!r}, which is not an operation in OpValues"
            yield setting, "false", seen, len(self.body) > 1  # a single row may be damaged
        at = 0 if self.op is None else 1
        if self.time is not None:
            yield "TimestampColumnName", ANY_NAME, f"field {at + 1} is a time: {self.body[0][at]}", fits
        elif at < self.width and not any(TIME.fullmatch(r[at]) for r in self.body):
            seen = f"field {at + 1} is {self._shown(self.body[0][at])!r}, not a time"
            yield "TimestampColumnName", "", seen, self.op is not None
        if not fits:
            expected = f"spec and mappings give {self.expected} columns besides {self.own} of DMS's own"
            hint = "" if self.mappings.sequence_column(self.spec) else " (no sequence column is mapped)"
            seen = f"rows have {self.width} fields; {expected}{hint}"
            yield "columns", str(self.width - self.own), seen, False

    @property
    def _op_setting(self) -> str:
        return "CdcHasOp" if self.phase == CHANGE_PHASE else "IncludeOpForFullLoad"

    def _of_nulls(self) -> Iterator[Shown]:
        """Yield the null token, which can be seen in columns whose type has neither texts nor empty values."""
        fields = [{r[i] for r in self.body} for i in range(self.width)]
        by_role = fields_by_role(self.roles, fields) if self.roles else {}
        columns = [c for c in self.spec.columns if c.dms_type not in HAVE_EMPTY and f"after:{c.name}" in by_role]
        for word in (w for w in NULL_WORDS if w != self.endpoint.no_sup_value):
            for c in columns:
                if word in by_role[f"after:{c.name}"]:
                    yield "CsvNullValue", word, f"column {c.name} ({c.type}) has {word}", True
                    return
        for c in columns:
            if "" in by_role[f"after:{c.name}"]:
                seen = f"column {c.name} ({c.type}) has empty fields; if these are its nulls, this is the token, and empty texts are nulls too"
                yield "CsvNullValue", "", seen, False
                return

    def _of_sequence(self) -> Iterator[Shown]:
        for i in range(self.width):
            values = {r[i] for r in self.body} - {""}
            if values and all(SEQUENCE_DIGITS.fullmatch(v) for v in values):
                name = self.header[i] if self.header else f"field {i + 1}"
                yield "$AR_H_CHANGE_SEQ", name, f"35 digits in every row: {min(values)}", False
