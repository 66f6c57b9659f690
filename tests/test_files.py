"""The source folder: which files count and in which order, and how rows that cannot be applied are refused."""

import os
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from frazil_old.config.settings import CdcMergeSettings
from frazil_old.config.spec import parse_spec
from frazil_old.dms import pending_changes
from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_columns import file_layout, header
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.late_files import clock_went_back
from frazil_old.dms.listing import DmsObject, TableObjects, list_table
from frazil_old.dms.mappings import Mappings
from frazil_old.dms.position import MAX_RECENT, VERSION, Position, PositionError, after_changes, after_load
from frazil_old.dms.source_errors import SourceError
from frazil_old.flows.file_batch import take_batch, within_limits
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


def test_a_missing_table_folder_means_no_rows(source):
    assert source() == TableObjects()


def test_a_missing_root_or_schema_folder_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="set parameter 'source'"):
        list_table(tmp_path / "nowhere", SPEC)
    (tmp_path / "publik").mkdir()
    with pytest.raises(SourceError, match="did you mean 'publik'"):
        list_table(tmp_path, SPEC)


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


def change_objects(*names: str, size: int = 1) -> list[DmsObject]:
    return [DmsObject(n, f"/s/{n}", size, f"etag of {n}") for n in names]


def at(minute: int, hour: int = 10) -> str:
    return f"20240612-{hour}{minute:02}00000.csv"


def pending(position: Position, *objects: DmsObject) -> list[str]:
    state = pending_changes.AppliedState("lake.t", "public.t", position, position.to_json(), AppliedFiles())
    return [o.name for o in pending_changes.require_applicable(TableObjects(changes=tuple(objects)), state).pending]


def test_everything_is_pending_at_first_and_only_newer_files_later():
    objects = change_objects(at(1), at(2), at(3))
    assert pending(Position(), *objects) == [at(1), at(2), at(3)]
    assert pending(after_changes(Position(), objects[:2], "b"), *objects) == [at(3)]


def test_applied_files_may_vanish():
    assert pending(after_changes(Position(), change_objects(at(1), at(2)), "b"), *change_objects(at(3))) == [at(3)]


def test_an_object_that_turns_up_late_is_never_passed_over_nor_merged():
    position = after_changes(Position(), change_objects(at(1), at(5)), "b")
    with pytest.raises(PositionError, match="arrived late"):
        pending(position, *change_objects(at(1), at(3), at(5)))


def test_an_object_older_than_the_first_ever_applied_is_late_too():
    with pytest.raises(PositionError, match="arrived late"):
        pending(after_changes(Position(), change_objects(at(5)), "b"), *change_objects(at(4), at(5)))


def test_what_was_applied_at_the_edge_of_the_window_is_not_late():
    early = change_objects("20240612-100000400.csv", "20240612-100000600.csv")
    last = change_objects("20240612-110000500.csv")
    position = after_changes(after_changes(Position(), early, "a"), last, "b")
    assert position.recent == ("20240612-100000600.csv", "20240612-110000500.csv")
    assert pending(position, *early, *last) == []


def test_only_so_many_names_are_remembered_and_those_before_them_are_not_late():
    objects = change_objects(*(f"20240612-1000{s:02}{ms:03}.csv" for s in range(50) for ms in (0, 500)))
    position = after_changes(Position(), objects, "b")
    assert len(position.recent) == MAX_RECENT
    assert pending(position, *objects) == []


def test_an_object_written_again_after_it_was_applied_is_refused():
    (applied,) = change_objects(at(1))
    with pytest.raises(PositionError, match="was written again"):
        pending(after_changes(Position(), [applied], "b"), replace(applied, etag="another"))


def test_a_position_survives_being_written_down():
    objects = TableObjects(loads=tuple(change_objects("s/LOAD00000001.csv")))
    position = after_changes(after_load(Position(), objects, "a"), change_objects(at(1)), "b")
    assert Position.from_json(position.to_json(snapshot=7, sequence=8)) == (position, {"snapshot": 7, "sequence": 8})


def test_a_position_of_a_newer_version_is_refused():
    with pytest.raises(PositionError, match="newer Frazil"):
        Position.from_json(Position().to_json().replace('"version":1', f'"version":{VERSION + 1}'))


def test_a_position_of_files_stays_readable_for_older_code_and_one_of_an_older_version_is_taken_over():
    old = '{"version":1,"batch":"b","load_digest":"x","load_files":1,"last":"","last_etag":"","recent":[],"snapshot":7}'
    position, stamp = Position.from_json(old)
    assert (position.load_digest, position.stream, stamp) == ("x", {}, {"snapshot": 7})
    assert '"version":1' in position.to_json() and "stream" not in position.to_json()
    moved = replace(position, stream={"topic/0": 5})
    assert '"version":2' in moved.to_json() and Position.from_json(moved.to_json())[0] == moved
    known = replace(moved, stream_ids={"topic": "id"})
    assert '"version":3' in known.to_json() and Position.from_json(known.to_json())[0] == known


