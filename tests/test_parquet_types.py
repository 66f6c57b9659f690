"""Every Parquet type against every DMS type: what a person would say (unit/test_changes.py asks); a pair that cannot be compared is refused."""

import datetime as dt
import io
import math
import re
import struct
from decimal import Decimal as D

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dms_writer import LOAD, NO_RULES

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

DAY = dt.datetime(2024, 5, 6)
MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 123000)
FIRST, LAST = dt.datetime.min, dt.datetime.max
TIMES = [DAY, MOMENT, FIRST, LAST]
NANOS = ["2022-09-01 18:21:36.915241000", "2022-09-01 18:21:36.915241001", "2022-09-01 00:00:00.000000000"]
BAD = "bad"


def nanoseconds(texts: list[str], zone: str | None = None) -> pa.Array:
    seconds = [round((dt.datetime.fromisoformat(t[:19]) - dt.datetime(1970, 1, 1)).total_seconds()) for t in texts]
    whole = [s * 10**9 + int(t[20:]) for s, t in zip(seconds, texts, strict=True)]
    return pa.array(whole, pa.int64()).cast(pa.timestamp("ns", zone))


def typed(kind: pa.DataType, *values) -> tuple[pa.Array, list]:
    return pa.array(values, kind), list(values)


PARQUET = {
    "bool": typed(pa.bool_(), True, False),
    "int8": typed(pa.int8(), 0, 1, 2, -128),
    "int16": typed(pa.int16(), 1, 2, -(2**15)),
    "int32": typed(pa.int32(), 0, 2**24 + 1, -(2**31)),
    "int64": typed(pa.int64(), 1, 2**53 + 1, 2**63 - 1),
    "uint8": typed(pa.uint8(), 1, 255),
    "uint16": typed(pa.uint16(), 0, 2**16 - 1),
    "uint32": typed(pa.uint32(), 1, 2**32 - 1),
    "uint64": typed(pa.uint64(), 1, 2**64 - 1),
    "float32": typed(pa.float32(), 1.0, 0.5, 2.0**100, math.nan),
    "float64": typed(pa.float64(), 0.0, 0.5, 0.1, 0.125, 1e300, 2.0**63, math.nan, -math.inf),
    "decimal_12_2": typed(pa.decimal128(12, 2), D("1.00"), D("12.50"), D("0.25"), D("-9999999999.99")),
    "decimal_25_4": typed(pa.decimal128(25, 4), D("12.0000"), D("0.1250"), D("123456789012345678901.2345")),
    "string": typed(pa.string(), "1", "true", "2024-05-06", "2024-05-06 07:08:09.123", "12.50", "00ff", "07:08:09"),
    "large_string": typed(pa.large_string(), "0", "abc", "2024-05-06", "2024-05-06 07:08:09.123"),
    "binary": typed(pa.binary(), b"abc", b"\xff"),
    "fixed_binary": typed(pa.binary(3), b"abc", b"\xff\x00\x01"),
    "date32": typed(pa.date32(), DAY.date(), dt.date.min, dt.date.max),
    "time32_ms": typed(pa.time32("ms"), dt.time(7, 8, 9), dt.time(23, 59, 59, 999000)),
    "time64_us": typed(pa.time64("us"), dt.time(0), dt.time(23, 59, 59, 999999)),
    "timestamp_ms": typed(pa.timestamp("ms", "UTC"), DAY, MOMENT),
    "timestamp_us": typed(pa.timestamp("us", "UTC"), *TIMES),
    "timestamp_us_local": typed(pa.timestamp("us"), *TIMES),
    "timestamp_ns": (nanoseconds(NANOS, "UTC"), NANOS),
    "timestamp_ns_local": (nanoseconds(NANOS), NANOS),
}  # fmt: skip
"""Of each Parquet type an array, and its values as Python has them; of nanoseconds all nine digits, as text."""
DMS = [
    "BOOLEAN", "INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4", "UINT8", "NUMERIC(12,2)", "REAL4", "REAL8",
    "STRING(99)", "WSTRING(99)", "CLOB", "NCLOB", "BYTES(99)", "BLOB", "DATE", "TIME", "DATETIME", "DATETIME utc",
]  # fmt: skip
INTS = {**dict.fromkeys(("INT1", "INT2", "INT4", "UINT1", "UINT2"), 31), "INT8": 63, "UINT4": 63}
TEXTS = ("STRING(99)", "WSTRING(99)", "CLOB", "NCLOB")


def family(kind: str) -> str:
    for begin, name in (("bool", "bool"), ("time3", "time"), ("time6", "time"), ("timestamp", "timestamp"), ("date", "date"),
                        ("string", "text"), ("large_string", "text"), ("binary", "binary"), ("fixed", "fixed")):  # fmt: skip
        if kind.startswith(begin):
            return name
    return "number"


COMPARED = {
    "BOOLEAN": {"bool", "number", "text"}, "TIME": {"time", "text"}, "DATE": {"date", "timestamp", "text"},
    "DATETIME": {"date", "timestamp", "text"}, "DATETIME utc": {"date", "timestamp", "text"},
    **dict.fromkeys(TEXTS, {"bool", "number", "text", "binary", "date", "time", "timestamp"}),
    **dict.fromkeys(("BYTES(99)", "BLOB"), {"binary", "fixed", "text"}),
}  # fmt: skip
"""The families of Parquet types that have a value of the DMS type; a number's are numbers and texts."""


