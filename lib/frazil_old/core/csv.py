"""CSV as DMS writes it: a file's bytes become records, block by block, whose fields are still text.

A field is null if nothing is between two delimiters, and an empty text if two quotes are. `core.field_meaning` decides
what a null or an empty text means in a column. Row numbers begin at 1, after the header. Empty lines do not count,
but an empty line is a row if rows have one field.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil_old.errors import FrazilError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

BLOCK = 4 << 20
"""Bytes that are read and parsed together; a longer row makes its block longer."""
BOM = b"\xef\xbb\xbf"
QUOTE, NEWLINE = b'"', b"\n"


class RowBordersError(FrazilError):
    """Unbalanced quotes that hide where rows end: no row of the file after that place can be trusted."""


@dataclass(frozen=True)
class Dialect:
    """How a file separates its fields and rows (CsvDelimiter, CsvRowDelimiter, Rfc4180, AddColumnName).

    `null` is the text of a field without a value (CsvNullValue).
    """

    delimiter: str = ","
    row_delimiter: str = "\n"
    quotes: bool = True
    header: bool = False
    null: str = ""


@dataclass(frozen=True)
class WrongWidth:
    """A row with too many or too few fields."""

    number: int
    fields: int
    line: str


@dataclass(frozen=True)
class Records:
    """Rows of one block: `fields` has one column of texts per field, `numbers` each row's number in the file."""

    fields: pa.RecordBatch
    numbers: np.ndarray
    wrong_width: tuple[WrongWidth, ...] = ()


def read_records(
    pieces: Iterable[bytes],
    width: int,
    dialect: Dialect,
    where: str,
    block: int = BLOCK,
    table: tuple[str, str] | None = None,
) -> Iterator[Records]:
    """Yield the records of a CSV file, given in pieces, that has `width` fields in a row; `where` names the file in errors.

    In a file of all tables, rows of other tables than `table` (schema and name) may be left out; each row is `op, table,
    schema, …`.

    Raises RowBordersError, with the row, if a quoted text does not end or continues after its closing quote, or if the
    last row does not end with the row delimiter.
    """
    first, form = 1, _StandardForm(dialect)
    try:
        for text, restored in _blocks(pieces, dialect, block):
            text, numbers, end = _lines_of_table(text, table, form, first) if table else (text, None, 0)
            records = _parse(text, width, dialect, restored, first if numbers is None else numbers)
            first = end or first + len(records.numbers) + len(records.wrong_width)
            yield records
    except _NoRowEnd as e:
        raise RowBordersError(
            f"{where} row {first + e.rows_before}: {e.what}, which hides where rows end", e.cure
        ) from None


def rows_by_table(pieces: Iterable[bytes], dialect: Dialect, block: int = BLOCK) -> Counter[tuple[str, str]]:
    """Count the rows of a file of all tables by the schema and the table that they name; each row is `op, table, schema, …`.

    Rows that name none do not count, nor do those after quotes that hide where rows end.
    """
    delimiter, found = _StandardForm(dialect).delimiter, Counter()
    d, field = re.escape(delimiter), _field(delimiter, dialect.quotes)
    begin = field + rb"(?:%b(%b))?(?:%b(%b))?" % (d, field, d, field)
    line, any_row = (re.compile(begin + rest + rb"(?:\n|\Z)") for rest in (rb"[^\n]*+", rb"(?:%b%b)*+" % (d, field)))
    with suppress(_NoRowEnd):
        for text, restored in _blocks(pieces, dialect, block):
            row = any_row if dialect.quotes and QUOTE in text else line
            for named, count in Counter(one.groups() for one in row.finditer(text)).items():
                if all(named):
                    fields = _parse(delimiter.join(named), 2, dialect, restored, 1).fields
                    table, schema = (column[0].as_py() for column in fields.columns)
                    if not {None, "", dialect.null} & {table, schema}:
                        found[schema, table] += count
    return found


def records_of_lines(lines: Sequence[bytes], width: int, dialect: Dialect) -> Records:
    """Return the records of separate lines without their ends, numbered from 0.

    What is no line, or more than one, counts as a row with a wrong number of fields.
    """
    import numpy as np

    form = _StandardForm(dialect)
    texts, row = [form.standard(line, last=True) for line in lines], _row_form(form.delimiter, dialect.quotes)
    single = [i for i, text in enumerate(texts) if (text or width == 1) and row.fullmatch(text)]
    text = b"".join(texts[i] + NEWLINE for i in single)
    records = _parse(text, width, dialect, form.restored, np.array(single, "int64"))
    others = {*range(len(lines))} - {*single}
    wrong = [WrongWidth(i, 0, lines[i].decode("utf-8", "replace")) for i in sorted(others)]
    return replace(records, wrong_width=(*records.wrong_width, *wrong))


