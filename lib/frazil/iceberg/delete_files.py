"""Deleted rows of data files: deletion vectors in a Puffin file (format v3), position deletes in Parquet files (v2)."""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from frazil.errors import FrazilError
from frazil.iceberg.file_threads import each
from frazil.iceberg.live_files import DELETE_PATH, Delete, LiveFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

PATH_AND_POSITION = pa.schema([
    pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": str(DELETE_PATH).encode()}),
    pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"}),
])  # fmt: skip
MANY = 8
"""Of more data files that lose rows, format v2 gets one delete file for each partition."""


class DamagedVectorError(FrazilError, code="vector-damaged"):
    """A deletion vector differs from its checksum. Roll the table back to a snapshot before it, or load the table again."""


class PartitionDroppedError(FrazilError, code="partition-dropped"):
    """A column by which a table is partitioned was dropped, and engines end on files of such partitions. Rewrite or copy the table."""


class Vectors:
    """The bitmaps of deleted rows. What was read or written is kept while it is live."""

    def __init__(self, io: Callable[[], FileIO]) -> None:
        self.io = io
        self._known: dict[tuple[str, int | None], dict[str, BitMap64]] = {}
        """By path and offset: the deleted rows of each data file that is named there."""
        self._whole: dict[str, tuple[tuple[Delete, ...], BitMap64]] = {}
        """By data file: deletes, and their union."""

    def of(self, file: LiveFile) -> BitMap64:
        """Return the deleted rows of a data file. On v2 each commit may add to its deletes, so their union is kept."""
        if len(file.deletes) == 1:
            return self._read(file.deletes[0], file.path)
        before, rows = self._whole.get(file.path, ((), BitMap64()))
        if file.deletes[: len(before)] != before:
            before, rows = (), BitMap64()
        if len(file.deletes) > len(before):
            rows = BitMap64.union(rows, *(self._read(d, file.path) for d in file.deletes[len(before) :]))
            self._whole[file.path] = file.deletes, rows
        return rows

    def count(self, file: LiveFile) -> int:
        """Return how many rows of a data file are deleted, by its manifest if that says so."""
        if all(d.of for d in file.deletes) and len(file.deletes) < 2:
            return sum(d.rows for d in file.deletes)
        return len(self.of(file))

    def keep(self, live: Collection[LiveFile]) -> None:
        """Forget all but the deletes of these files."""
        places = {(d.path, d.offset) for f in live for d in f.deletes}
        self._known = {place: rows for place, rows in self._known.items() if place in places}
        self._whole = {f.path: self._whole[f.path] for f in live if f.path in self._whole}

    def _read(self, delete: Delete, data_file: str) -> BitMap64:
        place = delete.path, delete.offset
        if place not in self._known:
            with self.io().new_input(delete.path).open() as source:
                is_vector = delete.offset is not None
                self._known[place] = {data_file: _vector(source, delete)} if is_vector else _positions(source)
        return self._known[place].get(data_file, BitMap64())

    def write(
        self, metadata: TableMetadata, dead: list[tuple[LiveFile, BitMap64]]
    ) -> tuple[list[Delete], list[Delete]]:
        """Write newly deleted rows of data files to new delete files, which nothing names yet; return these and what they replace.

        On format v3, and on v2 where few files lose rows, they hold all deleted rows of a file. Where many do, a partition
        gets one file of the new rows alone. Their spec and partition are those of the data files: with others they would
        not apply, or no scan would work.
        """
        _require_partitions(metadata, [file for file, _ in dead])
        if metadata.format_version < 3 and len(dead) > MANY:
            partitions: dict[str, list[tuple[LiveFile, BitMap64]]] = {}
            for file, rows in dead:
                partitions.setdefault(f"{file.spec_id} {file.partition}", []).append((file, rows))
            return [self._write_positions(metadata, part) for part in partitions.values()], []
        before = each(self.of, [file for file, _ in dead], metadata.location)
        whole = [(file, old | rows) for (file, rows), old in zip(dead, before, strict=True)]
        replaced = [delete for file, _ in dead for delete in file.own_deletes]
        if metadata.format_version < 3:
            return [self._write_positions(metadata, [one]) for one in whole], replaced
        return self._write_vectors(metadata, whole) if whole else [], replaced

    def _write_vectors(self, metadata: TableMetadata, dead: list[tuple[LiveFile, BitMap64]]) -> list[Delete]:
        content, places = _puffin([(file.path, rows) for file, rows in dead])
        location, made = self._store(metadata, "deletes.puffin", content), []
        for (file, rows), (offset, length) in zip(dead, places, strict=True):
            self._known[location, offset] = {file.path: rows}
            partition = file.spec_id, file.partition
            made.append(Delete(location, len(content), len(rows), *partition, 0, file.path, offset, length))
        return made

    def _write_positions(self, metadata: TableMetadata, dead: list[tuple[LiveFile, BitMap64]]) -> Delete:
        """Write the deleted rows of some files of a partition to one file, in order of path and position."""
        dead = sorted(dead, key=lambda one: one[0].path)
        paths = pa.concat_arrays([pa.repeat(file.path, len(rows)) for file, rows in dead])
        positions = pa.concat_arrays([pa.array(rows.to_array(), pa.int64()) for _, rows in dead])
        pq.write_table(pa.table([paths, positions], schema=PATH_AND_POSITION), out := io.BytesIO(), compression="zstd")
        content, one = out.getvalue(), dead[0][0]
        location, of = self._store(metadata, "deletes.parquet", content), one.path if len(dead) == 1 else ""
        self._known[location, None] = {file.path: rows for file, rows in dead}
        return Delete(location, len(content), len(positions), one.spec_id, one.partition, 0, of)

    def _store(self, metadata: TableMetadata, name: str, content: bytes) -> str:
        from pyiceberg.table.locations import load_location_provider

        locations = load_location_provider(metadata.location, metadata.properties)
        location = locations.new_data_location(f"{uuid.uuid4()}-{name}")
        with self.io().new_output(location).create() as out:
            out.write(content)
        return location


