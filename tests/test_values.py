"""Each DMS type in each form that DMS writes: values arrive exactly, and a value that does not fit leaves its row in the quarantine."""

from __future__ import annotations

import json
import re
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import zip_longest

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dms_streams import Topic
from dms_writer import COMMITTED, FILE1, LOAD, NO_RULES, STAMP, I
from world import World

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


def single(value: float) -> float:
    """Return the number of 32 bits that is nearest."""
    return struct.unpack("f", struct.pack("f", value))[0]


NINES = "9" * 38
LONG = "x" * 70_000 + ' "\n,' + "y" * 9
INTEGERS = {"0": 0, "-1": -1, "7": 7}
NUMERIC = {"1.50": Decimal("1.50"), "-0.01": Decimal("-0.01"), "0": Decimal(0), "+.5": Decimal("0.5"), "1.500000": Decimal("1.5"), "1.2e1": Decimal(12)}  # fmt: skip
REALS = {"0": 0.0, "-0.0": -0.0, "5": 5.0, "-0.5": -0.5, "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}  # fmt: skip
TEXTS = {
    t: t for t in (
        "", "a", " padded ", "NULL", r"\N", "null", "3.0", "Zürich 東京 🚀", "e\u0301", "two\nlines", "cr\rand\r\nboth", 'a "quote"', '"',
        '""', '","', r"back\slash\n", "it's", "a,b", "a|b", "tab\there", "\n", "I,2024-01-01 09:59:00.000000,1",
    )
}  # fmt: skip
BYTES = {"00ff": b"\x00\xff", "DEADbeef": b"\xde\xad\xbe\xef", "0x0a0d": b"\n\r", "0X0A": b"\n", "0x": b"", "": b""}
MOMENTS = {
    "2024-06-12 10:30:25.854359": datetime(2024, 6, 12, 10, 30, 25, 854359),
    "2024-06-12 10:30:25": datetime(2024, 6, 12, 10, 30, 25),
    "2024-06-12 10:30:25.5": datetime(2024, 6, 12, 10, 30, 25, 500000),
    "2024-06-12 10:30:25.854359000": datetime(2024, 6, 12, 10, 30, 25, 854359),
    "2024-03-31 02:30:00.000000": datetime(2024, 3, 31, 2, 30),  # Berlin's clocks skip this hour
    "1969-12-31 23:59:59.999999": datetime(1969, 12, 31, 23, 59, 59, 999999),
    "1582-10-10 00:00:00.000000": datetime(1582, 10, 10),  # the calendar of the time skips this day
    "0001-01-01 00:00:00.000000": datetime.min,
    "9999-12-31 23:59:59.999999": datetime.max,
}
TIMES = {
    "00:00:00": "00:00:00", "23:59:59": "23:59:59", "07:08:09.123": "07:08:09.123", "00:00:00.000001": "00:00:00.000001",
    "12:00:00+02:00": "12:00:00+02:00", "838:59:59": "838:59:59",
}  # fmt: skip
NO_INTEGERS = ["abc", "1.5", "1e-1", "1,000", "0x1F", "--1", "1_0", "\u0661\u0662", "nan", "true"]
BEYOND_4 = [str(2**31), str(-(2**31) - 1)]
NO_REALS = ["abc", "1,5", "0x1p3", "1.5f", "1e", "1996-07-04", "1_0.0"]
NO_BYTES = ["abc", "0xabc", "zz", "0x0x", " 00"]
NO_MOMENTS = [
    "2024-06-12", "2024-06-12 10:30", "2024-06-12 25:00:00", "2024-02-30 00:00:00", "2024-06-12 23:59:60", "0000-00-00 00:00:00",
    "12024-06-12 10:30:25", "-4712-01-01 00:00:00", "infinity", "10:30:25", "2024-06-12 10:30:25.8543591", "2024-06-12 10:30:25 GMT",
]  # fmt: skip
ALL = {
    "flag": ("BOOLEAN", pa.bool_(), {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False, "y": True, "n": False, "YES": True, "No": False, "TRUE": True}, ["2", "-1", "wahr", "yesno"]),
    "int1": ("INT1", pa.int8(), {**INTEGERS, "-128": -128, "127": 127}, [*NO_INTEGERS, *BEYOND_4]),
    "int2": ("INT2", pa.int16(), {**INTEGERS, "-32768": -32768, "32767": 32767}, [*NO_INTEGERS, *BEYOND_4]),
    "int4": ("INT4", pa.int32(), {**INTEGERS, str(-(2**31)): -(2**31), str(2**31 - 1): 2**31 - 1}, [*NO_INTEGERS, *BEYOND_4]),
    "int8": ("INT8", pa.int64(), {**INTEGERS, str(-(2**63)): -(2**63), str(2**63 - 1): 2**63 - 1, str(2**53 + 1): 2**53 + 1}, [*NO_INTEGERS, str(2**63), str(-(2**63) - 1), "9" * 500]),
    "uint1": ("UINT1", pa.uint8(), {"0": 0, "255": 255}, NO_INTEGERS),
    "uint2": ("UINT2", pa.uint16(), {"0": 0, "65535": 65535}, NO_INTEGERS),
    "uint4": ("UINT4", pa.uint32(), {"0": 0, str(2**32 - 1): 2**32 - 1}, [*NO_INTEGERS, str(2**63)]),
    "uint8": ("UINT8", pa.uint64(), {"0": Decimal(0), str(2**64 - 1): Decimal(2**64 - 1)}, ["abc", "1.5", "1" + "0" * 20]),
    "money": ("NUMERIC(12,2)", pa.decimal128(12, 2), {**NUMERIC, "9999999999.99": Decimal("9999999999.99")}, ["10000000000", "1.505", "0.001", "-0.009", "1,5", "nan", "0x1", "1e99999999999", "abc"]),
    "whole": ("NUMERIC(38,0)", pa.decimal128(38, 0), {NINES: Decimal(NINES), "-" + NINES: Decimal("-" + NINES), "0": Decimal(0)}, ["1" + "0" * 38, "0.5", "-" + "1" * 39]),
    "part": ("NUMERIC(38,38)", pa.decimal128(38, 38), {"0." + NINES: Decimal("0." + NINES), "-0." + "0" * 37 + "1": -Decimal(1).scaleb(-38)}, ["1", "-1", "0." + "0" * 38 + "1"]),
    "wide": ("NUMERIC(38,10)", pa.decimal128(38, 10), {f"{NINES[:28]}.{NINES[:10]}": Decimal(f"{NINES[:28]}.{NINES[:10]}"), "0.0000000001": Decimal("1e-10")}, ["1" * 29, "1e-11"]),
    "real4": ("REAL4", pa.float32(), {**REALS, "+3.23800011e+01": single(32.3800011), "2.20000005": single(2.2), "3.4028235e+38": single(3.4028235e38), "1.17549435e-38": single(1.17549435e-38)}, [*NO_REALS, "1e39", "-1e60", "1e-60"]),
    "real8": ("REAL8", pa.float64(), {**REALS, "+2.1804858784530072e+04": 21804.858784530072, "0.1": 0.1, "1.2345678901234567": 1.2345678901234567, "1.7976931348623157e+308": 1.7976931348623157e308, "5e-324": 5e-324}, [*NO_REALS, "1e400", "1e-400"]),
    "string": ("STRING(99)", pa.string(), TEXTS, ["a\ufffd"]),
    "wstring": ("WSTRING(99)", pa.string(), TEXTS, ["a\ufffd"]),
    "clob": ("CLOB", pa.string(), {**TEXTS, LONG: LONG}, ["a\ufffd"]),
    "nclob": ("NCLOB", pa.string(), {**TEXTS, LONG: LONG}, ["a\ufffd"]),
    "bytes": ("BYTES(99)", pa.binary(), BYTES, NO_BYTES),
    "blob": ("BLOB", pa.binary(), {**BYTES, "ab" * 50_000: b"\xab" * 50_000}, NO_BYTES),
    "day": ("DATE", pa.date32(), {"1996-07-04": date(1996, 7, 4), "2024-02-29": date(2024, 2, 29), "1582-10-10": date(1582, 10, 10), "0001-01-01": date.min, "9999-12-31": date.max}, ["1996", "2023-02-29", "1996-13-01", "04.07.1996", "19960704", "1996-7-1", "0000-00-00", "12024-01-01", "-2024-01-01", "today"]),
    "clock": ("TIME", pa.time32("ms"), TIMES, ["12:00:0\ufffd"]),
    "wall": ("DATETIME", pa.timestamp("us", "UTC"), MOMENTS, [*NO_MOMENTS, "2024-06-12 10:30:25+02:00"]),
    "instant": ("DATETIME", pa.timestamp("us", "UTC"), {t: v.replace(tzinfo=UTC) for t, v in MOMENTS.items()}, [*NO_MOMENTS, "0001-01-01 00:00:00+02:00"]),
}  # fmt: skip
"""Of each column: its DMS type, what it is in DMS's Parquet, the texts of its values with what the lake shall hold, and texts of no value."""
PARQUETS_OWN = {
    "flag": (pa.int32(), [2, -1]), "int4": (pa.float64(), [0.5, float("nan"), 1e300]), "int8": (pa.float64(), [-0.25, 2.0**63]),
    "money": (pa.float64(), [0.125, float("nan"), float("inf"), 1e10]), "real8": (pa.int64(), [2**53 + 1]), "string": (pa.binary(), [b"a\xff"]),
    "day": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 0, 0, 1)]), "wall": (pa.timestamp("ns", "UTC"), [1]),
}  # fmt: skip
"""Values of other types of Parquet that have no exact value in the column."""
FORMS = {
    "plain": {},
    "header-tab-NULL": {"AddColumnName": True, "IncludeOpForFullLoad": True, "CsvDelimiter": "\t", "CsvNullValue": "NULL"},
    "gzip-pipe": {"CompressionType": "GZIP", "CsvDelimiter": "|", "CsvNullValue": r"\N"},
    "parquet": {"DataFormat": "parquet"},
    "messages": {},
}  # fmt: skip
GOOD = [dict(zip(ALL, row, strict=True)) for row in zip_longest(*(kind[2] for kind in ALL.values()))]
"""The texts of the good rows: the n-th row has the n-th value of each column, or null."""
BAD = [(column, text) for column, kind in ALL.items() for text in kind[3]]
"""The bad rows: each has one text of no value, and nulls."""


