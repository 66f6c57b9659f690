"""The new rows of a row delta by index, as data files that the driver writes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.lake import jvm, jvm_data_files, jvm_schema
from frazil_old.lake.data_file_writer import LINEAGE
from frazil_old.lake.jvm_data_files import write_file

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import SparkSession


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
        location = jvm_data_files.new_location(table, f"{uuid.uuid4()}.parquet")
        write_file(
            spark,
            table,
            location,
            lambda path, at=start, n=count: pq.write_table(
                whole.slice(at, n), path, compression=codec, coerce_timestamps="us", store_decimal_as_integer=True
            ),
        )
        file, part = jvm_data_files.data_file(spark, table, location, part)
        start += count
        written.append(NewFile(file.location(), count, spec_id, part, file))
    return written
