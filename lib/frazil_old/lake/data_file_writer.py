"""Writes data files of an Iceberg table where the rows are: in Spark's tasks, or in the driver for a small batch.

A writer needs only the table's metadata, so it can be created anywhere. It commits nothing. It returns each file in
Iceberg's JSON form, with its partition and column metrics, and the driver commits them. Partition values are computed by
PyIceberg's transforms.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True)
class Partitioning:
    """A table's partition spec, and the schema that it refers to."""

    spec: PartitionSpec
    schema: Schema

    @staticmethod
    def of(spec_json: str, schema_json: str) -> Partitioning:
        """Parse the two JSON texts of Iceberg."""
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema

        return Partitioning(PartitionSpec.model_validate_json(spec_json), Schema.model_validate_json(schema_json))

    def values(self, columns: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Return the values of each partition field in Iceberg's JSON form, from the rows' columns by name."""
        kinds = self.spec.partition_type(self.schema).fields
        return [_as_json(each, k.field_type) for each, k in zip(self.transformed(columns), kinds, strict=True)]

    def transformed(self, columns: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Return the values of each partition field as Iceberg keeps them, from the rows' columns by name."""
        sources = [(f.transform, self.schema.find_field(f.source_id)) for f in self.spec.fields]
        return [_transformed(columns[source.name], transform, source.field_type) for transform, source in sources]


def _transformed(values: pa.Array, transform: Any, source_type: Any) -> pa.Array:
    """Return a transform's values for a column: each distinct value is transformed once; days and times are numbers."""
    import pyarrow as pa

    encoded = values.dictionary_encode("encode")
    function = transform.transform(source_type)
    distinct = [function(_internal(v)) for v in encoded.dictionary.to_pylist()]
    return pa.array(distinct).take(encoded.indices)


def _internal(value: Any) -> Any:
    """Convert a value for Iceberg's transforms: dates to days and times to microseconds."""
    from datetime import date, datetime

    from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

    if isinstance(value, datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, date) else value


def _as_json(values: pa.Array, kind: Any) -> pa.Array:
    import pyarrow as pa
    from pyiceberg.conversions import to_json

    encoded = values.dictionary_encode("encode")
    distinct = [None if v is None else to_json(kind, v) for v in encoded.dictionary.to_pylist()]
    if all(v is None for v in distinct):
        return pa.nulls(len(values), pa.string())
    return pa.array(distinct).take(encoded.indices)


GROUP_BYTES = 64 << 20
"""The size at which rows of one file that wait in memory become a row group."""
MOST_WAITING_BYTES = 512 << 20
"""The maximum memory for the rows of all open files: above it, the largest file writes its rows as a smaller row group."""
DEFAULT_TARGET = 512 << 20
ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
LINEAGE = {ROW_ID: 2147483540, LAST_UPDATED: 2147483539}
"""Columns of rows that are written again, with the field ids that Iceberg reserves for them."""


@dataclass
class _OpenFile:
    """A file that is being written, and the rows that wait for the next row group."""

    partition: Any
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    writer: Any = None
    output: Any = None
    written_bytes: int = 0


@dataclass(frozen=True)
class _Folder:
    """The partition of a file, in the form in which a location provider asks for its folder."""

    metadata: TableMetadata
    partition: Any

    def to_path(self) -> str:
        return self.metadata.spec().partition_to_path(self.partition, self.metadata.schema())


class DataFileWriter:
    """Writes rows of one table as Parquet files, one or more for each partition."""

    def __init__(self, metadata: TableMetadata, io: FileIO, lineage: bool = False):
        from pyiceberg.table.locations import load_location_provider

        self.metadata, self.io = metadata, io
        self.schema = with_lineage(metadata.schema()) if lineage else metadata.schema()
        self._locations = load_location_provider(metadata.location, metadata.properties)
        self._target = int(metadata.properties.get("write.target-file-size-bytes", DEFAULT_TARGET))
        self._open: dict[tuple, _OpenFile] = {}
        self._done: list[dict[str, Any]] = []

    @property
    def names(self) -> list[str]:
        """The names of the table's columns, in table order."""
        return [f.name for f in self.schema.fields]

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; their columns have the names and types of the table's."""
        for key, partition, some in self._by_partition(rows):
            file = self._open.setdefault(key, _OpenFile(partition))
            file.waiting.append(some)
            file.waiting_bytes += some.nbytes
            if file.waiting_bytes >= GROUP_BYTES:
                self._write_group(file)
                if file.written_bytes >= self._target:
                    self._done.append(self._close(self._open.pop(key)))
        while sum(file.waiting_bytes for file in self._open.values()) > MOST_WAITING_BYTES:
            self._write_group(max(self._open.values(), key=lambda file: file.waiting_bytes))

    def close(self) -> list[dict[str, Any]]:
        """Finish all files and return them in Iceberg's JSON form."""
        for file in self._open.values():
            self._write_group(file)
            self._done.append(self._close(file))
        self._open = {}
        return self._done

    def discard(self) -> None:
        """Close all files and delete them: nothing will name them."""
        for file in self._open.values():
            if file.writer is not None:
                with suppress(Exception):  # it may be what failed
                    file.writer.close()
                self.io.delete(file.output.location)
        for entry in self._done:
            self.io.delete(entry["file-path"])
        self._open, self._done = {}, []

    def _by_partition(self, rows: pa.RecordBatch) -> list[tuple[tuple, Any, pa.RecordBatch]]:
        """Split rows by the table's partition spec."""
        import numpy as np
        import pyarrow as pa
        from pyiceberg.typedef import Record

        spec = self.metadata.spec()
        if spec.is_unpartitioned() or not rows.num_rows:
            return [((), None, rows)] if rows.num_rows else []
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        values = Partitioning(spec, self.metadata.schema()).transformed(columns)
        codes = np.zeros(rows.num_rows, "int64")
        for each in values:
            part = each.dictionary_encode("encode").indices.to_numpy()
            codes = codes * (int(part.max()) + 1) + part
        order = np.argsort(codes, kind="stable")
        borders = np.flatnonzero(np.diff(codes[order])) + 1
        found = []
        for places in np.split(order, borders):
            key = tuple(each[int(places[0])].as_py() for each in values)
            found.append((key, Record(*key), rows.take(pa.array(places))))
        return found

    def _write_group(self, file: _OpenFile) -> None:
        import pyarrow as pa
        from pyiceberg.io.fileformat import FileFormatFactory
        from pyiceberg.manifest import FileFormat

        if not file.waiting:
            return
        table = pa.Table.from_batches(file.waiting).cast(self.file_schema)
        if file.writer is None:
            path = self._locations.new_data_location(
                f"{uuid.uuid4()}.parquet",
                _Folder(self.metadata, file.partition) if file.partition is not None else None,
            )
            file.output = self.io.new_output(path)
            model = FileFormatFactory.get(FileFormat.PARQUET)
            file.writer = model.create_writer(file.output, self.schema, self.metadata.properties)
        file.writer.write(table)
        file.written_bytes = file.writer._fos.tell()
        file.waiting, file.waiting_bytes = [], 0

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The Arrow schema of the files, with Iceberg's field ids."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.schema)

    def _close(self, file: _OpenFile) -> dict[str, Any]:
        statistics = file.writer.close().to_serialized_dict()
        entry = {
            "spec-id": self.metadata.default_spec_id,
            "content": "DATA",
            "file-path": file.output.location,
            "file-format": "PARQUET",
            "file-size-in-bytes": len(file.output),
            "record-count": statistics["record_count"],
            "split-offsets": statistics["split_offsets"],
        }
        for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
            entry[name.replace("_", "-")] = _json_map(statistics[name])
        for name in ("lower_bounds", "upper_bounds"):
            entry[name.replace("_", "-")] = _json_map({k: v.hex().upper() for k, v in statistics[name].items()})
        if file.partition is not None:
            entry["partition"] = self._partition_json(file.partition)
        return entry

    def _partition_json(self, partition: Any) -> dict[str, Any]:
        from pyiceberg.conversions import to_json

        kinds = self.metadata.spec().partition_type(self.metadata.schema()).fields
        return {
            str(kind.field_id): None if value is None else to_json(kind.field_type, value)
            for kind, value in zip(kinds, partition, strict=True)
        }


def with_lineage(schema: Schema) -> Schema:
    """Return a schema with the columns that keep a row's identity when it is written again."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    more = [NestedField(number, name, LongType(), required=False) for name, number in LINEAGE.items()]
    return Schema(*schema.fields, *more, schema_id=schema.schema_id)


def _json_map(values: dict[int, Any]) -> dict[str, list]:
    return {"keys": list(values), "values": list(values.values())}
