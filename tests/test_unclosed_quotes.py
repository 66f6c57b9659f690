"""A quoted text that does not end takes the rest of its file: the file is refused, whatever the rows look like."""

import gzip

import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.csv import Dialect, RowBordersError, read_records
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.mappings import Mappings
from frazil_old.dms.source_errors import SourceError
from frazil_old.engine.read_files import plan_files, read_changes
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, I, pieces, spec_of

spark = pytest.mark.spark


def refusal(raw: bytes, dialect: Dialect, block: int) -> str:
    """Return why a file of two columns is refused; empty: it is not."""
    try:
        for _ in read_records(pieces(raw, block), 2, dialect, "a.csv", block):
            pass
    except RowBordersError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("block", [5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('1,a\n2,"b', 2),
        ('1,a\n2,"b\n3,c\n', 2),
        ('1,"a\n"\n2,"b\n3,""c""\n', 2),
        ('1,"a",x\n2,b"c,"d\n', 2),
        ('"a\n', 1),
        ('\ufeff"a\n', 1),
        ('1,""""\n2,"""\n', 2),
        ('1,b"c"\n2,"x', 2),
        ("", None),
        ('1,a\n2,"b"\n3,c\n', None),
        ('1,"a ""b"" c\n"\n2,""\n', None),
        ('1,b"c\n', None),  # stands for itself
        ('1,b""c"d\n', None),
    ],
)
def test_the_row_is_told_in_which_a_text_begins_that_does_not_end(text, row, block):
    says = f"a.csv row {row}: a quoted text does not end, which hides where rows end" if row else ""
    assert refusal(text.encode(), Dialect(), block).split("\n")[0] == says
    named = "id,v\n" + text.removeprefix("\ufeff")
    assert refusal(named.encode(), Dialect(header=True), block).split("\n")[0] == says


@pytest.mark.parametrize("block", [3, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "row", "dialect"),
    [
        ("1,a\n2,1067.5", 2, Dialect()),
        ('1,"a"\n2,"1067"', 2, Dialect()),
        ("1,a\n2,1067.50@", 2, Dialect(row_delimiter="@@")),
        ("id,v\n1,a\n2,1", 2, Dialect(header=True)),
    ],
)
def test_a_file_that_is_cut_off_within_its_last_value_is_refused(text, row, dialect, block):
    text = text.replace("\n", dialect.row_delimiter)
    said = refusal(text.encode(), dialect, block)
    assert said.startswith(f"a.csv row {row}: no row delimiter ends the last row")
    whole = text.removesuffix("@") + dialect.row_delimiter
    assert refusal(whole.encode(), dialect, block) == ""


def test_the_row_is_told_with_other_delimiters_too():
    raw = b'1\x01"a,b\r\n"\r\n2\x01c,"d\r\n3\x01"e\r\n'
    assert refusal(raw, Dialect("\x01", "\r\n"), 1 << 20).startswith("a.csv row 3: a quoted text does not end")


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b + b"junk", lambda b: b[:12] + b"\xff" * 9 + b[21:]])
def test_an_archive_that_cannot_be_unpacked_to_its_end_is_named(tmp_path, damage):
    file = tmp_path / f"{FILE1}.gz"
    file.write_bytes(damage(gzip.compress(b'I,1,"a"\n' * 50)))
    spec = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)"))
    table = SourceTable(spec, Endpoint(), Mappings(()))
    [planned], plan = plan_files(table, [DmsObject(file.name, str(file), 1, "")], CHANGE_PHASE)
    with pytest.raises(SourceError, match=f"{file} cannot be read: .*\n.*fetch it again"):
        list(read_changes(planned, plan))


OPEN = {"cut off": '8,a\n9,"cut o', "left open": '8,"a\n"\n9,"open\n10,b\n11,c\n'}


@spark
@pytest.mark.parametrize("aside", ["stop", "quarantine"])
@pytest.mark.parametrize("name", [LOAD1, FILE1, f"{LOAD1}.gz", f"{FILE1}.gz"])
def test_a_last_column_that_does_not_end_stops_the_table_and_the_file_is_taken_once_it_is_whole(world, name, aside):
    world.rules = {"rules": []}
    world.given = {"on_bad_rows": aside}
    world.s3 |= {"CompressionType": "GZIP"} if name.endswith(".gz") else {}
    op = "I," if name.startswith(FILE1) else ""
    world.table("t").setup()
    before, file = world.rows("t"), world.root / "source/public/t" / name

    def put(text):
        raw = "".join(f"{op}{ONE_COMMIT},{line}" if line[:1].isdigit() else line for line in text.splitlines(True))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(raw.encode()) if name.endswith(".gz") else raw.encode())
        loaded = world.full_load()["t"]
        return world.merge()["t"] if op else loaded

    for what, text in OPEN.items():
        result = put(text)
        assert result.failed, what
        assert f"{file} row 2: a quoted text does not end" in result.note, what
        assert (world.rows("t"), world.branches("t")) == (before, []), what
    assert not put('8,"a\n"\n9,"open\n"\n10,b\n').failed
    assert world.rows("t") == [(10, "b"), (8, "a\n"), (9, "open\n")]


@spark
def test_in_a_column_further_in_it_stops_the_table_instead_of_setting_the_rest_of_the_file_aside(world):
    world.table("t", "id INT8", "v WSTRING(9)", "n INT4").load("t", (1, "a", 1)).loaded()
    good = f'I,{ONE_COMMIT},6,"x,y",1,,\nI,{ONE_COMMIT},7,"x\ny",1,,\n'
    world.write("t", FILE1, f'{good}I,{ONE_COMMIT},8,"open,2,,\nI,{ONE_COMMIT},9,z,9,,\n')
    world.changes("t", I(5, "b", 1), name=FILE2)
    result = world.merge(on_bad_rows="quarantine")["t"]
    assert result.failed and f"{FILE1} row 3: a quoted text does not end" in result.note
    assert world.rows("t") == [(1, "a", 1)]


@spark
def test_of_all_tables_that_a_file_is_of_each_is_stopped_by_a_text_of_one(new_world):
    world = new_world(PreserveTransactions=True, CdcPath="changes/all")
    world.rules = {"rules": []}
    world.table("t").table("wide", "id INT8", "a WSTRING(99)", "b INT4").load("t", (1, "a")).load("wide", (1, "x", 1))
    world.loaded()
    file = world.root / "source/changes/all/CDC_TXN-20240101100000000.csv"
    file.parent.mkdir(parents=True)
    file.write_text(f'I,t,public,{ONE_COMMIT},2,b\nI,t,public,{ONE_COMMIT},3,"c\nI,wide,public,{ONE_COMMIT},2,y,2\n')
    results = world.merge()
    assert all(r.failed and f"{file} row 2: a quoted text does not end" in r.note for r in results.values())
    assert (world.rows("t"), world.rows("wide")) == ([(1, "a")], [(1, "x", 1)])
    file.write_text(file.read_text().replace('"c\n', '"c"\n'))
    world.merged()
    assert (world.rows("t")[1:], world.rows("wide")[1:]) == ([(2, "b"), (3, "c")], [(2, "y", 2)])
