"""Data files rewritten without Spark: every live row is kept with its values and its identity, or nothing is left."""

import math
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, NestedField, StringType
from pyroaring import BitMap64

from frazil_old.lake import rewrite_files as module
from frazil_old.lake.data_file_writer import LAST_UPDATED, LINEAGE, ROW_ID, DataFileWriter
from frazil_old.lake.rewrite_files import OldFile, RewritePlan, rewrite_files
from frazil_old.lake.same_rows import ChangedRowsError, require_same_rows

KINDS = {"id": LongType(), "real": FloatType(), "wide": DoubleType(), "price": DecimalType(12, 2), "text": StringType()}
SCHEMA = Schema(*[NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(KINDS.items(), 1)])
ARROW = pa.schema([("id", pa.int64()), ("real", pa.float32()), ("wide", pa.float64()), ("price", pa.decimal128(12, 2)), ("text", pa.string())])  # fmt: skip


@pytest.fixture
def table(tmp_path):
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake"))
    catalog.create_namespace("n")
    return catalog.create_table("n.t", SCHEMA)


def values(numbers) -> list[dict]:
    reals = [0.0, -0.0, math.nan, math.inf, 1.5, None]
    return [
        {"id": n, "real": reals[n % 6], "wide": reals[n % 5], "price": Decimal(n) / 4, "text": "ü" * (n % 3) or None}
        for n in numbers
    ]


def write(table, rows: list[dict], schema: pa.Schema = ARROW, lineage: bool = False) -> str:
    writer = DataFileWriter(table.metadata, load_file_io({}, table.location()), lineage)
    writer.write(pa.RecordBatch.from_pylist(rows, schema))
    (entry,) = writer.close()
    return entry["file-path"]


def plan(table, *files: OldFile, target: int = 1 << 30, row_ids: bool = False) -> RewritePlan:
    return RewritePlan(table.metadata.model_dump_json(), {}, files, target, row_ids)


def sort(table, *names: str):
    """Let the table's files be sorted by these columns."""
    with table.update_sort_order() as order:
        for name in names:
            order.asc(name, IdentityTransform(), NullOrder.NULLS_FIRST)
    return table.refresh()


def read(done) -> list[dict]:
    return [
        row for entry in done.entries for row in pq.read_table(entry["file-path"].removeprefix("file:")).to_pylist()
    ]


def data(table) -> set[str]:
    from pathlib import Path

    return {p.name for p in Path(table.location().removeprefix("file:")).rglob("*.parquet")}


def test_live_rows_are_kept_in_order_and_deleted_ones_are_left_out(table):
    files = [write(table, values(range(10))), write(table, values(range(10, 20)))]
    gone = BitMap64([0, 3, 9]).serialize()
    done = rewrite_files(plan(table, OldFile(files[0], gone), OldFile(files[1])))
    expected = values([1, 2, 4, 5, 6, 7, 8, *range(10, 20)])
    assert list(map(repr, read(done))) == list(map(repr, pa.RecordBatch.from_pylist(expected, ARROW).to_pylist()))
    assert [*done.live.values()] == [7, 10] and done.new_places() is None


def test_columns_are_found_by_field_id_and_widened(table):
    old = write(table, values(range(3)))
    with table.update_schema() as update:
        update.rename_column("text", "words")
        update.add_column("added", IntegerType())
        update.delete_column("wide")
        update.update_column("real", DoubleType())
        update.update_column("price", DecimalType(20, 2))
    done = rewrite_files(plan(table.refresh(), OldFile(old)))
    assert [(r["id"], r["words"], r["added"], r["price"]) for r in read(done)] == [
        (v["id"], v["text"], None, v["price"]) for v in values(range(3))
    ]
    schema = pq.read_schema(done.entries[0]["file-path"].removeprefix("file:"))
    assert (schema.field("real").type, schema.field("price").type) == (pa.float64(), pa.decimal128(20, 2))


def test_rows_keep_ids_of_their_own_or_inherit_them_from_their_file(table):
    own = ARROW.append(pa.field(ROW_ID, pa.int64())).append(pa.field(LAST_UPDATED, pa.int64()))
    rows = [{**v, ROW_ID: 90 if i else None, LAST_UPDATED: 4 if i else None} for i, v in enumerate(values(range(2)))]
    files = [write(table, rows, own, lineage=True), write(table, values(range(2, 6)))]
    old = [OldFile(files[0], b"", 100, 7), OldFile(files[1], BitMap64([1]).serialize(), 200, 8)]
    done = rewrite_files(plan(table, *old, row_ids=True))
    assert [(r[ROW_ID], r[LAST_UPDATED]) for r in read(done)] == [(100, 7), (90, 4), (200, 8), (202, 8), (203, 8)]
    schema = pq.read_schema(done.entries[0]["file-path"].removeprefix("file:"))
    assert {n: int(schema.field(n).metadata[b"PARQUET:field_id"]) for n in LINEAGE} == LINEAGE


