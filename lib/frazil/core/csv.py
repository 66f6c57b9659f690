"""CSV as DMS writes it: a file's bytes become blocks of whole rows, and these become columns that are typed as they are parsed.

Row numbers begin at 1, after the header. Empty lines do not count, unless rows have one field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, types

from frazil.core.exact_texts import FALSE, TRUE
from frazil.core.row_blocks import BLOCK, BOM, Block, Dialect, blocks
from frazil.core.rows import Rows

STAND_INS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Code points that texts do not have, by Unicode: one stands for a carriage return, which Arrow takes for the end of a row."""
MOST_TRIES = 8
"""Of more unusual columns all are text: a block is parsed again for each."""
FIRST = 500
"""Rows that are parsed before their block: they show most unusual columns at once."""
_TRUE, _FALSE = ([form(word) for word in words for form in (str, str.upper, str.title)] for words in (TRUE, FALSE))


@dataclass
class Reader:
    """Reads the rows of a file whose fields have some types of the lake.

    Integers, days and truth values are typed as they are parsed. A column with anything unusual is text from there on,
    for `exact.typed`; so are all other types. A bare empty field is null and a quoted one is an empty text. With a
    token of null, both are empty in a text, and the token stays one; in typed columns all of these are null.
    `tells_empty` keeps bare and quoted apart there too, and then no column reads the token as null.
    """

    types: Sequence[pa.DataType]
    dialect: Dialect
    where: str
    tells_empty: bool = False
    as_text: set[int] = field(default_factory=set)
    """The places of columns that had an unusual value."""

    def read(
        self, pieces: Iterable[bytes], begin: int = 0, end: int | None = None, size: int = BLOCK
    ) -> Iterator[Rows]:
        """Yield the rows after row `begin`, to row `end`, block by block of some `size`.

        Raises RowBordersError, with the row, where quotes or a missing end hide where rows end.
        """
        for block in blocks(pieces, self.dialect, self.where, len(self.types), size):
            if end is not None and block.numbers[0] > end:
                return
            part = block.between(begin, end)
            if len(part.numbers) > FIRST:
                self.parse(part.between(0, int(part.numbers[FIRST])))
            if len(part.numbers):
                yield self.parse(part)

    def parse(self, block: Block) -> Rows:
        """Return the rows of a block."""
        text, stand_in = self._shown(block)
        texts_only = {i for i, kind in enumerate(self.types) if types.is_integer(kind)} if _has_hex(text) else set()
        while True:
            wrong: list[csv.InvalidRow] = []
            try:
                table = self._parsed(text, wrong, self.as_text | texts_only)
                break
            except pa.ArrowInvalid as error:
                told = re.match(r"In CSV column #(\d+)", str(error))  # Arrow says it in words alone
                if not told:
                    raise
                self.as_text.add(int(told[1]))
                if len(self.as_text) > MOST_TRIES:
                    self.as_text.update(range(len(self.types)))
        columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
        if stand_in:
            columns = [pc.replace_substring(c, stand_in, "\r") if types.is_string(c.type) else c for c in columns]
        places = [row.number - 1 for row in wrong]
        widths = [f"{row.actual_columns} fields, not {len(self.types)}" for row in wrong]
        found = tuple(zip(block.numbers[places].tolist(), widths, strict=True))
        numbers = np.delete(block.numbers, places) if wrong else block.numbers
        return Rows(pa.RecordBatch.from_arrays(columns, table.column_names), numbers, found, block.line)

    def _shown(self, block: Block) -> tuple[bytes, str]:
        """Return the rows as Arrow reads them right, and what stands in them for a carriage return, if anything does."""
        text, stand_in = block.text, ""
        if b"\r" in text:
            stand_in = next(c for c in STAND_INS if c.encode() not in text)
            text = text.replace(b"\r", stand_in.encode())
        if not text.isascii():
            text = _valid(text)
        return BOM + text if text.startswith(BOM) else text, stand_in  # Arrow takes one off

    def _parsed(self, text: bytes, wrong: list, as_text: set[int]) -> pa.Table:
        names = [str(i) for i in range(len(self.types))]
        kinds = [pa.string() if i in as_text else _parser_type(kind) for i, kind in enumerate(self.types)]
        null = "" if self.tells_empty else self.dialect.null

        def keep(row: csv.InvalidRow) -> str:
            wrong.append(row)
            return "skip"

        return csv.read_csv(
            pa.BufferReader(text),
            csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
            csv.ParseOptions(
                delimiter=self.dialect.delimiter,
                quote_char='"' if self.dialect.quotes else False,
                ignore_empty_lines=len(names) > 1,
                newlines_in_values=self.dialect.quotes and b'"' in text,
                invalid_row_handler=keep,
            ),
            csv.ConvertOptions(
                column_types=dict(zip(names, kinds, strict=True)),
                null_values=["", null],
                strings_can_be_null=not null,
                quoted_strings_can_be_null=bool(null),
                true_values=_TRUE,
                false_values=_FALSE,
                check_utf8=False,
            ),
        )


def _parser_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that the parser gives a column: it takes a day for a moment, and other decimals and reals for exact ones."""
    return kind if types.is_integer(kind) or types.is_date(kind) or types.is_boolean(kind) else pa.string()


def _has_hex(text: bytes) -> bool:
    """Return whether the parser might take hex digits for an integer."""
    raw = np.frombuffer(text, "uint8")
    return any((raw[:-1][raw[1:] == ord(x)] == ord("0")).any() for x in "xX" if x.encode() in text)


def _valid(text: bytes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()
    return text
