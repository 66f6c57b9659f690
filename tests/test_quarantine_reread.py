"""Rows of the quarantine, read again: records in, judged rows out; no Spark."""

import json
import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.bad_rows import OP, with_lines, with_values
from frazil_old.core.changes import type_csv, type_parquet
from frazil_old.core.csv import Dialect, records_of_lines
from frazil_old.core.field_meaning import ReadRules
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.mappings import Mappings
from frazil_old.engine.read_files import plan_files, read_changes
from frazil_old.engine.reread_quarantined import NOT_ITS_OWN, Reread, present_layouts, reread
from frazil_old.errors import FrazilError
from helpers import spec_of
from mutated_files import COLUMNS as DAMAGED
from mutated_files import DIALECTS, mutated_file, valid_file

COLUMNS = ("id INT8", "n INT4", "note NCLOB", "raw BYTES(9)", "at DATETIME", "flag BOOLEAN")
ROLES = ("op", "ts", *[f"after:{c.split()[0]}" for c in COLUMNS], "before:id")
TIME = "2024-01-01 09:59:00.000000"
ENDPOINT = Endpoint(timestamp_column="ts", null_value="NULL", delimiter="|")
BIG = 3_000_000_000


def spec_with(*columns, **more):
    return parse_spec({**spec_of("public.t", *columns), **more})


NOW = spec_with("id INT8", "n INT8", *COLUMNS[2:])


def record(raw, form="csv", layout=ROLES, **more) -> dict:
    raw = raw.encode() if isinstance(raw, str) else raw
    same = {"phase": 1, "object": "20240101-100000000.csv", "misfit": False, "keyed": True}
    return {"raw": raw, "form": form, "layout": list(layout), **same, **more}


def rows_of(records, spec=NOW, endpoint=ENDPOINT, layouts=None) -> list[dict]:
    """Return what each record is now, in their order."""
    table = pa.Table.from_pylist([{"id": str(i), **r} for i, r in enumerate(records)], SCHEMA)
    found = reread(table, Reread(SourceTable(spec, endpoint, Mappings()), "before-image", layouts or {}))
    assert sorted(found["id"].to_pylist()) == sorted(table["id"].to_pylist())
    return sorted(found.to_pylist(), key=lambda row: int(row["id"]))


SCHEMA = pa.schema([
    ("id", pa.string()), ("raw", pa.binary()), ("form", pa.string()), ("layout", pa.list_(pa.string())), ("phase", pa.int32()),
    ("object", pa.string()), ("misfit", pa.bool_()), ("keyed", pa.bool_()),
])  # fmt: skip


def values(row: dict, spec=NOW) -> tuple:
    return tuple(row[f"c{i}"] for i in range(len(spec.columns)))


# --- lines


def test_a_line_of_csv_is_typed_by_the_present_spec():
    line = f'"U"|"{TIME}"|"7"|"{BIG}"|"say ""hi"",\nall"|"00ff"|"2024-01-01 10:00:00.123456"|"true"|"6"'
    gone = f'"I"|"{TIME}"|"8"|"many"|NULL|NULL|NULL|NULL|'
    moved, bad, late = rows_of([record(line), record(gone), record(line.replace(TIME, "soon"))])
    at = int(datetime(2024, 1, 1, 10, 0, 0, 123456, UTC).timestamp() * 1e6)
    assert values(moved) == (7, BIG, 'say "hi",\nall', b"\x00\xff", at, True)
    assert (moved["op"], moved["o0"], moved["reason"]) == ("U", 6, None)
    assert moved["commit_ts"] == int(datetime(2024, 1, 1, 9, 59, tzinfo=UTC).timestamp() * 1e6)
    assert bad["reason"] == "column 'n': 'many' does not fit INT8 (bigint in the lake)"
    assert late["reason"] == "commit timestamp 'soon' is not yyyy-MM-dd HH:mm:ss.SSSSSS"
    assert values(bad) == (None,) * 6 and bad["op"] is None


