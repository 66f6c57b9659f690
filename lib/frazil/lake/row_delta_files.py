"""The files of a row delta, written by the driver: new rows, deletion vectors (v3), position deletes (v2)."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from frazil.config.paths import local_path
from frazil.config.spec import TableSpec
from frazil.lake import jvm, jvm_row_delta, jvm_schema
from frazil.lake.data_file_writer import LINEAGE
from frazil.lake.jvm_row_delta import LiveFile

if TYPE_CHECKING:
    import numpy as np
    from pyarrow import Table
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession

Store = Callable[[str, bytes], tuple[str, int]]
"""Stores a new file of a table under a name; returns its location and its size in bytes."""
DELETE_PATH, DELETE_POS = 2147483546, 2147483545
"""Field ids that Iceberg reserves for the columns of a position delete file."""


def _write(spark: SparkSession, table: jvm.JavaTable, location: str, write) -> int:
    """Let `write(path)` write a file, and store it at the location; return its size."""
    path = local_path(location)
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write(path)
        return os.path.getsize(path)
    with tempfile.NamedTemporaryFile() as temporary:
        write(temporary.name)
        jvm_row_delta.store(spark, table, temporary.name, location)
        return os.path.getsize(temporary.name)


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
        location = jvm_row_delta.new_location(table, name)
        return location, _write(spark, table, location, lambda path: Path(path).write_bytes(content))

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


@dataclass
class NewFile:
    """A data file that was written: its path, number of rows, partition in Iceberg's JSON form, and DataFile."""

    path: str
    rows: int
    spec_id: int
    partition: Any
    file: Any


def in_order(rows: Table) -> Table:
    """Return collected rows by partition, deletes last: the order in which `write_rows` fills files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    upserts = pc.not_equal(rows["op"], "D")
    new, parts = rows.filter(upserts), [(c, "ascending") for c in rows.column_names if c.startswith("p")]
    return pa.concat_tables([new.sort_by(parts) if parts else new, rows.filter(pc.invert(upserts))]).combine_chunks()


def _codec(table: jvm.JavaTable) -> str:
    """Return the compression of a table's data files, by its name in pyarrow."""
    codec = table.properties().get("write.parquet.compression-codec") or "zstd"
    return "none" if codec == "uncompressed" else codec


def write_rows(
    spark: SparkSession, table: jvm.JavaTable, rows: Table, spec: TableSpec, fields: list[tuple[int, str, str]]
) -> list[NewFile]:
    """Write the upserts of a batch that is `in_order` as Parquet files with the table's field ids, one per partition.

    Columns of `LINEAGE` are written too, if present.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = rows.filter(pc.not_equal(rows["op"], "D"))
    ids, columns = jvm_schema.ids(spark, table) | LINEAGE, []
    named = [(name, f"c{i}") for i, name in enumerate(spec.names)] + [(n, n) for n in LINEAGE if n in rows.column_names]
    for name, column in named:
        values = rows[column]
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", tz="UTC" if values.type.tz else None))
        columns.append((pa.field(name, values.type, metadata={b"PARQUET:field_id": str(ids[name]).encode()}), values))
    whole = pa.Table.from_arrays([v for _, v in columns], schema=pa.schema([f for f, _ in columns]))
    values = zip(*[rows[f"p{i}"].to_pylist() for i in range(len(fields))], strict=True) if fields else [()] * len(rows)
    written, start, spec_id, codec = [], 0, table.spec().specId(), _codec(table)
    for partition, run in groupby(values):
        count = sum(1 for _ in run)
        part = {str(f[0]): v for f, v in zip(fields, partition, strict=True)} if fields else None
        location = jvm_row_delta.new_location(table, f"{uuid.uuid4()}.parquet")
        _write(
            spark,
            table,
            location,
            lambda path, at=start, n=count: pq.write_table(
                whole.slice(at, n), path, compression=codec, coerce_timestamps="us", store_decimal_as_integer=True
            ),
        )
        file, part = jvm_row_delta.data_file(spark, table, location, part)
        start += count
        written.append(NewFile(file.location(), count, spec_id, part, file))
    return written
