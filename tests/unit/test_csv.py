"""CSV: random files in blocks of every size; what hides where rows end; files of all tables; gzip."""

from __future__ import annotations

import csv
import gzip
import io
import random
import re
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from frazil.core.csv import Reader
from frazil.core.exact import typed
from frazil.core.row_blocks import Dialect, RowBordersError, blocks
from frazil.core.rows import UnreadableFileError
from frazil.dms.gzip_form import unpacked
from frazil.engine.transactions import split_by_table

TEXTS = ["", "a", " b ", 'say "hi"', '"', '""', "a,b;c\td|e", "two\nlines", "\n", "cr\r", "\r\n", "\r", "Zürich 東京", "\ufeff", "\ufdd0", "NULL", "x" * 40]  # fmt: skip
KINDS = [pa.int64(), pa.string(), pa.date32(), pa.bool_(), pa.decimal128(12, 2), pa.timestamp("us"), pa.float64(), pa.string(), pa.binary()]  # fmt: skip
VALUES = {
    0: ["7", "-1", "", "9223372036854775807", "5.0", " 5 ", "0x1F", "abc", "NULL"], 2: ["2024-02-29", "", "2023-02-29", " 2024-01-01", "0000-01-01", "NULL"],
    3: ["true", "F", "1", "", " t", "Yes", "2"], 4: ["1.50", "", "1e2", "1.505"], 5: ["2024-02-29 10:00:00", "2024-02-29", ""], 6: ["0", "+1.5e-3", "x"], 8: ["00ff", "0x0a", "0X0A"],
}  # fmt: skip
FORMS = ((False, ""), (True, "NULL"))
DIALECTS = [Dialect(d, quotes, header, null) for d in ",;|\t\x01" for quotes in (True, False) for header, null in FORMS]  # fmt: skip


def random_rows(dice: random.Random, dialect: Dialect, count: int) -> list[list[str]]:
    """Return rows of texts, also of a wrong width; without quotes none holds what separates fields and rows."""
    texts = [t for t in TEXTS if dialect.quotes or not {dialect.delimiter, "\n"} & {*t}]
    texts, first = (texts, None) if dice.random() < 0.6 else (texts[:3], 3)
    rows = [[dice.choice(VALUES.get(i, texts)[:first]) for i in range(len(KINDS))] for _ in range(count)]
    return [dice.choice((row[:-1], [*row, ""])) if dice.random() < 0.1 else row for row in rows]


def written(rows: list[list[str]], dialect: Dialect, quoting: int = csv.QUOTE_MINIMAL) -> list[bytes]:
    """Return the lines of rows with their ends, as Python's `csv` writes them."""
    lines = []
    for row in rows:
        csv.writer(out := io.StringIO(), delimiter=dialect.delimiter, lineterminator="\n", quoting=quoting).writerow(
            row
        )
        lines.append((out.getvalue() if dialect.quotes else dialect.delimiter.join(row) + "\n").encode())
    return lines


@cache
def wanted(text: str, kind: pa.DataType, null: str, quoted: bool) -> tuple:
    """Return the value of a text and whether it has none."""
    has_empty = pa.types.is_string(kind) or pa.types.is_binary(kind)
    is_null = (text == "" and not has_empty) or (text == null and (null or not quoted))
    value, misfit = typed(pa.array([None if is_null else text], pa.string()), kind)
    return value[0].as_py(), misfit is not None


def found_by(reader: Reader, pieces: list[bytes], **part) -> tuple[dict, dict, dict]:
    """Return the values and misfits of rows by their numbers, the widths of wrong ones, and all lines."""
    values, wrong, lines = {}, {}, {}
    for rows in reader.read(pieces, **part):
        columns = []
        for column, kind in zip(rows.fields.columns, reader.types, strict=True):
            if pa.types.is_string(column.type):
                has_empty = pa.types.is_string(kind) or pa.types.is_binary(kind)
                words = [word for word in ("", reader.dialect.null) if word or not has_empty]
                column = pc.if_else(pc.is_in(column, pa.array(words, pa.string())), None, column)
            found, misfit = typed(column, kind)
            columns.append(zip(found.to_pylist(), misfit.to_pylist() if misfit else [False] * len(found), strict=True))
        values |= dict(zip(rows.numbers.tolist(), zip(*columns, strict=True), strict=True))
        wrong |= dict(rows.unreadable)
        lines |= {n: rows.raw(n) for n in [*rows.numbers.tolist(), *(number for number, _ in rows.unreadable)]}
    return values, wrong, lines


