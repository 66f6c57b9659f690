"""Rows that wait in quarantine: what is kept of them, and files of them, which are read as any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from obstore.store import MemoryStore

from frazil.core.changes import Changes
from frazil.core.row_blocks import BOM, Dialect
from frazil.dms.file_columns import FileColumns
from frazil.dms.storage import DmsFile, Storage
from frazil.engine.read import TableReader

_TEXTS, _TIME = pa.list_(pa.string()), pa.timestamp("us", "UTC")
WAITING = pa.schema({
    "path": pa.string(), "number": pa.int64(), "column": pa.string(), "reason": pa.string(), "raw": pa.binary(),
    "form": pa.string(), "header": _TEXTS, "batch": pa.int64(), "keys": _TEXTS, "followed": pa.bool_(), "since": _TIME,
})  # fmt: skip
"""A row that waits: its place and fault, its bytes in the `form` csv or parquet, and what decides whether it may be applied later.

`header` has the names in the first line of its file, if there was one. `keys` are those that it would change; none: they
could not be read, and then `followed` says whether changes that come after it have been applied.
"""


FilePart = tuple[int, FileColumns, Changes]
"""Changes, with the number and the columns of their file."""


@dataclass(frozen=True)
class Replay:
    """Rows that wait, as files in a storage of this process; `first` has the place in `rows` of each file's first row."""

    storage: Storage
    files: list[DmsFile]
    rows: pa.Table
    first: list[int]

    def rows_at(self, places: pa.Table) -> pa.Table:
        """Return the rows of places, which have a `file` and a `number`."""
        firsts = pa.array(self.first, pa.int64()).take(places["file"].combine_chunks())
        return self.rows.take(pc.subtract(pc.add(firsts, places["number"].combine_chunks()), 1))


@dataclass(frozen=True)
class BatchFiles:
    """The files of a batch as they were read, and its number. Those of a `replay` hold rows that waited."""

    reader: TableReader
    files: Sequence[DmsFile]
    columns: Sequence[FileColumns | None]
    batch: int
    replay: Replay | None = None

    @property
    def paths(self) -> list[str]:
        """The paths of the files; those of a replay end as the paths of the files that DMS wrote."""
        return [file.path for file in self.files]

    def changes(self, numbers: Iterable[int], begin: int = 0, end: int | None = None) -> Iterator[FilePart]:
        """Yield the changes of some files in order: those after row `begin` of the first of all, to row `end`."""
        for number in numbers:
            if its := self.columns[number]:
                first = 0 if number else begin
                yield from (
                    (number, its, part) for part in self.reader.read(self.files[number], its, first, end, number)
                )

    def original(self, places: pa.Table) -> pa.Table:
        """Return places, which have a `file` and a `number`, with the numbers that rows have in the files that DMS wrote."""
        if self.replay is None:
            return places
        numbers = self.replay.rows_at(places)["number"]
        return places.set_column(places.column_names.index("number"), "number", numbers)


def as_files(rows: pa.Table, reader: TableReader) -> Replay:
    """Return rows that wait as files with the names that DMS gave theirs: consecutive rows of the same columns are one."""
    found = Replay(Storage(f"waiting rows of {reader.storage.address}", MemoryStore()), [], rows, [])
    begun, dialect = 0, reader.table.target.dialect(header=True)
    for _, group in groupby(rows.to_pylist(), _columns_of):
        own = [*group]
        content, path = _content(own, dialect), f"{len(found.files)}/{own[0]['path']}"
        etag = obstore.put(found.storage.store, path, content)["e_tag"]
        found.files.append(DmsFile(path, len(content), etag or "", own[0]["since"].timestamp()))
        found.first.append(begun)
        begun += len(own)
    return found


def _columns_of(row: dict) -> tuple:
    """Return what rows of one file have in common."""
    schema = pa.ipc.open_stream(row["raw"]).schema if row["form"] == "parquet" else None
    return row["path"], row["header"], schema and schema.serialize().to_pybytes()


def _content(rows: list[dict], dialect: Dialect) -> bytes:
    """Return the bytes of a file of rows; the mark in front keeps bytes of a row of CSV from looking as another form."""
    if rows[0]["form"] == "parquet":
        streams = [pa.ipc.open_stream(row["raw"]).read_all() for row in rows]
        pq.write_table(pa.concat_tables(streams), out := BytesIO())
        return out.getvalue()
    lines, names = [row["raw"] for row in rows], rows[0]["header"]
    if names is not None:
        shown = ['"' + name.replace('"', '""') + '"' for name in names] if dialect.quotes else names
        lines = [dialect.delimiter.join(shown).encode(), *lines]
    return BOM + b"".join(line + b"\n" for line in lines)
