"""The model, by examples whose rows are written by hand: bytes in, rows out."""

import gzip
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import BadRow, Model, Refused

pytestmark = pytest.mark.acceptance
BIG, TEN = 3_000_000_000, datetime(2024, 1, 1, 10)
V, PAIR = ("id INT8", "v WSTRING(9)"), ("a INT8", "b WSTRING(9)")
N, WIDE = (("id INT8", f"n {kind}", "v WSTRING(9)") for kind in ("INT4", "INT8"))
HEADER, PARTIAL = {"AddColumnName": True}, {"UseCsvNoSupValue": True, "CsvNoSupValue": "?"}
SEQ = {"rule-action": "add-column", "value": "seq", "expression": "$AR_H_CHANGE_SEQ"}
OLD = {"rule-action": "add-before-image-columns", "before-image-def": {"column-prefix": "BI_"}}


class Case:
    """A model of one table `t`, and a folder for its files."""

    def __init__(self, folder: Path, *columns: str, key: str = "id", rules=(), **more):
        self.folder, self.number = Path(mkdtemp(dir=folder)) / "public" / "t", 0
        self.folder.mkdir(parents=True)
        self.spec = {"source": "public.t", "key": key.split(), "changes": more.pop("changes", {})}
        self.declare(*(columns or V))
        self.model = Model({"t": self.spec}, more.pop("target", {}), {"rules": [*rules]}, **more)

    def declare(self, *columns: str) -> None:
        """Write the columns of the spec: `name TYPE`, or `name TYPE earlier_name`."""
        self.spec["columns"] = [dict(zip(("name", "type", "renamed_from"), c.split(), strict=False)) for c in columns]

    def put(self, name: str, content: str | bytes) -> Path:
        file = self.folder / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def load(self, content: str):
        self.model.load("t", [self.put("LOAD00000001.csv", content)])
        return self

    def apply(self, *contents: str | bytes) -> list[tuple]:
        for content in contents:
            self.number += 1
            self.model.apply([self.put(f"20240101-10000000{self.number}.csv", content)])
        return self.rows

    def send(self, operation: str, was: dict | None = None, **data) -> list[tuple]:
        self.model.message(message(operation, data=data, **({"before-image": was} if was else {})))
        return self.rows

    def control(self, operation: str, **columns: str) -> None:
        table = {"columns": {n: {"type": kind} for n, kind in columns.items()}}
        self.model.message(message(operation, "control", control={"table-def": table}))

    @property
    def rows(self) -> list[tuple]:
        return self.model.rows("t")

    @property
    def waiting(self) -> list[tuple]:
        return [(w.row, w.column) for w in self.model.waiting("t")]


def message(operation: str, kind: str = "data", **parts) -> bytes:
    about = {"record-type": kind, "operation": operation, "schema-name": "public", "table-name": "t"}
    return json.dumps({**parts, "metadata": about}).encode()


@pytest.fixture
def case(tmp_path):
    return lambda *columns, **more: Case(tmp_path, *columns, **more)


FITS = {
    "INT1": {"128": 128}, "INT4": {"-2147483648": -(2**31), " 12.0 ": 12, "1e3": 1000, "": None}, "INT8": {"9223372036854775807": 2**63 - 1},
    "UINT4": {"4294967295": 2**32 - 1}, "UINT8": {"18446744073709551615": Decimal(2**64 - 1)}, "BOOLEAN": {"t": True, "0": False},
    "NUMERIC(5,2)": {"123.450": Decimal("123.45"), "-0": Decimal("0.00")}, "NUMERIC(38,10)": {"1" * 28 + "." + "2" * 10: Decimal("1" * 28 + "." + "2" * 10)},
    "REAL4": {"+3.23800011e+01": 32.380001068115234}, "REAL8": {"+3.23800011e+01": 32.3800011, "-inf": float("-inf")}, "NCLOB": {" a ": " a "},
    "DATE": {"2024-02-29": date(2024, 2, 29)}, "TIME": {"838:59:59": "838:59:59"}, "BYTES(9)": {"0x00Ff": b"\x00\xff", '""': b""},
    "DATETIME(6)": {"2024-01-01 10:00:00.5": TEN.replace(microsecond=500000), "2024-01-01 10:00:00.000000000": TEN},
}  # fmt: skip
BAD = {
    "INT4": ["2147483648", "1.5", "12a"], "INT8": ["9223372036854775808"], "NUMERIC(5,2)": ["1000", "0.001"], "REAL4": ["1e39"],
    "REAL8": ["1e-400", "1e400", '"1,5"'], "BOOLEAN": ["2"], "DATE": ["2023-02-29", "0000-00-00"], "BLOB": ["abc"], "STRING(9)": ["a\ufffd"],
    "DATETIME": ["2024-01-01", "2024-01-01 10:00:00.1234567", "2024-01-01T10:00:00Z"],
}  # fmt: skip


