"""The source folder: which files count and in which order, and how rows that cannot be applied are refused."""

import os
import re

import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.dms.listing import list_table
from frazil_old.dms.source_errors import SourceError
from helpers import FILE1, FILE2, FILE3, LOAD1, ONE_COMMIT, D, I, U, spec_of

spark = pytest.mark.spark
SPEC = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)"))


@pytest.fixture
def source(tmp_path):
    """Make files in the table's folder: `source(name, …)`; return what the listing makes of them."""
    (tmp_path / "public").mkdir()

    def put(*names):
        for name in names:
            file = tmp_path / "public/t" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("x")
        return list_table(tmp_path, SPEC)

    return put


# --- listing


def test_load_files_and_change_files_are_told_by_their_names(source):
    loads = ["LOAD00000001.csv", "LOAD1.csv", "SEGMENT12_LOAD0000000A.csv", "LOADdeadBEEF.csv"]
    changes = ["20240612-103125108.csv", "20240612-1031251080.csv"]
    foreign = [
        "load00000001.csv", "LOAD.csv", "LOAD0000000G.csv", "LOAD00000001.csv.tmp", "xLOAD00000001.csv", "20240612.csv",
        "20240612-10312510.csv", "20240612-10312510800.csv", "CDC_TXN-20240612103125108.csv", "_SUCCESS", ".DS_Store",
    ]  # fmt: skip
    there = source(*loads, *changes, *foreign)
    assert {o.name for o in there.loads} == set(loads)
    assert [o.name for o in there.changes] == changes
    assert {f.rsplit("/", 1)[1] for f in there.foreign} == set(foreign)


def test_load_files_are_counted_in_hexadecimal(source):
    there = source("LOAD00000010.csv", "LOAD0000000A.csv", "LOAD00000009.csv", "LOAD0000000F.csv")
    assert [o.name[-6:-4] for o in there.loads] == ["09", "0A", "0F", "10"]


def test_sub_folders_of_parallel_loads_and_date_partitions_are_found(source):
    there = source(
        "p1/LOAD00000001.csv",
        "p0/LOAD00000001.csv",
        "12062024/20240612-235959999.csv",
        "01072024/20240701-000000001.csv",
    )
    assert [o.path.rsplit("/", 2)[-2] for o in there.loads] == ["p0", "p1"]
    assert [o.name for o in there.changes] == ["20240612-235959999.csv", "20240701-000000001.csv"]


def test_two_change_files_of_one_name_are_refused(source):
    with pytest.raises(SourceError, match="only one DMS task"):
        source("2024/20240612-103125108.csv", "2025/20240612-103125108.csv")


def test_the_digest_of_a_load_follows_names_folders_and_content(source, tmp_path):
    digests = [source("LOAD00000001.csv").load_digest, source("LOAD00000002.csv").load_digest]
    (tmp_path / "public/t/LOAD00000002.csv").write_text("longer")
    digests.append(source().load_digest)
    os.utime(tmp_path / "public/t/LOAD00000002.csv", (1, 1))
    digests.append(source().load_digest)
    assert len(set(digests)) == 4
    assert source("20240612-103125108.csv").load_digest == digests[-1]


# --- positions


# --- header lines


@pytest.fixture
def with_header(new_world):
    return new_world(AddColumnName=True).table("t", "id INT8", "v WSTRING(9)", "n INT4")


@spark
def test_a_header_tells_the_order_of_the_columns_file_by_file(with_header):
    w = with_header.changes("t", I(1, "a", 10), I(2, "b", 20), name=FILE1)
    w.write("t", FILE2, "n,BI_id,OP,id,v,ts,seq\n11,1,U,3,moved,2024-01-01 00:00:00.000000,\n")
    assert w.collapsed("t") == {1: None, 2: (2, "b", 20), 3: (3, "moved", 11)}


@spark
def test_a_byte_order_mark_is_no_part_of_a_name_or_a_value(with_header, new_world):
    w = with_header.write("t", FILE1, "\ufeffOp,ts,id,v,n,seq,BI_id\nI,,1,\ufeffa,10,,\n")
    assert w.collapsed("t") == {1: (1, "\ufeffa", 10)}
    w = new_world().table("t", "v WSTRING(9)", key="v").write("t", FILE1, "\ufeffI,,a,,\n")
    assert w.collapsed("t") == {"a": ("a",)}


