"""Every row of the table of DMS types: what it becomes, which texts fit, and which are refused instead of guessed at."""

from datetime import date, datetime
from decimal import Decimal
from struct import pack, unpack

import pytest
import yaml

from frazil.changes.types import LAKE_TYPES, exact_sql, lake_type, value_sql
from frazil.config.spec import TYPES, Column
from frazil.dms.csv import FEW, written_at
from frazil.dms.objects import DmsObject
from frazil.dms.read import CHANGE_PHASE
from helpers import FILE1, LOAD1, ONE_COMMIT

pytestmark = pytest.mark.spark


def cast_sql(column: Column, text: str) -> str:
    """The value that a text comes to, null where it is not exactly that."""
    value = value_sql(column, text)
    exact = exact_sql(column, text, value)
    return f"case when {exact} then {value} end" if exact else value


def float32(value: float) -> float:
    return unpack("f", pack("f", value))[0]


INTS = {"0": 0, "-1": -1, "+7": 7, "007": 7}
NOT_INTS = ["abc", "1.5", "1e3", "1,000", "0x1F", "--1"]
TEXTS = {t: t for t in ("a", " padded ", "NULL", "3.0", "Zürich 東京 🚀", "two\nlines", 'a "quote"', "back\\slash")}
HEX = {"00ff": b"\x00\xff", "DEADbeef": b"\xde\xad\xbe\xef", "0x0a": b"\x0a", "0X0A": b"\x0a", "0x": b""}
NOT_HEX = ["abc", "0xabc", "0", "zz", "0x0x"]
REALS = {
    "+3.23800011e+01": 32.3800011,
    "-0.5": -0.5,
    "0": 0.0,
    "1E3": 1000.0,
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
DATE_TEXTS = {
    "1996-07-04": date(1996, 7, 4),
    "0001-01-01": date.min,
    "9999-12-31": date.max,
    "2024-02-29": date(2024, 2, 29),
}
NOT_DATES = [
    "1996",
    "1996-07",
    "1996-07-04 00:00:00",
    "1996-13-01",
    "2023-02-29",
    "04.07.1996",
    "07/04/1996",
    "19960704",
    "1996-7-1 0",
    "1996-07-1 ",
    " 1996-7-01",
    "abc",
]
TIMES_OF_DAY = {t: t for t in ("23:59:59", "00:00:00.000001", "12:00:00+02:00")}
WALL_CLOCK = {
    "2024-06-12 10:30:25.854359": datetime(2024, 6, 12, 10, 30, 25, 854359),
    "2024-06-12 10:30:25": datetime(2024, 6, 12, 10, 30, 25),
    "2024-06-12T10:30:25.5": datetime(2024, 6, 12, 10, 30, 25, 500000),
    "2024-03-31 02:30:00.000000": datetime(2024, 3, 31, 2, 30),  # does not exist in Berlin, but does on a wall clock
    "2024-06-12 10:30:25.854359000": datetime(2024, 6, 12, 10, 30, 25, 854359),
    "0001-01-01 00:00:00.000000": datetime.min,
    "9999-12-31 23:59:59.999999": datetime.max,
}
NOT_WALL_CLOCK = [
    "10:30:25", "10:30:25.8543591234", "1996", "2024-06-12", "2024-06-12 25:00:00", "2024-02-30 00:00:00", "infinity", "abc",
    "2024-06-12 10:30:25+02:00", "2024-06-12 10:30:25Z", "2024-06-12 10:30:25 GMT0", "2024-06-12 10:30:25Z ", "2024-06-12 10:30:25.1 UT ",
    # As long as DMS's own form:
    "2024-06-12 10:30:25.12345Z", "2024-06-12 10:30:25.123+01", "2024-06-12 10:30:25.123-01", "2024-06-12 10:30:25.1 GMT0", "2024-6-2 10:30:25.00000001",
    "2024-06-12 10:30:25.854359001", "12024-6-12 10:30:25.854359", "-2024-6-12 10:30:25.854359",
]  # fmt: skip

ROWS = [
    ("BOOLEAN", "boolean", {"true": True, "F": False, "1": True, "0": False, "Y": True, "no": False, "t": True, "n": False}, ["2", "wahr", "abc"]),
    ("INT1", "int", {**INTS, "-128": -128, "127": 127}, NOT_INTS),
    ("INT2", "int", {**INTS, "-32768": -32768, "32767": 32767}, NOT_INTS),
    ("INT4", "int", {**INTS, "-2147483648": -(2**31), "2147483647": 2**31 - 1}, [*NOT_INTS, "2147483648", "-2147483649"]),
    ("INT8", "bigint", {**INTS, str(-(2**63)): -(2**63), str(2**63 - 1): 2**63 - 1}, [*NOT_INTS, str(2**63), str(-(2**63) - 1)]),
    ("UINT1", "int", {"0": 0, "255": 255}, NOT_INTS),
    ("UINT2", "int", {"0": 0, "65535": 65535}, NOT_INTS),
    ("UINT4", "bigint", {"0": 0, str(2**32 - 1): 2**32 - 1}, NOT_INTS),
    ("UINT8", "decimal(20,0)", {"0": Decimal(0), str(2**64 - 1): Decimal(2**64 - 1)}, ["abc", "1.5", "1" + "0" * 20]),
    ("NUMERIC(12,2)", "decimal(12,2)",
     {"1": Decimal(1), "-1.50": Decimal("-1.5"), "+.5": Decimal("0.5"), "1.500000": Decimal("1.5"), "9999999999.99": Decimal("9999999999.99")},
     ["10000000000", "1.505", "0.001", "1e-5", "1.2e-1", "abc", "1,5", "-0.009"]),
    ("NUMERIC(38,10)", "decimal(38,10)", {"1" * 28 + "." + "2" * 10: Decimal("1" * 28 + "." + "2" * 10)}, ["1" * 29, "1.2e-20", "1e-11"]),
    ("REAL4", "float", {**{k: float32(v) for k, v in REALS.items()}, "3.4028235e38": float32(3.4028235e38)}, ["1e60", "-1e60", "abc", "1,5", "1996-07-04", "1.5d", "1F"]),
    ("REAL8", "double",
     {**REALS, "0.10000000000000001": 0.1, "1.7976931348623157e308": 1.7976931348623157e308, "1e60": 1e60, "+1.2345678901234567e+00": 1.2345678901234567},
     ["1e400", "abc", "1,5", "1d", "1.5f", "1.5f ", "0x1p3"]),
    ("STRING(99)", "string", TEXTS, []),
    ("WSTRING(99)", "string", TEXTS, []),
    ("CLOB", "string", TEXTS, []),
    ("NCLOB", "string", TEXTS, []),
    ("BYTES(9)", "binary", HEX, NOT_HEX),
    ("BLOB", "binary", HEX, NOT_HEX),
    ("DATE", "date", DATE_TEXTS, NOT_DATES),
    ("TIME", "string", TIMES_OF_DAY, []),
    ("DATETIME(6)", "timestamp_ntz", WALL_CLOCK, NOT_WALL_CLOCK),
]  # fmt: skip


def cast_all(spark, column: Column, texts, wrap="{}") -> list:
    from pyspark.sql import Row
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([Row(n=n, text=t) for n, t in enumerate(texts)], "n int, text string")
    value = F.expr(wrap.format(cast_sql(column, "text"))).alias("value")
    return [r.value for r in frame.select("n", value).orderBy("n").collect()]


def test_every_type_has_a_row_here():
    assert {Column("x", row[0]).dms_type for row in ROWS} == TYPES == {*LAKE_TYPES, "NUMERIC", "DATETIME"}


@pytest.mark.parametrize(("kind", "lake", "fits", "misfits"), ROWS, ids=[r[0] for r in ROWS])
def test_what_fits_is_kept_exactly_and_what_does_not_becomes_null(spark, kind, lake, fits, misfits):
    column = Column("x", kind)
    assert lake_type(column) == lake
    got = cast_all(spark, column, [*fits, *misfits])
    assert [bytes(v) if isinstance(v, bytearray) else v for v in got] == [*fits.values(), *[None] * len(misfits)]


def test_a_real_may_be_nan(spark):
    assert cast_all(spark, Column("x", "REAL8"), ["NaN"], "string({})") == ["NaN"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin"])
def test_utc_datetimes_are_instants_whatever_the_session_zone(spark, zone):
    texts = [
        "1970-01-01 00:00:01.000002",
        "1970-01-01 02:00:01+02:00",
        "1970-01-01T00:00:01Z",
        "2024-03-31 02:30:00",
        "0001-01-01 00:00:00",
    ]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        got = cast_all(
            spark,
            Column("x", "DATETIME", utc=True),
            [*texts, "10:30:25", "1996", "abc", "2024-06-12 10:30:25.854359001+02:00"],
            "unix_micros({})",
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert lake_type(Column("x", "DATETIME", utc=True)) == "timestamp"
    assert got == [1_000_002, 1_000_000, 1_000_000, 1_711_852_200_000_000, -62_135_596_800_000_000, *[None] * 4]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_wall_clock_datetimes_are_the_same_in_every_session_zone(spark, zone):
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        got = cast_all(spark, Column("x", "DATETIME"), list(WALL_CLOCK))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert got == list(WALL_CLOCK.values())


def read_fields(world, *lines: str) -> list[tuple]:
    """Read change rows `I,<time>,<id>,<text>,<bytes>,<number>,,` and return (text, bytes, number) of each."""
    world.table("t", "id INT4", "text WSTRING(9)", "bytes BYTES(9)", "number INT4")
    world.write(
        "t",
        "20240101-100000000.csv",
        "".join(f"I,2024-01-01 00:00:00.000000,{n},{line},,\n" for n, line in enumerate(lines)),
    )
    changes, _ = world.change_set("t")
    rows = changes.orderBy("after.id").collect()
    assert [r.bad for r in rows] == [None] * len(lines)
    return [(r.after.text, r.after.bytes, r.after.number) for r in rows]


def test_with_an_empty_null_token_an_empty_field_is_null_and_a_quoted_one_is_an_empty_value(new_world):
    got = read_fields(new_world(CsvNullValue=""), ",,", '"","",""', "NULL,00,7", '"NULL","00","7"')
    assert got == [(None, None, None), ("", b"", None), ("NULL", b"\0", 7), ("NULL", b"\0", 7)]


def test_with_null_token_NULL_an_empty_field_is_an_empty_value_and_no_number(new_world):
    got = read_fields(new_world(CsvNullValue="NULL"), ",,", '"","",""', "NULL,NULL,NULL", "null,00,7")
    assert got == [("", b"", None), ("", b"", None), (None, None, None), ("null", b"\0", 7)]


@pytest.mark.parametrize("phase", ["load", "change"])
@pytest.mark.parametrize("token", ["", "NULL"])
def test_an_empty_field_of_a_type_without_an_empty_value_is_null_quoted_or_not(new_world, token, phase):
    kinds = ["INT8", "NUMERIC(9,2)", "REAL8", "DATE", "DATETIME", "TIME", "BOOLEAN"]
    w = new_world(CsvNullValue=token).table("t", "id INT8", *[f"c{n} {kind}" for n, kind in enumerate(kinds)])
    fields = [",".join(empty for _ in kinds) for empty in ("", '""')]
    rows = [f"{ONE_COMMIT},{n},{line},," for n, line in enumerate(fields)]
    if phase == "load":
        w.write("t", LOAD1, "".join(f"{row}\n" for row in rows)).loaded()
    else:
        w.load("t").loaded().write("t", FILE1, "".join(f"I,{row}\n" for row in rows)).merged()
    assert w.rows("t") == [(n, *[None] * len(kinds)) for n in (0, 1)]


def test_an_empty_field_of_a_column_that_is_kept_as_text_is_null_all_the_same(new_world):
    w = new_world(CsvNullValue="").table("t", "id INT8", "n NUMERIC(9,2)")
    w.specs["t"]["columns"][1]["lake"] = "string"
    (w.root / "specs/t.yml").write_text(yaml.safe_dump(w.specs["t"]))
    w.write("t", LOAD1, f'{ONE_COMMIT},1,,,\n{ONE_COMMIT},2,"",,\n{ONE_COMMIT},3,1.50,,\n').loaded()
    assert w.rows("t") == [(1, None), (2, None), (3, "1.50")]


def test_spaces_around_a_text_are_kept(new_world):
    assert read_fields(new_world(), " a ,,1", '" b ",,2') == [(" a ", None, 1), (" b ", None, 2)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("like", ["20240331-023000{:03}.csv", "CDC_TXN-20240331023000{:03}.csv"])
def test_when_a_file_was_written_is_told_by_its_name_for_few_files_and_for_many(spark, zone, like):
    files = [DmsObject(like.format(n * 7), "", 1, "") for n in range(FEW + 1)]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for some in (files[:1], files[:5], files[:FEW], files):
            names = spark.createDataFrame([(f.name,) for f in some], "object string")
            got = names.selectExpr(f"unix_micros({written_at(some, CHANGE_PHASE)})").collect()
            assert [r[0] for r in got] == [1_711_852_200_000_000 + n * 7_000 for n in range(len(some))]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
