"""Changes: every Parquet type by every DMS type, what a bad row keeps, masks, parts of files, and delays."""

from __future__ import annotations

import hashlib
import io
import math
import struct
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import test_parquet_types as matrix
from frazil.core.changes import Reading, changes, concat
from frazil.core.csv import Reader
from frazil.core.latest import latest
from frazil.core.row_blocks import Dialect
from frazil.core.rows import UnreadableFileError
from frazil.engine import parquet
from frazil.engine.delay_histograms import histogram, quantile
from frazil.settings.spec import TableSpec

TEXTS = (*matrix.TEXTS, "TIME")


def spec(*columns: str, **more) -> TableSpec:
    found = [dict(zip(("name", "type", "mask"), c.split(" "), strict=False)) for c in columns]
    return TableSpec.model_validate({"source": "s.t", "key": [found[0]["name"]], "columns": found, **more})


def held(value):
    """Return a value of Arrow as a person would write it."""
    return matrix.plain(value) if isinstance(value, str) and ":" in value else value


@pytest.mark.parametrize("kind", matrix.PARQUET)
def test_a_value_of_parquet_is_kept_exactly_or_its_row_is_bad(kind):
    values, meant = matrix.PARQUET[kind]
    for dms in (d for d in matrix.DMS if matrix.IS_COMPARED[kind, d]):
        column = {"name": "v", "type": dms.removesuffix(" utc"), "utc": dms.endswith("utc")}
        if (kind in ("int64", "uint32") and dms in matrix.INTS) or (kind, dms) == ("float64", "REAL4"):
            column["type"] = "INT8" if dms in matrix.INTS else "REAL8"  # the lake's column grows with the file's type
        table = TableSpec.model_validate(
            {"source": "s.t", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}, column]}
        )
        pq.write_table(pa.table({"id": range(len(values)), "v": values}), out := io.BytesIO(), store_schema=False)
        found = [
            changes(r, Reading(table, ("after id", "after v"))) for r in parquet.Reader(("id", "v"), "f").read(out)
        ]
        rows = dict(zip(*concat(found).rows.to_pydict().values(), strict=True))
        for i, value in enumerate(meant):
            wanted, got = matrix.expected(kind, dms, value), rows.get(i, matrix.BAD)
            if dms in TEXTS and isinstance(wanted, float) and got != matrix.BAD:
                got = matrix.single(float(got)) if kind == "float32" else float(got)
            assert matrix.is_same(held(got), held(wanted)) and type(got) is type(wanted), (kind, dms, value, got)


def test_any_part_of_a_parquet_file_can_be_read_and_damage_is_named():
    ids = pa.array(range(1, 101))
    pq.write_table(pa.table({"id": ids, "t": [f"{i}" * 9 for i in range(100)]}), out := io.BytesIO(), row_group_size=30)
    for begin, end, size in [
        (0, None, 1),
        (29, 31, 99),
        (30, 60, 1 << 20),
        (99, None, 1 << 20),
        (100, None, 9),
        (45, 46, 9),
    ]:
        found = [*parquet.Reader(("id",), "f").read(out, begin, end, size)]
        assert [n for rows in found for n in rows.fields.column(0).to_pylist()] == [*range(begin + 1, (end or 100) + 1)]
        assert [n for rows in found for n in rows.numbers] == [*range(begin + 1, (end or 100) + 1)]
    for damaged in (b"no Parquet", out.getvalue()[:-20], out.getvalue()[:9] + b"x" * 9 + out.getvalue()[18:]):
        with pytest.raises(UnreadableFileError, match="dms/f.parquet: a damaged Parquet file"):
            list(parquet.Reader(("id", "t"), "dms/f.parquet").read(io.BytesIO(damaged)))


def test_a_bad_row_keeps_its_bytes_its_place_its_column_and_the_reason():
    table = spec("id INT8", "v WSTRING(9)", "n INT4", "born DATE sha256")
    reading = Reading(table, ("op", "committed", "after id", "after v", "after n", "after born", "before id"), "")
    now = b"2024-01-01 10:00:00"
    lines = [
        b"I," + now + b',1,"a\n,b",7,2024-01-01,', b"I," + now + b",2,caf\xe9,7,,", b"X," + now + b",3,c,x,,", b"I,soon,4,d,7,,",
        b"U," + now + b",,e,7,,", b"U," + now + b",6,f,7,secret,", b"U," + now + b",7,g,1.5,,seven", b"I," + now + b",8",
    ]  # fmt: skip
    found = [
        changes(rows, reading, 5) for rows in Reader(reading.types, Dialect(), "f").read([b"\n".join(lines) + b"\n"])
    ]
    bad = concat(found).bad.to_pylist()
    assert [(b["file"], b["number"], b["raw"]) for b in bad] == [(5, n, lines[n - 1]) for n in range(2, 9)]
    assert [b["column"] for b in bad] == ["v", "op", "committed", "id", "born", "id", ""]
    said = ["'caf\ufffd' holds U+FFFD", "'X' is no operation", "'soon' is no time", "no value in the key", "a masked value does not fit DATE", "'seven' does not fit INT8", "3 fields, not 7"]  # fmt: skip
    assert [(b["reason"], s) for b, s in zip(bad, said, strict=True) if not b["reason"].startswith(s)] == []
    assert concat(found).rows.to_pylist() == [{"id": 1, "v": "a\n,b", "n": 7, "born": hashlib.sha256(b"2024-01-01").hexdigest()}]  # fmt: skip
    assert concat(found).facts.select(["file", "number"]).to_pylist() == [{"file": 5, "number": 1}]