@pytest.mark.parametrize("kind", {**FITS, **BAD})
def test_a_text_has_its_exact_value_or_is_bad(case, kind):
    c, fits, bad = case("id INT8", f"x {kind}", quarantines=True), FITS.get(kind, {}), BAD.get(kind, [])
    c.apply("".join(f"I,{n},{text}\n" for n, text in enumerate([*fits, *bad], 1)))
    assert repr(c.rows) == repr(list(enumerate(fits.values(), 1)))
    assert c.waiting == [(n, "x") for n, _ in enumerate(bad, len(fits) + 1)]


EXAMPLES = {
    "with an empty token a bare field is null and a quoted one empty":
        (N, {}, "", ['I,1,"",\nI,2,,""\nI,3,3,NULL\n'], [(1, None, None), (2, None, ""), (3, 3, "NULL")]),
    "with the token NULL a bare field is empty, and the token null, quoted or not":
        (N, {"target": {"CsvNullValue": "NULL"}}, "", ['I,1,,\nI,2,NULL,NULL\nI,3,3,"NULL"\n'], [(1, None, ""), (2, None, None), (3, 3, None)]),
    "quotes hold delimiters, line breaks and doubled quotes":
        (V, {}, "", ['I,1,"a,\n""b"""\nI,2,a"b\n'], [(1, 'a,\n"b"'), (2, 'a"b')]),
    "another delimiter": (V, {"target": {"CsvDelimiter": "|"}}, "", ['I|1|a,b\n"I"|2|"|"\n'], [(1, "a,b"), (2, "|")]),
    "packed files, empty lines, empty files and a byte order mark change nothing":
        (V, {}, "", [gzip.compress(b"I,1,a\n"), b"\xef\xbb\xbfI,2,b\n\n", ""], [(1, "a"), (2, "b")]),
    "inserts and updates are upserts, and a delete needs its key only":
        (V, {}, "1,a\n2,b\n", ["I,1,A\nU,3,c\nD,2,\nD,9,\n"], [(1, "A"), (3, "c")]),
    "a changed key takes the old row away, in chains and in a swap":
        (V, {"rules": [SEQ, OLD], "target": {"TimestampColumnName": "ts"}}, f"{TEN},1,a,,\n{TEN},2,b,,\n",
         [f"U,{TEN},9,a,5,1\nU,{TEN},1,b,3,2\nU,{TEN},2,A,4,9\nU,{TEN},1,B,,1\n"], [(1, "B"), (2, "A")]),
    "one part of a key changes, and an empty old part is one only if it is quoted":
        (PAIR, {"key": "a b", "rules": [OLD], "target": {"CsvNullValue": "NULL"}}, "",
         ['I,1,"",,\nI,2,"",,\nU,1,x,1,""\nU,2,x,,\n'], [(1, "x"), (2, ""), (2, "x")]),
    "a value that was not logged stays, also through a change of the key":
        (N, {"target": PARTIAL, "rules": [OLD]}, "1,1,a,\n2,2,?,\n", ["U,1,7,?,\nU,5,?,b,1\nU,2,?,?,\n"], [(2, 2, "?"), (5, 7, "b")]),
    "load files may have operations": (V, {"target": {"IncludeOpForFullLoad": True}}, "I,1,a\n", ["D,1,\nI,2,b\n"], [(2, "b")]),
    "change files may have none": (V, {"target": {"CdcInsertsOnly": True}}, "1,a\n", ["2,b\n"], [(1, "a"), (2, "b")]),
    "a header names columns in any order, and one that is gone keeps its values":
        (N, {"target": HEADER}, "n,v,id\n1,a,1\n2,b,2\n", ["Op,id,v\nU,1,A\nI,3,c\n"], [(1, 1, "A"), (2, 2, "b"), (3, None, "c")]),
}  # fmt: skip
"""What is shown: the columns, more of the case, the load, the change files, the rows."""


