"""Reads local files for PyIceberg without pyarrow, whose import takes longer than all else in a run with nothing to do."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from frazil_old.config.paths import local_path


class LocalFirstIO(FileIO):
    """Opens local files itself, and has pyarrow open all others and write."""

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        path = local_path(location)
        return _LocalFile(location, Path(path)) if path else self._by_pyarrow().new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        return self._by_pyarrow().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        self._by_pyarrow().delete(location)

    def _by_pyarrow(self) -> FileIO:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        return PyArrowFileIO(self.properties)


class _LocalFile(InputFile):
    def __init__(self, location: str, path: Path):
        super().__init__(location)
        self.path = path

    def __len__(self) -> int:
        return self.path.stat().st_size

    def exists(self) -> bool:
        return self.path.exists()

    def open(self, seekable: bool = True) -> InputStream:
        return self.path.open("rb")
