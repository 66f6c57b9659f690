"""Reads the files of a table: what they show of their columns, and their changes from any row on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.core import csv
from frazil.core.changes import Changes, changes
from frazil.core.row_blocks import Block, Dialect, blocks
from frazil.core.rows import Rows
from frazil.dms.file_columns import FileColumns, file_columns
from frazil.dms.file_names import SHARED
from frazil.dms.file_ranges import open_file
from frazil.dms.gzip_form import unpacked
from frazil.dms.source_file import SourceFile, SourceTable
from frazil.dms.storage import PIECE, DmsFile, Storage
from frazil.engine import parquet
from frazil.engine.batch_limits import Measure
from frazil.engine.parquet_columns import dms_type, require_readable, schema_of
from frazil.engine.transactions import SHARED_BLOCK, split_by_table
from frazil.errors import FrazilError

PARQUET = b"PAR1"
"""How a Parquet file begins and ends."""
PACKED = 10
"""How much larger a packed file of CSV may become."""
FIRST_BLOCK, MOST_ROWS = 1 << 16, 100
"""The bytes and rows of the beginning of a file of CSV that show its columns; a longer row is found too."""


class BadRowError(FrazilError, code="bad-row"):
    """A row cannot be applied. Correct it, have DMS write it again, or let it wait in the quarantine."""


@dataclass(frozen=True)
class TableReader:
    """Reads the files of a table that are in a storage."""

    storage: Storage
    table: SourceTable

    def columns(
        self, file: DmsFile, carried: Collection[str] = (), others: Sequence[DmsFile] = ()
    ) -> FileColumns | None:
        """Return the columns of a file; None if it has nothing. The arguments and errors are those of `file_columns`."""
        schema, described = self._schema(file), (self._described(other, self._schema(other)) for other in others)
        found = file_columns(self.table, self._described(file, schema), carried, described)
        if found and schema is not None:
            require_readable(found, schema)
        return found

    def measure(self, file: DmsFile, columns: FileColumns | None) -> Measure:
        """Return the rows of a file and their width in memory: of Parquet by its footer, of CSV as many as its bytes may have."""
        if columns is None:
            return Measure(0, 0.0)
        if columns.dialect is None:
            return parquet.measure(open_file(self.storage, file), columns.where)
        fields = columns.reading.types
        size = file.size * (PACKED if file.name.endswith(".gz") else 1)
        return Measure(-(-size // len(fields)), sum(map(parquet.type_width, fields)) + 2.0 * len(fields))

    def read(
        self, file: DmsFile, columns: FileColumns, begin: int = 0, end: int | None = None, number: int = 0
    ) -> Iterator[Changes]:
        """Yield the changes in the rows after row `begin`, to row `end`; `number` is the place of the file in its batch.

        Raises BadRowError for a row of a file of all tables that names none, and errors of the file's form.
        """
        for rows in self.rows(file, columns, begin, end):
            yield changes(rows, columns.reading, number)

    def rows(self, file: DmsFile, columns: FileColumns, begin: int = 0, end: int | None = None) -> Iterator[Rows]:
        """Return the rows after row `begin`, to row `end`, before anything judges their values."""
        if columns.dialect is None:
            return parquet.Reader(columns.names, columns.where).read(open_file(self.storage, file), begin, end)
        reader = csv.Reader(columns.reading.types, columns.dialect, columns.where, columns.reading.tells_empty)
        if not SHARED.fullmatch(file.name):
            return reader.read(self._bytes(file), begin, end)
        parts = (part.between(begin, end) for part in self._own_rows(file))
        return (reader.parse(part) for part in parts if len(part.numbers))

    def _bytes(self, file: DmsFile, size: int = PIECE) -> Iterator[bytes]:
        return unpacked(self.storage.pieces(file, size), self.storage.shown(file.path))

    def _schema(self, file: DmsFile) -> pa.Schema | None:
        """Return the columns of a Parquet file, which has its name, or begins and ends so; None: it is CSV."""
        head = self.storage.read(file, 0, 4) if file.size > PIECE else b"".join(self.storage.pieces(file))[:4]
        if file.name.endswith(".parquet") or head == PARQUET == self.storage.read(file, file.size - 4, file.size):
            return schema_of(open_file(self.storage, file), self.storage.shown(file.path))
        return None

    def _described(self, file: DmsFile, schema: pa.Schema | None) -> SourceFile:
        where, of_all_tables = self.storage.shown(file.path), bool(SHARED.fullmatch(file.name))
        columns = None if schema is None else [(field.name, dms_type(field.type)) for field in schema]

        def rows() -> list[list[str]]:
            pieces = (own.text for own in self._own_rows(file)) if of_all_tables else self._bytes(file, FIRST_BLOCK)
            return first_rows(pieces, self.table.target.dialect(header=False), where, len(self.table.now(found)))

        found = SourceFile(file.name, where, rows, columns, of_all_tables)
        return found

    def _own_rows(self, file: DmsFile) -> Iterator[Block]:
        """Yield the table's rows of a file of all tables."""
        dialect, where = self.table.target.dialect(header=False), self.storage.shown(file.path)
        for block in blocks(self._bytes(file), dialect, where, size=SHARED_BLOCK):
            of_tables, of_none = split_by_table(block, dialect)
            if len(of_none.numbers):
                problem = f"{where} row {of_none.numbers[0]}: it names no table, so it may be any table's"
                raise BadRowError(problem, "correct the row, or have DMS write the file again")
            if own := of_tables.get((self.table.written.schema, self.table.written.table)):
                yield own


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
