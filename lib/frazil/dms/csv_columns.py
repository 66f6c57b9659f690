"""Finds the layout of DMS's CSV files: from their headers, the settings, or a declared layout."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import lru_cache

from frazil.config.spec import PastLayout, TableSpec
from frazil.core.csv import Dialect
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.file_layout import (
    Layout,
    as_written,
    layout_of,
    named_layout,
    past_layout,
    shared_layout,
    stated_layout,
)
from frazil.dms.listing import DmsObject, SourceError
from frazil.dms.source_table import SourceTable
from frazil.dms.storage import open_text_head

STATED, NAMED, SHARED, PARQUET, JSON = "csv", "csv named", "csv of all", "parquet", "json"
"""Where a row's layout comes from: the settings, its file's header, or a file of all tables; else the file format."""
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
    line = open_text_head(file.path, HEAD).read().split(endpoint.row_delimiter, 1)[0].rstrip("\r\n")
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
        rows = (row for row in rows_of_text(open_text_head(file.path, size).read(), endpoint.dialect) if row)
        row = next(rows, [])
        if next(rows, None) or size >= file.size:  # another row follows, so this one is complete
            return row
        size *= 8


@lru_cache(maxsize=4096)
def first_width(file: DmsObject, endpoint: Endpoint) -> int:
    """Return the number of fields in a file's first row."""
    return len(first_row(file, endpoint))


def require_fit(file: DmsObject, table: SourceTable, phase: int) -> None:
    """Raise LayoutError if a headerless file's first row is not as wide as the layout that was valid when it was written."""
    spec, endpoint, mappings = table.spec, table.endpoint, table.mappings
    width = first_width(file, endpoint)
    wanted = len(stated_layout(table, phase, file, width).roles)
    if width in (0, wanted):
        return
    layout_then = past_layout(spec, file, phase)
    known = {f"until {past.until}": past for past in spec.layouts} | {"now": None}
    widths = {name: len(layout_of(past, table, phase, width).roles) for name, past in known.items()}
    near = min(widths, key=lambda name: abs(widths[name] - width))
    columns = (known[near] and known[near].columns) or tuple(mappings.file_columns(spec))
    shown = (
        "a row with masked or excluded columns" if spec.has_hidden_columns else repr(first_row(file, endpoint))[:200]
    )
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


def file_layout(table: SourceTable, phase: int, file: DmsObject) -> tuple[Layout, str]:
    """Return the layout of a file and its origin (`STATED`, `NAMED`, `SHARED`)."""
    endpoint = table.endpoint
    if endpoint.header and file.size and not file.is_shared:
        where = f"{file.path} line 1"
        return named_layout(header(file, endpoint), table, phase, where), NAMED
    width = 0
    if file.size and table.mappings.listed(table.spec):  # otherwise all rows have the same width
        width = _width_of(file, endpoint, table.target_name) if file.is_shared else first_width(file, endpoint)
    layout = stated_layout(table, phase, file, width)
    return (shared_layout(layout), SHARED) if file.is_shared else (layout, STATED)


def _width_of(file: DmsObject, endpoint: Endpoint, table: tuple[str, str]) -> int:
    """Return the number of fields that a table's rows have in its own files; 0 if it is unknown.

    The table's first row near the beginning of a file of all tables shows it.
    """
    rows = rows_of_text(open_text_head(file.path, HEAD).read(), endpoint.dialect)
    extra = 2 if endpoint.op_in_changes else 3  # the table and the schema, and an operation that is always present
    return next((len(row) - extra for row in rows if tuple(row[2:0:-1]) == table), 0)