@spark
def test_a_file_without_the_stated_header_is_refused(with_header):
    w = with_header.load("t").loaded().write("t", FILE1, "I,2024-01-01 00:00:00.000000,1,a,2\n")
    result = w.merge()["t"]
    assert result.failed and "AddColumnName is true" in result.note and FILE1 in result.note and "cure" in result.note


@spark
def test_files_with_nothing_but_a_header_or_nothing_at_all_are_applied_as_no_rows(with_header):
    w = with_header.load("t").load("t", name="LOAD00000002.csv").loaded()
    w.changes("t", name=FILE1).write("t", FILE2, "").changes("t", I(1, "a", None), name=FILE3).merged(max_batch_files=1)
    assert w.rows("t") == [(1, "a", None)]
    assert w.position("t")["last"] == FILE3


@spark
def test_an_empty_file_without_header_is_applied_as_no_rows(world):
    world.table("t").load("t").loaded().write("t", FILE1, "").merged()
    assert (world.rows("t"), world.position("t")["last"]) == ([], FILE1)


# --- what a file may hold


@spark
def test_empty_lines_are_dropped(world):
    world.table("t").write("t", FILE1, f"\nI,{'2024-01-01 00:00:00.000000'},1,a,,\n\nD,,2,,,\n")
    assert world.collapsed("t") == {1: (1, "a"), 2: None}


@spark
def test_texts_come_through_whatever_they_hold(new_world):
    texts = [
        "two\nlines",
        "\r\n",
        'say "hi"',
        'say "h\0i"',
        '"',
        "a,b",
        "",
        " ",
        "back\\",
        "\\n",
        "'",
        "Zürich 東京 🚀",
        "\t",
        "#",
        "0",
        "--",
        "${x}",
    ]
    for delimiter in (",", ";", "\t", "|"):
        w = new_world(CsvDelimiter=delimiter).table("t").load("t", (-1, delimiter), *enumerate(texts)).loaded()
        assert dict(w.rows("t")) == {-1: delimiter, **dict(enumerate(texts))}
        w.changes("t", *[U(n, text + "!") for n, text in enumerate(texts)]).merged()
        assert dict(w.rows("t")) == {-1: delimiter, **{n: text + "!" for n, text in enumerate(texts)}}


@spark
def test_an_operation_column_in_the_load_is_understood(new_world):
    w = new_world(IncludeOpForFullLoad=True).table("t").load("t", (1, "a"), (2, None)).loaded()
    assert w.rows("t") == [(1, "a"), (2, None)]


@spark
def test_another_row_delimiter_is_understood(new_world):
    w = new_world(CsvRowDelimiter="\\r\\n").table("t")
    w.write("t", FILE1, 'I,,1,a,,\r\nI,,2,"b\nb",,\r\n')
    assert w.collapsed("t") == {1: (1, "a"), 2: (2, "b\nb")}


@spark
def test_deletes_carry_no_more_than_the_key(world):
    world.table("t", "id INT8", "v WSTRING(9)", "day DATE", "n NUMERIC(9,2)").load(
        "t", (1, "a", "2024-01-01", "1.50")
    ).loaded()
    world.write("t", FILE1, "D,2024-01-01 00:00:00.000000,1,,,,,\n").merged()
    assert world.rows("t") == []


# --- rows that cannot be applied

TS = "2024-01-01 00:00:00.000000"
BAD_ROWS = [
    (f"I,{TS},7,x,1,,,surplus", "too many or too few fields"),
    (f"I,{TS},7,x", "too many or too few fields"),
    (f"X,{TS},7,x,1,,", "unknown operation 'X'"),
    (f",{TS},7,x,1,,", "unknown operation None"),
    (f"i,{TS},7,x,1,,", "unknown operation 'i'"),
    (f"I,{TS},,x,1,,", "no value in key column id"),
    (f"D,{TS},,,,,", "no value in key column id"),
    (f"I,{TS},seven,x,1,,", "column 'id': 'seven' does not fit INT8 (bigint in the lake)"),
    (f"I,{TS},7,x,1.5,,", "column 'n': '1.5' does not fit INT4 (int in the lake)"),
    (f"U,{TS},7,x,1,,seven", "old value of column 'id': 'seven' does not fit INT8"),
    ("I,yesterday,7,x,1,,", "commit timestamp 'yesterday' is not"),
]


