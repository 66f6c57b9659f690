"""Parquet files as the core reads them: whole, or refused by name; no Spark."""

import io
import re
from itertools import count, product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil_old.config.columns import Column
from frazil_old.config.spec import parse_spec
from frazil_old.core.parquet_types import type_values
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.mappings import Mappings
from frazil_old.engine.read_files import plan_files, read_changes
from frazil_old.errors import FrazilError
from helpers import spec_of

SPEC = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)"))
ROWS = {"Op": ["I", "U", "D"], "id": [1, 2, 3], "v": ["one", "two", None]}


@pytest.fixture
def read(tmp_path):
    """Return a function that reads the bytes of a Parquet file: its good rows, and its bad rows."""
    numbers = count(20240101_100000000)

    def of(raw: bytes) -> tuple[list, list]:
        digits = f"{next(numbers)}"  # another name each time: footers are kept by file
        path = tmp_path / f"{digits[:8]}-{digits[8:]}.parquet"
        path.write_bytes(raw)
        file = DmsObject(path.name, str(path), len(raw), "")
        [planned], plan = plan_files(SourceTable(SPEC, Endpoint(), Mappings(())), [file], CHANGE_PHASE)
        found = list(read_changes(planned, plan))
        rows = [(x["op"], x["new_0"], x["new_1"]) for block in found for x in block.rows.to_pylist()]
        return rows, [(bad.number, bad.column, bad.reason) for block in found for bad in block.bad]

    return of


def written(rows: dict) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(rows), out, compression="none", store_schema=False)
    return out.getvalue()


def not_utf8(*texts: bytes | None) -> pa.Array:
    """Make texts of any bytes, which Arrow does not check."""
    raw = pa.array(texts, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def test_bytes_that_are_no_text_are_a_bad_value(read):
    rows, bad = read(written(ROWS | {"v": not_utf8(b"one", b"tw\xff", None)}))
    assert rows == [("I", 1, "one"), ("D", 3, None)]
    assert bad == [(2, "v", "column 'v': 'tw\ufffd' holds U+FFFD: bytes that are not UTF-8, or that character itself")]
    _, bad = read(written(ROWS | {"Op": not_utf8(b"I", b"\xff", b"D")}))
    assert bad == [(2, "<op>", "unknown operation '\ufffd', none of I, U, D or their OpValues")]
    _, bad = read(written(ROWS | {"id": not_utf8(b"1", b"2", b"3\xff")}))
    assert bad == [(3, "id", "column 'id': '3\ufffd' does not fit INT8 (bigint in the lake)")]


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("s"), pa.date32()], ids=str)
@pytest.mark.parametrize("column", [Column("at", "DATETIME"), Column("at", "DATETIME", utc=True)], ids=["wall", "utc"])
def test_times_that_microseconds_cannot_hold_are_bad_values(kind, column):
    width = 32 if kind == pa.date32() else 64
    numbers = [2 ** (width - 1) - 1, 1 - 2 ** (width - 1), 0]
    values, misfit = type_values(column, pa.array(numbers, pa.int32() if width == 32 else pa.int64()).cast(kind))
    assert misfit.to_pylist() == [True, True, False]
    assert values.cast(pa.int64()).to_pylist() == [None, None, 0]


def test_a_flipped_bit_in_the_footer_loses_no_row(read):
    raw, refused = written(ROWS), 0
    size = int.from_bytes(raw[-8:-4], "little")
    for at, bit in product(range(len(raw) - 8 - size, len(raw)), (0x80, 0x20, 1)):
        try:
            rows, bad = read(raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :])
            assert len(rows) + len(bad) == 3, at
        except FrazilError:
            refused += 1
    assert refused > 150


def test_a_commit_time_of_another_type_is_refused_by_name(tmp_path):
    spec, file = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)")), tmp_path / "20240101-100000000.parquet"
    for kind in (pa.binary(), pa.int64(), pa.time64("us")):
        times = pa.nulls(3, kind)
        file.write_bytes(written({"Op": ROWS["Op"], "ts": times, "id": ROWS["id"], "v": ROWS["v"]}))
        listed = DmsObject(file.name, str(file), file.stat().st_size, f"{kind}")
        with pytest.raises(FrazilError, match=re.escape(f"{file.name}: column 'ts' is {kind}, which")):
            plan_files(SourceTable(spec, Endpoint(timestamp_column="ts"), Mappings(())), [listed], CHANGE_PHASE)
