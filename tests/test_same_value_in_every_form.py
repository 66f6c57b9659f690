"""A value is the same in every form: zeros after the sixth digit of a second, and integers written as `12.0` or `1e3`."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from helpers import FILE1, LOAD1, ONE_COMMIT
from lake_reader import lake_rows
from stream_world import STAMP, KafkaWorld

pytestmark = pytest.mark.spark

MOMENT = dt.datetime(2022, 9, 1, 18, 21, 36, 915241)
DIGITS = {
    "": MOMENT.replace(microsecond=0), ".9": MOMENT.replace(microsecond=900_000), ".915241": MOMENT, ".9152410": MOMENT,
    ".915241000": MOMENT, ".915241000000": MOMENT, ".9152411": None, ".915241001": None,
}  # fmt: skip
"""The fraction of a second as it is written, and the time that it says; None: no microsecond says that."""
INTEGERS = {"12": 12, "12.0": 12, "12.000": 12, "1e3": 1000, "12.5": None, "1e-1": None}
COLUMNS = [
    "wall DATETIME",
    "instant DATETIME",
    "word DATETIME",
    "small INT4",
    "big INT8",
    "huge UINT8",
    "number NUMERIC(12,2)",
]
LIMITS = {"on_bad_rows": "quarantine", "max_bad_rows": 99, "max_bad_percent": 100}


def tables(w) -> None:
    w.table("t", "id INT8", *COLUMNS, utc=("instant",))
    w.specs["t"]["columns"][3]["lake"] = "string"
    (w.root / "specs/t.yml").write_text(yaml.safe_dump(w.specs["t"]))


def cells() -> list[tuple[int, str, str]]:
    """Return (id, column, text): a row for each value, all other columns are null."""
    names = [c.split(" ")[0] for c in COLUMNS]
    found = [(c, f"2022-09-01 18:21:36{digits}") for c in names[:3] for digits in DIGITS]
    found += [(c, text) for c in names[3:] for text in INTEGERS]
    return [(n, *cell) for n, cell in enumerate(found)]


def said(column: str, text: str):
    """Return what a value's text says; None: its row is bad. A column that is kept as text takes each."""
    if column == "word":
        return text
    if column in ("wall", "instant"):
        value = DIGITS[text[19:]]
        return value and (value.replace(tzinfo=dt.UTC) if column == "instant" else value)
    value = INTEGERS[text] if column != "number" or text not in ("12.5", "1e-1") else Decimal(text)
    return Decimal(value) if column in ("huge", "number") and value is not None else value


def of_csv(w) -> None:
    lines = {n: [str(n), *["" if c.split(" ")[0] != name else text for c in COLUMNS]] for n, name, text in cells()}
    w.write("t", LOAD1, "".join(f"{ONE_COMMIT},{','.join(line)}\n" for n, line in lines.items() if n % 2))
    w.write("t", FILE1, "".join(f"I,{ONE_COMMIT},{','.join(line)}\n" for n, line in lines.items() if not n % 2))


def of_parquet(w) -> None:
    folder = w.root / "source/public/t"
    folder.mkdir(parents=True)
    for odd, file in ((1, "LOAD00000001.parquet"), (0, "20240101-100000000.parquet")):
        some = [cell for cell in cells() if cell[0] % 2 == odd]
        rows = {"id": pa.array([n for n, *_ in some])}
        for c in (c.split(" ")[0] for c in COLUMNS):
            rows[c] = pa.array([text if name == c else None for _, name, text in some], pa.string())
        op = {} if odd else {"Op": pa.array(["I"] * len(some))}
        pq.write_table(pa.table({**op, **rows}), folder / file)


@pytest.fixture(scope="module")
def held(spark, kafka, catalog_options, tmp_path_factory):
    """Return {form: {id: the value in the lake}}: odd ids come by the load, even ones by changes."""
    from helpers import World

    folder = tmp_path_factory.mktemp("exact")
    worlds = {
        "csv": World(folder / "csv", "exact_csv", catalog_options),
        "parquet": World(
            folder / "parquet", "exact_parquet", catalog_options, DataFormat="parquet", TimestampColumnName=""
        ),
        "stream": KafkaWorld(kafka, folder / "stream", "exact_stream", catalog_options),
    }
    for form, w in worlds.items():
        w.rules = {"rules": []}
        tables(w)
        {"csv": of_csv, "parquet": of_parquet, "stream": of_stream}[form](w)
        w.setup()
        assert w.full_load(**LIMITS)["t"].status == "loaded"
        assert w.merge(**LIMITS)["t"].status == "merged"
    return {form: {r[0]: r[1:] for r in lake_rows(catalog_options, f"exact_{form}.t")} for form in worlds}