@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
def test_random_files_are_read_as_they_were_written_in_blocks_of_any_size(dialect):
    dice = random.Random(repr(dialect))
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_MINIMAL):
        rows = dict(enumerate(random_rows(dice, dialect, dice.choice((1, 5, 40))), 1))
        lines, quoted = written([*rows.values()], dialect, quoting), dialect.quotes and quoting == csv.QUOTE_ALL
        text = b"".join(line + b"\n" * (dice.random() < 0.1) for line in lines)
        text = (b"\xef\xbb\xbf" + dialect.delimiter.join("abcdefghi").encode() + b"\n") * dialect.header + text
        right = {n: tuple(wanted(t, k, dialect.null, quoted) for t, k in zip(row, KINDS, strict=True)) for n, row in rows.items() if len(row) == len(KINDS)}  # fmt: skip
        for size in (1, 7, dice.randint(2, len(text) + 2), 4 << 20):
            step = dice.randint(1, len(text) + 1)
            pieces = [text[i : i + step] for i in range(0, len(text), step)]
            values, wrong, raw = found_by(Reader(KINDS, dialect, "f"), pieces, size=size)
            assert [(n, v, right.get(n)) for n, v in values.items() if v != right.get(n)] == []
            assert values.keys() == right.keys()
            assert wrong == {n: f"{len(row)} fields, not 9" for n, row in rows.items() if n not in right}
            assert raw == {n: line[:-1] for n, line in enumerate(lines, 1)}
            begin = dice.randint(0, len(rows))
            last = dice.randint(begin, len(rows))
            part = found_by(Reader(KINDS, dialect, "f"), pieces, begin=begin, end=last, size=size)
            assert part[0] == {n: v for n, v in right.items() if begin < n <= last}
            assert sorted(part[2]) == [*range(begin + 1, last + 1)]


@pytest.mark.parametrize(
    ("text", "row", "word"),
    [
        ('1,a\n2,"x"y\n', 2, "not doubled"), ('1,"a"b",1\n', 1, "not doubled"), ('1,a\n2,"say" ""hi""\n', 2, "not doubled"), ('1,a"b\n', 1, "not doubled"),
        ('1,"x,y"\n2,"x\ny"\n3,"open\n4,z\n', 3, "does not end"), ('1,a\n\n2,b\n3,"cut o', 3, "does not end"), ("1,a\n2,b", 2, "cut off"), ('1,"a"\r\n', 1, "not doubled"), ("1,a\r\n2,b\r\n", 1, "rows end with"),
        ("h,i\n1,a\n2,b", 2, "cut off"), ('"h,i\n', 0, "does not end"),
    ],
)  # fmt: skip
def test_what_hides_where_rows_end_is_refused_by_its_row(text, row, word):
    dialect = Dialect(header="h,i" in text)
    for size in (1, 2, 5, 99):
        with pytest.raises(RowBordersError, match=rf"dms/f.csv row {row}: .*{word}"):
            list(blocks([text.encode()], dialect, "dms/f.csv", 2, size))


@pytest.mark.parametrize(
    ("kinds", "dialect", "data", "fields"),
    [
        ([pa.string()], Dialect(), b"\xef\xbb\xbfa\n\n\xef\xbb\xbfb\n", [["a", None, "\ufeffb"]]),
        ([pa.string(), pa.int32()], Dialect(null="NULL"), b'"",1\n,NULL\nNULL,3\n', [["", None, "NULL"], ["1", "NULL", "3"]]),
        ([pa.string(), pa.int32()], Dialect(), b"caf\xe9,1\n\xc3\xa9,2\n", [["caf\ufffd", "é"], [1, 2]]),
    ],
    ids=["one field may be empty", "a reader tells empty fields apart", "a row keeps its bytes"],
)  # fmt: skip
def test_unusual_rows(kinds, dialect, data, fields):
    size = 2 if len(kinds) == 1 else 99
    rows = [*Reader(kinds, dialect, "f", tells_empty=True).read([data], size=size)]
    assert [*pa.Table.from_batches([r.fields for r in rows]).to_pydict().values()] == fields
    assert [r.raw(n) for r in rows for n in r.numbers] == data.removeprefix(b"\xef\xbb\xbf").splitlines()


@pytest.mark.parametrize("dialect", [Dialect(), Dialect("|"), Dialect(quotes=False, null="NULL")], ids=repr)
def test_a_file_of_all_tables_is_split_into_each_tables_rows(dialect):
    dice, names = random.Random(repr(dialect)), [("s", "a"), ("s", "b"), ("é", "a"), ("s", "q,t" if dialect.quotes else "q")]  # fmt: skip
    text = "two\nlines" if dialect.quotes else "x"
    rows = [["I", table, schema, str(n), text] for n, (schema, table) in enumerate(dice.choices(names, k=200))]
    rows[50:53] = [["I", "a"], ["I", "", "s", "1", "x"], ["D", "a", dialect.null or "s"]]
    lines = [line + b"\n" * (n % 7 == 0) for n, line in enumerate(written(rows, dialect))]
    own, nameless = {name: [] for name in names}, []
    for block in blocks([b"".join(lines)], dialect, "f", size=300):
        parts, rest = split_by_table(block, dialect)
        nameless += rest.numbers.tolist()
        for name, part in parts.items():
            found = Reader([pa.string()] * 5, dialect, "f").parse(part)
            own[name] += zip(found.numbers.tolist(), *found.fields.to_pydict().values(), strict=True)
            assert [part.line(n) for n in part.numbers] == [lines[n - 1].strip(b"\n") for n in part.numbers]
    assert nameless == [51, 52, 53][: 2 + bool(dialect.null)]
    for name in names:
        assert own[name] == [(n, *row) for n, row in enumerate(rows, 1) if len(row) == 5 and (row[2], row[1]) == name]


