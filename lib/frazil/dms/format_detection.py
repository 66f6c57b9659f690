"""The first bytes of a file that DMS wrote: its format, compression, delimiters and fields, detected without settings."""

from __future__ import annotations

import codecs
import csv
import io
import zlib
from dataclasses import dataclass

CANDIDATES = (",", ";", "|", "\t", "\x01", "~", "^")
STANDS_IN = "\x1f"
"""Replaces a stated delimiter of several characters, which Python's csv module cannot read."""


@dataclass(frozen=True)
class Head:
    """What the first bytes show. `rows` are the complete ones of a CSV file; None if their lengths differ."""

    data_format: str
    compression: str = ""
    rows: list[list[str]] | None = None
    delimiter: str = ""
    row_delimiter: str = ""
    rfc4180: bool | None = None
    """True or False if only reading with, or only without, quotes gives rows of equal length."""
    only_delimiter: bool = False
    """Whether it is the only candidate that gives rows of equal length with enough fields."""


def read_head_of(data: bytes, size: int, delimiter: str = "", row_delimiter: str = "", fields: int = 2) -> Head:
    """Examine the first bytes of a file of `size` bytes, whose rows have at least `fields` fields.

    A stated delimiter is used if it gives rows of equal length; otherwise the candidates are tried.
    """
    if data[:4] == b"PAR1":
        return Head("parquet")
    compression, complete = "none", len(data) >= size
    if data[:2] == b"\x1f\x8b":
        inflate = zlib.decompressobj(31)
        try:
            compression, data = "gzip", inflate.decompress(data)
        except zlib.error:
            return Head("csv", "gzip")
        complete = complete and inflate.eof
        if data[:4] == b"PAR1":
            return Head("parquet", "gzip")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data).removeprefix("\ufeff")
    return _fields(text, complete, compression, delimiter, row_delimiter, max(fields, 2))


def _fields(text: str, complete: bool, compression: str, delimiter: str, row_delimiter: str, fields: int) -> Head:
    ends = _line_end(text)
    if row_delimiter not in ("", "\n", "\r\n", "\r") and row_delimiter in text:
        text, ends = text.replace(row_delimiter, "\n"), row_delimiter
    stated = delimiter or ","
    if len(delimiter) > 1:
        text, stated = text.replace(delimiter, STANDS_IN), STANDS_IN
    found = _even(text, stated, complete, fields)
    other = {} if found else {d: e for d in CANDIDATES if d != stated and (e := _even(text, d, complete, fields))}
    best = max(other, key=lambda d: len(next(iter(other[d].values()))[0]), default=stated)
    readings = found or other.get(best)
    if not readings:
        rows = _rows(text, stated, csv.QUOTE_MINIMAL, complete)
        return Head("csv", compression, rows if len({len(r) for r in rows}) == 1 else None, "", ends)
    rfc4180 = None if len(readings) == 2 else csv.QUOTE_MINIMAL in readings
    rows = readings.get(csv.QUOTE_MINIMAL) or readings[csv.QUOTE_NONE]
    return Head("csv", compression, rows, (delimiter or ",") if found else best, ends, rfc4180, len(other) == 1)


def _even(text: str, delimiter: str, complete: bool, fields: int) -> dict[int, list[list[str]]]:
    """Return {way of quoting: rows} for each way that gives rows of equal length with enough fields."""
    read = {q: _rows(text, delimiter, q, complete) for q in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)}
    return {q: rows for q, rows in read.items() if rows and len(rows[0]) >= fields and len({len(r) for r in rows}) == 1}


def _line_end(text: str) -> str:
    """Return the end of every line; empty if lines end differently or there is none."""
    newlines, both = text.count("\n"), text.count("\r\n")
    if newlines:
        return "\r\n" if both == newlines else "" if both else "\n"
    return "\r" if "\r" in text else ""


def _rows(text: str, delimiter: str, quoting: int, complete: bool) -> list[list[str]]:
    """Return the complete rows of a text, without empty ones."""
    quotes = {"quotechar": '"'} if quoting == csv.QUOTE_MINIMAL else {"quotechar": None}
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, **quotes))
    except csv.Error:
        return []
    return [r for r in (rows if complete else rows[:-1]) if any(r)]