@pytest.mark.parametrize("shown", EXAMPLES)
def test_files_come_to_rows(case, shown):
    columns, more, load, changes, rows = EXAMPLES[shown]
    c = case(*columns, **more)
    assert repr(c.load(load).apply(*changes)) == repr(rows)


@pytest.mark.parametrize("text", ['I,1,"a\n', 'I,1,"a"b\n', "I,1,a", "I,1,"])
def test_a_file_that_hides_where_a_row_ends_is_refused(case, text):
    with pytest.raises(Refused, match=r"20240101-100000001\.csv"):
        case().apply(text)


def test_parquet_has_its_own_nulls_and_widens_a_column(case, tmp_path):
    c = case("id INT8", "n INT4", "p NUMERIC(6,2)", "b BLOB", "v WSTRING(9)", "at DATETIME", changes={"new": "add"})
    columns = {"Op": ["I", "I"], "id": [1, 2], "n": [BIG, None], "p": [Decimal("1.5"), None], "b": [b"\0", b""]}
    pq.write_table(pa.table({**columns, "v": ["", None], "at": [TEN, None], "more": [0.5, None]}), tmp_path / "x")
    rows = [(1, BIG, Decimal("1.50"), b"\0", "", TEN, 0.5), (2, None, None, b"", None, None, None)]
    assert c.apply((tmp_path / "x").read_bytes()) == rows


def test_a_load_replaces_rows_and_those_that_wait(case):
    c = case(quarantines=True)
    c.apply("I,7,x\nI,word,y\n")
    assert (c.load("1,a\n2,b\n").rows, c.waiting) == ([(1, "a"), (2, "b")], [])


def test_files_count_in_the_order_of_their_names_and_rows_in_theirs(case):
    c = case()
    files = {"20240101-100200000.csv": "U,1,second\nU,1,third\n", "20240101-100100000.csv": "U,1,first\n"}
    c.model.apply([c.put(*file) for file in files.items()])
    assert c.rows == [(1, "third")]


def test_rows_of_a_file_of_all_tables_go_to_theirs(case):
    c = case()
    c.model.specs["wide"] = {"source": "other.t", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}]}
    rows = 'I,t,public,1,"a\nI,t,other,9"\nI,t,other,2\nI,no,public,3\nD,t,other,2\nI,t,other,4\n'
    c.model.apply([c.put("CDC_TXN-20240101100000000.csv", rows)])
    assert (c.rows, c.model.rows("wide")) == ([(1, "a\nI,t,other,9")], [(4,)])
    c.model.apply([c.put("CDC_TXN-20240101100000001.csv", "I,t,public,5,b\nI,t,other,5\n")], "t")
    assert (len(c.rows), c.model.keys("wide")) == (2, {(4,)})
    with pytest.raises(Refused, match="row 2 names no table"):
        c.model.apply([c.put("CDC_TXN-20240101100000002.csv", "I,t,public,5,b\nI,t\n")])


def test_an_unknown_column_is_refused_ignored_or_added_as_text(case):
    c, change = case(target=HEADER).load("id,v\n1,a\n2,b\n"), "Op,id,v,more\nU,1,A,x\n"
    with pytest.raises(Refused, match="unknown column more"):
        c.apply(change)
    for policy, rows in (("ignore", [(1, "A"), (2, "b")]), ("add", [(1, "A", "x"), (2, "b", None)])):
        c.spec["changes"] = {"new": policy}
        assert c.apply(change) == rows


