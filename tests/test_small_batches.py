"""What this process reads without a Spark job: load files, and small batches of change files; numbers of keys; damaged Parquet."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil_old.core.key_numbers import has_numbers, key_numbers
from frazil_old.lake.key_index import key_numbers_sql
from frazil_old.lake.small_frames import collect_arrow, of_arrow
from helpers import FILE1, FILE2, D, I, U, spec_of

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


KEYS = {
    "one number": (["INT8"], [[1, -5, 2**63 - 1]]),
    "two small numbers": (["INT4", "INT4"], [[1, -1, 2**31 - 1], [-1, 7, -(2**31)]]),
    "a day": (["DATE"], [["0001-01-01", "1969-12-31", "9999-12-31"]]),
    "a text": (["WSTRING(99)"], [["a", "", "Zürich 東京 😀"]]),
    "a time": (["DATETIME"], [["2024-01-01 10:00:00.120000", "2024-01-01 10:00:00.000000", "0001-01-01 00:00:00.000001"]]),
    "a whole decimal": (["NUMERIC(38,0)"], [["0", "-1", "9" * 38]]),
    "a decimal": (["NUMERIC(20,6)"], [["0", "-0.000001", "12345678901234.5", "0.1"]]),
    "an unsigned number": (["UINT8"], [[0, 1, 2**64 - 1]]),
    "bytes": (["BYTES(9)"], [["00ff", "", "ab"]]),
    "several": (["WSTRING(99)", "INT8", "DATE"], [["a", "b:", "c"], [1, 10, -3], ["2024-01-01", "1600-02-29", "1969-12-31"]]),
}  # fmt: skip


def _spark_type(dms_type: str) -> str:
    return dms_type.replace("NUMERIC", "decimal") if dms_type.startswith("NUMERIC") else "string"


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_has_the_numbers_that_spark_gives_it(spark, kind):
    from frazil_old.config.spec import parse_spec
    from frazil_old.core.types import type_texts

    types, values = KEYS[kind]
    names = [f"k{i}" for i in range(len(types))]
    spec = parse_spec(spec_of("public.t", *[f"{n} {t}" for n, t in zip(names, types, strict=True)], key=names))
    assert has_numbers(spec)
    keys = [
        type_texts(spec.column(n), pa.array(map(str, v), pa.string()))[0] for n, v in zip(names, values, strict=True)
    ]
    casts = {"INT8": "bigint", "INT4": "int", "DATE": "date", "DATETIME": "timestamp_ntz", "UINT8": "decimal(20,0)"}
    texts = spark.createDataFrame([tuple(map(str, row)) for row in zip(*values, strict=True)], names)
    rows = texts.selectExpr(
        *[
            f"unhex({n}) as {n}" if t == "BYTES(9)" else f"cast({n} as {casts.get(t, _spark_type(t))}) as {n}"
            for n, t in zip(names, types, strict=True)
        ]
    )
    by_spark = [tuple(r) for r in rows.selectExpr(*key_numbers_sql(spec)).collect()]
    assert list(zip(*[n.tolist() for n in key_numbers(keys)], strict=True)) == by_spark


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


def test_no_row_after_an_empty_batch_is_lost_on_its_way_into_spark(spark):
    """Spark takes a batch of Arrow without rows for the end of a table."""
    some, nothing = pa.table({"n": [1, 2, 3]}), pa.table({"n": pa.array([], pa.int64())})
    for parts in ([nothing, nothing, some], [some, nothing, some], [nothing], [some]):
        rows = pa.concat_tables(parts)
        assert sorted(r.n for r in of_arrow(spark, rows).collect()) == sorted(rows["n"].to_pylist())


def test_no_row_after_an_empty_batch_is_lost_on_its_way_out_of_a_task(spark):
    def run(batches):
        for _ in batches:
            pass
        some, nothing = (pa.RecordBatch.from_pydict({"n": pa.array(n, pa.int64())}) for n in ([1, 2], []))
        yield from (nothing, nothing, some, nothing, some)

    frame = spark.range(0, 1, 1, 1).mapInArrow(run, "n bigint")
    assert sorted(r.n for r in frame.collect()) == [1, 1, 2, 2] == sorted(collect_arrow(frame)["n"].to_pylist())
