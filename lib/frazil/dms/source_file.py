"""A table as DMS writes it, and one of its files as its columns are looked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frazil.dms.endpoint import S3Target
from frazil.dms.file_names import load_number
from frazil.dms.mappings import Written
from frazil.settings.spec import TableSpec

OP_NAME = "Op"
"""DMS's name of the operation, in any case."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a table: its base name, and what errors call it.

    `rows` returns the texts of the first rows of a CSV file, the first of which may be names; of a file of all tables
    those of the table. `columns` has the names and DMS types of a Parquet file's columns; None: the file is CSV.
    """

    name: str
    where: str
    rows: Callable[[], Sequence[Sequence[str]]]
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

    def stated(self, file: SourceFile) -> tuple[str, ...]:
        """Return the names of operation and time that a file has by the settings."""
        time = self.target.timestamp_column_name
        return (OP_NAME,) * self.has_op(file) + (time,) * bool(time)

    def now(self, file: SourceFile) -> tuple[str, ...]:
        """Return the columns of a file as DMS writes it now, by the settings and rules."""
        return (*self.stated(file), *self.written.of_source, *self.written.added, *self.written.images)
