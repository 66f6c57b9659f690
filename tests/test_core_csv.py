"""CSV in DMS's dialects becomes records and changes, block by block; no Spark."""

import random
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.bad_rows import COMMIT_TIME, FIELDS, KEY, OP, wrong_width
from frazil_old.core.changes import type_csv
from frazil_old.core.csv import Dialect, RowBordersError, WrongWidth, read_records, rows_by_table
from frazil_old.core.field_meaning import ReadRules
from frazil_old.core.rows_of_table import table_named
from helpers import pieces, spec_of

PLAIN, ANY = Dialect(), ReadRules()


def read(raw: bytes, width: int, dialect: Dialect = PLAIN, block: int = 1 << 20) -> list[tuple[int, list]]:
    """Return (row number, fields) of each record, or (row number, count of fields) of one that is too wide or narrow."""
    found = []
    for records in read_records(pieces(raw, block), width, dialect, "a.csv", block):
        rows = [list(r.values()) for r in records.fields.to_pylist()]
        found += [
            *zip(records.numbers.tolist(), rows, strict=True),
            *[(w.number, w.fields) for w in records.wrong_width],
        ]
    return sorted(found, key=lambda row: row[0])


@pytest.mark.parametrize("block", [*range(3, 12), 1 << 20])
@pytest.mark.parametrize(
    ("dialect", "text", "rows"),
    [
        (Dialect(), 'a,b\n"x,\ny","z ""q"""\n,""\n', [["a", "b"], ["x,\ny", 'z "q"'], [None, ""]]),
        (Dialect(), 'a,b"c\n"",\n', [["a", 'b"c'], ["", None]]),
        (Dialect(), 'a,"p\r\nq"\nb,c\rd\n', [["a", "p\r\nq"], ["b", "c\rd"]]),
        (Dialect("|"), "a,b|c\n", [["a,b", "c"]]),
        (Dialect("§", "\x1e"), 'a,b§"c§\x1ed"\x1e\n§,\x1e', [["a,b", "c§\x1ed"], ["\n", ","]]),
        (Dialect(",", "\r\n"), 'a,b\r\n1,"p\r\nq\nr"\r\n', [["a", "b"], ["1", "p\r\nq\nr"]]),
        (Dialect("||", "@@"), 'a|@||"b||"@@1||2@@3|||4@@', [["a|@", "b||"], ["1", "2"], ["3", "|4"]]),
        (Dialect("\t", quotes=False), '"a\tb"\n', [['"a', 'b"']]),
        (Dialect(header=True), 'id,"v\nw"\n1,2\n', [["1", "2"]]),
        (Dialect(), "\ufeffa,b\n", [["a", "b"]]),
        (Dialect(), "a,b\n\ufeffc,d\n\ufeff,\n", [["a", "b"], ["\ufeffc", "d"], ["\ufeff", None]]),
        (Dialect(), "", []),
    ],
)  # fmt: skip
def test_fields_are_told_apart_in_every_dialect(dialect, text, rows, block):
    assert [fields for _, fields in read(text.encode(), 2, dialect, block)] == rows


@pytest.mark.parametrize("dialect", [Dialect(), Dialect("§", "\x1e"), Dialect(",", "\r\n"), Dialect("||", "@@")])
@pytest.mark.parametrize("block", [*range(3, 12), 1 << 20])
def test_characters_of_the_standard_form_may_be_in_texts(dialect, block):
    odd = [chr(c) for c in range(0xFDD0, 0xFDF0)]
    texts = ["\n", "\r", "§", "||", "@@", ",", *odd, *[odd[0] + c for c in odd], *[c + odd[0] + c for c in odd]]
    rows = [[text, f"x{text}"] for text in texts]
    lines = [dialect.delimiter.join(f'"{field}"' for field in row) + dialect.row_delimiter for row in rows]
    assert [fields for _, fields in read("".join(lines).encode(), 2, dialect, block)] == rows


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize(
    ("dialect", "text", "rows"),
    [
        (Dialect(), '\na\n\n""\n\n', [None, "a", None, "", None]),
        (Dialect(), "\n", [None]),
        (Dialect(header=True), "v\n\na\n", [None, "a"]),
        (Dialect(",", "\r\n"), "\r\na\r\n\r\n", [None, "a", None]),
        (Dialect(quotes=False), "a\n\n", ["a", None]),
    ],
)  # fmt: skip
def test_an_empty_line_is_a_row_of_one_field(dialect, text, rows, block):
    assert [fields for _, fields in read(text.encode(), 1, dialect, block)] == [[v] for v in rows]


def test_rows_of_another_width_are_named_by_number():
    assert read(b"1,2\n\n1\n1,2,3\n4,5\n", 2) == [(1, ["1", "2"]), (2, 1), (3, 3), (4, ["4", "5"])]


@pytest.mark.parametrize(
    ("text", "row"), [('1,2\n"a,b\n3,4\n', 2), ('1,2\n3,"a"b\n', 2), ('"1","2"x\n', 1), ('a,b\r\n1,"c"\r\n', 2)]
)
def test_quotes_that_leave_rows_open_stop_the_file_by_row(text, row):
    with pytest.raises(RowBordersError, match=f"a.csv row {row}"):
        read(text.encode(), 2)
    with pytest.raises(RowBordersError, match=f"a.csv row {row}"):
        read(b"id,v\n" + text.encode(), 2, Dialect(header=True))