def fields_of_lines(lines: Iterable[str], width: int, dialect: Dialect) -> pa.RecordBatch:
    """Return the first `width` fields of lines with too many or too few; what a line lacks is null."""
    import pyarrow as pa

    csv.field_size_limit(1 << 30)
    quoting = csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE
    form, rows = _StandardForm(dialect), []
    for line in lines:
        text = form.standard(line.encode(), last=True).decode()
        try:
            found = next(csv.reader([text], delimiter=form.delimiter.decode(), quoting=quoting), [])
        except csv.Error:
            found = []
        own = [_own_text(field, form.restored) or None for field in found[:width]]
        rows.append(own + [None] * (width - len(own)))
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(width)]
    return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(width)])


# --- blocks of whole rows


_OPEN = (
    "a quoted text does not end",
    "fetch the file again, if it was cut off; else have DMS write it again, or correct the row",
)
_AFTER_QUOTE = (
    "a quote inside a quoted field is not doubled (or rows end with \\r\\n, and CsvRowDelimiter does not say so)",
    "correct the row, or have DMS write the file again (Rfc4180)",
)
_CUT_OFF = (
    "no row delimiter ends the last row, as in a file that was cut off within a value",
    "fetch the file again; if it is whole, end its last row with the row delimiter, as DMS does",
)
"""What hides where a row ends, and the remedy."""


class _NoRowEnd(Exception):
    """What hides where a row ends, after a number of whole rows of a block."""

    def __init__(self, rows_before: int, reason: tuple[str, str]):
        self.rows_before = rows_before
        self.what, self.cure = reason


