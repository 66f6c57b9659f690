"""Writes data files of a table, by PyIceberg's writer, which also returns their statistics. It needs no Spark, and commits nothing.

Who writes imports it then: what PyIceberg needs for it takes a second.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from itertools import takewhile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from frazil.iceberg.key_hashes import without_times
from frazil.iceberg.live_files import LINEAGE, LiveFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

GROUP_BYTES, WAITING_BYTES = 64 << 20, 256 << 20
"""Rows that wait in memory become a row group at this size; and those that wait, over all partitions, at that one."""
STATISTICS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def by_partition(metadata: TableMetadata, rows: pa.Table) -> Iterator[tuple[Record, np.ndarray]]:
    """Yield each partition that rows have, with the numbers of its rows in the table's order."""
    if not len(rows):
        return
    codes, found = np.zeros(len(rows), np.int64), []
    for field in metadata.spec().fields:
        source = metadata.schema().find_field(field.source_id)
        encoded = without_times(rows[source.name]).combine_chunks().dictionary_encode("encode")
        distinct = [*map(field.transform.transform(source.field_type), encoded.dictionary.to_pylist())]
        number = {value: n for n, value in enumerate(dict.fromkeys(distinct))}  # several values may become the same
        of_row = np.array([number[v] for v in distinct])[encoded.indices.to_numpy()]
        codes = np.unique(codes * len(number) + of_row, return_inverse=True)[1]
        found.append(([*number], of_row))
    ordered = _in_order(metadata, rows)
    order = ordered[np.argsort(codes[ordered], kind="stable")]
    for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield Record(*(values[of_row[part[0]]] for values, of_row in found)), part


def write_files(metadata: TableMetadata, io: FileIO, rows: Iterable[pa.Table]) -> list[LiveFile]:
    """Write rows, here or in a task, to new data files: one or more for each partition."""
    writers: dict[str, DataFileWriter] = {}
    for some in rows:
        for partition, numbers in by_partition(metadata, some):
            place = str(partition)
            if place not in writers:
                writers[place] = DataFileWriter(metadata, io, partition)
            writers[place].write(some.take(numbers))
        while sum(writer.waiting_bytes for writer in writers.values()) > WAITING_BYTES:
            max(writers.values(), key=lambda writer: writer.waiting_bytes).flush()
    return [file for writer in writers.values() for file in writer.close()]


def _in_order(metadata: TableMetadata, rows: pa.Table) -> np.ndarray:
    """Return the numbers of rows in the table's order, as far as it names columns: rows that are written at once are sorted."""
    order = next((o for o in metadata.sort_orders if o.order_id == metadata.default_sort_order_id), None)
    by = [
        (metadata.schema().find_column_name(f.source_id), "descending" if f.direction.name == "DESC" else "ascending")
        for f in takewhile(lambda f: isinstance(f.transform, IdentityTransform), order.fields if order else ())
    ]
    return pc.sort_indices(rows, by).to_numpy() if by else np.arange(len(rows))


def _new_location(metadata: TableMetadata, partition: Record) -> str:
    """Return where a new data file of a partition lies."""
    spec, folder = metadata.spec(), None
    if not spec.is_unpartitioned():
        path = spec.partition_to_path(partition, metadata.schema())
        folder = SimpleNamespace(to_path=lambda: path)  # all that a location provider asks of a partition
    locations: Any = load_location_provider(metadata.location, metadata.properties)
    return locations.new_data_location(f"{uuid.uuid4()}.parquet", folder)


class DataFileWriter:
    """Writes rows of one partition to one or more new data files."""

    def __init__(
        self,
        metadata: TableMetadata,
        io: FileIO,
        partition: Record,
        lineage: tuple[str, ...] = (),
        target_bytes: int = 512 << 20,
    ):
        more = [NestedField(LINEAGE[name], name, LongType(), required=False) for name in lineage]
        self.metadata, self.io, self.partition, self.target = metadata, io, partition, target_bytes
        self.schema = Schema(*metadata.schema().fields, *more)
        self.arrow_schema = schema_to_pyarrow(self.schema)
        self._waiting: list[pa.Table] = []
        self.waiting_bytes = 0
        """The size of the rows that wait for their row group."""
        self._writer: Any = None
        self._done: list[LiveFile] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows; their columns are those of `arrow_schema`, by name. A column of others that they lack is null."""
        for field in self.arrow_schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(len(rows), field.type))
        if len(rows):
            self._waiting.append(rows.select(self.arrow_schema.names))
            self.waiting_bytes += self._waiting[-1].nbytes
        if self.waiting_bytes >= GROUP_BYTES:
            self.flush()

    def close(self) -> list[LiveFile]:
        """Finish, and return the new files, which nothing names yet."""
        self.flush()
        self._close_file()
        return self._done

    def flush(self) -> None:
        """Write what waits as a row group; a file that has its size ends with it."""
        if not self._waiting:
            return
        if self._writer is None:
            self._output = self.io.new_output(_new_location(self.metadata, self.partition))
            self._writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(
                self._output, self.schema, self.metadata.properties
            )
        self._writer.write(pa.concat_tables(self._waiting).cast(self.arrow_schema))
        self._waiting, self.waiting_bytes = [], 0
        if self._writer._fos.tell() >= self.target:
            self._close_file()

    def _close_file(self) -> None:
        if self._writer is None:
            return
        found = self._writer.close().to_serialized_dict()
        statistics = {"split-offsets": found["split_offsets"]}
        for name in STATISTICS:
            values = [v.hex().upper() if isinstance(v, bytes) else v for v in found[name].values()]
            statistics[name.replace("_", "-")] = {"keys": [*found[name]], "values": values}
        place, rows = (self._output.location, len(self._output)), found["record_count"]
        spec = self.metadata.default_spec_id
        self._done.append(LiveFile(*place, rows, spec, self.partition, 0, None, statistics=statistics))
        self._writer = None
