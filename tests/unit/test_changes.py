"""Changes: every Parquet type by every DMS type, what a bad row keeps, masks, parts of files, and delays."""

from __future__ import annotations

import hashlib
import io
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import test_parquet_types as matrix
from frazil.core.changes import Reading, changes, concat
from frazil.core.csv import Reader
from frazil.core.row_blocks import Dialect
from frazil.core.rows import UnreadableFileError
from frazil.engine import parquet
from frazil.engine.delays import histogram, quantile
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
    assert found.row_width == pytest.approx(8 + 4 + 1)  # a number, where a letter begins, the letter


@pytest.mark.parametrize("seconds", [[], [0.0005], [-1.0, 0.2, 5.0, math.nan], [i / 100 for i in range(1, 1000)]])
def test_a_quantile_of_delays_is_right_within_six_percent(seconds):
    counts = histogram(np.array(seconds, "float64"))
    known = sorted(max(s, 0.0) for s in seconds if not math.isnan(s))
    assert sum(counts.values()) == len(known)
    for share in (0.5, 0.95, 0.99, 1.0):
        right = float(np.quantile(known, share, method="inverted_cdf")) if known else math.nan
        assert quantile(counts, share) == pytest.approx(right, rel=0.06, abs=0.001, nan_ok=True)