def _blocks(pieces: Iterable[bytes], dialect: Dialect, size: int) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Yield blocks that end with a row, in standard form, and what to restore in their texts."""
    form, rest, wanted, header = _StandardForm(dialect), b"", size, dialect.header
    pieces, last, mark = iter(pieces), False, BOM
    while not last:
        chunk = _at_least(wanted, pieces)
        last = len(chunk) < wanted
        data = rest + form.standard(chunk.removeprefix(mark), last)
        try:
            end = _end_of_rows(data, dialect.quotes, form.delimiter, last)
        except _NoRowEnd as error:
            error.rows_before -= header  # which is no row
            raise
        begin = _row_form(form.delimiter, dialect.quotes).match(data).end() + 1 if header and end else 0
        header = header and not end
        if end > begin:
            yield data[begin:end], form.restored
        rest, wanted = data[end:], size if end else max(size, len(data))  # for a longer row: twice as much
        mark = b""
    if rest:
        raise _NoRowEnd(-header, _CUT_OFF)


def _at_least(size: int, pieces: Iterator[bytes]) -> bytes:
    """Return the next pieces, of `size` bytes or more; fewer at the end."""
    found, total = [], 0
    while total < size and (piece := next(pieces, b"")):
        found.append(piece)
        total += len(piece)
    return b"".join(found)


_ASIDE, *_WHAT = (chr(c) for c in range(0xFDD0, 0xFDF0))
"""Code points that texts should not have, by Unicode: a first one, and which character a pair with the first stands for."""


class _StandardForm:
    """Turn a file's own delimiters into comma and newline, and replace real ones by other characters.

    Arrow supports no other row delimiter, and reads a single carriage return as one. A pair of `_ASIDE` and another
    code point takes the place of a character, also of `_ASIDE` itself.
    """

    def __init__(self, dialect: Dialect):
        aside = (_ASIDE + what for what in _WHAT)
        itself = _ASIDE + _WHAT[-1]  # restored last
        self._steps: list[tuple[bytes, bytes]] = [(_ASIDE.encode(), itself.encode())]
        self._own: dict[bytes, tuple[str, str]] = {_ASIDE.encode(): (itself, _ASIDE)}
        self.restored: dict[str, str] = {}
        """The replacements in the texts, as far as they occurred."""
        rows, fields = dialect.row_delimiter, dialect.delimiter
        own_delimiter = len(fields) > 1 or not fields.isascii()
        self.delimiter = b"," if own_delimiter else fields.encode()
        self.null = dialect.null
        swaps = [(rows, "\n")] if rows != "\n" else []
        swaps += [(fields, ",")] if own_delimiter else []
        parked = {standard: next(aside) for _, standard in swaps}
        self._steps += [(own.encode(), parked[standard].encode()) for own, standard in swaps]
        for text in (*[standard for _, standard in swaps], "\r"):
            place = next(aside)
            self._steps.append((text.encode(), place.encode()))
            self._own[text.encode()] = (place, text)
        for own, standard in swaps:
            self._steps.append((parked[standard].encode(), standard.encode()))
            self._own[parked[standard].encode()] = (standard, own)
        self._held = [b""] * len(self._steps)

    def standard(self, chunk: bytes, last: bool) -> bytes:
        """Return the next bytes in standard form; a part of a delimiter at their end waits for the rest."""
        for step, (own, standard) in enumerate(self._steps):
            chunk = self._held[step] + chunk
            if own in chunk:
                chunk = chunk.replace(own, standard)
                self.restored |= [self._own[own]] if own in self._own else []
            begun = [own[:n] for n in range(len(own)) if chunk.endswith(own[:n])]
            self._held[step] = b"" if last else begun[-1]
            chunk = chunk[: len(chunk) - len(self._held[step])]
        return chunk


def _end_of_rows(data: bytes, with_quotes: bool, delimiter: bytes, last: bool) -> int:
    """Return where the last whole row of a block ends."""
    if not with_quotes or QUOTE not in data:
        return data.rfind(NEWLINE) + 1
    quotes = _quote_places(data)
    if not _is_regular(data, quotes, delimiter) or (last and len(quotes) % 2):
        return _scan(data, delimiter, last)
    return _last_border(data, quotes)


def _quote_places(data: bytes) -> np.ndarray:
    import numpy as np

    return np.flatnonzero(np.frombuffer(data, "uint8") == QUOTE[0])


def _is_regular(data: bytes, quotes: np.ndarray, delimiter: bytes) -> bool:
    """Return whether each quote begins a field, ends one, or is one of a pair: then odd ones open and even ones close."""
    import numpy as np

    raw = np.frombuffer(data, "uint8")
    opening, closing = quotes[::2], quotes[1::2]
    before = raw[np.maximum(opening, 1) - 1]
    after = raw[np.minimum(closing + 1, len(raw) - 1)]
    borders = [delimiter[0], NEWLINE[0]]
    begins = np.isin(before, borders) | (opening == 0)
    begins[1:] |= opening[1:] == closing[: len(opening) - 1] + 1  # the second of a pair
    ends = np.isin(after, borders) | (closing == len(raw) - 1)
    pairs = min(len(closing), len(opening) - 1)
    ends[:pairs] |= opening[1 : pairs + 1] == closing[:pairs] + 1
    return bool(begins.all() and ends.all())


def _last_border(data: bytes, quotes: np.ndarray) -> int:
    """Return the place after the last newline outside quotes; 0: none exists."""
    import numpy as np

    end = data.rfind(NEWLINE)
    while end >= 0:
        open_quotes = int(np.searchsorted(quotes, end))
        if open_quotes % 2 == 0:
            return end + 1
        end = data.rfind(NEWLINE, 0, int(quotes[open_quotes - 1]))
    return 0


def _scan(data: bytes, delimiter: bytes, last: bool) -> int:
    """Scan a block field by field if its quotes do not follow RFC 4180; return where its last row ends.

    A quote in a field that does not begin with one is a plain character.
    """
    field = re.compile(_field(delimiter, quotes=True) + rb"(" + re.escape(delimiter) + rb"|\n|\Z)")
    at, end, row = 0, 0, 0
    while at < len(data):
        found = field.match(data, at)
        if not found:
            open_ended = not re.match(rb'"(?:[^"]|"")*"(?!")', data[at:])
            if open_ended and not last:
                return end
            raise _NoRowEnd(row, _OPEN if open_ended else _AFTER_QUOTE)
        at = found.end()
        if found[1] == NEWLINE:
            end, row = at, row + 1
    return end


def _row_form(delimiter: bytes, quotes: bool) -> re.Pattern[bytes]:
    """Return the pattern of one row without its end."""
    field = _field(delimiter, quotes)
    return re.compile(field + rb"(?:" + re.escape(delimiter) + field + rb")*+")


def _field(delimiter: bytes, quotes: bool) -> bytes:
    """Return the pattern of one field without its end."""
    plain = rb"[^" + re.escape(delimiter) + rb"\n]*"
    return rb'(?:"[^"]*(?:""[^"]*)*"|(?!")' + plain + rb")" if quotes else plain


# --- fields


def _lines_of_table(
    text: bytes, table: tuple[str, str], form: _StandardForm, first: int
) -> tuple[bytes, np.ndarray | None, int]:
    """Return the lines of a block of several tables that are a table's or name none, their numbers, and the next number.

    A block with quotes is returned as it is, without numbers.
    """
    import numpy as np

    if QUOTE in text:
        return text, None, 0
    d, any_field = re.escape(form.delimiter), rb"[^" + re.escape(form.delimiter) + rb"\n]*"
    schema, name, null = (re.escape(form.standard(text.encode(), last=True)) for text in (*table, form.null))
    own = any_field + d + name + d + schema + rb"(?:" + d + rb"[^\n]*)?"
    no_name = rb"(?:" + null + rb")?"
    nameless = rb"|".join(
        [
            any_field + rb"(?:" + d + any_field + rb")?",
            any_field + d + no_name + d + rb"[^\n]*",
            any_field + d + any_field + d + no_name + rb"(?:" + d + rb"[^\n]*)?",
        ]
    )
    found = list(re.compile(rb"^(?:" + own + rb"|" + nameless + rb")\n", re.M).finditer(text))
    ends = np.flatnonzero(np.frombuffer(text, "uint8") == NEWLINE[0])
    empty = ends[np.diff(ends, prepend=-1) == 1]  # empty lines do not count
    starts = np.array([line.start() for line in found if line[0] != NEWLINE], "int64")
    numbers = first + np.searchsorted(ends, starts) - np.searchsorted(empty, starts)
    lines = b"".join(line[0] for line in found if line[0] != NEWLINE)
    return lines, numbers, first + len(ends) - len(empty)


def _parse(text: bytes, width: int, dialect: Dialect, restored: dict[str, str], first: int | np.ndarray) -> Records:
    """Return the records of a block; `first` is the first row's number, or the numbers of all rows."""
    import numpy as np

    wrong: list[tuple[int, int, str]] = []

    def keep(row) -> str:
        wrong.append((row.number - 1, row.actual_columns, row.text))
        return "skip"

    text = _as_utf8(BOM + text if text.startswith(BOM) else text)  # Arrow takes a byte order mark off its start
    fields = _split(text, width, dialect, keep)
    fields = _put_back(fields, restored) if restored else fields
    rows = fields.num_rows + len(wrong)
    numbers = np.arange(first, first + rows) if isinstance(first, int) else first
    misshapen = tuple(WrongWidth(int(numbers[i]), count, _own_text(line, restored)) for i, count, line in wrong)
    return Records(fields, np.delete(numbers, [i for i, _, _ in wrong]) if wrong else numbers, misshapen)


