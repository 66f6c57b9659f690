"""The columns of each file of a table. They show schema changes.

CSV: by its header, the settings, or a declared layout. Parquet: by its footer; the types of the spec must fit them.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from frazil_old.config.columns import Column, PastLayout
from frazil_old.config.lake_types import value_type
from frazil_old.config.spec import TableSpec
from frazil_old.core.csv import Dialect
from frazil_old.core.field_roles import UNKNOWN, FieldNames, field_roles, fields_by_role
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_integrity import refused_if_damaged
from frazil_old.dms.file_layout import (
    CHANGE_PHASE,
    Layout,
    as_written,
    carried,
    field_names,
    layout_of,
    named_layout,
    op_is_stated,
    past_layout,
    shared_layout,
    stated_layout,
)
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.mappings import Mappings
from frazil_old.dms.source_errors import SourceError
from frazil_old.dms.storage import each_of, is_s3, random_access, read_tail, text_head
from frazil_old.errors import LOAD_AGAIN

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


WRITE_A_TIME = "have DMS write the file again, with a timestamp or a text in this column"


def _tail(file: DmsObject) -> bytes:
    """Return the end of a file, from its footer on."""
    tail = read_tail(file.path, file.size, 1 << 16)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    return b"PAR1" + (tail if length <= len(tail) else read_tail(file.path, file.size, length))


def require_comparable(
    spec: TableSpec, roles: tuple[str, ...], schema: list[tuple[str, pa.DataType]], where: str
) -> None:
    """Raise SourceError for columns whose type in the file cannot have any value of the spec's type."""
    from frazil_old.core.changes import COMMIT_TS
    from frazil_old.core.parquet_types import can_be_compared

    wrong = []
    for role, (name, kind) in zip(roles, schema, strict=True):
        if role == "ts" and not can_be_compared(COMMIT_TS, kind):
            raise SourceError(f"{where}: column '{name}' is {kind}, which cannot be a commit time", WRITE_A_TIME)
        image, _, of = role.partition(":")
        if image not in ("after", "before"):
            continue
        column = spec.column(of)
        if not can_be_compared(column, kind):
            wrong.append(f"column '{name}' is {kind} in the file and {column.type} in {spec.file}")
    if wrong:
        raise SourceError(
            f"{where}: {'; '.join(dict.fromkeys(wrong))}: none of its values can have the spec's type",
            f"correct the type in {spec.file}, {LOAD_AGAIN}",
        )


def first_and_last(files: Sequence[DmsObject]) -> list[DmsObject]:
    """Return the first and the last of some files, once if they are the same."""
    return list(dict.fromkeys((*files[:1], *files[-1:])))


def metadata(file: DmsObject) -> pq.FileMetaData:
    """Return what a Parquet file's footer holds: its columns and the number of its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_metadata(pa.BufferReader(_tail(file)) if is_s3(file.path) else file.path)


@lru_cache(maxsize=4096)
def footer(file: DmsObject) -> pa.Schema:
    """Return the columns of a Parquet file, from its footer; INT96 as microseconds, as Spark reads it."""
    import pyarrow as pa

    with refused_if_damaged(file.path):
        found = metadata(file).schema
        kinds, schema = {c.path: c.physical_type for c in found}, found.to_arrow_schema()
        schema = pa.schema([f.with_type(pa.timestamp("us")) if kinds.get(f.name) == "INT96" else f for f in schema])
    if twice := next((n for n in schema.names if schema.names.count(n) > 1), None):
        positions = ", ".join(str(i) for i, n in enumerate(schema.names, 1) if n == twice)
        raise SourceError(
            f"{file.path}: column '{twice}' occurs twice, at positions {positions}: Frazil reads Parquet columns by name",
            "rename one of them by a rule of the task or by the endpoint's TimestampColumnName, or have DMS write CSV, "
            "whose columns are read by position; then have it write the file again",
        )
    return schema


FIRST_ROWS = 1000
"""Rows that show what is in a Parquet file."""


def first_rows(file: DmsObject) -> pa.RecordBatch | None:
    """Return the first rows of a Parquet file; None if it has no rows."""
    import pyarrow.parquet as pq

    with refused_if_damaged(file.path), pq.ParquetFile(random_access(file.path)) as opened:
        return next(opened.iter_batches(FIRST_ROWS), None)


def written_type(kind: pa.DataType) -> str:
    """Return the DMS type of a Parquet column's values; empty if DMS writes no such column."""
    import pyarrow as pa

    plain = {
        pa.bool_(): "BOOLEAN", pa.int8(): "INT1", pa.int16(): "INT2", pa.int32(): "INT4", pa.int64(): "INT8",
        pa.uint8(): "UINT1", pa.uint16(): "UINT2", pa.uint32(): "UINT4", pa.uint64(): "UINT8", pa.float32(): "REAL4",
        pa.float64(): "REAL8", pa.date32(): "DATE", pa.binary(): "BLOB", pa.string(): "WSTRING",
        pa.large_string(): "WSTRING",
    }  # fmt: skip
    if pa.types.is_decimal(kind):
        return f"NUMERIC({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "DATETIME"
    if pa.types.is_time(kind):
        return "TIME"
    return "BYTES" if pa.types.is_fixed_size_binary(kind) else plain.get(kind, "")