def test_excluded_columns_are_left_out_whatever_they_hold():
    table = spec("id INT8", "v INT4", "w WSTRING(9)", exclude=["v"])
    reading = Reading(table, ("after id", "after v", "after w"), "", of_load=True)
    (found,) = [changes(r, reading) for r in Reader(reading.types, Dialect(), "f").read([b"1,2,a\n2,x,b\n"])]
    assert (found.rows.to_pylist(), found.bad["column"].to_pylist()) == ([{"id": 1, "w": "a"}, {"id": 2, "w": "b"}], [])


def read(table: TableSpec, roles: tuple[str, ...], text: bytes, **told):
    """Return the changes in CSV."""
    reading = Reading(table, roles, **told)
    reader = Reader(reading.types, Dialect(null=told["null"]), "f", reading.tells_empty)
    return concat([changes(rows, reading) for rows in reader.read([text])])


def sha(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def test_old_keys_are_masked_as_new_ones_and_what_is_null_stays_so():
    table = spec("k WSTRING(9) sha256", "v WSTRING(9)", "b BYTES(9) sha256")
    found = read(table, ("op", "after k", "after v", "after b", "before k"), b"I,a,x,ff,\nU,b,y,,a\n", null="")
    last = latest(found, table.key)
    assert [*zip(last.keys["k"].to_pylist(), last.deleted.tolist(), strict=True)] == [(sha(b"a"), True), (sha(b"b"), False)]  # fmt: skip
    assert found.rows["b"].to_pylist() == [sha(b"\xff"), None]


def test_an_old_key_that_is_bare_did_not_change_also_where_null_has_a_text():
    table = spec("i WSTRING(9)", "j WSTRING(9)", "v WSTRING(9)", key=["i", "j"])
    found = read(table, ("op", "after i", "after j", "after v", "before i", "before j"), b"U,b,x,,a,\n", null="NULL")
    assert latest(found, table.key).keys.to_pylist() == [{"i": "a", "j": "x"}, {"i": "b", "j": "x"}]
    assert found.rows["v"].to_pylist() == [""]


def test_a_text_for_null_or_nothing_may_look_like_a_value():
    table = spec("id INT8", "n INT4", "t WSTRING(9)")
    found = read(table, ("op", "after id", "after n", "after t"), b"U,1,-1,-1\nU,2,5,-1\n", null="", not_carried="-1")
    assert {name: lacks.tolist() for name, lacks in found.absent.items()} == {"n": [True, False], "t": [True, True]}
    assert found.rows["n"].to_pylist() == [None, 5]
    table = spec("k WSTRING(9)", "n INT4")
    found = read(table, ("op", "after k", "after n", "before k"), b"U,a,0,\nU,b,7,\n", null="0")
    assert found.rows["n"].to_pylist() == [None, 7]


def test_times_of_messages_have_the_form_of_csv():
    table = TableSpec.model_validate({"source": "s.t", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}, {"name": "w", "type": "DATETIME"}, {"name": "t", "type": "DATETIME", "lake": "string"}]})  # fmt: skip
    texts = pa.RecordBatch.from_pydict({"id": [1], "w": ["2024-01-01T00:00:00Z"], "t": ["2024-01-01T00:00:00.5Z"]})
    found = changes(parquet.rows_of(texts, 1), Reading(table, ("after id", "after w", "after t")))
    assert found.rows.to_pylist() == [{"id": 1, "w": datetime(2024, 1, 1), "t": "2024-01-01 00:00:00.5"}]


def test_parquet_is_read_by_name_with_its_checksums_and_its_oldest_times():
    moments = [datetime(1, 1, 1), datetime(2024, 2, 29, 10, 0, 0, 456789), datetime(9999, 12, 31, 23, 59, 59, 999999)]
    table = pa.table({"id": [1, 2, 3], "t": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, out := io.BytesIO(), use_deprecated_int96_timestamps=True, write_page_checksum=True, compression="none", use_dictionary=False)  # fmt: skip
    (rows,) = parquet.Reader(("t", "id"), "f").read(out)
    assert (rows.fields.schema.names, rows.fields.column(0).to_pylist()) == (["t", "id"], moments)
    at = out.getvalue().index(struct.pack("<qqq", 1, 2, 3))
    damaged = out.getvalue()[:at] + b"\x09" + out.getvalue()[at + 1 :]
    for names, data in ((("id",), damaged), (("id", "x"), out.getvalue())):
        with pytest.raises(UnreadableFileError):
            list(parquet.Reader(names, "f").read(io.BytesIO(data)))


def test_repeated_texts_make_no_large_block():
    pq.write_table(pa.table({"t": ["x" * 20_000] * 4000}), out := io.BytesIO())
    sizes = [rows.fields.nbytes for rows in parquet.Reader(("t",), "f").read(out, size=1 << 20)]
    assert max(sizes) < 2 << 20


@pytest.mark.parametrize("seconds", [[], [0.0005], [-1.0, 0.2, 5.0, math.nan], [i / 100 for i in range(1, 1000)]])
def test_a_quantile_of_delays_is_right_within_six_percent(seconds):
    counts = histogram(np.array(seconds, "float64"))
    known = sorted(max(s, 0.0) for s in seconds if not math.isnan(s))
    assert sum(counts.values()) == len(known)
    for share in (0.5, 0.95, 0.99, 1.0):
        right = float(np.quantile(known, share, method="inverted_cdf")) if known else math.nan
        assert quantile(counts, share) == pytest.approx(right, rel=0.06, abs=0.001, nan_ok=True)