def _as_utf8(text: bytes) -> bytes:
    """Return a text that shows invalid bytes as U+FFFD, and ends with a newline."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            text = text.decode("utf-8", "replace").encode()
    return text if text.endswith(NEWLINE) else text + NEWLINE  # else Arrow reads an empty last field as an empty text


def _split(text: bytes, width: int, dialect: Dialect, keep) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.csv as pc

    names = [str(i) for i in range(width)]
    parse = pc.ParseOptions(
        delimiter=_StandardForm(dialect).delimiter.decode(),
        quote_char='"' if dialect.quotes else False,
        ignore_empty_lines=width > 1,
        newlines_in_values=dialect.quotes and QUOTE in text,
        invalid_row_handler=keep,
    )
    convert = pc.ConvertOptions(
        check_utf8=False,
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = pc.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1)
    columns = pc.read_csv(pa.BufferReader(text), read, parse, convert).columns
    whole = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in columns]
    return pa.RecordBatch.from_arrays(whole, names)


def _put_back(fields: pa.RecordBatch, restored: dict[str, str]) -> pa.RecordBatch:
    """Restore the texts as they were before the block was brought into standard form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = list(fields.columns)
    for standard, own in sorted(restored.items()):  # the standard delimiters first: others restore them
        for i, column in enumerate(columns):
            if pc.any(pc.match_substring(column, standard)).as_py():
                columns[i] = pc.replace_substring(column, standard, own)
    return pa.RecordBatch.from_arrays(columns, schema=fields.schema)


def _own_text(line: str, restored: dict[str, str]) -> str:
    """Return a line as it was before the block was brought into standard form."""
    for standard, own in sorted(restored.items()):
        line = line.replace(standard, own)
    return line


def line_of(fields: list[str | None], dialect: Dialect) -> bytes:
    """Return the line of these fields; null is empty, and an empty text is quoted."""
    if not dialect.quotes:
        return dialect.delimiter.join(f or "" for f in fields).encode()
    parts = ["" if f is None else '"' + f.replace('"', '""') + '"' for f in fields]
    return dialect.delimiter.join(parts).encode()
