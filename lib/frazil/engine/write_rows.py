"""Read files of one table and write their rows as data files; the same code runs in a Spark task and in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.changes import BadRow
from frazil.core.masks import masked
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import pyarrow as pa

    from frazil.lake.data_files import DataFileWriter

SHOWN = 20
"""Maximum number of a file's bad rows that reach the driver with their reason; all are counted."""


@dataclass(frozen=True)
class WritePlan:
    """The target table: its metadata as JSON, and the properties with which PyIceberg opens its storage."""

    metadata: str
    io_properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """Data files in Iceberg's JSON form, and the numbers of good and bad rows, with the first bad ones by file."""

    entries: list[dict[str, Any]]
    good: int = 0
    bad: int = 0
    first_bad: dict[int, list[BadRow]] = field(default_factory=dict)

    @staticmethod
    def together(parts: Sequence[Written]) -> Written:
        """Return several results as one."""
        first_bad = {order: rows for part in parts for order, rows in part.first_bad.items()}
        entries = [entry for part in parts for entry in part.entries]
        return Written(entries, sum(p.good for p in parts), sum(p.bad for p in parts), first_bad)

    def to_dict(self) -> dict[str, Any]:
        """Return a form that JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(result: dict[str, Any]) -> Written:
        """Return the object that `to_dict` described, after its way through JSON."""
        first_bad = {int(order): [BadRow(**b) for b in rows] for order, rows in result["first_bad"].items()}
        return Written(result["entries"], result["good"], result["bad"], first_bad)


def write_files(files: Sequence[FileToRead], read: ReadPlan, write: WritePlan) -> Written:
    """Write the good rows of load files as data files of a table, and count the bad ones. Nothing is committed."""
    writer = _writer(write)
    good, bad, first_bad = 0, 0, {}
    for file in files:
        for changes in read_changes(file, read):
            writer.write(lake_rows(changes.rows, read.spec, writer.names))
            good += changes.rows.num_rows
            bad += len(changes.bad)
            shown = first_bad.setdefault(file.order, []) if changes.bad else []
            shown += changes.bad[: SHOWN - len(shown)]
    return Written(writer.close(), good, bad, first_bad)


def write_elsewhere(rows: pa.Table, spec: TableSpec, write: WritePlan, folder: str) -> list[dict[str, Any]]:
    """Write rows as a table's data files, but into a local folder; return them in Iceberg's JSON form."""
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil

    from frazil.lake.data_files import DataFileWriter

    metadata = TableMetadataUtil.parse_raw(write.metadata)
    kept = {k: v for k, v in metadata.properties.items() if k != "write.data.path"}
    moved = metadata.model_copy(update={"location": folder, "properties": kept})
    writer = DataFileWriter(moved, load_file_io({}, folder))
    for batch in rows.to_batches():
        writer.write(lake_rows(batch, spec, writer.names))
    return writer.close()


def _writer(write: WritePlan) -> DataFileWriter:
    from pyiceberg.io import load_file_io
    from pyiceberg.table.metadata import TableMetadataUtil

    from frazil.lake.data_files import DataFileWriter

    metadata = TableMetadataUtil.parse_raw(write.metadata)
    return DataFileWriter(metadata, load_file_io(write.io_properties, metadata.location))


def lake_rows(rows: pa.RecordBatch, spec: TableSpec, names: Sequence[str]) -> pa.RecordBatch:
    """Return the columns of changes as in the lake: in its order, masked by the spec, null if the spec lacks them."""
    import pyarrow as pa

    values = {c.name: masked(c, rows[f"new_{i}"]) for i, c in enumerate(spec.columns)}
    absent = pa.nulls(rows.num_rows)
    return pa.RecordBatch.from_arrays([values.get(n, absent) for n in names], list(names))
