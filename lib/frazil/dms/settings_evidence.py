"""What the fields of a CSV file show about the settings with which it was written, each with its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from frazil.config.spec import TableSpec
from frazil.core.changes import HAVE_EMPTY
from frazil.core.field_roles import FieldNames, field_roles, leading_roles
from frazil.dms.endpoint import Endpoint
from frazil.dms.file_layout import CHANGE_PHASE, LOAD_PHASE, field_names, op_is_stated
from frazil.dms.format_detection import Head
from frazil.dms.listing import DmsObject
from frazil.dms.mappings import SEQUENCE, Mappings, added_kind

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
NUMBER = re.compile(r"[+-]?\d[\d.eE+-]*")
SEQUENCE_DIGITS = re.compile(r"\d{35}")
NULL_WORDS = ("NULL", "null", "\\N")
OPERATION_WORDS = {"INSERT": "I", "UPDATE": "U", "DELETE": "D", "I": "I", "U": "U", "D": "D"}
ANY_NAME = "any name"
LONGEST = 40
"""Maximum number of a value's characters in evidence."""


@dataclass(frozen=True)
class Evidence:
    """What one file shows about one setting. `certain`: no other value of the setting can have written it."""

    setting: str
    proposed: str
    evidence: str
    certain: bool
    file: str