def test_sorted_rows_are_told_where_they_went(table):
    numbers = [*range(50)]
    random.Random(3).shuffle(numbers)
    file = write(table, values(numbers))
    done = rewrite_files(plan(sort(table, "text", "id"), OldFile(file, BitMap64([5]).serialize())))
    found, live = [(r["text"], r["id"]) for r in read(done)], [n for i, n in enumerate(numbers) if i != 5]
    assert found == sorted(found, key=lambda pair: (pair[0] or "", pair[1]))
    assert [found[place][1] for place in done.new_places()] == live


@pytest.mark.parametrize("sort_by", [(), ("id",)], ids=["in order", "sorted"])
def test_deletes_are_mapped_to_positions_in_several_new_files(table, monkeypatch, sort_by):
    monkeypatch.setattr("frazil_old.lake.data_file_writer.GROUP_BYTES", 1)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    dice, files, kept = random.Random(5), [], []
    for _ in range(4):
        numbers = dice.sample(range(10_000), dice.randrange(1, 40))
        gone = dice.sample(range(len(numbers)), dice.randrange(0, len(numbers) + 1))
        files.append(OldFile(write(table, values(numbers)), BitMap64(gone).serialize()))
        kept.append([n for i, n in enumerate(numbers) if i not in gone])
    monkeypatch.setattr("frazil_old.lake.data_file_writer.DEFAULT_TARGET", 1)
    done = rewrite_files(plan(sort(table, *sort_by), *files, target=1))
    assert len(done.entries) > 1
    arrived = {f.path: [*range(0, len(rows), 2)] for f, rows in zip(files, kept, strict=True)}
    moved = {path: set(at) for path, at in done.moved(arrived).items()}
    by_file = {
        e["file-path"]: pq.read_table(e["file-path"].removeprefix("file:"))["id"].to_pylist() for e in done.entries
    }
    left = sorted(n for path, ids in by_file.items() for i, n in enumerate(ids) if i not in moved.get(path, ()))
    assert left == sorted(n for rows in kept for n in rows[1::2])


def test_of_rows_that_are_all_deleted_no_file_is_left(table):
    file = write(table, values(range(3)))
    done = rewrite_files(plan(table, OldFile(file, BitMap64(range(3)).serialize())))
    assert done.entries == [] and [*done.live.values()] == [0]


@pytest.mark.parametrize("how", ["spoilt", "lost", "twice", "full disk", "stopped"])
def test_nothing_is_left_of_a_rewrite_that_fails(table, monkeypatch, how):
    file, real = write(table, values(range(10))), DataFileWriter.write
    before = data(table)

    def spoil(writer, rows):
        if how == "spoilt":
            rows = rows.set_column(0, rows.schema.field(0), pa.array([*range(1, 11)]))
        real(writer, rows.slice(1) if how == "lost" else rows)
        if how == "twice":
            real(writer, rows.slice(9))
        if how == "full disk":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(DataFileWriter, "write", spoil)
    stops = iter([False, True]) if how == "stopped" else None
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 5 if how == "stopped" else 1 << 16)
    expected = {"full disk": OSError, "stopped": InterruptedError}.get(how, ChangedRowsError)
    with pytest.raises(expected):
        rewrite_files(plan(table, OldFile(file)), (lambda: next(stops)) if stops else lambda: False)
    assert data(table) == before


def test_every_bit_of_a_value_counts():
    def rows(*reals):
        return iter([pa.RecordBatch.from_pydict({"x": pa.array(reals, pa.float64())})])

    require_same_rows(rows(math.nan, None, 1.0), rows(math.nan, None, 1.0))
    for other in ((math.nan, None, 1.0 + 2**-52), (math.nan, 0.0, 1.0), (math.nan, None), (math.nan, None, 1.0, 2.0)):
        with pytest.raises(ChangedRowsError):
            require_same_rows(rows(math.nan, None, 1.0), rows(*other))
    with pytest.raises(ChangedRowsError):
        require_same_rows(rows(0.0), rows(-0.0))