def test_a_spec_adds_renames_and_widens_columns_and_those_that_it_no_longer_lists_stay(case):
    c = case(*N, target=HEADER).load("id,n,v\n1,1,a\n")
    c.declare("id INT8", "w DATE", "n INT8", "name WSTRING(9) v")
    c.model.correct_columns("t")
    assert c.rows == [(1, None, 1, "a")]
    rows = c.apply(f"Op,id,w,name,n\nI,2,2024-01-01,b,{BIG}\n", "Op,id,v,n\nU,1,A,7\n")
    assert rows == [(1, None, 7, "A"), (2, date(2024, 1, 1), BIG, "b")]
    c.declare("no INT8 id", "n INT8")
    c.spec["key"] = ["no"]
    assert c.apply("Op,no,n\nD,1,\n") == [(2, date(2024, 1, 1), BIG, "b")]
    c.declare("no INT8", "n WSTRING(9)")
    with pytest.raises(Refused, match="no promotion"):
        c.model.correct_columns("t")


FAULTS = {"I,1,word,a": "n", "I,1,2": "fields", "I,1,2,a,b": "fields", "X,1,2,a": "op", ",1,2,a": "op", "I,,2,a": "key",
          "D,x,,": "id", "D,1,word,": "n"}  # fmt: skip


@pytest.mark.parametrize(("line", "column"), FAULTS.items())
def test_a_bad_row_is_named_by_file_row_and_column_or_waits(case, line, column):
    with pytest.raises(BadRow) as error:
        case(*N).apply(f"I,5,5,e\n{line}\n")
    assert error.value.args == ("20240101-100000001.csv", 2, column)
    c = case(*N, quarantines=True)
    assert (c.apply(f"I,5,5,e\n{line}\nI,6,6,f\n"), c.waiting) == ([(5, 5, "e"), (6, 6, "f")], [(2, column)])


QUARANTINED = {
    "a time of commit is judged in changes, and not in loads":
        (V, {"target": {"TimestampColumnName": "ts"}}, "yesterday,1,a\n", ["U,yesterday,1,b\nU,,2,c\n"],
         [(1, "a"), (2, "c")], [(1, "timestamp")], V, [(1, "a"), (2, "c")], [(1, "timestamp")]),
    "a later whole row or delete of its key replaces a row that waits":
        (N, {}, "", [f"I,1,1,before\nU,1,{BIG},a\nU,2,{BIG},b\nU,3,{BIG},c\nU,2,2,after\n", "D,3,,\n"],
         [(1, 1, "before"), (2, 2, "after")], [(2, "n")], WIDE, [(1, BIG, "a"), (2, 2, "after")], []),
    "a replay applies rows in order, and what is still bad waits on":
        (N, {}, "", [f"U,1,{BIG},first\nU,1,word,second\nU,2,word,x\nU,1,{BIG + 1},third\n"],
         [], [(1, "n"), (2, "n"), (3, "n"), (4, "n")], WIDE, [(1, BIG + 1, "third")], [(3, "n")]),
    "a waiting change of a key loses the key that a later row touches":
        (N, {"rules": [OLD]}, "1,1,a,\n2,2,b,\n", [f"U,7,{BIG},moved,1\nU,8,{BIG},moved,2\n", "I,7,70,new,\nI,2,20,new,\n"],
         [(1, 1, "a"), (2, 20, "new"), (7, 70, "new")], [(1, "n"), (2, "n")], WIDE, [(2, 20, "new"), (7, 70, "new"), (8, BIG, "moved")], []),
    "a row whose key cannot be read waits until it can, and is not put over newer ones":
        (N, {}, "", ["U,1,1,a,new\nU,2,2,b,new\n", "U,1,10,later\n"], [(1, 10, "later")], [(1, "fields"), (2, "fields")],
         (*N, "x WSTRING(9)"), [(1, 10, "later", None), (2, 2, "b", "new")], []),
    "a partial row waits behind a waiting row of its key":
        (N, {"target": PARTIAL}, "1,1,a\n", [f"U,1,{BIG},?\nU,1,?,b\n"], [(1, 1, "a")], [(1, "n"), (2, "n")], WIDE, [(1, BIG, "b")], []),
    "a partial row whose row is not stored waits for it":
        (N, {"target": PARTIAL}, "", ["U,1,1,?\nU,2,2,?\n", "I,1,3,a\n"], [(1, 3, "a")], [(2, "v")], N, [(1, 3, "a")], [(2, "v")]),
    "a row without a column that is gone waits behind one that has it":
        (N, {"target": HEADER}, "id,n,v\n1,1,a\n", [f"Op,id,n,v\nU,1,{BIG},b\n", "Op,id,v\nU,1,c\n"],
         [(1, 1, "a")], [(1, "n"), (1, "n")], WIDE, [(1, BIG, "c")], []),
}  # fmt: skip
"""What is shown: columns, more of the case, load, change files, rows, what waits; columns for a replay, rows, what waits."""