class FileFields:
    """One CSV file, with its fields named as far as header or count allow."""

    def __init__(
        self, file: DmsObject, is_load: bool, head: Head, spec: TableSpec | None, mappings: Mappings, endpoint: Endpoint
    ):
        self.file, self.is_load, self.spec, self.mappings, self.endpoint = file, is_load, spec, mappings, endpoint
        self.rows = head.rows or []
        self.names = mappings.file_columns(spec) if spec else {}
        first = self.rows[0] if self.rows else []
        columns = {*self.names.values()}
        op_first = bool(first) and first[0].lower() in ("op", endpoint.op_column.lower())
        known = columns & {*first}
        then_op = len(self.rows) > 1 and self.rows[1][0] in endpoint.op_values
        self.has_header = (op_first and (bool(known) or then_op)) or (len(columns) > 1 and columns <= {*first})
        self.no_header = not known and any(TIME.fullmatch(f) or NUMBER.fullmatch(f) for f in first)
        self.header, self.body = (first, self.rows[1:]) if self.has_header else ([], self.rows)
        self.width = len(first)
        added, image = (mappings.added(spec), mappings.before_image(spec)) if spec else ({}, None)
        self.listed = mappings.listed(spec) if spec else []
        self.without_control = len({*self.names, *added}) + (len(image.names(spec)) if image else 0)
        self.roles = self._roles() if self.header else []
        self.op = self._op_at()
        self.time = self._time_at()
        more = self.width - self.without_control - (self.op is not None) - (self.time is not None)
        self.fits = bool(spec) and 0 <= more <= len(self.listed)  # the source may have columns of these names, too

    def _roles(self) -> list[str]:
        """Return the roles of the header's names."""
        stated = op_is_stated(self.endpoint, LOAD_PHASE if self.is_load else CHANGE_PHASE)
        if self.spec:
            return field_roles(
                self.header, field_names(self.spec, self.endpoint, self.mappings), stated, self.file.path
            )
        known = FieldNames(self.endpoint.op_column, self.endpoint.timestamp_column, {}, {}, {})
        return leading_roles(self.header, known, stated, self.file.path)

    def _op_at(self) -> int | None:
        if self.header:
            return self.roles.index("op") if "op" in self.roles else None
        return 0 if self.body and all(r[0] in self.endpoint.op_values for r in self.body) else None

    def _time_at(self) -> int | None:
        at = 0 if self.op is None else 1
        name, columns = self.endpoint.timestamp_column, {*self.names.values()}
        if self.header:
            if name:
                return self.roles.index("ts") if "ts" in self.roles else None
            if at >= self.width or self.header[at] in columns:
                return None
        found = at < self.width and bool(self.body) and all(TIME.fullmatch(r[at]) for r in self.body)
        return at if found and (self.header or self._room_for_a_time()) else None

    def _room_for_a_time(self) -> bool:
        """Return whether the first fields cannot all be columns of the spec: the first of these may be a DATETIME."""
        return not self.spec or self.width > len(self.names) + (self.op is not None)

    def _say(self, setting: str, proposed: str, evidence: str, certain: bool) -> Evidence:
        return Evidence(setting, proposed, evidence, certain, self.file.path)

    def _shown(self, value: str) -> str:
        """Return a value in a form that messages may show: short, and hidden if columns are masked or left out."""
        if self.spec and self.spec.hides and value not in self.endpoint.op_values:
            return "…"
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"

    def evidence(self) -> Iterator[Evidence]:
        """Yield what header, operations, times, nulls and added columns show."""
        yield from self._of_header()
        if self.body:
            yield from self._of_op()
            yield from self._of_time()
            yield from self._of_nulls()
            yield from self._of_added()

    def _of_header(self) -> Iterator[Evidence]:
        if self.has_header:
            shown = ", ".join(self.rows[0][:4])
            yield self._say("AddColumnName", "true", f"first line is column names: {shown}", True)
        else:
            shown = ", ".join(self._shown(f) for f in self.rows[0][:4])
            yield self._say("AddColumnName", "false", f"first line is data: {shown}", self.no_header)

    def _of_op(self) -> Iterator[Evidence]:
        setting = "IncludeOpForFullLoad" if self.is_load else "CdcHasOp"
        if self.header:
            seen = (
                f"header {'has' if self.op is not None else 'lacks'} the column {self.endpoint.op_column} that DMS adds"
            )
            yield self._say(setting, str(self.op is not None).lower(), seen, True)
            if self.op is None:
                yield from self._of_other_op()
            return
        first = sorted({r[0] for r in self.body})
        if self.op is not None:
            seen = f"first field is {', '.join(first)} in all {len(self.body)} rows of {self.width} fields"
            yield self._say(setting, "true", seen, self.fits)
        elif not {*first} & {*self.endpoint.op_values}:
            seen = f"first field is {self._shown(first[0])!r}, no operation that OpValues knows"
            yield self._say(setting, "false", seen, True)

    def _of_other_op(self) -> Iterator[Evidence]:
        for at, name in enumerate(self.header):
            seen = {r[at] for r in self.body}
            if name not in self.names.values() and seen and all(v.upper() in OPERATION_WORDS for v in seen):
                yield self._say("OpColumnName", name, f"holds {', '.join(sorted(seen))}", False)

    def _of_time(self) -> Iterator[Evidence]:
        at = 0 if self.op is None else 1
        if self.time is not None:
            name = self.header[self.time] if self.header else ANY_NAME
            sample = self.body[0][self.time]
            certain = bool(self.spec) if self.header else self.fits
            yield self._say("TimestampColumnName", name, f"field {self.time + 1} is a time: {sample}", certain)
        elif self.header and self.endpoint.timestamp_column:
            stated = self.endpoint.timestamp_column
            elsewhere = f" at place {at + 1}, where DMS writes it" if stated in self.header else ""
            name, lacks = self._other_time(), f"header lacks {stated}{elsewhere}"
            seen = f"{lacks}, and its column {name} holds times" if name else lacks
            yield self._say("TimestampColumnName", name, seen, True)
        elif not self.header and at < self.width and not any(TIME.fullmatch(r[at]) for r in self.body):
            seen = f"field {at + 1} is {self._shown(self.body[0][at])!r}, no time"
            yield self._say("TimestampColumnName", "", seen, self.spec is not None and self.op is not None)

    def _other_time(self) -> str:
        """Return the header's first column that is not in spec or mapping and has a time in every row; empty if none."""
        known = {*self.names.values()}
        if self.spec:
            image = self.mappings.before_image(self.spec)
            known |= {*self.mappings.added(self.spec), *(image.names(self.spec).values() if image else ())}
        times = (
            n for i, n in enumerate(self.header) if n not in known and all(TIME.fullmatch(r[i]) for r in self.body)
        )
        return next(times, "")

    def _of_nulls(self) -> Iterator[Evidence]:
        """Yield the null token, which shows in columns whose type has neither texts nor empty values."""
        start = (self.op is not None) + (self.time is not None)
        at = {n: self.header.index(f) if f in self.header else None for n, f in self.names.items()}
        if not self.header:
            source = [n for n in self.names if n not in self.listed]
            alone = self.fits and self.width == self.without_control + start
            at = {n: start + i for i, n in enumerate(source)} if alone else {}
        empty = ""
        for name, i in at.items():
            if i is None or self.spec.column(name).dms_type in HAVE_EMPTY:
                continue
            values = {r[i] for r in self.body}
            if word := next((w for w in NULL_WORDS if w in values), None):
                seen = f"column {name} ({self.spec.column(name).type}) holds {word}"
                yield self._say("CsvNullValue", word, seen, True)
                return
            empty = empty or (name if "" in values else "")
        if empty:
            seen = f"column {empty} ({self.spec.column(empty).type}) holds empty fields; if these are its nulls, empty texts are nulls too, and this is the token"
            yield self._say("CsvNullValue", "", seen, False)

    def _of_added(self) -> Iterator[Evidence]:
        for i in range(self.width):
            values = {r[i] for r in self.body} - {""}
            if values and all(SEQUENCE_DIGITS.fullmatch(v) for v in values):
                name = self.header[i] if self.header else f"field {i + 1}"
                seen = f"35 digits in every row: {min(values)}"
                yield self._say("$AR_H_CHANGE_SEQ", name, seen, False)
        for key in self.spec.key if self.spec else ():
            column, others = self.names.get(key, key), {*self.names.values()}
            for name in self.header:
                if name != column and name not in others and (name.startswith(column) or name.endswith(column)):
                    prefix, _, suffix = name.partition(column)
                    rule = " and ".join(f"column-{k} {v}" for k, v in (("prefix", prefix), ("suffix", suffix)) if v)
                    yield self._say(
                        "add-before-image-columns", rule, f"header has {name} beside the key {column}", False
                    )
        kinds = [added_kind(e) for e in self.mappings.added(self.spec).values()] if self.spec else []
        if self.spec and not self.header and not self.fits:
            controls = (self.op is not None) + (self.time is not None)
            promise = f"spec and mappings promise {self.without_control} besides {controls} of DMS's own"
            hint = " (no sequence column is mapped)" if SEQUENCE not in kinds else ""
            yield self._say(
                "columns", f"{self.width - controls}", f"rows have {self.width} fields; {promise}{hint}", False
            )


