"""Where the rows of a CSV file end: blocks of whole rows, with the number and the bytes of each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from frazil.errors import FrazilError

BLOCK = 4 << 20
"""Bytes that are parsed together; a longer row makes its block longer."""
BOM = b"\xef\xbb\xbf"
QUOTE, NEWLINE, RETURN = b'"\n\r'
OPEN = ("a quoted text does not end", "fetch the file again if it was cut off, or correct the row")
BARE_QUOTE = ("a quote in a text is not doubled", "correct the row, or what the endpoint says of Rfc4180")
RETURNS = ("rows end with \\r\\n, not \\n", "set CsvRowDelimiter=\\n and have DMS write the file again")
CUT_OFF = ("nothing ends the last row, as if cut off", "fetch the file again; if it is whole, end its last row")


class RowBordersError(FrazilError, code="row-borders"):
    """It is hidden where a row of a file ends, so nothing after it can be trusted. Correct the row that is named, or fetch the file again."""


@dataclass(frozen=True)
class Dialect:
    """How a file separates its fields and rows.

    `delimiter` is one ASCII character. `quotes`: texts are quoted by RFC 4180. `header`: the first line names columns.
    `null` is the token of null.
    """

    delimiter: str = ","
    quotes: bool = True
    header: bool = False
    null: str = ""


@dataclass(frozen=True)
class Block:
    """Whole rows, in the bytes of the file: their numbers, where each begins and where it stops, without its end."""

    text: bytes
    numbers: np.ndarray
    begins: np.ndarray
    stops: np.ndarray

    def line(self, number: int) -> bytes:
        """Return the bytes of a row without its end."""
        at = int(np.searchsorted(self.numbers, number))
        return self.text[self.begins[at] : self.stops[at]]

    def between(self, begin: int, end: int | None) -> Block:
        """Return the rows after row `begin`, to row `end`."""
        first = int(np.searchsorted(self.numbers, begin, "right"))
        last = len(self.numbers) if end is None else int(np.searchsorted(self.numbers, end, "right"))
        if (first, last) == (0, len(self.numbers)):
            return self
        places = np.append(self.begins, len(self.text))
        at, rows = places[first], slice(first, last)
        return Block(self.text[at : places[last]], self.numbers[rows], self.begins[rows] - at, self.stops[rows] - at)


def _line_ends(raw: np.ndarray, quotes: np.ndarray) -> np.ndarray:
    """Return the places of newlines that end a line: those after an even number of quotes."""
    ends = np.flatnonzero(raw == NEWLINE)
    return ends[np.searchsorted(quotes, ends) % 2 == 0] if len(quotes) else ends


def blocks(pieces: Iterable[bytes], dialect: Dialect, where: str, width: int = 0, size: int = BLOCK) -> Iterator[Block]:
    """Yield the rows of a file in blocks of about `size` bytes; `where` names the file in errors.

    An empty line is a row only if rows have a `width` of one field. A header is left out.

    Raises RowBordersError if a text in quotes does not end or goes on behind its quote, or if nothing ends the last row.
    """
    rest, first, wanted, mark = bytearray(), 1 - dialect.header, max(size, len(BOM)), BOM
    for piece in chain(_sliced(pieces, size), [b""]):
        rest += piece
        if piece and len(rest) < wanted:
            continue
        text, mark = bytes(rest).removeprefix(mark), b""
        raw = np.frombuffer(text, "uint8")
        quotes = np.flatnonzero(raw == QUOTE) if dialect.quotes and b'"' in text else np.empty(0, "int64")
        ends = _line_ends(raw, quotes)
        block = _block(text, ends, first, width == 1)
        place, (what, cure) = _hidden(raw, quotes, ends, dialect, (first < 2, not piece))
        if what:
            row = first + int(np.searchsorted(block.stops, place))
            raise RowBordersError(f"{where} row {row}: {what}, which hides where rows end", cure)
        rest = bytearray(memoryview(text)[len(block.text) :])
        first, wanted = first + len(block.numbers), size if block.text else max(size, 2 * len(rest))
        block = block.between(0, None)  # a header has the number 0
        if len(block.numbers):
            yield block


def _block(text: bytes, ends: np.ndarray, first: int, keeps_empty: bool) -> Block:
    """Return the whole rows at the beginning of a text."""
    begins = np.append(0, ends[:-1] + 1)[: len(ends)]
    rows = np.full(len(ends), True) if keeps_empty else ends > begins
    count = int(rows.sum())
    return Block(text[: ends[-1] + 1] if len(ends) else b"", np.arange(first, first + count), begins[rows], ends[rows])


def _hidden(
    raw: np.ndarray, quotes: np.ndarray, ends: np.ndarray, dialect: Dialect, is_end: tuple[bool, bool]
) -> tuple[int, tuple[str, str]]:
    """Return the first byte that hides where rows end, with words and cure; `is_end` says whether the file begins, ends here."""
    wrong = _bare(raw, quotes, dialect)
    if len(wrong):
        return int(wrong.min()), BARE_QUOTE
    if is_end[0] and dialect.quotes and len(ends) and (raw[np.maximum(ends, 1) - 1] == RETURN).all():
        return 0, RETURNS
    if is_end[1] and len(raw) > (ends[-1] + 1 if len(ends) else 0):
        return len(raw), OPEN if len(quotes) % 2 else CUT_OFF
    return 0, ("", "")


def _bare(raw: np.ndarray, quotes: np.ndarray, dialect: Dialect) -> np.ndarray:
    """Return the places of quotes that neither begin nor end a field, nor are one of a pair: odd ones open, even ones close."""
    if not len(quotes):
        return quotes
    opening, closing, end = quotes[::2], quotes[1::2], len(raw) - 1
    borders = [ord(dialect.delimiter), NEWLINE]
    begins = np.isin(raw[np.maximum(opening, 1) - 1], borders) | (opening == 0)
    begins[1:] |= opening[1:] == closing[: len(opening) - 1] + 1
    stops = np.isin(raw[np.minimum(closing + 1, end)], borders) | (closing == end)
    pairs = min(len(closing), len(opening) - 1)
    stops[:pairs] |= opening[1 : pairs + 1] == closing[:pairs] + 1
    return np.append(opening[~begins], closing[~stops])


def _sliced(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield pieces of at most `size` bytes."""
    for piece in pieces:
        for at in range(0, len(piece), size):
            yield piece[at : at + size]
