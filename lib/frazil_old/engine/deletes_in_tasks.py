"""Deletes rows of a table in Spark's tasks: each task has all rows of some data files, and writes one file of deletes.

The driver gets an entry for each data file, and nothing for a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil_old.engine.tasks import results_of
from frazil_old.engine.write_rows import WritePlan
from frazil_old.lake.data_file_writer import ROW_ID
from frazil_old.lake.delete_files import Store, bitmap_in, by_file, delete_entries
from frazil_old.lake.jvm_row_delta import LiveFile

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Deleted:
    """The entries of new deletes by data file, in Iceberg's JSON form, and how many rows were deleted.

    `digest` is that of the rows' numbers and ids. `problem` says why the deletes are not complete; empty: they are.
    """

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    count: int = 0
    digest: int = 0
    problem: str = ""


def can_delete(live_files: dict[str, LiveFile]) -> bool:
    """Return whether tasks can read all present deletes of data files: those that Iceberg writes as Puffin or Parquet."""
    return all(d["file-format"].upper() in ("PUFFIN", "PARQUET") for file in live_files.values() for d in file.own)


def delete_in_tasks(
    spark: SparkSession, found: DataFrame, live_files: dict[str, LiveFile], write: WritePlan, partitions: int
) -> Deleted:
    """Write the deletes of rows that `key_scan.found_rows` found, together with the present deletes of their files."""
    files = spark.sparkContext.broadcast([*live_files.items()])
    try:
        by_file = found.repartition(partitions, "file")
        parts: list[Deleted] = results_of(by_file, lambda batches: _deleted(batches, write, files.value))
    finally:
        files.destroy()
    whole, digest = {path: entry for part in parts for path, entry in part.entries.items()}, 0
    for part in parts:
        digest ^= part.digest
    problem = next((part.problem for part in parts if part.problem), "")
    return Deleted(whole, sum(part.count for part in parts), digest, problem)


def digest_of(numbers: np.ndarray, row_ids: np.ndarray | None) -> int:
    """Return a digest of which rows have which ids; the order of the rows does not matter."""
    import numpy as np

    mixed = numbers.astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    if row_ids is not None:
        mixed ^= (row_ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2_AE3D_27D4_EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58_476D_1CE4_E5B9)
    return int(np.bitwise_xor.reduce(mixed, initial=np.uint64(0)))


# --- what tasks do


def _deleted(batches: Iterator[pa.RecordBatch], write: WritePlan, files: Sequence[tuple[str, LiveFile]]) -> Deleted:
    """Write the deletes of a task's rows; `files` has the path and the `LiveFile` of each place."""
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyroaring import BitMap64

    positions: dict[int, BitMap64] = {}
    count = digest = 0
    for batch in batches:
        if batch["file"].null_count:
            return Deleted(problem="a scan names a data file that the table does not list")
        for file, rows in by_file(batch["file"].to_numpy(), batch["_pos"].to_numpy()):
            positions.setdefault(file, BitMap64()).update(rows.astype("uint64"))
        count += batch.num_rows
        has_ids = ROW_ID in batch.schema.names and not batch[ROW_ID].null_count
        ids = batch[ROW_ID].to_numpy(zero_copy_only=False) if has_ids else None
        digest ^= digest_of(batch["n"].to_numpy(), ids)
    if not positions:
        return Deleted()
    metadata = TableMetadataUtil.parse_raw(write.metadata)
    io = load_file_io(write.io_properties, metadata.location)
    touched = {files[place][0]: (files[place][1], rows) for place, rows in positions.items()}
    for path, (file, rows) in touched.items():
        for entry in file.own:
            before = _rows_of_entry(io, entry)
            if before is None:
                return Deleted(problem=f"{entry['file-path']}, which has deletes of {path}, is damaged")
            rows |= before
    live_files, vectors = ({path: pair[i] for path, pair in touched.items()} for i in (0, 1))
    return Deleted(delete_entries(metadata.format_version, live_files, vectors, _store(io, metadata)), count, digest)


def _rows_of_entry(io: FileIO, entry: dict[str, Any]) -> BitMap64 | None:
    """Return the rows that deletes of a single data file remove; None if their file is damaged."""
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    with io.new_input(entry["file-path"]).open() as file:
        if entry["file-format"].upper() == "PUFFIN":
            blob = bitmap_in(file, entry)
            return None if blob is None else BitMap64.deserialize(blob)
        return BitMap64(pq.read_table(file, columns=["pos"])["pos"].to_pylist())


def _store(io: FileIO, metadata: TableMetadata) -> Store:
    """Return the function that stores a new file in the folder of the table's data files."""
    from pyiceberg.table.locations import load_location_provider

    locations = load_location_provider(metadata.location, metadata.properties)

    def store(name: str, content: bytes) -> tuple[str, int]:
        location = locations.new_data_location(name)
        with io.new_output(location).create() as out:
            out.write(content)
        return location, len(content)

    return store