def lake_kind(kind: pa.DataType, where: str) -> str:
    """Return the lake's type for a Parquet column's values."""
    if not (found := written_type(kind)):
        raise SourceError(f"{where}: Parquet type {kind} is not one that DMS writes", "check that DMS wrote the file")
    return value_type(Column("", found, utc=bool(getattr(kind, "tz", None))))


HEAD = 1 << 20
"""Bytes of a file to read at first for its first row."""
LONGEST_NAME = 10_000
"""No database has longer column names."""
FIELD_END, ROW_END = "\x1f", "\x1e"
"""Replacements for delimiters that Python's csv module cannot read."""


class LayoutError(SourceError):
    """A headerless file fits none of its table's layouts: its columns must be declared."""

    decision = True


@lru_cache(maxsize=4096)
def header(file: DmsObject, endpoint: Endpoint) -> list[str]:
    """Return the fields of the first line: the column names of a file with a header."""
    line = text_head(file.path, HEAD).split(endpoint.row_delimiter, 1)[0].rstrip("\r\n")
    names = next(rows_of_text(line, endpoint.dialect), [])
    if "\r" in line or any(len(name) > LONGEST_NAME for name in names):
        problem = (
            f"{file.path} line 1 is not a CSV line: it has a line break, or a name of over {LONGEST_NAME:,} characters"
        )
        raise SourceError(
            problem, "check that DMS wrote it and that CsvRowDelimiter is the task's; then fetch it again"
        )
    return names


def rows_of_text(text: str, dialect: Dialect) -> Iterator[list[str]]:
    """Yield the rows of a text; line breaks within a row become blanks."""
    for mark, instead in ((dialect.row_delimiter, ROW_END), ("\r", " "), ("\n", " "), (ROW_END, "\n")):
        text = text.replace(mark, instead)
    delimiter = dialect.delimiter
    if len(delimiter) > 1:
        text, delimiter = text.replace(delimiter, FIELD_END), FIELD_END
    csv.field_size_limit(2**31 - 1)
    quoting = csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE
    return csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting)


def first_row(file: DmsObject, endpoint: Endpoint) -> list[str]:
    """Return the fields of a file's first row, whatever its length."""
    size = HEAD
    while True:
        rows = (row for row in rows_of_text(text_head(file.path, size), endpoint.dialect) if row)
        row = next(rows, [])
        if next(rows, None) or size >= file.size:  # another row follows, so this one is complete
            return row
        size *= 8


def require_fit(file: DmsObject, table: SourceTable, phase: int) -> None:
    """Raise LayoutError if a headerless file's first row is not as wide as the layout that was valid when it was written."""
    spec, endpoint, mappings = table.spec, table.endpoint, table.mappings
    row = first_row(file, endpoint)
    width = len(row)
    wanted = len(stated_layout(table, phase, file))
    if width in (0, wanted):
        return
    layout_then = past_layout(spec, file, phase)
    known = {f"until {past.until}": past for past in spec.layouts} | {"now": None}
    widths = {name: len(layout_of(past, table, phase)) for name, past in known.items()}
    near = min(widths, key=lambda name: abs(widths[name] - width))
    columns = (known[near] and known[near].columns) or tuple(mappings.file_columns(spec))
    shown = "a row with masked or excluded columns" if spec.has_hidden_columns else repr(row)[:200]
    raise LayoutError(
        f"{file.path} row 1: {width} fields, and {wanted} in the layout that was valid when it was written: {shown}",
        f"the nearest layout is that of '{near}' ({', '.join(columns)}): correct layouts in {spec.file}"
        + _later_rule(spec, mappings, layout_then, wanted - width),
    )