@pytest.mark.parametrize("dialect", [Dialect(), Dialect("||", "\r\n"), Dialect(";", quotes=False)], ids=["plain", "long", "bare"])  # fmt: skip
def test_what_the_quarantine_keeps_of_a_line_reads_as_the_line_did(dialect):
    endpoint = Endpoint(timestamp_column="ts", delimiter=dialect.delimiter, row_delimiter=dialect.row_delimiter, rfc4180=dialect.quotes)  # fmt: skip
    spec = spec_with("id INT8", "n INT4", "note NCLOB")
    texts = ["x\ry", "a,b", "", None] + (['q"', "x\r\ny", "\ufeff"] if dialect.quotes else ["\ufeff"])
    lines = [["I", TIME, str(i), "x", text] for i, text in enumerate(texts)]
    fields = pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in zip(*lines, strict=True)], list("01234"))
    roles = ("op", "ts", "after:id", "after:n", "after:note")
    bad = type_csv(fields, pa.array(range(len(texts))).to_numpy(), roles, spec, ReadRules()).bad
    kept = with_lines(bad, fields, roles, spec, (ReadRules(), dialect))
    found = rows_of([record(row.kept.raw, layout=roles) for row in kept], spec, endpoint)
    assert [row["reason"] for row in found] == [row.reason for row in bad]
    wide = spec_with("id INT8", "n WSTRING(9)", "note NCLOB")
    found = rows_of([record(row.kept.raw, layout=roles) for row in kept], wide, endpoint)
    read_as = [text if dialect.quotes or text else None for text in texts]
    assert [row["c2"] for row in found] == read_as and not any(row["reason"] for row in found)


def test_what_is_no_line_or_more_than_one_stays_bad():
    lines = ["a,b", '"a,b', "", "a", "a\nb,c", ',"x\ny"', '"a"b,c']
    found = records_of_lines([line.encode() for line in lines], 2, Dialect())
    assert found.numbers.tolist() == [0, 5]
    assert sorted((w.number, w.line) for w in found.wrong_width) == [(i, lines[i]) for i in (1, 2, 3, 4, 6)]
    one = records_of_lines([b"", "\ufeff".encode(), b"a,b", b'""'], 1, Dialect())
    assert (one.numbers.tolist(), one.fields[0].to_pylist()) == ([0, 1, 3], [None, "\ufeff", ""])
    assert [w.number for w in one.wrong_width] == [2]
    reasons = [row["reason"] for row in rows_of([record(line) for line in ("", '"I', "I|x", "||||||||")])]
    assert all("too many or too few fields" in reason for reason in reasons[:3])
    assert reasons[3] == "unknown operation None, none of I, U, D or their OpValues"


def test_rows_of_parquet_come_back_from_their_texts():
    roles = ("op", "after:id", "after:n", "after:note", "after:raw", "after:at", "after:flag")
    at = datetime(2024, 1, 1, 10, 0, 0, 123456)
    columns = {
        "op": ["U", None, ""], "id": [1, 2, 3], "n": [str(BIG)] * 3, "note": ['say "hi",\n', "", None],
        "raw": [b"\x00\xff", b"", None], "at": pa.array([at, None, at], pa.timestamp("us")), "flag": [True, False, None],
    }  # fmt: skip
    batch = pa.RecordBatch.from_pydict(columns)
    old = spec_with(*COLUMNS)
    rules = ReadRules(of_load=True)
    bad = type_parquet(batch, 1, roles, old, rules).bad
    kept = with_values(bad, batch, roles, old, rules)
    found = rows_of([record(row.kept.raw, "parquet", roles) for row in kept])
    micros = int(at.replace(tzinfo=UTC).timestamp() * 1e6)
    assert [values(row) for row in found] == [
        (1, BIG, 'say "hi",\n', b"\x00\xff", micros, True),
        (2, BIG, "", b"", None, False),
        (3, BIG, None, None, micros, None),
    ]
    assert [(row["op"], row["reason"]) for row in found] == [("U", None), ("I", None), ("I", None)]
    batch = batch.set_column(2, "n", pa.array([1] * 3))
    bad = type_parquet(batch, 1, roles, old, ReadRules()).bad
    assert [(row.number, row.column) for row in bad] == [(2, OP), (3, OP)], "a row of changes without one is no insert"