@pytest.mark.parametrize("shown", QUARANTINED)
def test_bad_rows_wait_until_they_are_replayed_or_replaced(case, shown):
    columns, more, load, changes, rows, waiting, new_columns, replayed, still = QUARANTINED[shown]
    c = case(*columns, quarantines=True, **more)
    assert (c.load(load).apply(*changes), c.waiting) == (rows, waiting)
    c.declare(*new_columns)
    c.model.replay("t")
    assert (c.rows, c.waiting) == (replayed, still)
    c.model.discard("t")
    assert (c.rows, c.waiting) == (replayed, [])


def test_messages_are_loads_inserts_updates_and_deletes(case):
    c = case("id INT8", "v WSTRING(9)", "at DATETIME", "yes BOOLEAN")
    c.send("load", id=1, v="a", at="2024-01-01T10:00:00.123456000Z", yes=True)
    assert c.send("insert", id=2, v="") == [(1, "a", datetime(2024, 1, 1, 10, 0, 0, 123456), True), (2, "", None, None)]
    c.send("update", was={"id": 1}, id=3, v="A", yes="false")
    assert c.send("delete", id=2) == [(3, "A", None, False)]


def test_numbers_of_messages_keep_their_digits_and_a_bad_one_waits_by_its_number(case):
    c, digits = case("id INT8", "p NUMERIC(38,10)", quarantines=True), "1234567890123456789012345678.0000000001"
    raw = message("insert", data={"id": 9007199254740993, "p": 0})
    c.model.message(raw.replace(b'"p": 0', b'"p": ' + digits.encode()))
    assert (c.send("insert", id=1, p="x"), c.waiting) == ([(9007199254740993, Decimal(digits))], [(1, "p")])


def test_control_records_change_the_columns_for_the_messages_after_them(case):
    c = case(*N, changes={"new": "add"})
    c.send("load", id=1, v="a", n=1)
    c.control("rename-column", id="INT64", title="STRING", n="INT32")
    c.control("add-column", id="INT64", title="STRING", n="INT32", w="DATE32")
    assert c.send("insert", id=2, title="b", n=2, w="2024-01-01") == [(1, 1, "a", None), (2, 2, "b", date(2024, 1, 1))]
    c.control("drop-column", id="INT64", title="STRING", w="DATE32")
    assert c.send("update", id=1, title="A")[0] == (1, 1, "A", None)
    c.control("column-type-change", id="INT64", title="STRING", w="DATE32", n="INT64")
    assert c.send("update", id=1, title="B", n=BIG)[0] == (1, BIG, "B", None)


def test_what_others_did_is_there_and_a_state_comes_back(case):
    c = case(quarantines=True).load("1,a\n2,b\n")
    whole, one = c.model.state(), c.model.state("t")
    c.model.foreign_delete("t", lambda row: row["v"] == "a")
    c.model.foreign_put("t", (2, "theirs"), (9, "more"))
    assert (c.apply("I,word,x\n"), c.model.keys("t"), len(c.waiting)) == ([(2, "theirs"), (9, "more")], {(2,), (9,)}, 1)
    for given in (("t", one), (one,), (whole,)):
        c.model.restore(*given)
        assert (c.rows, c.waiting) == ([(1, "a"), (2, "b")], [])
        c.apply("D,1,\n")