# --- how each form writes a text


def row_of(n: int, texts: dict[str, str | None]) -> tuple:
    return n, *(texts.get(column) for column in ALL)


def as_csv(w: World, table: str, first: int, rows: list[dict], load: bool) -> None:
    """Write rows with texts; a text that is the token of null is one."""
    null = w.source.settings["CsvNullValue"]
    plain = [
        row_of(first + n, {c: None if t == null and null else t for c, t in row.items()}) for n, row in enumerate(rows)
    ]
    if load:
        w.source.load(table, *plain)
    else:
        w.source.changes(table, *(I(*row) for row in plain))


def as_parquet(w: World, table: str, first: int, rows: list[dict], load: bool) -> None:
    """Write good rows in DMS's types of Parquet, and bad ones as texts."""
    names = w.source.names(load, table)
    columns = {
        "Op": ["I"] * len(rows),
        "ts": [COMMITTED] * len(rows),
        "id": pa.array(range(first, first + len(rows)), pa.int64()),
    }
    for column, (_, kind, values, _) in ALL.items():
        texts = [row.get(column) for row in rows]
        typed = [of_parquet(column, t, values) for t in texts] if table == "t" else texts
        columns[column] = pa.array(typed, kind if table == "t" else pa.string())
    write_parquet(w, table, LOAD if load else FILE1, {name: columns[name] for name in names})