def test_a_row_that_did_not_fit_gets_the_present_layout_and_any_other_keeps_its_own():
    spec = spec_with("id INT8", "v WSTRING(9)", "extra WSTRING(9)")
    endpoint = Endpoint(timestamp_column="ts")
    before = ("op", "ts", "after:id", "after:v")
    line, old = f"I,{TIME},1,a,new", f"I,{TIME},1,a"
    name = "20240101-100000000.csv"
    layouts = present_layouts([("csv", 1, name)], SourceTable(spec, endpoint, Mappings()))
    assert layouts == {("csv", 1, name): (*before, "after:extra")}
    misfit, same, narrow = rows_of(
        [record(line, layout=before, misfit=True), record(old, layout=before), record(old, layout=before, misfit=True)],
        spec, endpoint, layouts=layouts,
    )  # fmt: skip
    assert [values(row, spec) for row in (misfit, same)] == [(1, "a", "new"), (1, "a", None)]
    assert "too many or too few fields (4)" in narrow["reason"]


def test_a_row_of_before_a_rename_is_read_under_the_present_names():
    """Also if another column has the former name now; a layout with a later name of the renamed column is of after that."""
    last = {"name": "last", "type": "WSTRING(9)", "renamed_from": ["old_v", "v"]}
    spec = spec_with(columns=[{"name": "id", "type": "INT8"}, last, {"name": "v", "type": "WSTRING(9)"}])
    first, second, now = (
        ("op", *(f"after:{n}" for n in names)) for names in (["id", "v"], ["id", "old_v", "v"], ["id", "last", "v"])
    )
    found = rows_of(
        [record("I,1,a", layout=first), record("I,2,b,c", layout=second), record("I,3,d,e", layout=now)],
        spec,
        Endpoint(),
    )
    assert [values(row, spec) for row in found] == [(1, "a", None), (2, "b", "c"), (3, "d", "e")]


def test_columns_that_are_gone_make_a_row_bad_and_those_left_out_are_skipped():
    roles, endpoint = ("op", "after:id", "after:was", "before:was"), Endpoint()
    (gone,) = rows_of([record("I,1,a,", layout=roles)], spec_with("id INT8", "v WSTRING(9)"), endpoint)
    assert "no longer lists" in gone["reason"] and gone["reason"].endswith(": was")
    left_out = spec_with("id INT8", "was WSTRING(9)", exclude=["was"])
    (kept,) = rows_of([record("I,1,a,", layout=roles)], left_out, endpoint)
    assert (kept["c0"], kept["reason"]) == (1, None)


def test_a_shared_line_is_its_tables_or_stays_bad():
    roles = ("op", "table", "schema", "after:id", "after:v")
    lines = ["I,t,public,1,a", "I,u,public,1,a", "I,,public,1,a", "I,t,public,1", "I,t"]
    found = rows_of([record(line, "csv of all", roles) for line in lines], spec_with("id INT8", "v WSTRING(9)"), Endpoint())  # fmt: skip
    assert (found[0]["c0"], found[0]["reason"], found[1]["reason"]) == (1, None, NOT_ITS_OWN)
    assert found[2]["reason"].startswith("names no table") and found[4]["reason"].startswith("names no table")
    assert found[3]["reason"].startswith("too many or too few fields (4)")


def test_masked_values_leave_as_hashes_and_are_not_shown():
    spec = spec_of("public.t", "id INT8", "v INT4")
    for column in spec["columns"]:
        column["mask"] = "sha256"
    good, bad = rows_of(
        [record("U,1,2,0", layout=("op", "after:id", "after:v", "before:id")),
         record("I,1,secret,", layout=("op", "after:id", "after:v", "before:id"))],
        parse_spec(spec), Endpoint(),
    )  # fmt: skip
    assert [len(good[c]) for c in ("c0", "c1", "o0")] == [64] * 3 and len({good[c] for c in ("c0", "c1", "o0")}) == 3
    assert "secret" not in bad["reason"]


def test_a_table_without_a_key_keeps_each_row():
    spec = parse_spec({**spec_of("public.t", "id INT8", "v INT4"), "key": [], "without_key": "append"})
    rows = rows_of([record("D,1,2", layout=("op", "after:id", "after:v"))] * 2, spec, Endpoint())
    assert [(row["op"], *values(row, spec), row["reason"]) for row in rows] == [("D", 1, 2, None)] * 2