def test_a_text_longer_than_a_block_is_read_whole():
    long = "x" * 100_000 + '""' + "\n" * 50
    assert read(f'1,"{long}"\n2,b\n'.encode(), 2, block=64) == [
        (1, ["1", long.replace('""', '"')]), (2, ["2", "b"]),
    ]  # fmt: skip


def test_bytes_that_are_no_character_show():
    assert read(b"a,\xff\xfe\n1,\xc3\xbc\n", 2) == [(1, ["a", "\ufffd\ufffd"]), (2, ["1", "ü"])]


def test_a_table_of_a_file_of_all_is_counted_by_its_name():
    rows = b'U,t,public,1,"a,\nI,wide,public,9"\nI,wide,public,1\nI,"o""d,d",public,x\nI,t\nI,"a,b,c"\n\nI,,public,4\nI,t,public,3'
    for odd in (b"\n", b',6" x,"a\nI,x,y,z"\n'):  # quotes that do not follow RFC 4180
        for block in (3, 7, 50, 1000):
            counts = rows_by_table(pieces(rows + odd, block), PLAIN, block)
            assert counts == {("public", "t"): 2, ("public", "wide"): 1, ("public", 'o"d,d'): 1}
    longer = b'I||a\rb||s||1@@I||a,b||"s||2@@I||x||y||1@@'
    counts = rows_by_table([longer], Dialect("||", "@@", quotes=False))
    assert counts == {("s", "a\rb"): 1, ('"s', "a,b"): 1, ("y", "x"): 1}
    assert rows_by_table([b'I,t,public,1\nI,t,public,"2'], PLAIN) == {}, "nothing shows where rows end"


def test_a_row_that_names_no_table_reaches_each_table_of_its_file():
    rows = b"I,NULL,NULL,1\nI,t,public,2\nI,u,public,3\nI,t,NULL,4\nI,,public,5\n"
    for more in (b"", b'I,"t",public,6\n'):  # a block with a quote is not cut by tables
        found = read_records([rows + more], 4, Dialect(null="NULL"), "a.csv", table=("public", "t"))
        numbers = [n for records in found for n in records.numbers.tolist() if not (more and n == 3)]
        assert numbers == [1, 2, 4, 5, *([6] if more else [])]
        assert rows_by_table([rows + more], Dialect(null="NULL")) == {
            ("public", "t"): 1 + bool(more),
            ("public", "u"): 1,
        }


def test_a_line_of_another_length_that_names_no_table_is_known_as_such():
    roles, rules = ("op", "table", "schema", "after:id"), ReadRules(null="NULL", table=("public", "t"))
    lines = {"I,NULL,NULL,1,2": None, "I,t,NULL,1,2": None, "I,,public": None, "I,t,public": ("public", "t")}
    assert {line: table_named(line, roles, Dialect(null="NULL"), rules) for line in lines} == lines


def test_a_tables_name_may_have_characters_that_the_standard_form_replaces():
    rows = b"I||a,b||s||1@@I||c||s||2@@"
    for block in (7, 1000):
        found = read_records([rows], 4, Dialect("||", "@@", quotes=False), "f", block, ("s", "a,b"))
        assert [n for records in found for n in records.numbers.tolist()] == [1]


# --- what a row is


def typed(text: str, spec, roles, rules=ANY):
    (records,) = read_records([text.encode()], len(roles), Dialect(), "a.csv")
    return type_csv(records.fields, records.numbers, roles, spec, rules)


T = parse_spec(spec_of("public.t", "id INT4", "v WSTRING(9)", "n NUMERIC(9,2)"))
ROW = ("op", "ts", "after:id", "after:v", "after:n", "before:id")


def test_a_bad_row_is_named_with_its_first_fault():
    text = (
        'I,2024-01-01 00:00:00,1,a,1.50,\n'
        'X,2024-01-01 00:00:00,2,a,1.50,\n'
        'I,2024-01-01 00:00:00,,a,1.50,\n'
        'I,yesterday,4,a,1.50,\n'
        'U,2024-01-01 00:00:00,5,a,1.50,abc\n'
        'I,2024-01-01 00:00:00,6,a,1.505,\n'
        'I,2024-01-01 00:00:00,x,a,y,\n'
        ',,,,,\n'
        'D,2024-01-01 00:00:00,8,,,\n'
    )  # fmt: skip
    changes = typed(text, T, ROW)
    assert changes.rows["number"].to_pylist() == [1, 9]
    assert [(b.number, b.column, b.of_old_value) for b in changes.bad] == [
        (2, OP, False), (3, KEY, False), (4, COMMIT_TIME, False), (5, "id", True), (6, "n", False), (7, "id", False),
        (8, OP, False),
    ]  # fmt: skip
    assert "column 'n': '1.505' does not fit NUMERIC(9,2) (decimal(9,2) in the lake)" in changes.bad[4].reason
    assert changes.rows["commit_ts"][0].as_py().replace(tzinfo=None) == datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("null", "line", "v", "n"),
    [("", 'I,,1,,,', None, None), ("", 'I,,1,"","",', "", None), ("", "I,,1,NULL,,", "NULL", None),
     ("NULL", "I,,1,,,", "", None), ("NULL", 'I,,1,"NULL",NULL,', None, None), ("NULL", "I,,1,null,1,", "null", 1)],
)  # fmt: skip
def test_null_and_empty_are_told_apart(null, line, v, n):
    changes = typed(line + "\n", T, ROW, ReadRules(null))
    assert not changes.bad
    assert (changes.rows["new_1"][0].as_py(), changes.rows["new_2"][0].as_py()) == (v, n)


