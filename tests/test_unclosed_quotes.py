"""A quoted text that does not end takes the rest of its file: the file is refused, whatever the rows look like."""

import gzip

import pytest

from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, I

spark = pytest.mark.spark


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
