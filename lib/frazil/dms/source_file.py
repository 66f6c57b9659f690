"""A file of a table as its columns are looked for: what it is, and its first row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from frazil.core.row_blocks import Dialect, RowBordersError, blocks

PARQUET = b"PAR1"
HEAD = 1 << 16
"""Bytes in which a first row is looked for; a longer one is looked for in eight times as many."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a table: its base name, and what errors call it.

    `head` returns its first bytes, unpacked: as many as it is asked for, or all; it is asked several times. Of a file of
    all tables these are the table's own rows. `open` opens it; only Parquet is opened.
    """

    name: str
    where: str
    head: Callable[[int], bytes]
    open: Callable[[], BinaryIO]
    of_load: bool = False
    of_all_tables: bool = False

    @property
    def is_parquet(self) -> bool:
        """Whether its bytes are Parquet; other files are CSV."""
        return self.head(len(PARQUET)) == PARQUET

    @property
    def place(self) -> tuple[bool, str]:
        """What orders the files of a table: load files come first, then change files by the time in their names."""
        return not self.of_load, moment(self.name)


def moment(name: str) -> str:
    """Return the digits of a file's base name, which rise with its time, whatever its folder, form and ending."""
    return re.sub(r"\D", "", name.rpartition("/")[2])


def first_row(file: SourceFile, dialect: Dialect) -> list[str]:
    """Return the texts of the first row of a CSV file, or its names; a file without rows has none.

    Raises RowBordersError if its end is hidden.
    """
    size = HEAD
    while True:
        head = file.head(size)
        try:
            block = next(blocks([head], dialect, file.where, size=HEAD), None)
        except RowBordersError:
            if len(head) < size:
                raise
            size *= 8
            continue
        line = block.line(1) if block else b""
        return _fields(line.decode("utf-8", "replace"), dialect) if line else []


def _fields(line: str, dialect: Dialect) -> list[str]:
    """Return the texts of a row."""
    if not dialect.quotes:
        return line.split(dialect.delimiter)
    delimiter = re.escape(dialect.delimiter)
    found = re.findall(rf'{delimiter}("(?:[^"]|"")*"|[^{delimiter}]*)', dialect.delimiter + line)
    return [text[1:-1].replace('""', '"') if text.startswith('"') else text for text in found]