def _later_rule(spec: TableSpec, mappings: Mappings, layout_then: PastLayout | None, missing: int) -> str:
    """Return how to declare that a rule began later, if that explains a row's missing fields."""
    image = mappings.before_image(spec)
    rules = [[n] for n in mappings.added(spec)] + (
        [[*image.names(as_written(spec, layout_then)).values()]] if image else []
    )
    all_names = [n for names in rules for n in names]
    fitting = [", ".join(names) for names in (*rules, all_names) if missing > 0 and len(names) == missing]
    if not fitting:
        return ""
    entries = " or ".join(f"{{until: <the last file without>, without: [{names}]}}" for names in dict.fromkeys(fitting))
    return f"; if a rule of the task that adds columns began later: {entries}"


def has_header(file: DmsObject, endpoint: Endpoint) -> bool:
    """Return whether a CSV file begins with the names of its columns."""
    return bool(endpoint.header and file.size and not file.is_shared)


def _names(file: DmsObject, endpoint: Endpoint) -> list[str] | None:
    """Return the names of a file's columns; None if the file does not name them."""
    if file.is_parquet:
        return footer(file).names
    return header(file, endpoint) if has_header(file, endpoint) else None


def _place_of_names(file: DmsObject) -> str:
    return file.path if file.is_parquet else f"{file.path} line 1"


def file_layout(table: SourceTable, phase: int, file: DmsObject) -> Layout:
    """Return the layout of a file, by the names in it or by the settings."""
    names = _names(file, table.endpoint)
    if names is not None:
        return named_layout(names, table, phase, _place_of_names(file))
    layout = stated_layout(table, phase, file)
    return shared_layout(layout) if file.is_shared else layout


@dataclass(frozen=True)
class Shape:
    """The columns of a file or message: `carries` by the spec's names (None: not known), and those that are `unknown`.

    Both have the column's type in the file, under Spark's name. It is empty for CSV, where everything is text.
    """

    where: str
    carries: dict[str, str] | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    before: frozenset[str] = frozenset()
    """The columns whose old values are in the file."""
    stated: bool = False
    """Whether this is a past layout of the spec: missing columns were added later, and additional ones were dropped."""
    names: tuple[str, ...] = ()
    """All names in the file."""


def shapes(table: SourceTable, files: Sequence[DmsObject], phase: int) -> list[Shape]:
    """Return the columns of each file that has any bytes, in the given order; only first lines and footers are read."""
    known, written = field_names(table), [f for f in files if f.size]
    return each_of(lambda f: _shape(f, table, phase, known), written, any(is_s3(f.path) for f in written))


def first_alike(table: SourceTable, files: Sequence[DmsObject]) -> list[DmsObject]:
    """Return the leading change files that have the same columns, for one batch."""
    found: list[DmsObject] = []
    columns: tuple[str, ...] | None = None
    for file in files:
        own = _columns(file, table)
        if own is not None and columns not in (None, own):
            break
        columns = own or columns
        found.append(file)
    return found


def found_alike(table: SourceTable, files: Sequence[DmsObject]) -> list[DmsObject]:
    """Return what `first_alike` does from the columns of few files, if columns change at most once among them."""
    first = _columns(files[0], table)
    if _columns(files[-1], table) in (None, first):
        return list(files)
    return list(files[: bisect_left(files, True, key=lambda f: _columns(f, table) not in (None, first))])


def _columns(file: DmsObject, table: SourceTable) -> tuple[str, ...] | None:
    """Return a change file's column names, or the roles of its declared layout; None if it has neither."""
    if (names := _names(file, table.endpoint)) is not None:
        return tuple(names)
    return file_layout(table, CHANGE_PHASE, file) if table.spec.layouts and file.size else None


def _shape(file: DmsObject, table: SourceTable, phase: int, known: FieldNames) -> Shape:
    spec, endpoint = table.spec, table.endpoint
    names, where = _names(file, endpoint), _place_of_names(file)
    if names is None and not spec.layouts:
        return Shape(where)
    if names is None:
        if not file.is_shared:
            require_fit(file, table, phase)
        carries = dict.fromkeys(carried(file_layout(table, phase, file), spec.names), "")
        return Shape(where, carries, stated=past_layout(spec, file, phase) is not None)
    types = [""] * len(names)
    if file.is_parquet:
        types = [lake_kind(f.type, f"{file.path}: column {f.name!r}") for f in footer(file)]
    kinds = fields_by_role(field_roles(names, known, op_is_stated(endpoint, phase), where), types)
    named = {
        of: {r.removeprefix(of): k for r, k in kinds.items() if r.startswith(of)}
        for of in ("after:", "before:", UNKNOWN)
    }
    return Shape(where, named["after:"], named[UNKNOWN], frozenset(named["before:"]), names=tuple(names))
