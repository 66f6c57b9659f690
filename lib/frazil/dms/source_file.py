"""A table as DMS writes it, and one of its files as its columns are looked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from frazil.core.row_blocks import Dialect, blocks
from frazil.dms.endpoint import S3Target
from frazil.dms.file_names import load_number
from frazil.dms.mappings import Written
from frazil.settings.spec import TableSpec

FIRST_BLOCK, MOST_ROWS = 1 << 16, 100
"""The bytes and rows of the beginning of a file that are looked at; a longer row is found too."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a table: its base name, and what errors call it.

    `pieces` yields its bytes, unpacked, as often as it is asked; of a file of all tables the table's own rows.
    `columns` has the names and DMS types of a Parquet file's columns; None: the file is CSV.
    """

    name: str
    where: str
    pieces: Callable[[], Iterable[bytes]]
    columns: Sequence[tuple[str, str]] | None = None
    of_all_tables: bool = False

    @property
    def of_load(self) -> bool:
        """Whether it is a load file; others are change files."""
        return load_number(self.name) is not None


@dataclass(frozen=True)
class SourceTable:
    """A table's spec, how DMS writes the table, and the target's settings."""

    spec: TableSpec
    written: Written
    target: S3Target

    def has_op(self, file: SourceFile) -> bool:
        """Return whether a file has the operation by the settings. Files of all tables always have it."""
        return file.of_all_tables or (self.target.op_in_load if file.of_load else self.target.op_in_changes)


def first_rows(file: SourceFile, dialect: Dialect) -> list[list[str]]:
    """Return the texts of the first rows of a CSV file, the first of which may be names.

    Raises RowBordersError if the end of the first one is hidden.
    """
    block = next(blocks(file.pieces(), dialect, file.where, size=FIRST_BLOCK), None)
    lines = [block.line(number) for number in block.numbers[:MOST_ROWS]] if block else []
    return [_fields(line.decode("utf-8", "replace"), dialect) for line in lines]


def _fields(line: str, dialect: Dialect) -> list[str]:
    if not dialect.quotes:
        return line.split(dialect.delimiter)
    delimiter = re.escape(dialect.delimiter)
    found = re.findall(rf'{delimiter}("(?:[^"]|"")*"|[^{delimiter}]*)', dialect.delimiter + line)
    return [text[1:-1].replace('""', '"') if text.startswith('"') else text for text in found]