def of_form(file: DmsObject, head: Head, minimum: int, row_starts_with_op: bool) -> Iterator[Evidence]:
    """Yield what the bytes show before any field has a meaning."""

    def say(setting: str, proposed: str, evidence: str, certain: bool) -> Evidence:
        return Evidence(setting, proposed, evidence, certain, file.path)

    magic = {"parquet": "begins with PAR1", "csv": "begins with gzip's magic bytes"}
    plain = "is text"
    gzipped = head.compression == "gzip"
    yield say(
        "DataFormat",
        head.data_format,
        magic[head.data_format] if gzipped or head.data_format == "parquet" else plain,
        True,
    )
    if head.data_format == "parquet":
        return
    yield say("CompressionType", head.compression, magic["csv"] if gzipped else plain, True)
    if head.delimiter and head.rows:
        width, rows = len(head.rows[0]), len(head.rows)
        certain = head.only_delimiter and (row_starts_with_op or (minimum > 1 and width >= minimum))
        yield say("CsvDelimiter", head.delimiter, f"{width} fields in each of {rows} rows", certain)
    if head.row_delimiter:
        yield say("CsvRowDelimiter", head.row_delimiter, f"{head.row_delimiter!r} ends every line", True)
    if head.rfc4180 is not None:
        how = "with" if head.rfc4180 else "without"
        yield say("Rfc4180", str(head.rfc4180).lower(), f"rows have equal length only if read {how} quotes", True)