@spark
@pytest.mark.parametrize(("line", "says"), BAD_ROWS, ids=[says[:32] + str(n) for n, (_, says) in enumerate(BAD_ROWS)])
def test_a_bad_change_is_named_with_file_row_and_cure_and_nothing_of_its_batch_is_applied(world, line, says):
    world.table("t", "id INT8", "v WSTRING(9)", "n INT4").load("t", (1, "a", 1)).loaded()
    head = world.head("t")
    world.changes("t", I(2, "b", 2), name=FILE1).changes("t", I(3, "two\nlines", 3), name=FILE2)
    file = world.root / "source/public/t" / FILE2
    file.write_text(file.read_text() + line + "\n" + f"I,{TS},9,z,9,,\n")
    result = world.merge()["t"]
    assert result.failed
    assert f"{file} row 2: {says}" in result.note
    assert re.search("cure: (correct|write the right type, or lake: string)", result.note)
    assert (world.rows("t"), world.head("t"), world.branches("t")) == ([(1, "a", 1)], head, [])


@spark
@pytest.mark.parametrize("text", ["yesterday", "7", "I", "2024-01-01"])
def test_a_load_row_with_something_else_in_the_place_of_its_time_is_refused(world, text):
    world.table("t", "id INT8", "v WSTRING(9)").write("t", LOAD1, f"{TS},1,a,,\n{text},2,b,,\n").setup()
    result = world.full_load()["t"]
    assert result.failed and f"{LOAD1} row 2: commit timestamp '{text}' is not" in result.note
    assert world.rows("t") == []


STRAY = ['"x"y', '"say" ""hi"""', '"a"b"']


@spark
@pytest.mark.parametrize("name", [LOAD1, FILE1])
def test_a_quote_too_many_is_refused_by_file_and_row_and_never_taken_as_it_lies(world, name):
    world.table("t", "id INT8", "v WSTRING(9)", "n INT4").setup()
    op = "I," if name == FILE1 else ""
    if op:
        world.load("t", (1, "a", 1)).loaded()
    for text in STRAY:
        world.write("t", name, "".join(f"{op}{ONE_COMMIT},{k},{v},1,,\n" for k, v in ((8, "b"), (9, text))))
        result = (world.merge if op else world.full_load)()["t"]
        file = world.root / "source/public/t" / name
        assert result.failed, text
        assert f"{file} row 2: a quote inside a quoted field is not doubled" in result.note, text


@spark
def test_a_text_that_looks_like_a_quote_too_many_in_files_read_in_pieces_is_read_whole(world):
    world.table("t", "id INT8", "v WSTRING(20)", "n INT4")
    many, odd = [(n, "some text or other", n) for n in range(9000)], (9001, 'a\n"b" c', 1)
    world.load("t", *many, odd).loaded()  # what the head of the file does not show
    assert odd in world.rows("t")
    world.changes("t", *[U(n, "some other text", n) for n in range(9000)], U(9001, 'z\n"y", x', 2)).merged()
    assert (9001, 'z\n"y", x', 2) in world.rows("t")


@spark
def test_batches_before_a_bad_one_stay_applied(world):
    world.table("t").load("t").loaded().changes("t", I(1, "a"), name=FILE1).write("t", FILE2, "X,,1,b,,\n")
    assert world.merge(max_batch_files=1)["t"].failed
    assert (world.rows("t"), world.position("t")["last"]) == ([(1, "a")], FILE1)


