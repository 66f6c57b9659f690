"""The first rows of a CSV file, which show what columns it has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from frazil.core.row_blocks import Dialect, blocks

FIRST_BLOCK, MOST_ROWS = 1 << 16, 100
"""The bytes and rows of the beginning of a file that are looked at; a longer row is found too."""


def first_rows(pieces: Iterable[bytes], dialect: Dialect, where: str, width: int) -> list[list[str]]:
    """Return the texts of the first rows of a CSV file, the first of which may be names; `width`: how many fields they have.

    Raises RowBordersError if the end of the first one is hidden.
    """
    block = next(blocks(pieces, dialect, where, width, FIRST_BLOCK), None)
    lines = [block.line(number) for number in block.numbers[:MOST_ROWS]] if block else []
    return [_fields(line.decode("utf-8", "replace"), dialect) for line in lines]


def _fields(line: str, dialect: Dialect) -> list[str]:
    if not dialect.quotes:
        return line.split(dialect.delimiter)
    delimiter = re.escape(dialect.delimiter)
    found = re.findall(rf'{delimiter}("(?:[^"]|"")*"|[^{delimiter}]*)', dialect.delimiter + line)
    return [text[1:-1].replace('""', '"') if text.startswith('"') else text for text in found]