# --- messages


def message(operation="insert", old=None, spread=None, **data) -> str:
    about = {"timestamp": "2024-01-01T10:00:00Z", "record-type": "data", "operation": operation, "schema-name": "public",
             "table-name": "t", "commit-timestamp": "2024-01-01T09:59:00.000000Z"}  # fmt: skip
    about |= {"partition-key-type": spread} if spread else {}
    return json.dumps({"data": data, **({"before-image": old} if old else {}), "metadata": about})


def test_messages_are_read_again_and_keys_of_other_partitions_stay_refused():
    spec = spec_with("id INT8", "n INT8")
    moved = message("update", {"id": 1}, "primary-key", id=2, n=BIG)
    raws = [
        (message(id=3, n=BIG), True),
        (moved, True),
        (moved, False),
        ("no JSON", False),
        (message(id=4, n="x"), True),
    ]
    rows = rows_of([record(raw, "json", (), object="topic/0", keyed=keyed) for raw, keyed in raws], spec)
    assert [(r["op"], r["c0"], r["c1"], r["o0"]) for r in rows[:2]] == [("I", 3, BIG, None), ("U", 2, BIG, 1)]
    assert [bool(r["reason"]) for r in rows] == [False, False, True, True, True]
    assert "spread over partitions" in rows[2]["reason"]
    assert rows[3]["reason"] == "not JSON as DMS writes it: no JSON"
    assert rows[4]["reason"].startswith("column 'n': 'x' does not fit INT8")
    masked = rows_of([record(moved, "json", (), keyed=True, misfit=True)], spec)
    assert "spread over partitions" in masked[0]["reason"]


def test_a_message_is_its_tables_or_stays_bad():
    mappings = Mappings((), {"public.t": {"src": "one"}})
    raws = [message(id=1, src="one"), message(id=2, src="two"), message(id=3)]
    how = Reread(SourceTable(spec_with("id INT8"), ENDPOINT, mappings), "before-image")
    records = [{"id": str(i), **record(raw, "json", ())} for i, raw in enumerate(raws)]
    rows = sorted(reread(pa.Table.from_pylist(records, SCHEMA), how).to_pylist(), key=lambda row: row["id"])
    assert [row["c0"] for row in rows] == [1, None, None] and rows[1]["reason"] == NOT_ITS_OWN
    assert "no value in src" in rows[2]["reason"]


def test_records_of_all_forms_are_read_together():
    spec = spec_with("id INT8", "v WSTRING(9)")
    roles = ("op", "after:id", "after:v")
    records = [record("I,1,a", layout=roles), record(message(id=2, v="b"), "json", ()), record('"I","3","c"', "parquet", roles)]  # fmt: skip
    assert [values(row, spec) for row in rows_of(records, spec, Endpoint())] == [(1, "a"), (2, "b"), (3, "c")]
    assert rows_of([], spec) == []


# --- whole files


@pytest.mark.parametrize("dialect", [d for d in DIALECTS if d.ending != ".parquet"], ids=lambda d: d.name)
def test_each_bad_row_of_a_damaged_file_is_bad_again_for_the_same_reason(dialect, tmp_path):
    r, spec, found = random.Random(5), parse_spec(spec_of("public.t", *DAMAGED)), 0
    endpoint = Endpoint(timestamp_column="ts", null_value=dialect.null, delimiter=dialect.delimiter, rfc4180=dialect.quotes, header=dialect.header)  # fmt: skip
    for number in range(80):
        path = tmp_path / f"20260101-{number:09}{dialect.ending}"
        path.write_bytes(mutated_file(r, valid_file(r, dialect), dialect))
        try:
            table = SourceTable(spec, endpoint, Mappings())
            (file,), read = plan_files(table, [DmsObject(path.name, str(path), 1, "")], 1)
            bad = [row for changes in read_changes(file, read) for row in changes.bad]
        except FrazilError:
            continue
        again = rows_of([record(b.kept.raw, layout=file.roles, misfit=b.kept.misfit) for b in bad], spec, endpoint)
        assert [row["reason"] for row in again] == [b.reason for b in bad]
        found += len(bad)
    assert found > 20