def test_a_stored_position_keeps_its_keys_whatever_the_attributes_are_called():
    name = at(1)
    text = (
        f'{{"version":4,"batch":"b","load_digest":"x","load_files":1,"last":"{name}","last_etag":"e","recent":["{name}"],'
        f'"owed":["{name}"],"stream":{{"topic/0":5}},"stream_of":{{"topic":"id"}},"lacks":["n"],"skips":["more"],"snapshot":7}}'
    )
    position, stamp = Position.from_json(text)
    assert (position.replay_pending, position.stream_ids) == ((name,), {"topic": "id"})
    assert (position.missing_columns, position.ignored_columns) == (("n",), ("more",))
    assert position.to_json(**stamp) == text
    with pytest.raises(PositionError, match="replay_pending"):
        Position.from_json(text.replace('"owed"', '"replay_pending"'))


@pytest.mark.parametrize(
    ("max_bytes", "max_files", "taken"),
    [(99, 9, 4), (25, 9, 2), (20, 9, 2), (19, 9, 1), (1, 9, 1), (99, 3, 3), (99, 1, 1)],
)
def test_a_batch_takes_the_head_that_fits_and_at_least_one(max_bytes, max_files, taken):
    objects = change_objects(at(1), at(2), at(3), at(4), size=10)
    assert take_batch(objects, max_bytes, max_files) == objects[:taken]


def test_a_batch_that_this_process_must_read_has_at_most_its_share():
    objects = change_objects(at(1), at(2), at(3), size=20_000_000)
    book = SimpleNamespace(settings=CdcMergeSettings(), tasks_fail=False, endpoint=Endpoint())
    assert within_limits(book, SPEC, objects) == objects
    assert within_limits(SimpleNamespace(**{**vars(book), "tasks_fail": True}), SPEC, objects) == objects[:1]


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
@pytest.mark.parametrize(
    ("header", "says"),
    [("Op,ts,id,v,m", "unknown column 'm'"), ("Op,ts,id,n", "no column v"), ("ts,id,v,n", "no column Op")],
)
def test_a_header_with_an_unknown_or_without_a_known_column_is_refused(with_header, header, says):
    w = with_header.load("t").loaded().write("t", FILE1, header + "\n")
    result = w.merge()["t"]
    assert result.failed and says in result.note and f"{FILE1} line 1" in result.note and "cure" in result.note


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


def test_a_header_with_bytes_that_are_not_utf_8_is_not_taken_for_the_name_without_them(tmp_path):
    path = tmp_path / "20240101-100000000.csv"
    path.write_bytes(b"Op,id,v\xa0\xda\nI,1,a\n")
    assert header(DmsObject(path.name, str(path), 1, ""), Endpoint(header=True)) == ["Op", "id", "v\ufffd\ufffd"]


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


@pytest.mark.parametrize("line", ["Op,i\rd,v", 'Op,"' + "x" * 200_000 + '",v'])
def test_a_header_that_is_no_line_of_csv_names_its_file(tmp_path, line):
    (tmp_path / "20240101-100000000.csv").write_text(f"{line}\nI,1,a\n", newline="")
    file = DmsObject("20240101-100000000.csv", str(tmp_path / "20240101-100000000.csv"), 1, "")
    with pytest.raises(SourceError, match="100000000.csv line 1 is not a CSV line"):
        header(file, Endpoint(header=True))


@pytest.mark.parametrize(("delimiter", "end"), [(",", "\n"), ("||", "@@")])
@pytest.mark.parametrize("header", [False, True])
def test_a_late_file_is_judged_by_its_commit_times_in_every_dialect(tmp_path, delimiter, end, header):
    spec = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)"))
    endpoint = Endpoint(
        null_value="", timestamp_column="ts", delimiter=delimiter, row_delimiter=end, rfc4180=False, header=header
    )

    def file(name: str, *seconds: int) -> DmsObject:
        rows = [["Op", "ts", "id", "v"]] * header + [["I", f"2024-01-01 10:00:{s:02}", str(s), '"x'] for s in seconds]
        (tmp_path / name).write_text("".join(delimiter.join(row) + end for row in rows), newline="")
        return DmsObject(name, str(tmp_path / name), (tmp_path / name).stat().st_size, "e")

    newest = file(FILE2, 30, 20, 40)
    for seconds, after in (((41, 50), True), ((39, 50), False)):
        found, why = clock_went_back([file(FILE1, *seconds)], newest, SourceTable(spec, endpoint, Mappings()))
        assert (found, f"at 2024-01-01 10:00:{seconds[0]}, the last one of" in why) == (after, True)


def test_a_row_of_more_fields_gets_no_meaning_by_a_guess(tmp_path):
    """Rules add `a` and `b`. If the source then gets a column of one of these names, only a header could say of which."""
    rules = [
        {"rule-type": "transformation", "rule-action": "add-column", "rule-target": "column", "value": name, "expression": value}
        for name, value in (("a", "'eu'"), ("b", "$AR_H_OPERATION"))
    ]  # fmt: skip
    spec = parse_spec(spec_of("public.t", "id INT8", "a WSTRING(9)", "b WSTRING(9)"))
    table = SourceTable(spec, Endpoint(null_value=""), Mappings(tuple(rules)))
    (tmp_path / FILE1).write_text("I,1,own b,eu,INSERT\n")
    file = DmsObject(FILE1, str(tmp_path / FILE1), 20, "e")
    assert file_layout(table, CHANGE_PHASE, file) == ("op", "after:id", "after:a", "after:b")
