"""Data files written from Arrow: PyIceberg commits them and reads the same rows back, in the right partitions; no Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)  # fmt: skip

from frazil_old.lake import data_file_writer
from frazil_old.lake.data_file_writer import DataFileWriter

KINDS = {
    "id": LongType(), "small": IntegerType(), "flag": BooleanType(), "price": DecimalType(12, 2), "real": FloatType(), "wide": DoubleType(),
    "text": StringType(), "raw": BinaryType(), "day": DateType(), "at": TimestampType(), "moment": TimestamptzType(),
}  # fmt: skip
SCHEMA = Schema(*[NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(KINDS.items(), 1)])
ARROW = pa.schema([
    ("id", pa.int64()), ("small", pa.int32()), ("flag", pa.bool_()), ("price", pa.decimal128(12, 2)), ("real", pa.float32()),
    ("wide", pa.float64()), ("text", pa.string()), ("raw", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us")),
    ("moment", pa.timestamp("us", "UTC")),
])  # fmt: skip


def row(n: int) -> dict:
    if n % 7 == 3:
        return {"id": n}
    return {
        "id": n, "small": n % 5 - 2, "flag": n % 2 == 0, "price": (Decimal(n) / 4).quantize(Decimal("0.01")), "real": n / 2, "wide": n / 8, "text": "Köln ü"[: n % 7] or None,
        "raw": bytes([n % 256]), "day": date(1969 + n % 3, 12, 30), "at": datetime(2024, 1 + n % 3, 1, n % 24),
        "moment": datetime(1969, 12, 31, 23, n % 60, tzinfo=UTC),
    }  # fmt: skip


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**dict.fromkeys(KINDS), **row(n)} for n in range(start, start + count)], ARROW)


@pytest.fixture
def new_table(tmp_path):
    def make(*fields: str, **properties: str):
        catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
        catalog.create_namespace_if_not_exists("n")
        parts = []
        for i, entry in enumerate(fields):
            column, transform = entry.split(" ")
            source = SCHEMA.find_field(column).field_id
            parts.append(PartitionField(source, 1000 + i, parse_transform(transform), f"p{i}"))
        return catalog.create_table("n.t", SCHEMA, partition_spec=PartitionSpec(*parts), properties=properties)

    return make


def written(table, *batches, lineage=False) -> list[dict]:
    writer = DataFileWriter(table.metadata, table.io, lineage)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def append(table, entries: list[dict]) -> None:
    """Commit files by what their JSON says, as the driver does through Java."""

    def mapped(entry, name, change=lambda v: v):
        return {k: change(v) for k, v in zip(entry[name]["keys"], entry[name]["values"], strict=True)}

    kinds = table.spec().partition_type(table.schema()).fields
    with table.transaction() as tx, tx.update_snapshot().fast_append() as update:
        for e in entries:
            partition = [_back(k.field_type, e["partition"][str(k.field_id)]) for k in kinds]
            update.append_data_file(DataFile.from_args(
                content=DataFileContent.DATA, file_path=e["file-path"], file_format=FileFormat.PARQUET, partition=Record(*partition),
                file_size_in_bytes=e["file-size-in-bytes"], record_count=e["record-count"], sort_order_id=None, spec_id=e["spec-id"],
                equality_ids=None, key_metadata=None, column_sizes=mapped(e, "column-sizes"), value_counts=mapped(e, "value-counts"),
                null_value_counts=mapped(e, "null-value-counts"), nan_value_counts=mapped(e, "nan-value-counts"),
                lower_bounds=mapped(e, "lower-bounds", bytes.fromhex), upper_bounds=mapped(e, "upper-bounds", bytes.fromhex),
                split_offsets=e["split-offsets"],
            ))  # fmt: skip


def _back(kind, value):
    from pyiceberg.conversions import from_json
    from pyiceberg.utils.datetime import date_to_days

    if value is None:
        return None
    value = from_json(kind, value)
    return date_to_days(value) if isinstance(value, date) and not isinstance(value, datetime) else value


def in_order(found: pa.Table) -> list[dict]:
    return sorted(found.to_pylist(), key=lambda r: r["id"])


def test_rows_of_every_type_come_back(new_table):
    table = new_table()
    append(table, written(table, rows(50), rows(50, 50)))
    assert in_order(table.scan().to_arrow()) == in_order(pa.Table.from_batches([rows(100)]))


@pytest.mark.parametrize(
    "fields",
    [("day identity",), ("day day",), ("at month", "flag identity"), ("moment hour",), ("at year",), ("id bucket[4]",),
     ("text bucket[3]",), ("price bucket[5]",), ("moment bucket[3]",), ("day bucket[3]",), ("text truncate[2]", "small identity"),
     ("id truncate[10]",), ("price truncate[50]",), ("price identity",), ("raw identity",), ("flag void",)],
    ids=lambda f: ", ".join(f),
)  # fmt: skip
def test_each_file_holds_the_rows_of_one_partition(new_table, fields):
    table = new_table(*fields)
    entries = written(table, rows(60))
    assert len(entries) > 1 or "void" in fields[0]
    append(table, entries)
    assert in_order(table.scan().to_arrow()) == in_order(pa.Table.from_batches([rows(60)]))
    for n in (0, 3, 11, 42):  # by the partitions and bounds alone
        some = row(n)
        for column in {f.split(" ")[0] for f in fields} & some.keys():
            value = some[column]
            if value is not None and column not in ("raw",):
                literal = value.isoformat() if isinstance(value, date) else value
                found = table.scan(row_filter=_equal(column, literal)).to_arrow()["id"].to_pylist()
                assert n in found, (column, value)


def test_rows_of_many_partitions_wait_in_bounded_memory_and_all_come_back(new_table, monkeypatch):
    monkeypatch.setattr(data_file_writer, "MOST_WAITING_BYTES", 5_000)
    table = new_table("id bucket[16]")
    writer, waiting = DataFileWriter(table.metadata, table.io), []
    for first in range(0, 400, 40):
        writer.write(rows(40, first))
        waiting.append(sum(file.waiting_bytes for file in writer._open.values()))
    assert 0 < max(waiting) <= 5_000
    append(table, writer.close())
    assert in_order(table.scan().to_arrow()) == in_order(pa.Table.from_batches([rows(400)]))


def _equal(column, value):
    from pyiceberg.expressions import EqualTo

    return EqualTo(column, value)


def test_metrics_and_codec_follow_the_tables_properties(new_table):
    table = new_table(
        **{
            "write.metadata.metrics.default": "none",
            "write.metadata.metrics.column.id": "full",
            "write.parquet.compression-codec": "snappy",
        }
    )
    (entry,) = written(table, rows(20))
    assert entry["lower-bounds"]["keys"] == [1] and entry["record-count"] == 20
    with table.io.new_input(entry["file-path"]).open() as file:
        assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "SNAPPY"


def test_a_large_partition_is_parted_in_files(new_table, monkeypatch):
    monkeypatch.setattr(data_file_writer, "GROUP_BYTES", 2000)
    table = new_table(**{"write.target-file-size-bytes": "6000"})
    entries = written(table, *[rows(40, n * 40) for n in range(20)])
    assert len(entries) > 1 and sum(e["record-count"] for e in entries) == 800
    append(table, entries)
    assert table.scan().to_arrow().num_rows == 800


def test_a_row_that_is_written_again_keeps_its_identity(new_table):
    table = new_table()
    batch = rows(3)
    more = [pa.array([7, 8, None], pa.int64()), pa.array([1, 1, None], pa.int64())]
    kept = pa.RecordBatch.from_arrays([*batch.columns, *more], [*batch.schema.names, *data_file_writer.LINEAGE])
    (entry,) = written(table, kept, lineage=True)
    with table.io.new_input(entry["file-path"]).open() as file:
        found = pq.read_table(file)
    assert found["_row_id"].to_pylist() == [7, 8, None]
    assert found.schema.field("_row_id").metadata[b"PARQUET:field_id"] == b"2147483540"


def test_no_rows_make_no_file(new_table):
    assert written(new_table("day day"), rows(0)) == []