def single(value: float) -> float:
    """Return the nearest number of 32 bits."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.inf


def is_same(a, b) -> bool:
    return a == b or (a != a and b != b)


def plain(text: str) -> str:
    """Return the text of a time without zeros at the end of its fraction."""
    return re.sub(r"[.]?0+$", "", text) if "." in text else text


def expected(kind: str, dms: str, value):
    """Return what the lake shall hold of a value, or BAD: what a person would say, without any of Frazil's code."""
    of = family(kind)
    if of == "text":
        return of_text(dms, value)
    if of == "timestamp":
        nanos = value[26:] if isinstance(value, str) else "000"
        value = dt.datetime.fromisoformat(value[:26]) if isinstance(value, str) else value
        if dms in TEXTS:
            return str(value) if nanos == "000" else f"{value}{nanos}"
        if nanos != "000":
            return BAD
        if dms == "DATE":
            return value.date() if value.time() == dt.time(0) else BAD
        return value.replace(tzinfo=dt.UTC) if dms.endswith("utc") else value
    if of == "date" and dms.startswith("DATETIME"):
        midnight = dt.datetime.combine(value, dt.time(0))
        return midnight.replace(tzinfo=dt.UTC) if dms.endswith("utc") else midnight
    if of == "number":
        return of_number(kind, dms, value)
    if dms in TEXTS or dms == "TIME":
        if of == "binary":
            return value.decode() if value.isascii() else BAD
        return str(value).lower() if of == "bool" else str(value)
    return value


def of_text(dms: str, text: str):
    found = {
        "BOOLEAN": {"1": True, "0": False, "true": True}, "DATE": {"2024-05-06": DAY.date()},
        **dict.fromkeys(("DATETIME", "DATETIME utc"), {"2024-05-06 07:08:09.123": MOMENT}),
        **dict.fromkeys(INTS, {"1": 1, "0": 0}), "UINT8": {"1": D(1), "0": D(0)},
        "NUMERIC(12,2)": {"1": D(1), "0": D(0), "12.50": D("12.50")},
        **dict.fromkeys(("REAL4", "REAL8"), {"1": 1.0, "0": 0.0, "12.50": 12.5}),
        **dict.fromkeys(("BYTES(99)", "BLOB"), {"00ff": b"\x00\xff"}),
    }.get(dms)  # fmt: skip
    value = text if found is None else found.get(text, BAD)
    return value.replace(tzinfo=dt.UTC) if dms.endswith("utc") and value != BAD else value


def of_number(kind: str, dms: str, value):
    real, exact = isinstance(value, float), isinstance(value, float) and not math.isfinite(value)
    if dms in TEXTS:
        return value if real else str(value)
    if dms == "BOOLEAN":
        return bool(value) if value in (0, 1) else BAD
    if dms in INTS:
        bits = 63 if kind in ("int64", "uint32") else INTS[dms]  # the lake's column grows with the file's type
        return int(value) if not exact and value == int(value) and -(2**bits) <= value < 2**bits else BAD
    if dms == "UINT8":
        return D(int(value)) if not exact and value == int(value) and abs(value) < 10**20 else BAD
    if dms == "NUMERIC(12,2)":
        if exact or abs(value) >= 10**10:
            return BAD
        near = round(D(repr(value)) if real else D(value), 2)
        return near if (float(near) if real else near) == value else BAD
    near = single(value) if dms == "REAL4" and kind != "float64" else float(value)
    if real:
        return near if is_same(near, value) else BAD
    return near if D(int(near) if near == int(near) else repr(near)) == value else BAD


CELLS = [(kind, dms) for kind in PARQUET for dms in DMS]
IS_COMPARED = {(kind, dms): family(kind) in COMPARED.get(dms, {"number", "text"}) for kind, dms in CELLS}


def column(kind: str, dms: str) -> str:
    return f"{kind}_to_{dms.split('(')[0].replace(' ', '_').lower()}"


WITHOUT_TIMES = {"DataFormat": "parquet", "TimestampColumnName": ""}


def test_pairs_that_cannot_be_compared_are_refused_before_any_row_is_written(open_world):
    w, cells = open_world(target=WITHOUT_TIMES), [c for c in CELLS if not IS_COMPARED[c]]
    w.source.rules = NO_RULES
    w.table("t", "id INT8", *[f"{column(kind, dms)} {dms.removesuffix(' utc')}" for kind, dms in cells])
    for cell in (c for c in cells if c[1].endswith("utc")):
        w.column("t", column(*cell), utc=True)
    values = {column(kind, dms): PARQUET[kind][0][:1] for kind, dms in cells}
    pq.write_table(pa.table({"id": [1], **values}), out := io.BytesIO(), store_schema=False)
    w.source.write("t", w.source.named(LOAD), out.getvalue())
    w.setup()
    result = w.load()["t"]
    assert result.failed and result.names("LOAD00000001.parquet")
    assert [c for c in cells if not result.names(f"'{column(*c)}'")] == [] and w.rows("t") == []


def test_a_file_whose_values_point_beyond_their_dictionary_is_named(open_world):
    w = open_world(target=WITHOUT_TIMES).table("t")
    w.source.rules = NO_RULES
    w.source.load("t", (1, "a"))
    rows = {"Op": ["U"] * 16, "id": list(range(16)), "v": [f"v{n % 10}" for n in range(16)]}
    pq.write_table(pa.table(rows), out := io.BytesIO(), compression="none", data_page_version="1.0")
    column = pq.ParquetFile(out).metadata.row_group(0).column(2)
    raw = bytearray(out.getvalue())
    raw[column.dictionary_page_offset + column.total_compressed_size - 1] = 0xFF
    w.loaded().source.write("t", "20240101-100000000.parquet", bytes(raw))
    result = w.merge()["t"]
    assert (result.code, result.names("20240101-100000000.parquet")) == ("file-unreadable", True), result.note
    assert w.rows("t") == [(1, "a")]