def of_parquet(column: str, text: str | None, values: dict):
    if text is None or not in_parquet(column, text):
        return None
    return time.fromisoformat(text) if column == "clock" else int(values[text]) if column == "uint8" else values[text]


def in_parquet(column: str, text: str) -> bool:
    """Return whether DMS's Parquet has the value: its times of day are of milliseconds."""
    return column != "clock" or bool(re.fullmatch(r"([01]\d|2[0-3]):\d\d:\d\d(\.\d{3})?", text))


def write_parquet(w: World, table: str, name: str, columns: dict) -> None:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out, store_schema=False)
    w.source.write(table, w.source.named(name), out.getvalue().to_pybytes())


def as_messages(w: World, table: str, first: int, rows: list[dict], load: bool) -> None:
    about = {"timestamp": STAMP, "record-type": "data", "operation": "load" if load else "insert", "partition-key-type": "schema-table",
             "schema-name": "public", "table-name": table, "commit-timestamp": STAMP}  # fmt: skip
    for n, row in enumerate(rows):
        data = {"id": str(first + n), **{c: "null" if t is None else in_json(c, t) for c, t in row.items()}}
        text = ", ".join(f'"{name}": {value}' for name, value in data.items())
        w.source.send(f'{{"data": {{{text}}}, "metadata": {json.dumps(about)}}}')


def in_json(column: str, text: str) -> str:
    """Return a text as DMS's JSON has it: numbers with all digits, times with T and Z."""
    kind = ALL[column][0]
    if kind.startswith(("INT", "UINT", "NUMERIC", "REAL")) and re.fullmatch(
        r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", text, re.ASCII
    ):
        return text
    if kind == "BOOLEAN" and text in ("true", "false", "1", "0", "2", "-1"):
        return text
    if kind == "DATETIME" and re.fullmatch(r"-?\d{4,}-\d\d-\d\d \S+", text):
        text = text.replace(" ", "T") + ("" if "+" in text else "Z")
    return json.dumps(text)