def test_a_table_is_one_however_rows_write_its_name_and_rows_keep_their_numbers():
    lines = [b"I,t,s,1", b'I,"t","s",2', b"I,u,s,1", b'U,t,"s",3,too wide', b'I,"a""b",s,1', b"I,t\xff,s,1", b"I," + b"x" * 200_000 + b",s,1"]  # fmt: skip
    (block,) = blocks([b"\n".join(lines) + b"\n"], Dialect(), "f")
    found, nameless = split_by_table(block, Dialect())
    own = {name: part.numbers.tolist() for name, part in found.items()}
    assert own == {("s", "t"): [1, 2, 4], ("s", "u"): [3], ("s", 'a"b'): [5]}
    assert nameless.numbers.tolist() == [6, 7]
    assert Reader([pa.string()] * 4, Dialect(), "f").parse(found["s", "t"]).unreadable == ((4, "5 fields, not 4"),)


TEXT = b"abc" * 3_000_000
PACKED = gzip.compress(TEXT)


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", b""), (b"\x1f", b"\x1f"), (PACKED, TEXT), (PACKED + gzip.compress(b"x"), TEXT + b"x"), (gzip.compress(PACKED), TEXT),
        (PACKED[:-3], "gzip file that was cut off"), (gzip.compress(PACKED[:99]), "gzip file that was cut off"), (PACKED + b"more", "damaged gzip file"), (PACKED[:50] + b"x" * 50, "damaged gzip file"),
    ],
    ids=range(9),
)  # fmt: skip
def test_bytes_say_whether_and_how_often_a_file_is_packed(data, found, step):
    pieces = unpacked((b"", *(data[i : i + step] for i in range(0, len(data), step))), "dms/f.csv.gz")
    if isinstance(found, bytes):
        assert b"".join(pieces) == found
        return
    with pytest.raises(UnreadableFileError, match=f"dms/f.csv.gz: a {found}"):
        assert max(map(len, pieces)) <= 4 << 20


def damaged(dice: random.Random, text: bytes) -> bytes:
    """Return a file in which some bytes were put in, taken out or changed."""
    for _ in range(dice.choice((1, 1, 2, 5))):
        at, odd = (
            dice.randrange(len(text)),
            dice.choice((b'"', b'""', b"\n", b",", b"\r", b"\xff", b"x", b"", b"\0", b"\r\n")),
        )
        text = text[:at] + odd + text[at + dice.randint(0, 1) :]
    return text


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.torture)])
def test_of_damaged_files_each_row_is_what_its_bytes_say_or_the_file_is_refused(count):
    dice, refused = random.Random(count), 0
    for _ in range(count):
        text = damaged(dice, b"".join(written(random_rows(dice, Dialect(), dice.randint(1, 8)), Dialect(), dice.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))))  # fmt: skip
        reader = Reader([pa.string()] * len(KINDS), Dialect(null="none"), "f")
        try:
            found = [*reader.read([text], size=dice.choice((1, 50, 9999)))]
        except RowBordersError:
            refused += 1
            continue
        lines, wide = {}, {}
        for rows in found:
            lines |= {n: rows.raw(n) for n in [*rows.numbers.tolist(), *(number for number, _ in rows.unreadable)]}
            wide |= dict(zip(rows.numbers.tolist(), zip(*rows.fields.to_pydict().values(), strict=True), strict=True))
        assert [*lines] and sorted(lines) == [*range(1, len(lines) + 1)] if text.strip(b"\n") else not lines
        assert b"".join(lines[n] + b"\n" for n in sorted(lines)) == text.removeprefix(b"\xef\xbb\xbf") or b"\n\n" in text or text[:1] == b"\n"  # fmt: skip
        for number, line in lines.items():
            fields = fields_of(line)
            assert wide.get(number, len(fields)) == (tuple(fields) if len(fields) == len(KINDS) else len(fields)), text
    assert count / 9 < refused < count


def fields_of(line: bytes) -> list[str]:
    """Return the fields of a regular row by RFC 4180."""
    fields = re.findall(r'(?:^|,)("(?:[^"]|"")*"|[^,"]*)', line.decode("utf-8", "replace"), re.DOTALL)
    return [f[1:-1].replace('""', '"') if f[:1] == '"' else f for f in fields]
