"""CSV and Parquet files while they are written; both take rows of DMS's texts and count their size as text."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from frazil_demo.encode import CsvRows
from frazil_demo.layout import Field
from frazil_demo.settings import Target
from frazil_old.config.spec import Column


class RowFile(Protocol):
    """A file that takes rows until it is closed."""

    size: int

    def write(self, row: Sequence[Field]) -> None:
        """Add one row."""

    def close(self) -> None:
        """Finish the file."""


class CsvFile:
    """A CSV file, compressed as a whole if the settings say so; transaction files have no columns and no header."""

    def __init__(self, path: Path, target: Target, columns: Sequence[Column] = ()):
        self._rows, self.size = CsvRows(target), 0
        self._out = path.open("wb")
        self._zip = gzip.GzipFile("", "wb", 6, self._out) if target.compression == "gzip" else None
        if target.header and columns:
            self.write([c.name for c in columns])

    def write(self, row: Sequence[Field]) -> None:
        """Add one row."""
        line = self._rows.line(row).encode()
        (self._zip or self._out).write(line)
        self.size += len(line)

    def close(self) -> None:
        """Finish the file."""
        if self._zip:
            self._zip.close()
        self._out.close()


def suffix(target: Target, always_csv: bool = False) -> str:
    """Return the extension of file names."""
    if target.data_format == "parquet" and not always_csv:
        return ".parquet"  # compressed page by page, which the name does not show
    return ".csv.gz" if target.compression == "gzip" else ".csv"


def open_file(path: Path, target: Target, columns: Sequence[Column]) -> RowFile:
    """Start a per-table file in the settings' format."""
    if target.data_format == "csv":
        return CsvFile(path, target, columns)
    from frazil_demo.parquet import ParquetFile

    return ParquetFile(path, target, columns)
