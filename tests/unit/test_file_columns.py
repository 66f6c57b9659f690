"""How DMS writes a table by the rules of its task, and the columns of its files: by header, by place, by Parquet's footer."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.core.csv import Reader
from frazil.core.row_blocks import Dialect
from frazil.discover.source_folders import require_own_folders
from frazil.dms.endpoint import S3Target
from frazil.dms.file_columns import FileColumns, file_columns
from frazil.dms.mappings import Written, resolve
from frazil.dms.source_file import SourceFile, SourceTable
from frazil.engine.parquet_columns import dms_type, require_readable, schema_of
from frazil.engine.read import first_rows
from frazil.errors import FrazilError
from frazil.settings.spec import TableSpec

FILE, LATER, LOAD = "20240101-100000000.csv", "20240101-110000000.csv", "LOAD00000001.csv"
ID, V, OP, A, B = "id INT8", "v WSTRING(9)", "op WSTRING(9)", "a WSTRING(9)", "b WSTRING(9)"
W, TIME = (ID, V, "w INT4"), "2024-01-01 09:59:00.000000"
EARLY = {"columns_until": {FILE: ["id", "v"]}}
SEQ, SRC = ({"rule-action": "add-column", "value": n, "expression": e} for n, e in (("seq", " $ar_h_change_seq"), ("src", "'eu'")))  # fmt: skip
IMAGE = {"rule-action": "add-before-image-columns"}
NOW = pa.array([0], pa.timestamp("us"))
GOOD = {"Op": pa.array(["I"]), "ts": pa.array([TIME]), "id": pa.array([1]), "v": pa.array([b"a"])}
OF_TARGET = {"AddColumnName": False, "IncludeOpForFullLoad": False, "CdcHasOp": True, "TimestampColumnName": "ts", "CsvNullValue": "N", "UseCsvNoSupValue": True, "CsvNoSupValue": "?"}  # fmt: skip


def rule(action: str, value: str = "", on: str = "column", at: str = "%", **more) -> dict:
    """Return a rule about tables or columns whose names are as the pattern `at`."""
    return {"rule-target": on, "rule-action": action, "value": value, "object-locator": {f"{on}-name": at}} | more


def table(*rules: dict, columns=(ID, V), **more) -> SourceTable:
    """Return a table; `more` has settings of the target and entries of the spec."""
    settings = OF_TARGET | {n: more.pop(n) for n in OF_TARGET.keys() & more.keys()}
    listed = [dict(zip(("name", "type"), c.split(" ", 1), strict=True)) if isinstance(c, str) else c for c in columns]
    spec = TableSpec(columns=listed, **{"source": "public.t", "key": "id"} | more)
    return SourceTable(spec, resolve(rules, spec), S3Target.model_validate(settings))


def written(*rules: dict, **more) -> Written:
    return table(*rules, **more).written


def source_file(name: str, data: str | bytes, shared: bool = False) -> SourceFile:
    raw = data.encode() if isinstance(data, str) else data
    schema = schema_of(io.BytesIO(raw), name) if raw.startswith(b"PAR1") else None
    columns = None if schema is None else [(field.name, dms_type(field.type)) for field in schema]
    return SourceFile(name, name, lambda: first_rows([raw], Dialect(null="N"), name, 9), columns, shared)


def found(data, columns=(ID, V), name=FILE, rules=(SEQ, IMAGE), **more) -> FileColumns | None:
    carried, others, shared = (
        more.pop(n, default) for n, default in (("carried", ()), ("others", {}), ("shared", False))
    )
    others = [source_file(*other) for other in others.items()]
    seen = file_columns(table(*rules, columns=columns, **more), source_file(name, data, shared), carried, others)
    if seen and seen.dialect is None:
        require_readable(seen, schema_of(io.BytesIO(data), name))
    return seen


def short(seen: FileColumns) -> str:
    """Return the roles in short: `op ts +id +v seq -id`, a dot for a field that is left out."""
    words = " ".join(role.replace(" ", "_") or "." for role in seen.reading.roles)
    return words.replace("after_", "+").replace("before_", "-").replace("committed", "ts").replace("sequence", "seq")


def parquet(columns: dict | pa.Table, **options) -> bytes:
    pq.write_table(pa.table(columns), out := io.BytesIO(), **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("action", "value", "old", "at", "names"),
    [
        ("rename", "x", "", "%", {"t": "x", "a b": "x"}), ("rename", "x", "", "t_", {"t1": "x", "t_": "x", "t": "t", "T1": "T1", "t12": "t12"}),
        ("rename", "x", "", "t[ab]*", {"ta*": "x", "tc*": "tc*", "ta": "ta"}), ("rename", "y", "", "x[_]%", {"x_1": "y", "xa1": "xa1"}), ("rename", "x", "", "[a-c\\]", {"b": "x", "\\": "x", "-": "-"}),
        ("convert-lowercase", "", "", "%", {"Ab": "ab"}), ("convert-uppercase", "", "", "%", {"Ab": "AB"}), ("add-prefix", "x", "", "%", {"t": "xt"}), ("add-suffix", "x", "", "%", {"t": "tx"}),
        ("remove-prefix", "a_", "", "%", {"a_t": "t", "t": "t"}), ("remove-suffix", "_a", "", "%", {"t_a": "t", "t": "t"}),
        ("replace-prefix", "n_", "o_", "%", {"o_t": "n_t", "t": "t"}), ("replace-suffix", "_n", "_o", "%", {"t_o": "t_n", "t": "t"}),
    ],
)  # fmt: skip
def test_rules_rename_the_tables_that_their_pattern_means(action, value, old, at, names):
    new = rule(action, value, "table", at, **{"old-value": old})
    assert {name: written(new, source=f"s.{name}").table for name in names} == names


def test_columns_have_the_names_and_the_order_that_rules_give_them():
    columns = ["src WSTRING(2)", ID, "gone INT4", {"name": "a", "type": "INT4", "renamed_from": ["old", "v"]}, V]
    rules = [SEQ, SRC, rule("remove-column", at="g%"), rule("rename", "b", at="a"), rule("add-prefix", "p_", at="old"), rule("data-masking-digits-mask", "#"), rule("rename", "s", "schema")]  # fmt: skip
    one = written(*rules, columns=columns)
    assert [*one.columns.items()] == [("id", "id"), ("b", "a"), ("v", "v"), ("src", "src")]
    assert (one.names["a"], one.schema, one.sequence, [*one.added]) == (("b", "p_old", "v"), "s", "seq", ["seq", "src"])
    assert (one.columns_in(["v"]), one.columns_in(["b", "v"])) == ({"v": "a"}, {"b": "a", "v": "v"})
    assert [*written(rule("include-column", at="i%")).columns] == ["id"]


def test_before_images_are_of_the_columns_that_the_rule_means():
    stated = [{}, {"column-filter": "non-lob", "column-suffix": "_0"}, {"column-filter": "all", "column-prefix": "o"}]
    rules, columns = ([IMAGE | {"before-image-def": one}, SRC] for one in stated), [ID, V, "lob NCLOB", "src STRING(9)"]
    images = [[*written(*both, columns=columns).images] for both in rules]
    assert images == [["BI_id"], ["id_0", "v_0"], ["oid", "ov", "olob"]]


def test_tables_in_one_folder_fail_alone_with_the_form_of_one_table():
    lower = rule("convert-lowercase", on="table")
    failed = require_own_folders({f"s.{name}": written(lower, source=f"s.{name}") for name in ("T", "t", "u")})
    assert [*failed] == ["s.T", "s.t"]
    assert "s.T and s.t" in failed["s.t"].problem and "key" in failed["s.t"].cure


@pytest.mark.parametrize(
    ("header", "columns", "wanted", "more"),
    [
        ("Op,ts,id,v,seq,BI_id", (ID, V), "op ts +id +v seq -id", {}), ("id,v", (ID, V), "+id +v", {"name": LOAD, "AddColumnName": True}), ("Op,id,v", (ID, V), "op +id +v", {"name": LOAD}),
        ("ts,id,op,v,seq,BI_id", (ID, OP, V), "ts +id +op +v seq -id", {"name": LOAD}), ("Op,ts,id,op,v", (ID, OP, V), "op ts +id +op +v", {}), ("op,ts,v,id", W, "op ts +v +id", {}), ("ts,id,op,v", (ID, V), "ts +id . +v", {"name": LOAD}),
        ("Op,ts,id,Op,v", (ID, "Op INT4", V), "op ts +id +Op +v", {}), ("Op,ts,id,op,v", (ID, OP, V), "op ts +id . +v", {"exclude": ["op"]}), ("Op,ts,id,op,v", (ID, V), "op ts +id . +v", {}),
        ("Op,ts,id,ts,v", (ID, "ts INT4", V), "op ts +id +ts +v", {}), ("Op,id,ts,v", (ID, "ts INT4", V), "op +id +ts +v", {}), ("id,v", (ID, V), "+id +v", {"CdcHasOp": False}), ("id,v", (ID, V), "+id +v", {"name": LOAD, "IncludeOpForFullLoad": True}),
        ("Op,ts,id,seq,v,seq,BI_id", (ID, "seq INT4", V), "op ts +id +seq +v seq -id", {}), ("Op,ts,id,v,seq", (ID, "seq WSTRING(9)", V), "op ts +id +v +seq", {}),
        ("Op,ts,id,seq,v,seq", (ID, V), "op ts +id . +v seq", {}), ("Op,ts,id,v,seq,w", W, "op ts +id +v seq +w", {}), ("Op,ts,id,v,seq,seq", (ID, V), "op ts +id +v . seq", {}), ("n,BI_id,OP,id,v,ts,seq", (ID, V), ". -id op +id +v ts seq", {}),
        ("Op,ts,id,BI_id,v,seq,BI_id", (ID, "BI_id INT4", V), "op ts +id +BI_id +v seq -id", {}), ("Op,ts,id,v,x,BI_id,BI_v", (ID, V), "op ts +id +v . -id .", {}), ("Op,id,v,BI_v", (ID, V, "BI_v INT4"), "op +id +v +BI_v", {}), ("Op,id,v,src,seq", (ID, V), "op +id +v . seq", {"rules": (SRC, SEQ)}),
        ("Op,ts,k,old,v,BI_k", ({"name": "no", "type": "INT8", "renamed_from": "k"}, "old INT4", V), "op ts +no +old +v -no", {"key": "no"}),
        ("Op,ts,id,v", (ID, {"name": "w", "type": "INT4", "renamed_from": "v"}, V), "op ts +id +v", {"carried": ["id", "v", "w"]}),
        ("Op,ts,id,b,c", ({"name": "b", "type": "INT4", "renamed_from": "c"}, {"name": "a", "type": "INT4", "renamed_from": "b"}, ID), "op ts +id +a +b", {}),
        ("Op,ts,id,old,new", (ID, {"name": "new", "type": "INT4", "renamed_from": "old"}), "op ts +id . +new", {}), ("Op,ts,id,v", (ID, {"name": "v0", "type": "INT4", "renamed_from": "v"}, V), "op ts +id +v0", {}),
    ],
)  # fmt: skip
def test_a_header_says_which_column_is_which(header, columns, wanted, more):
    seen = found(f"\ufeff{header}\n", columns, **more)
    assert (short(seen), seen.names, seen.dialect.header, seen.earlier) == (wanted, (*header.split(","),), True, False)


def test_columns_that_a_file_lacks_or_has_alone_are_reported():
    seen = found("Op,ts,id,x,BI_id,BI_v\n", (*W, "gone INT4", "src STRING(9)"), rules=(SRC, IMAGE), exclude=["gone"])
    assert (seen.unknown, seen.lacks, seen.carried, seen.further_keys) == ({"x": "WSTRING"}, ("v", "w", "src"), ("Op", "ts", "id", "BI_id"), ("v",))  # fmt: skip
    assert (seen.reading.null, seen.reading.not_carried, seen.reading.of_load, seen.types) == ("N", "?", False, {})


@pytest.mark.parametrize(
    ("data", "columns", "name", "words"),
    [
        ("ts,id,v,v,seq\n", (ID, V), LOAD, r"'v' stands at the places 3 and 4 \[column-unclear"), ("Op,ts,id,v,id\n", (ID, V), FILE, r"'id' .*3 and 5 \[column-unclear"),
        ("ts,id,v,BI_id\n", (ID, V, "BI_id INT8"), LOAD, r"'BI_id' at place 4 .*\[column-unclear.*rename"), ("Op,ts,id,BI_id,v\n", (ID, V), FILE, r"'BI_id' at place 4 .*\[column-unclear.*list it"),
        ("Op,ts,id,v\n", (ID, "Op INT4", V), FILE, "'Op' at place 1"), ("Op,ts,id,v\n", (ID, "ts INT4", V), FILE, "'ts' at place 2"),
        ("Op,ts,v,x\n", (ID, V), FILE, r"no column 'id'.*\[column-missing"), ("ts,id,v\n", (ID, V), FILE, r"no column 'Op'.*\[column-missing.*CdcInsertsOnly"),
        (f"I,{TIME},1", W, FILE, "row .*row-borders"), (f'I,{TIME},1,"cut\n', W, FILE, "row .*row-borders"), ("Op,ts,id,v\r\n", W, FILE, "row .*row-borders"),
        (parquet(GOOD | {"w": pa.array([True])}), W, FILE, r"'w' is bool, and INT4 in the spec \[column-type"), (parquet(GOOD | {"x": pa.array([[1]])}), W, FILE, "'x' is list.*DMS does not write"),
        (parquet(GOOD | {"x": pa.array([1.0], pa.float16())}), W, FILE, "'x' is halffloat.*column-type"), (parquet(GOOD | {"ts": pa.array([1])}), W, FILE, "'ts' is int64, and no time"),
        (parquet(GOOD | {"Op": pa.array([1])}), W, FILE, "'Op' is int64, and no text"), (b"PAR1 and no more", W, FILE, "a damaged Parquet file.*file-unreadable"), (parquet(pa.Table.from_arrays([NOW, NOW], ["id", "id"])), W, FILE, r"'id' stands at the places 1, 2 \[column-unclear"),
    ],
)  # fmt: skip
def test_a_file_that_leaves_a_column_unclear_or_cannot_have_its_values_is_refused(data, columns, name, words):
    with pytest.raises(FrazilError, match=f"(?s){name}.*{words}"):
        found(data, columns, name)


@pytest.mark.parametrize(
    ("row", "columns", "header", "more"),
    [
        ("id,v", (ID, V), True, {}), ("a,b", (A, B), True, {}), ("ts,a", (A, B), True, {"TimestampColumnName": "ts"}), ("a,x", (A, B), True, {"AddColumnName": True}), ("a,x", (A, B), False, {}),
        ("1,id", (ID, V), False, {}), ("abc,w,true", (A, B, "w BOOLEAN"), False, {}), ("A,B", (A, B), False, {"AddColumnName": True}), ('"a""b",b', ('a"b BLOB', B), True, {}), ("id,x", (ID, V), True, {}), (",id", (ID, V), False, {"key": "v"}), ("a", (A,), False, {}), ("1,x", (ID, V), False, {"AddColumnName": True}), ("I,id,v", (ID, V), False, {"AddColumnName": True, "IncludeOpForFullLoad": True}), ],
)  # fmt: skip
def test_the_first_row_shows_whether_it_is_a_header_and_else_the_setting_does(row, columns, header, more):
    seen = found(f"{row}\n", columns, LOAD, (), **{"TimestampColumnName": "", "key": columns[0].split()[0]} | more)
    assert seen.dialect.header == header


@pytest.mark.parametrize(
    ("row", "wanted", "earlier", "more"),
    [
        (f"I,{TIME},1,a,5,,", "op ts +id +v +w seq -id", False, {}), (f"{TIME},1,a,5,,", "ts +id +v +w seq -id", False, {"name": LOAD}),
        (f"I,t,public,{TIME[:19]},1,a,5,,", "op . . ts +id +v +w seq -id", False, {"shared": True, "CdcHasOp": False}), (f"I,{TIME},1,a,,", "op ts +id +v seq -id", True, {"carried": ["id", "v", "seq", "BI_id"]}),
        (f"I,{TIME},1,a", "op ts +id +v", True, EARLY), (f"I,{TIME},1,a,5,,", "op ts +id +v +w seq -id", False, EARLY | {"name": LATER}), ("1,a", "+id +v", True, EARLY),
        ("I,1,a", "op +id +v", True, {"columns_until": {LATER: ["id"], f"2023/12/{FILE}.gz": ["Op", "id", "v"]}}), ("1,a", "+id +v", True, {"name": LOAD, "columns_until": {FILE: ["id"], LOAD: ["id", "v"]}}),
        (f"I,{TIME},1,a", "op ts +id +v", True, {"columns": (ID, "x STRING(9)", V), "rules": (), "carried": ["id", "v"]}), (f"I,{TIME},1,a", "op ts +id +v", True, {"rules": (), "columns_until": {"CDC_TXN-20240101100000000.csv": ["id", "v"]}}),
        (f"1,oops\nI,{TIME},1,a\nI,{TIME},2,b", "op ts +id +v", True, EARLY), (f"{TIME},1,a,,", "ts +id +v seq -id", True, {"name": LOAD, "columns_until": {LATER: ["id"], FILE: ["id", "v", "seq", "BI_id"]}}), ("1,a,eu", "+id +v +src", False, {"columns": (ID, "src STRING(2)", V), "rules": (SRC,), "CdcHasOp": False, "TimestampColumnName": ""}),
        (f"I,{TIME},x,1", "op ts +op +id", True, {"columns": (OP, ID), "columns_until": {FILE: ["op", "id"]}}), (f"I,{TIME},1,7,a", "op ts +id . +v", True, {"columns_until": {FILE: ["id", "gone", "v"]}}),
    ],
)  # fmt: skip
def test_fields_without_names_are_told_by_place(row, wanted, earlier, more):
    seen = found(f"\n{row}\n{row}\n", **{"columns": W} | more)
    assert (short(seen), seen.earlier, seen.reading.of_load) == (wanted, earlier, more.get("name") == LOAD)


@pytest.mark.parametrize(
    ("row", "words", "more"),
    [
        (f"I,{TIME},1,a,5,,,,", rf"{FILE} row 1: 9 fields, and 7 .*list the source's new columns.*columns_until: {{<the last file.*: \[id, v, w, seq, BI_id\]", {}),
        (f"I,{TIME},1,a,,", rf"6 fields, and 7 .*\['I', .*columns_until: {{{FILE}: \[id, v, w, seq\]}} or .*\[id, v, w, BI_id\]}} or .*\[id, v, seq, BI_id\]}}", {}), (f"I,{TIME},1,secret,,", "6 fields, and 7 .*: a row of a table with masked", {"columns": (ID, {"name": "v", "type": "CLOB", "mask": "sha256"}, "w INT4")}),
        (f"I,{TIME},1,a,5", "5 fields, and 5 .*take those that the source dropped", {"rules": (), "columns": (ID, "x STRING(9)", V), "carried": ["id", "v"]}), (f"I,{TIME},1,a,5", r"5 fields, and 6 .*\[id, v, w\]} or .*\[id, v, BI_id\]", {"rules": (IMAGE,), "carried": ["id", "v"]}), ("1", "write columns_until: {.*: ..its columns", {}),
        (f"I,{TIME},1", rf"3 fields, and 4 .*{{{FILE}: \[id\]}}", EARLY), (f"I,{TIME},1,a,,", r"6 fields, and 7 .*\[id, v, seq, BI_id\]", {"carried": ["id", "v", "seq", "BI_id"]} | EARLY),
        (f"I,{TIME},1,a", "4 fields, and 7 ", EARLY | {"name": LATER}), (f"I,{TIME},1,a", "4 fields, and 5 ", {"rules": (), "name": LATER, "columns_until": {"CDC_TXN-20240101100000000.csv": ["id", "v"]}}), ("I,1", "2 fields, and 4 ", EARLY), ("I,t,I,1,a", "5 fields, and 3 ", {"columns_until": {FILE: ["Op", "id", "v"]}}),
        (f"I,{TIME},1,secret,,", "6 fields, and 7 .*: a row of a table with masked", {"exclude": ["v"]}), (f"I,{TIME},1", r'\["a,b"\]', {"rules": (), "columns": ("a,b INT8", V), "key": "a,b"}),
        ("I,1,a,5,,", "cure: correct TimestampColumnName", {"others": {LATER: "I,1,a,5,,\n"}}), (f"{TIME},1,a,5,,", "cure: correct CdcHasOp", {"others": {LOAD: f"I,{TIME},1,a,5,,\n"}}), (f"I,{TIME},1,a,5,,", "cure: correct Timestamp", {"TimestampColumnName": "", "others": {LATER: "id,v,w\n"}}),
        (f"I,{TIME},1,a,5,,", rf"{LATER} shows .*{{{FILE}: \[Op, commit_time, id, v, .*\]}} into <memory>$", {"TimestampColumnName": "", "others": {LATER: "I,1,a,5,,\n"}}),
        ("1,a,5,,", rf"{FILE} shows the opposite: write columns_until: {{{LOAD}: \[id, v, w, seq, BI_id\]}} into <memory>$", {"name": LOAD, "others": {LATER: "", FILE: f"I,{TIME},1,a,5,,\n"}}),
        (f"I,{TIME},1,a,5,,", rf"{LOAD} shows .*{{{LOAD}: \[id, v, w, seq, BI_id\]}} .*and correct Timestamp", {"TimestampColumnName": "", "others": {LOAD: "1,a,5,,\n"}}),
        (f"{TIME},1,a,5", r"\[id, v, w\]} or .*\[id, v, old\]}", {"name": LOAD, "rules": (), "columns_until": {FILE: ["id", "v", "old"]}}),
    ],
)  # fmt: skip
def test_a_width_that_fits_no_layout_is_refused_with_the_nearest_reading(row, words, more):
    with pytest.raises(FrazilError, match=f"(?s){words}") as refused:
        found(f"{row}\n", **{"columns": W} | more)
    assert (refused.value.code, refused.value.decision, "secret" in str(refused.value)) == ("no-layout", True, False)


def test_a_first_row_of_any_length_is_read():
    texts = "a,\n" * 99_999 + '""'
    seen = found(f'I,{TIME},1,"{texts}",,\n')
    row = next(Reader(seen.reading.types, seen.dialect, "f").read([f'I,{TIME},1,"{texts}",,\n'.encode()])).fields
    assert (short(seen), row[2].to_pylist(), row[3][0].as_py()[-3:]) == ("op ts +id +v seq -id", [1], ',\n"')
    assert found("") is None is found("\n\n") and first_rows([b"\n\n"], Dialect(), "f", 1) == [[""], [""]]


def test_parquet_tells_columns_and_their_types():
    more = {"w": NOW, "x": pa.array([1], pa.decimal128(9, 2)), "y": pa.array([1], pa.time32("ms")), "z": pa.array([b"a"], pa.binary(1))}  # fmt: skip
    seen = found(parquet(GOOD | more, use_deprecated_int96_timestamps=True), (ID, V, "w DATE", "z INT4"), exclude=["z"])  # fmt: skip
    assert (short(seen), seen.names[3:5], seen.dialect, seen.reading.null) == ("op ts +id +v +w . . .", ("v", "w"), None, None)  # fmt: skip
    assert (seen.types, seen.unknown) == ({"id": "INT8", "v": "BLOB", "w": "DATETIME", "z": "BYTES"}, {"x": "NUMERIC(9,2)", "y": "TIME"})  # fmt: skip