WRITE = {"parquet": as_parquet, "messages": as_messages}


def fill(w: World, form: str) -> None:
    """Declare good rows in `t`, bad rows behind a good one in `bad`, and write each by the load, then by changes."""
    for table in ("t", "bad"):
        w.table(table, "id INT8", *(f"{column} {kind}" for column, (kind, *_) in ALL.items()))
        w.column(table, "instant", utc=True)
    bad = [{}, *({column: text} for column, text in BAD)]
    for load in (True, False):
        for table, rows in (("t", GOOD), ("bad", bad)):
            WRITE.get(form, as_csv)(w, table, 0 if load else 1000, rows, load)
    if form == "parquet":
        w.table("odd", "id INT8", *(f"{column} {ALL[column][0]}" for column in PARQUETS_OWN))
        odd = [(column, n) for column, (_, values) in PARQUETS_OWN.items() for n in range(len(values))]
        columns = {"id": pa.array(range(len(odd)), pa.int64())}
        for column, (kind, values) in PARQUETS_OWN.items():
            columns[column] = pa.array([values[n] if c == column else None for c, n in odd], kind)
        write_parquet(w, "odd", LOAD, {"ts": [COMMITTED] * len(odd), **columns})
    w.form = form


@pytest.fixture(scope="module", params=FORMS)
def held(request, shared_world):
    """A world of a form."""
    form = request.param
    w = shared_world(f"v_{form.replace('-', '_')}", target=FORMS[form], on_bad_rows="quarantine")
    if form == "messages":
        Topic(w, request.getfixturevalue("kafka"))
    else:
        w.source.rules = NO_RULES
    fill(w, form)
    w.loaded().merged()
    return w


@pytest.fixture(scope="module")
def rows(held) -> dict[int, dict]:
    """The rows of `t` by their ids."""
    return {row[0]: dict(zip(ALL, row[1:], strict=True)) for row in held.rows("t")}


def is_same(found, wanted) -> bool:
    """Return whether two values are one, also as a number that is none or a negative zero."""
    return type(found) is type(wanted) and (
        found == wanted if not isinstance(wanted, float) else repr(found) == repr(wanted)
    )


@pytest.mark.parametrize("column", ALL)
def test_a_value_is_exact_whether_a_load_or_a_change_brings_it(held, rows, column):
    wrong, null = [], getattr(held.source, "settings", {}).get("CsvNullValue") or None
    for n, row in enumerate(GOOD):
        text = row[column]
        is_null = text in (None, null) or (held.form == "parquet" and not in_parquet(column, text))
        wanted = None if is_null else ALL[column][2][text]
        found = [rows[n][column], rows[1000 + n][column]]
        wrong += [(text, "is", f, "wanted", wanted) for f in found if not is_same(f, wanted)]
    assert not wrong, "\n".join(str(w)[:300] for w in wrong)


@pytest.fixture(scope="module")
def waiting(held) -> list[dict]:
    return held.quarantine("bad")


@pytest.mark.parametrize("column", ALL)
def test_a_value_that_does_not_fit_leaves_its_row_in_the_quarantine(held, waiting, column):
    if held.form == "messages":
        sent = [text for _, text in held.source.sent if b'"table-name": "bad"' in text]
        places = [
            [text for text in sent if f'"id": {first + n},'.encode() in text][0]
            for first in (0, 1000)
            for n, _ in bad_of(column)
        ]
        found = [row["raw"] for row in waiting if row["column"] == column]
    else:
        places = [(held.source.named(file), n + 1) for file in (LOAD, FILE1) for n, _ in bad_of(column)]
        found = [(row["file"], row["row"]) for row in waiting if row["column"] == column]
    missing = [(p, dict(bad_of(column))) for p in places if p not in found]
    assert not missing and len(found) == len(places), (
        f"not in the quarantine: {missing}, of {len(places)}; there are {len(found)}"
    )


def bad_of(column: str) -> list[tuple[int, str]]:
    """Return the number of each bad row of a column in its file, from 0, and its text."""
    return [(n, text) for n, (c, text) in enumerate(BAD, 1) if c == column]


def test_no_row_with_a_value_that_does_not_fit_is_in_the_table(held):
    nulls = (None,) * len(ALL)
    assert held.rows("bad") == [(0, *nulls), (1000, *nulls)]
    if held.form == "parquet":
        columns = [column for column, (_, values) in PARQUETS_OWN.items() for _ in values]
        assert [(row["row"], row["column"]) for row in held.quarantine("odd")] == [*enumerate(columns, 1)]
        assert held.rows("odd") == []