def _require_partitions(metadata: TableMetadata, files: list[LiveFile]) -> None:
    """Raise PartitionDroppedError for a file in a partition by a column that was dropped: Iceberg forgets such values, and scans fail."""
    there, specs = metadata.schema().field_ids, metadata.specs()
    for file in files:
        gone = [n for n, field in enumerate(specs[file.spec_id].fields) if field.source_id not in there]
        if any(file.partition[n] is not None for n in gone):
            cure = "CALL system.rewrite_data_files on the table, with options => map('rewrite-all', 'true')"
            raise PartitionDroppedError(f"{file.path} is in a partition by a column that was dropped", cure)


def _vector(source: Any, delete: Delete) -> BitMap64:
    source.seek(delete.offset)
    blob = source.read(delete.length)
    if zlib.crc32(blob[4:-4]) != int.from_bytes(blob[-4:], "big"):
        raise DamagedVectorError(f"{delete.path} is damaged", "roll the table back to a snapshot before it")
    return BitMap64.deserialize(blob[8:-4])


def _positions(source: Any) -> dict[str, BitMap64]:
    """Return the deleted rows of each data file that a file of position deletes names."""
    found = pq.read_table(source, columns=["file_path", "pos"]).group_by("file_path").aggregate([("pos", "list")])
    return dict(zip(found["file_path"].to_pylist(), map(BitMap64, found["pos_list"].to_pylist()), strict=True))


def _puffin(vectors: list[tuple[str, BitMap64]]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the deletion vectors of data files as one Puffin file, with offset and length of each blob."""
    out, blobs, places = io.BytesIO(), [], []
    out.write(b"PFA1")
    for path, vector in vectors:
        body = b"\xd1\xd3\x39\x64" + vector.serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        places.append((out.tell(), len(blob)))
        blobs.append({
            "type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1, "offset": out.tell(),
            "length": len(blob), "properties": {"referenced-data-file": path, "cardinality": str(len(vector))},
        })  # fmt: skip
        out.write(blob)
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    out.write(b"PFA1" + footer + struct.pack("<i", len(footer)) + b"\0\0\0\0PFA1")
    return out.getvalue(), places
