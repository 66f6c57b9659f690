"""What this process reads without a Spark job: load files, and small batches of change files; numbers of keys; damaged Parquet."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import FILE1, FILE2, D, I, U

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("form", [{}, {"AddColumnName": True}, {"CsvDelimiter": ";", "CsvNullValue": "NULL"}], ids=str)
def test_a_load_and_small_batches_of_csv_need_no_spark_job_to_be_read(new_world, in_this_process, form):
    world = new_world(**form).table("t", "id INT8", "v WSTRING(99)", "n NUMERIC(9,2)", "at DATETIME", "day DATE")
    at = "2024-01-01 10:00:00.000001"
    world.load("t", (1, 'a "quoted",\ntext', "1.25", at, "2024-02-29"), (2, None, None, None, None)).loaded()
    world.changes("t", U(1, "b", "2.50", at, "0001-01-01"), D(2), I(3, "", "0", at, "9999-12-31"), name=FILE1)
    world.changes("t", U(4, "c", was=3), name=FILE2).merged(lane="rowdelta")
    found = [(r[0], r[1], r[2] and str(r[2]), str(r[4])) for r in world.rows("t")]
    assert found == [(1, "b", "2.50", "0001-01-01"), (4, "c", None, "None")]
    assert world.history("t")[0].summary()["frazil.lane"] == "rowdelta"


def test_a_load_and_small_batches_of_parquet_need_no_spark_job_to_be_read(new_world, in_this_process):
    world = new_world(DataFormat="parquet").table("t")
    world.rules = {"rules": []}
    folder = world.root / "source/public/t"
    folder.mkdir(parents=True)
    at = pa.array([1_700_000_000_000_000] * 2, pa.timestamp("us"))
    pq.write_table(pa.table({"ts": at, "id": [1, 2], "v": ["a", "b"]}), folder / "LOAD00000001.parquet")
    world.loaded()
    changed = {"Op": ["U", "D"], "ts": at, "id": [1, 2], "v": ["c", None]}
    pq.write_table(pa.table(changed), folder / FILE1.replace("csv", "parquet"))
    assert world.merged(lane="rowdelta").rows("t") == [(1, "c")]


def test_a_load_that_replaces_another_leaves_no_row_of_it(world, in_this_process):
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    world.load("t", (3, "c"))
    assert world.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert world.rows("t") == [(3, "c")]


@pytest.mark.parametrize("kind", ["REAL8", "NUMERIC(9,2)", "NUMERIC(20,9)", "BYTES(9)"])
def test_a_batch_by_a_key_of_any_type_is_applied(world, kind):
    key, other = {"BYTES(9)": ("01", "02")}.get(kind, ("1.5", "2.5"))
    world.table("t", f"id {kind}", "v WSTRING(9)").load("t", (key, "a")).loaded()
    world.changes("t", U(key, "b"), I(other, "c")).merged(lane="rowdelta")
    assert sorted(v for _, v in world.rows("t")) == ["b", "c"]


def with_a_value_that_its_dictionary_lacks(file) -> None:
    """Write a Parquet file in which a row of `v` points beyond the dictionary."""
    rows = {"Op": ["U"] * 16, "id": list(range(16)), "v": [f"v{n % 10}" for n in range(16)]}
    pq.write_table(pa.table(rows), file, compression="none", data_page_version="1.0")
    column = pq.ParquetFile(file).metadata.row_group(0).column(2)
    end = column.dictionary_page_offset + column.total_compressed_size
    raw = bytearray(file.read_bytes())
    raw[end - 1] = 0xFF
    file.write_bytes(raw)


def test_a_damaged_parquet_file_is_named(new_world):
    world = new_world(DataFormat="parquet", TimestampColumnName="").table("t")
    world.rules = {"rules": []}
    folder = world.root / "source/public/t"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "v": ["a"]}), folder / "LOAD00000001.parquet")
    world.loaded()
    good, damaged = ("20240101-100000000.parquet", "20240101-100100000.parquet")
    pq.write_table(pa.table({"Op": ["U"], "id": [1], "v": ["b"]}), folder / good)
    with_a_value_that_its_dictionary_lacks(folder / damaged)
    for lane in ("merge", "rowdelta"):
        told = world.merge(lane=lane)["t"]
        assert told.failed and f"{damaged} cannot be read" in told.note and "fetch it again" in told.note, told.note
    pq.write_table(pa.table({"Op": ["U"], "id": [2], "v": ["c"]}), folder / damaged)
    assert world.merged().rows("t") == [(1, "b"), (2, "c")]