def test_a_column_that_the_log_did_not_carry_is_absent_and_not_null():
    changes = typed("U,,1,?,2,\nU,,2,,2,\n", T, ROW, ReadRules("", "?"))
    assert changes.rows["absent_1"].to_pylist() == [True, False]
    assert changes.rows["new_1"].to_pylist() == [None, None] and not changes.bad


@pytest.mark.parametrize("kind", ["WSTRING(9)", "INT8"])
@pytest.mark.parametrize("null", ["", "NULL"])
def test_a_key_that_the_log_did_not_carry_is_missing_and_not_an_empty_text(null, kind):
    spec = parse_spec(spec_of("public.t", "a INT8", f"b {kind}", "v WSTRING(9)", key=["a", "b"]))
    roles = ("op", "after:a", "after:b", "after:v")
    found = typed("U,1,~,x\n", spec, roles, ReadRules(null=null, not_carried="~"))
    assert [(b.number, b.column, b.reason) for b in found.bad] == [(1, KEY, "no value in key column b")]


def test_operations_go_by_their_own_texts():
    changes = typed("INSERT,,1,a,1,\nD,,2,a,1,\n", T, ROW, ReadRules(operations={"INSERT": "I", "DEL": "D"}))
    assert changes.rows["op"].to_pylist() == ["I", "D"]


def test_a_masked_value_is_not_shown():
    columns = [{"name": "id", "type": "INT4"}, {"name": "v", "type": "INT4", "mask": "sha256"}]
    spec = parse_spec({"source": "public.t", "target": "public.t", "key": ["id"], "columns": columns})
    (bad,) = typed("I,1,secret\n", spec, ("op", "after:id", "after:v")).bad
    assert bad.column == "v" and "secret" not in bad.reason
    bad = wrong_width(WrongWidth(1, 2, "1,secret"), spec)
    assert "secret" not in bad.reason and bad.column == FIELDS


def test_rows_of_tables_that_share_a_file_are_told_apart_by_their_origin():
    spec = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)", "src WSTRING(9)"))
    fields = pa.RecordBatch.from_arrays(
        [["1", "2", "3", "4"], ["a", "b", "c", None], ["one", "two", None, "one"]], ["0", "1", "2"]
    )
    rules = ReadRules(origin={"src": "one"})
    for role, kept in (("origin:src", None), ("origin after:src", "one")):
        found = type_csv(fields, np.arange(4), ("after:id", "after:v", role), spec, rules)
        assert found.rows["new_0"].to_pylist() == [1, 4] and found.rows["new_2"].to_pylist() == [kept] * 2
        assert [(b.number, "names no table" in b.reason) for b in found.bad] == [(2, True)]


def test_a_sequence_that_the_lake_has_too_is_read_as_both():
    spec = parse_spec(spec_of("public.t", "id INT8", "s WSTRING(40)"))
    fields = pa.RecordBatch.from_arrays([["1"], ["7"]], ["0", "1"])
    found = type_csv(fields, np.arange(1), ("after:id", "seq:s"), spec, ReadRules())
    assert found.rows["new_1"].to_pylist() == found.rows["change_seq"].to_pylist() == ["7"]


@pytest.mark.parametrize("seed", range(20))
def test_lines_of_other_tables_are_left_out_and_the_numbers_stay(seed):
    r = random.Random(seed)
    kinds = ["I,t,s,1,a", "U,t,s,2,", "D,t,s", "I,t,s,1,a,x", "I,u,s,1,a", "I,t,other,1", "I,tt,s,1,a", "I,,s,1,a", "I,t,,1,a", "", "I", "I,t", ",,", "I,t,"]  # fmt: skip
    text = "\n".join(r.choice(kinds) for _ in range(60)).encode() + b"\n"

    def read(table):
        found = {}
        block = r.choice([16, 100, 1000])
        for records in read_records(pieces(text, block), 5, Dialect(), "f", block, table):
            rows = zip(*(column.to_pylist() for column in records.fields.columns), strict=True)
            found |= dict(zip(records.numbers.tolist(), rows, strict=True))
            found |= {w.number: tuple((w.line.split(",") + [""] * 3)[:3]) for w in records.wrong_width}
        return found

    of_all = read(None)
    wanted = {n: row for n, row in of_all.items() if row[1:3] == ("t", "s") or not (row[1] and row[2])}
    assert read(("s", "t")) == wanted and len(wanted) < len(of_all)
