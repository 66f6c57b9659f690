"""The exact value of every text in every DMS type, judged in Arrow; no Spark."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from struct import pack, unpack

import pyarrow as pa
import pytest

from frazil_old.config.columns import TYPES, Column
from frazil_old.core.types import MISFIT, arrow_type, judge, type_texts


def float32(value: float) -> float:
    return unpack("f", pack("f", value))[0]


INTEGERS = {"0": 0, "-1": -1, "+7": 7, "007": 7, "12.0": 12, "1e2": 100, "1e3": 1000, "-1.20e1": -12, "5.": 5, " 7": 7}
NOT_INTEGERS = ["abc", "1.5", "1e-1", "1,000", "0x1F", "--1", "", "-", "1_0", "١٢", "1e99999", "nan"]
TEXTS = {t: t for t in ("", "a", " padded ", "NULL", "3.0", "Zürich 東京 🚀", "two\nlines", 'a "quote"', "back\\slash")}
BYTES = {"00ff": b"\x00\xff", "DEADbeef": b"\xde\xad\xbe\xef", "0x0a": b"\x0a", "0X0A": b"\x0a", "0x": b"", "": b""}
NOT_BYTES = ["abc", "0xabc", "0", "zz", "0x0x", " 00", "00 ff"]
REALS = {
    "+3.23800011e+01": 32.3800011, "-0.5": -0.5, "0": 0.0, "0.000": 0.0, "0e-99999999999999999999": 0.0, "1E3": 1000.0, ".5": 0.5, "5.": 5.0,
    "Infinity": float("inf"), "-Infinity": float("-inf"), "-inf": float("-inf"),
}  # fmt: skip
NOT_REALS = [
    "abc",
    "1,5",
    "1996-07-04",
    "1d",
    "1.5d",
    "1F",
    "1.5f",
    "1.5f ",
    "0x1p3",
    "1e",
    "",
    "1e-9999",
    "1e-99999999999999999999",
]
DAYS = {"1996-07-04": date(1996, 7, 4), "0001-01-01": date.min, "9999-12-31": date.max, "2024-02-29": date(2024, 2, 29)}
NOT_DAYS = [
    "1996", "1996-07", "1996-07-04 00:00:00", "1996-13-01", "2023-02-29", "04.07.1996", "07/04/1996", "19960704", "1996-7-1",
    "1996-07-1 ", "1996-7-1 0", " 1996-07-01", " 1996-7-01", "0000-00-00", "12024-01-01", "-2024-01-01", "abc", "",
]  # fmt: skip
MOMENTS = {
    "2024-06-12 10:30:25.854359": datetime(2024, 6, 12, 10, 30, 25, 854359),
    "2024-06-12 10:30:25": datetime(2024, 6, 12, 10, 30, 25),
    "2024-06-12T10:30:25.5": datetime(2024, 6, 12, 10, 30, 25, 500000),
    "2024-6-2 1:3:5": datetime(2024, 6, 2, 1, 3, 5),
    "2024-03-31 02:30:00.000000": datetime(2024, 3, 31, 2, 30),  # no such time in Berlin, but on a wall clock
    "2024-06-12 10:30:25.854359000": datetime(2024, 6, 12, 10, 30, 25, 854359),
    "2024-06-12 10:30:25.5000000000000000000": datetime(2024, 6, 12, 10, 30, 25, 500000),
    "2024-03-31 02:30:00": datetime(2024, 3, 31, 2, 30),
    "1970-01-01 00:00:01.000002": datetime(1970, 1, 1, 0, 0, 1, 2),
    "0001-01-01 00:00:00": datetime.min,
    "0001-01-01 00:00:00.000000": datetime.min,
    "9999-12-31 23:59:59.999999": datetime.max,
}
NO_MOMENTS = [
    "10:30:25", "1996", "2024-06-12", "2024-06-12 10", "2024-06-12 10:30", "2024-06-12 25:00:00", "2024-02-30 00:00:00",
    "2024-06-12 23:59:60", "0000-00-00 00:00:00", "0000-01-01 00:00:00", "infinity", "abc", "", "2024-06-12 10:30:25.8543591234",
    "2024-06-12 10:30:25.854359001", "12024-6-12 10:30:25.854359", "-2024-6-12 10:30:25.854359", "2024-06-12 10:30:25.1 GMT0",
    "2024-06-12 10:30:25 GMT0", "2024-06-12 10:30:25.1 UT ", "10:30:25.8543591234", "2024-06-12 10:30:25.854359001+02:00",
    "2024-6-2 10:30:25.00000001",  # as long as DMS's own form
]  # fmt: skip
WITH_ZONE = {
    "1970-01-01 02:00:01+02:00": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    "1970-01-01T00:00:01Z": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    "1969-12-31 19:00:01.5-0500": datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC),
}
ZONED = [
    "2024-06-12 10:30:25+02:00", "2024-06-12 10:30:25Z", "2024-06-12 10:30:25Z ",
    "2024-06-12 10:30:25.12345Z", "2024-06-12 10:30:25.123+01", "2024-06-12 10:30:25.123-01",  # as long as DMS's own form
]  # fmt: skip
WORDS = {"true": True, "F": False, "1": True, "0": False, "Y": True, "no": False, "t": True, "n": False, "YES": True}

ENDS = {"INT1": (-128, 127), "INT2": (-32768, 32767), "UINT1": (0, 255), "UINT2": (0, 65535)}

ROWS = [
    (Column("x", "BOOLEAN"), pa.bool_(), WORDS, ["2", "-1", "wahr", "abc", "", "1.0"]),
    *[(Column("x", kind), pa.int32(), {**INTEGERS, **{str(n): n for n in ends}}, [*NOT_INTEGERS, str(2**31), str(-(2**31) - 1)]) for kind, ends in ENDS.items()],
    (Column("x", "INT4"), pa.int32(), {**INTEGERS, str(-(2**31)): -(2**31), str(2**31 - 1): 2**31 - 1}, [*NOT_INTEGERS, str(2**31), str(-(2**31) - 1)]),
    (Column("x", "INT8"), pa.int64(), {**INTEGERS, str(-(2**63)): -(2**63), str(2**63 - 1): 2**63 - 1}, [*NOT_INTEGERS, str(2**63), str(-(2**63) - 1), "9" * 500]),
    (Column("x", "UINT4"), pa.int64(), {"0": 0, str(2**32 - 1): 2**32 - 1}, NOT_INTEGERS),
    (Column("x", "INT4", lake="bigint"), pa.int64(), {"2147483648": 2**31}, NOT_INTEGERS),
    (Column("x", "UINT8"), pa.decimal128(20, 0), {"0": Decimal(0), str(2**64 - 1): Decimal(2**64 - 1), "1e2": Decimal(100)}, ["abc", "1.5", "1" + "0" * 20]),
    (Column("x", "NUMERIC(12,2)"), pa.decimal128(12, 2),
     {"1": Decimal(1), "-1.50": Decimal("-1.5"), "+.5": Decimal("0.5"), "1.500000": Decimal("1.5"), " 2.5 ": Decimal("2.5"),
      "9999999999.99": Decimal("9999999999.99"), "1.2e-1": Decimal("0.12"), "1e3": Decimal(1000)},
     ["10000000000", "1.505", "0.001", "1e-5", "abc", "1,5", "-0.009", "nan", "", "0x1", "1e99999999999"]),
    (Column("x", "NUMERIC(38,10)"), pa.decimal128(38, 10), {"1" * 28 + "." + "2" * 10: Decimal("1" * 28 + "." + "2" * 10)}, ["1" * 29, "1.2e-20", "1e-11"]),
    (Column("x", "NUMERIC(4,4)"), pa.decimal128(4, 4), {".1234": Decimal(".1234"), "0.5": Decimal("0.5")}, ["1", "1.0", "0.12345"]),
    (Column("x", "REAL4"), pa.float32(), {**{k: float32(v) for k, v in REALS.items()}, "3.4028235e38": float32(3.4028235e38)}, [*NOT_REALS, "1e60", "-1e60", "1e-60"]),
    (Column("x", "REAL8"), pa.float64(), {**REALS, "0.10000000000000001": 0.1, "1.7976931348623157e308": 1.7976931348623157e308, "1e60": 1e60, "+1.2345678901234567e+00": 1.2345678901234567}, [*NOT_REALS, "1e400", "-1e999"]),
    *[(Column("x", kind), pa.string(), TEXTS, ["a\ufffd"]) for kind in ("STRING(99)", "WSTRING(99)", "CLOB", "NCLOB")],
    *[(Column("x", kind), pa.binary(), BYTES, NOT_BYTES) for kind in ("BYTES(9)", "BLOB")],
    (Column("x", "DATE"), pa.date32(), DAYS, NOT_DAYS),
    (Column("x", "TIME"), pa.string(), {t: t for t in ("23:59:59", "00:00:00.000001", "838:59:59", "12:00:00+02:00")}, []),
    (Column("x", "DATETIME(6)"), pa.timestamp("us"), MOMENTS, [*NO_MOMENTS, *WITH_ZONE, *ZONED]),
    (Column("x", "DATETIME", utc=True), pa.timestamp("us", "UTC"),
     {**{t: v.replace(tzinfo=UTC) for t, v in MOMENTS.items()}, **WITH_ZONE}, [*NO_MOMENTS, "0001-01-01 00:00:00+02:00"]),
    (Column("x", "NUMERIC(9,2)", lake="string"), pa.string(), {"1.50": "1.50", "abc": "abc"}, []),
]  # fmt: skip


def test_every_type_has_a_row_here():
    assert {column.dms_type for column, *_ in ROWS} == TYPES


@pytest.mark.parametrize(("column", "kind", "fits", "misfits"), ROWS, ids=lambda v: str(getattr(v, "type", "")))
def test_what_fits_is_exact_and_what_does_not_is_marked(column, kind, fits, misfits):
    assert arrow_type(column) == kind
    texts = [*fits, None, *misfits]
    values, misfit = type_texts(column, pa.array(texts, pa.string()))
    assert values.type == kind
    assert values.to_pylist()[: len(fits) + 1] == [*fits.values(), None]
    marked = misfit.to_pylist() if misfit is not None else [False] * len(texts)
    assert [t for t, wrong in zip(texts, marked, strict=True) if wrong] == misfits


@pytest.mark.parametrize(("column", "kind", "fits", "misfits"), ROWS, ids=lambda v: str(getattr(v, "type", "")))
def test_a_text_means_the_same_alone_and_among_others(column, kind, fits, misfits):
    """One text takes the quick way through Arrow's cast, or is judged by itself: both must agree."""
    for text in [*fits, *misfits]:
        values, misfit = type_texts(column, pa.array([text]))
        assert (misfit is None) == (text in fits), text
        judged = judge(column, text)
        assert (judged is MISFIT) == (text in misfits), text
        if text in fits:
            assert values[0].as_py() == fits[text] and pa.array([judged], kind)[0].as_py() == fits[text], text


