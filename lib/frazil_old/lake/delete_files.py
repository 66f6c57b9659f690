"""Deleted rows of data files: deletion vectors in Puffin files (format v3), position deletes in Parquet files (v2)."""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from frazil_old.config.paths import local_path
from frazil_old.lake import jvm, jvm_data_files, jvm_row_delta
from frazil_old.lake.jvm_data_files import write_file
from frazil_old.lake.jvm_row_delta import LiveFile

if TYPE_CHECKING:
    import numpy as np
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession


Store = Callable[[str, bytes], tuple[str, int]]
"""Stores a new file of a table under a name; returns its location and its size in bytes."""
DELETE_PATH, DELETE_POS = 2147483546, 2147483545
"""Field ids that Iceberg reserves for the columns of a position delete file."""


def deleted_rows(spark: SparkSession, table: jvm.JavaTable, path: str, deletes: list[dict]) -> BitMap64:
    """Return the bitmap of the rows of a data file that these deletes, in Iceberg's JSON form, remove."""
    from pyroaring import BitMap64

    blob = deletes and (_local_vector(deletes) or jvm_row_delta.deleted_positions(spark, table, path, deletes))
    return BitMap64.deserialize(blob) if blob else BitMap64()


def _local_vector(deletes: list[dict]) -> bytes | None:
    """Return the serialised bitmap of a single deletion vector on this machine; None if Iceberg has to read the deletes."""
    path = local_path(deletes[0]["file-path"]) if len(deletes) == 1 and "content-offset" in deletes[0] else None
    if not path:
        return None
    with open(path, "rb") as file:
        return bitmap_in(file, deletes[0])


def by_file(file: np.ndarray, position: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the numbers of data files in order, each with the positions that its rows have, from those of all rows."""
    import numpy as np

    order = np.argsort(file, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(file[order])) + 1):
        if len(rows):
            yield int(file[rows[0]]), position[rows]


def bitmap_in(file: BinaryIO, entry: dict) -> bytes | None:
    """Return the serialised bitmap of a deletion vector in its open Puffin file; None if it is damaged."""
    file.seek(entry["content-offset"])
    blob = file.read(entry["content-size-in-bytes"])
    return blob[8:-4] if zlib.crc32(blob[4:-4]) == int.from_bytes(blob[-4:], "big") else None


def _puffin(vectors: dict[str, Any], entries: dict[str, dict]) -> bytes:
    """Render deletion vectors as one Puffin file, and note in each entry where its blob is."""
    out, blobs = io.BytesIO(), []
    out.write(b"PFA1")
    for path, vector in vectors.items():
        body = b"\xd1\xd3\x39\x64" + vector.serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        entries[path] |= {"content-offset": out.tell(), "content-size-in-bytes": len(blob)}
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [2147483645],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": out.tell(),
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(vector))},
            }
        )
        out.write(blob)
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    out.write(b"PFA1" + footer + struct.pack("<i", len(footer)) + b"\0\0\0\0PFA1")
    return out.getvalue()


def _position_deletes(data_file: str, vector: Any) -> bytes:
    """Render a v2 position delete file: path and position of each row, sorted, with the field ids that readers use."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def field(name: str, kind: Any, number: int) -> Any:
        return pa.field(name, kind, False, {b"PARQUET:field_id": str(number).encode()})

    schema = pa.schema([field("file_path", pa.string(), DELETE_PATH), field("pos", pa.int64(), DELETE_POS)])
    positions = pa.array(vector.to_array(), pa.int64())
    paths, out = pa.repeat(pa.scalar(data_file), len(positions)), io.BytesIO()
    pq.write_table(pa.Table.from_arrays([paths, positions], schema=schema), out, compression="zstd")
    return out.getvalue()


def write_deletes(spark: SparkSession, table: jvm.JavaTable, files: dict, vectors: dict[str, Any]) -> dict[str, dict]:
    """Write the deletes of data files in this process and return their entries; see `delete_entries`."""

    def store(name: str, content: bytes) -> tuple[str, int]:
        location = jvm_data_files.new_location(table, name)
        return location, write_file(spark, table, location, lambda path: Path(path).write_bytes(content))

    return delete_entries(jvm.format_version(table), files, vectors, store)


def delete_entries(
    version: int, files: Mapping[str, LiveFile], vectors: dict[str, Any], store: Store
) -> dict[str, dict]:
    """Store the deletes of data files; return an entry for each file, in Iceberg's JSON form.

    `vectors` has the bitmap of each file's deleted rows. They become one Puffin file on format v3, and one Parquet file
    for each data file on v2.
    """
    entries = {path: _delete_entry(path, files[path], len(vector)) for path, vector in vectors.items()}
    if version >= 3 and vectors:
        location, size = store(f"{uuid.uuid4()}-deletes.puffin", _puffin(vectors, entries))
        for entry in entries.values():
            entry |= {"file-path": location, "file-format": "PUFFIN", "file-size-in-bytes": size}
        return entries
    for path, vector in vectors.items():
        location, size = store(f"{uuid.uuid4()}-deletes.parquet", _position_deletes(path, vector))
        entries[path] |= {"file-path": location, "file-format": "PARQUET", "file-size-in-bytes": size}
    return entries


def _delete_entry(path: str, file: LiveFile, rows: int) -> dict[str, Any]:
    """Return the entry of a data file's deletes without the place where they are stored."""
    entry = {"spec-id": file.spec_id, "content": "POSITION_DELETES", "record-count": rows, "referenced-data-file": path}
    return entry if file.partition is None else entry | {"partition": file.partition}