@spark
def test_a_table_that_fails_after_some_batches_says_how_many_it_applied(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", I(2, "b")).changes("t", I(3, "c"), I(4, "d"), name=FILE2).changes("t", I("x", "e"), name=FILE3)
    done = world.merge(max_batch_files=1)["t"]
    assert done.failed and (done.counts["batches"], done.counts["changes"]) == (2, 3)


def test_many_bad_rows_are_counted_and_the_first_few_shown(world):
    world.table("t").load("t").loaded().write("t", FILE1, "X,,1,b,,\n" * 9 + "I,,2,c,,\n")
    note = world.merge()["t"].note
    assert "9 bad rows" in note and "row 3:" in note and "row 4:" not in note and "and 6 more" in note


@spark
def test_a_bad_load_is_refused_whole_and_named(world):
    world.table("t", "id INT8", "n INT4").load("t", (1, 1), (2, 2)).load(
        "t", (3, 3), (4, "four"), name="LOAD00000002.csv"
    ).setup()
    result = world.full_load()["t"]
    assert result.failed
    assert "LOAD00000002.csv row 2: column 'n': 'four' does not fit INT4" in result.note
    assert (world.rows("t"), world.branches("t")) == ([], [])


@spark
def test_a_bad_load_in_one_of_several_folders_is_named_with_its_folder(world):
    world.table("t", "id INT8", "n INT4").load("t", (1, 1), name="p0/" + LOAD1).load(
        "t", (2, 2), (3, "x"), name="p1/" + LOAD1
    )
    world.load("t", (4, 4), name="p2/" + LOAD1).setup()
    assert f"public/t/p1/{LOAD1} row 2: column 'n'" in world.full_load()["t"].note


@spark
def test_other_tables_go_on_where_one_is_broken(world):
    for name in ("broken", "sound"):
        world.table(name).load(name, (1, "a"))
    world.loaded()
    world.write("broken", FILE1, "not a row\n").changes("sound", U(1, "b"), D(2))
    results = world.merge()
    assert [results[n].status for n in ("broken", "sound")] == ["failed", "merged"]
    assert (world.rows("broken"), world.rows("sound")) == ([(1, "a")], [(1, "b")])
    world.changes("broken", U(1, "mended")).merged()
    assert world.rows("broken") == [(1, "mended")]


@spark
def test_a_table_whose_schema_folder_is_missing_fails_alone(world):
    world.table("t").load("t", (1, "a"))
    world.specs["u"] = spec_of("elsewhere.u", "id INT8", target=f"{world.space}.u")
    (world.root / "specs/u.yml").write_text(str(world.specs["u"]))
    world.setup()
    results = world.full_load()
    assert results["t"].status == "loaded"
    assert "no folder for schema 'elsewhere'" in results["u"].note


def test_another_operation_column_and_its_words_are_settings(world):
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    world.own = {"OpColumnName": "action", "OpValues": {"INSERT": "I", "UPDATE": "U", "DELETE": "D"}}
    world.write("t", FILE1, f"UPDATE,{ONE_COMMIT},1,z,,\nDELETE,{ONE_COMMIT},2,,,\nINSERT,{ONE_COMMIT},3,c,,\n")
    world.merged()
    assert world.rows("t") == [(1, "z"), (3, "c")]


def test_a_table_that_the_task_renames_is_read_from_its_new_folder(world):
    world.rules = {"rules": [*world.rules["rules"], {
        "rule-type": "transformation", "rule-action": "rename", "rule-target": "table", "value": "renamed",
        "object-locator": {"schema-name": "public", "table-name": "t"},
    }]}  # fmt: skip
    world.table("t")
    world.specs["renamed"] = world.specs["t"]
    world.load("renamed", (1, "a")).loaded().changes("renamed", U(1, "b")).merged()
    assert world.rows("t") == [(1, "b")]


@spark
def test_a_text_in_parquet_without_its_mark_is_read_as_text(new_world):
    import pyarrow as pa
    import pyarrow.parquet as pq

    w = new_world(DataFormat="parquet").table("t")
    w.rules = {"rules": []}
    for name, kind in ((FILE1, pa.binary()), (FILE2, pa.string())):
        file = w.root / "source/public/t" / name.replace(".csv", ".parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = {
            "Op": ["I"],
            "ts": [ONE_COMMIT],
            "id": [1 if kind == pa.binary() else 2],
            "v": pa.array(["Zürich".encode()], pa.binary()).cast(kind),
        }
        pq.write_table(pa.table(rows), file)
    assert w.collapsed("t") == {1: (1, "Zürich"), 2: (2, "Zürich")}
