"""Read files of one table and write their rows as data files; the same code runs in a Spark task and in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import OPERATION_COLUMNS
from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import SHOWN
from frazil_old.core.masks import masked
from frazil_old.engine.collapsed_batch import Tally
from frazil_old.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from frazil_old.lake.data_file_writer import DataFileWriter


@dataclass(frozen=True)
class WritePlan:
    """The target table: its metadata as JSON, and the properties with which PyIceberg opens its storage.

    `most_bad` is how many bad rows of each file are kept; all are counted. Every `every`-th change counts for the
    delays.
    """

    metadata: str
    io_properties: dict[str, str] = field(default_factory=dict)
    most_bad: int = SHOWN
    every: int = 1


@dataclass(frozen=True)
class Written:
    """Data files in Iceberg's JSON form, what was read, and the files that it was read from.

    `frame` has the rows instead, if Spark has to write them.
    """

    entries: list[dict[str, Any]]
    tally: Tally
    files: Sequence[FileToRead] = ()
    frame: DataFrame | None = None


def write_files(files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> tuple[list[dict[str, Any]], Tally]:
    """Write the good rows of files as data files of a table, each row as it is. Nothing is committed."""
    writer = new_writer(write)
    tally = Tally(write.most_bad, write.every)
    for file in files:
        for changes in read_changes(file, read):
            writer.write(lake_rows(changes.rows, read.spec, writer.names, file.path))
            tally.add(file.order, changes, file.written_at_s)
    return writer.close(), tally


def write_elsewhere(rows: pa.Table, spec: TableSpec, write: WritePlan, folder: str) -> list[dict[str, Any]]:
    """Write rows as a table's data files, but into a local folder; return them in Iceberg's JSON form."""
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil

    from frazil_old.lake.data_file_writer import DataFileWriter

    metadata = TableMetadataUtil.parse_raw(write.metadata)
    kept = {k: v for k, v in metadata.properties.items() if k != "write.data.path"}
    moved = metadata.model_copy(update={"location": folder, "properties": kept})
    writer = DataFileWriter(moved, load_file_io({}, folder))
    for batch in rows.to_batches():
        writer.write(lake_rows(batch, spec, writer.names))
    return writer.close()


def new_writer(write: WritePlan, lineage: bool = False) -> DataFileWriter:
    """Return a writer of a table's data files; with `lineage` its rows also have the columns of `LINEAGE`."""
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil

    from frazil_old.lake.data_file_writer import DataFileWriter

    metadata = TableMetadataUtil.parse_raw(write.metadata)
    return DataFileWriter(metadata, load_file_io(write.io_properties, metadata.location), lineage)


def lake_rows(rows: pa.RecordBatch, spec: TableSpec, names: Sequence[str], path: str = "") -> pa.RecordBatch:
    """Return the columns of changes as in the lake: in its order, masked by the spec, null if the spec lacks them.

    Tables that keep every change (`append`) also get `OPERATION_COLUMNS`.
    """
    import pyarrow as pa

    values = {c.name: masked(c, rows[f"new_{i}"]) for i, c in enumerate(spec.columns)}
    if spec.policy == "append":
        name = pa.array([path.rsplit("/", 1)[-1]] * rows.num_rows, pa.string())
        own = [rows["op"], rows["commit_ts"], rows["change_seq"], name, rows["number"].cast(pa.int32())]
        values |= zip(OPERATION_COLUMNS, own, strict=True)
    absent = pa.nulls(rows.num_rows)
    return pa.RecordBatch.from_arrays([values.get(n, absent) for n in names], list(names))