def of_stream(w) -> None:
    """Numbers are written as numbers of JSON, times with T and Z."""
    for n, column, text in sorted(cells(), key=lambda cell: not cell[0] % 2):
        is_time = column in ("wall", "instant", "word")
        value = f'"{text.replace(" ", "T")}Z"' if is_time else text
        about = {"timestamp": STAMP, "record-type": "data", "operation": "load" if n % 2 else "insert", "partition-key-type": "schema-table",
                 "schema-name": "public", "table-name": "t", "commit-timestamp": STAMP}  # fmt: skip
        w.send(f'{{"data": {{"id": {n}, "{column}": {value}}}, "metadata": {json.dumps(about)}}}')


def check(held: dict, form: str, columns: tuple[str, ...], only=lambda text: True) -> None:
    names, wrong = [c.split(" ")[0] for c in COLUMNS], []
    for n, column, text in cells():
        if column in columns and only(text):
            got = held[form].get(n, "bad row")
            got = got if got == "bad row" else got[names.index(column)]
            wanted = said(column, text)
            if got != ("bad row" if wanted is None else wanted):
                wrong.append((column, text, "is", got, "wanted", wanted))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("form", ["csv", "parquet", "stream"])
def test_zeros_after_the_sixth_digit_of_a_second_change_nothing(held, form):
    check(held, form, ("wall", "instant", "word"))


@pytest.mark.parametrize("form", ["csv", "parquet", "stream"])
def test_numbers_with_room_for_a_point_take_integers_in_each_spelling(held, form):
    check(held, form, ("huge", "number"), only=lambda text: text != "1e-1")


@pytest.mark.parametrize("form", ["csv", "parquet", "stream"])
def test_integers_without_a_point_are_taken_and_fractions_are_bad_rows(held, form):
    check(held, form, ("small", "big"), only=lambda text: text in ("12", "12.5", "1e-1"))


@pytest.mark.parametrize("form", ["csv", "parquet", "stream"])
def test_integers_with_zeros_after_the_point_or_an_exponent_are_taken(held, form):
    check(held, form, ("small", "big"), only=lambda text: text in ("12.0", "12.000", "1e3"))


@pytest.mark.parametrize("lake", ["", "string"])
def test_a_commit_time_takes_zeros_after_the_sixth_digit_and_no_other_digits(
    kafka, spark, catalog_options, tmp_path, lake
):
    w = KafkaWorld(kafka, tmp_path / "w", f"exact_commits{lake}", catalog_options)
    w.table("people", "ID INT8", "MODIFIED DATETIME", "AGE INT4", key="ID")
    if lake:
        w.specs["people"]["columns"][1]["lake"] = lake
        (w.root / "specs/people.yml").write_text(yaml.safe_dump(w.specs["people"]))
    modified = {1: "2022-09-01T18:21:36.915241000Z", 2: "2022-09-01T18:21:37Z"}
    for key, age in ((1, 89), (2, 82)):
        w.message("load", "people", ID=key, MODIFIED=modified[key], AGE=age)
    for key, commit in ((1, "2022-10-31T10:55:51.000000000Z"), (2, "2022-10-31T10:55:51.0000001Z")):
        w.message(
            "update",
            "people",
            ID=key,
            MODIFIED="2022-10-31T10:55:50.000000000Z",
            AGE=90,
            about={"commit-timestamp": commit},
        )
    w.setup()
    w.full_load()
    assert w.merge(**LIMITS)["people"].counts["quarantined"] == 1
    rows = [
        (r[0], r[1].replace("T", " ") if lake else r[1], r[2]) for r in lake_rows(catalog_options, f"{w.space}.people")
    ]
    later, earlier = ("2022-10-31 10:55:50.000000000", "2022-09-01 18:21:37") if lake else (dt.datetime(2022, 10, 31, 10, 55, 50), dt.datetime(2022, 9, 1, 18, 21, 37))  # fmt: skip
    assert rows == [(1, later, 90), (2, earlier, 82)]