def test_nan_is_a_real():
    values, misfit = type_texts(Column("x", "REAL8"), pa.array(["NaN", "1.5"]))
    assert misfit is None and str(values.to_pylist()) == "[nan, 1.5]"


def test_mutated_texts_mean_the_same_quickly_and_one_by_one():
    r = random.Random(7)
    for column, kind, fits, misfits in ROWS:
        seeds = [*fits, *misfits]
        texts = [_mutated(r, r.choice(seeds)) for _ in range(400)]
        values, misfit = type_texts(column, pa.array(texts))
        wrong = misfit.to_pylist() if misfit is not None else [False] * len(texts)
        for text, value, bad in zip(texts, values.to_pylist(), wrong, strict=True):
            alone, alone_bad = type_texts(column, pa.array([text]))
            judged = judge(column, text)
            assert bad == (alone_bad is not None) == (judged is MISFIT), (column, text)
            if not bad:
                same = pa.array([judged], kind)[0].as_py()
                assert repr(value) == repr(alone[0].as_py()) == repr(same), (column, text)


def _mutated(r: random.Random, text: str) -> str:
    at = r.randrange(len(text) + 1)
    return r.choice(
        [
            text[:at] + r.choice("0123456789+-.eE xX:TZ/nafi") + text[at:],
            text[:at] + text[at + 1 :],
            text[:at] + r.choice("0123456789") + text[at + 1 :],
        ]
    )


def test_hex_of_a_slice_keeps_nulls_and_neighbours_apart():
    whole = pa.array(["00", None, "0102", "", "ff"])
    values, misfit = type_texts(Column("x", "BLOB"), whole.slice(1, 3))
    assert misfit is None and values.to_pylist() == [None, b"\x01\x02", b""]
