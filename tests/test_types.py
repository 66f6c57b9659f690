"""Columns in the lake: the type of each DMS type there, fields without a value, and times in several session time zones.

`test_core_types.py` has the texts that fit each type, and those that are refused.
"""

import pytest
import yaml

from helpers import FILE1, LOAD1, ONE_COMMIT, I, U

spark = pytest.mark.spark


INSTANTS = {
    "1970-01-01 00:00:01.000002": 1_000_002, "1970-01-01 02:00:01+02:00": 1_000_000, "1970-01-01T00:00:01Z": 1_000_000,
    "2024-03-31 02:30:00": 1_711_852_200_000_000, "0001-01-01 00:00:00": -62_135_596_800_000_000,
}  # fmt: skip
WALL_CLOCK = {
    "2024-06-12 10:30:25.854359": "2024-06-12 10:30:25.854359",
    "2024-06-12T10:30:25.5": "2024-06-12 10:30:25.5",
    "2024-03-31 02:30:00.000000": "2024-03-31 02:30:00",  # does not exist in Berlin, but does on a wall clock
    "0001-01-01 00:00:00.000000": "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999": "9999-12-31 23:59:59.999999",
}


@spark
@pytest.mark.parametrize("lane", ["merge", "rowdelta"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin"])
def test_times_are_the_same_in_every_session_zone(world, spark, zone, lane):
    rows = list(enumerate(zip(INSTANTS, WALL_CLOCK, strict=True)))
    world.table("t", "id INT8", "u DATETIME", "w DATETIME", utc=("u",))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        world.load("t", *[(n, *texts) for n, texts in rows], (99, None, None)).loaded()
        world.changes("t", *[I(n + 10, *texts) for n, texts in rows], *[U(n, *texts) for n, texts in rows]).merged(
            lane=lane
        )
        read = world.spark.table(world.name("t")).selectExpr("id", "unix_micros(u)", "cast(w as string)")
        got = sorted(tuple(r) for r in read.collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    expected = [*zip(INSTANTS.values(), WALL_CLOCK.values(), strict=True)]
    assert got == [*[(n + first, *row) for first in (0, 10) for n, row in enumerate(expected)], (99, None, None)]


def read_fields(world, *lines: str) -> list[tuple]:
    """Read change rows `I,<time>,<id>,<text>,<bytes>,<number>,,` and return (text, bytes, number) of each."""
    world.table("t", "id INT4", "text WSTRING(9)", "bytes BYTES(9)", "number INT4")
    world.write(
        "t",
        "20240101-100000000.csv",
        "".join(f"I,2024-01-01 00:00:00.000000,{n},{line},,\n" for n, line in enumerate(lines)),
    )
    found = world.collapsed("t")
    return [found[n][1:] for n in range(len(lines))]


@spark
def test_with_an_empty_null_token_an_empty_field_is_null_and_a_quoted_one_is_an_empty_value(new_world):
    got = read_fields(new_world(CsvNullValue=""), ",,", '"","",""', "NULL,00,7", '"NULL","00","7"')
    assert got == [(None, None, None), ("", b"", None), ("NULL", b"\0", 7), ("NULL", b"\0", 7)]


@spark
def test_with_null_token_NULL_an_empty_field_is_an_empty_value_and_no_number(new_world):
    got = read_fields(new_world(CsvNullValue="NULL"), ",,", '"","",""', "NULL,NULL,NULL", "null,00,7")
    assert got == [("", b"", None), ("", b"", None), (None, None, None), ("null", b"\0", 7)]


@spark
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


@spark
def test_an_empty_field_of_a_column_that_is_kept_as_text_is_null_all_the_same(new_world):
    w = new_world(CsvNullValue="").table("t", "id INT8", "n NUMERIC(9,2)")
    w.specs["t"]["columns"][1]["lake"] = "string"
    (w.root / "specs/t.yml").write_text(yaml.safe_dump(w.specs["t"]))
    w.write("t", LOAD1, f'{ONE_COMMIT},1,,,\n{ONE_COMMIT},2,"",,\n{ONE_COMMIT},3,1.50,,\n').loaded()
    assert w.rows("t") == [(1, None), (2, None), (3, "1.50")]


@spark
def test_spaces_around_a_text_are_kept(new_world):
    assert read_fields(new_world(), " a ,,1", '" b ",,2') == [(" a ", None, 1), (" b ", None, 2)]
