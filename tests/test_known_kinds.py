"""Each kind of fault that a reported case showed, in a second input that is unlike it."""

import gzip
import io
import json
import random
import re
from decimal import ROUND_DOWN, Context, Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dms_streams import Topic
from dms_writer import BEFORE_IMAGE, COMMITTED, FILE1, FILE2, FILE3, LOAD, NO_RULES, D, I, U
from world import World

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


@pytest.fixture(scope="module")
def of_kind(shared_world):
    """Make a world; `target` is the settings of the S3 target."""

    def make(space: str, target: dict | None = None, rules: dict = NO_RULES, **settings) -> World:
        w = shared_world(space, target=target, **settings)
        w.source.rules = rules
        return w

    return make


# --- decimals of one scale in columns of another: a column for each pair, a row has a value in one of them


def pairs(number: int, dice: random.Random) -> list[tuple[Decimal, tuple[int, int], tuple[int, int]]]:
    """Return values, each with the precision and scale that it is written with and those of its column."""
    written = [(dice.randint(18, 30), dice.randint(0, 4)) for _ in range(number)]
    columns = [(38, dice.randint(24, 38) if i % 3 else 8) for i in range(number)]
    values = [Decimal(dice.randint(1, 10 ** dice.randint(12, p) - 1)).scaleb(-s) for p, s in written]
    return list(zip(values, written, columns, strict=True))


def fits(value: Decimal, precision: int, scale: int) -> bool:
    """Return whether a value has an exact form in a column."""
    cut = value.quantize(Decimal(1).scaleb(-scale), ROUND_DOWN, Context(prec=200))
    return cut == value and value.adjusted() < precision - scale


PAIRS = pairs(36, random.Random(7))
RESENT, PARQUET1 = (U(3, "a", was=1), I(1, "new")), FILE1.replace("csv", "parquet")
DECIMALS = ["id INT8", *(f"c{i} NUMERIC({p},{s})" for i, (_, _, (p, s)) in enumerate(PAIRS))]


@pytest.mark.parametrize("form", ["csv", "parquet", "messages"])
def test_decimals_are_exact_or_bad_rows_in_every_form(request, form):
    w = request.getfixturevalue(form)
    rows = {r[0]: [v for v in r[1:] if v is not None] for r in w.rows("decimals")}
    wrong = [f"{PAIRS[i][0]} became {v}" for i, v in rows.items() if v != [PAIRS[i][0]]]
    assert not wrong, f"{len(wrong)} decimals became others: {wrong}"
    assert sorted(rows) == [i for i, (value, _, column) in enumerate(PAIRS) if fits(value, *column)]
    assert len(w.quarantine("decimals")) == len(PAIRS) - len(rows)


@pytest.fixture(scope="module")
def csv(of_kind):
    """A world of many tables, and what was said last of each."""
    w = of_kind("kinds_csv", {"CompressionType": "GZIP"}, BEFORE_IMAGE, on_bad_rows="quarantine")
    for table in ("two_bytes", "unpacked_now", "header_now", "cut_off", "latin", "resent"):
        w.table(table).source.load(table, (1, "a"), (2, "b"))
    w.table("decimals", *DECIMALS).table("copied_later", key=(), without_key="append")
    w.source.load("decimals", *((i, *[None] * i, p[0], *[None] * (len(PAIRS) - 1 - i)) for i, p in enumerate(PAIRS)))
    w.source.load("copied_later", (1, "a"))
    for table in ("updated", "deleted", "fresh"):
        w.table(table)
    w.loaded()
    for table, changes in {
        "updated": (I(3, "c"), U(4, "touched")), "deleted": (I(3, "c"), D(5)), "fresh": (I(3, "c"), U(3, "d"), D(3), I(4, "e")),
        "resent": RESENT, "copied_later": (I(3, "c"),), "two_bytes": (U(1, "x"),), "latin": (U(1, "caf_"), U(2, "x")),
    }.items():  # fmt: skip
        w.source.changes(table, *changes)
    _write(w, "two_bytes", f"old/{FILE1}", _text(w, "two_bytes", FILE1).replace(b",x", b",y"))
    _write(w, "latin", FILE1, _text(w, "latin", FILE1).replace(b"caf_", b"caf\xe9"))
    header = (",".join(w.source.names(False, "header_now")) + "\n").encode()
    for name, value in ((FILE1, "x"), (FILE2, "y"), (FILE3, "z")):
        packed = w.source.changes("unpacked_now", U(1, value), name=name)
        text = _text(w, "unpacked_now", name)
        _write(w, "header_now", name, text if name == FILE1 else header + text)
        if name != FILE1:
            packed.rename(packed.with_name(name)).write_bytes(text)
    w.source.write("cut_off", f"{FILE1}.gz", gzip.compress(header)[:-12])
    w.results = w.merge()
    return w


def _text(w: World, table: str, name: str) -> bytes:
    return gzip.decompress(w.source.path(table, f"{name}.gz").read_bytes())


def _write(w: World, table: str, name: str, text: bytes) -> None:
    w.source.write(table, f"{name}.gz", gzip.compress(text, mtime=0))


@pytest.mark.parametrize("table, is_whole", [("updated", False), ("deleted", False), ("fresh", True)])
def test_changes_without_a_load_are_the_whole_table_only_if_each_row_was_inserted(csv, table, is_whole):
    result, rows = csv.results[table], csv.rows(table)
    assert result.failed != is_whole, f"taken as the whole table: {rows}" if result.went_well else result.note
    assert rows == ([(4, "e")] if is_whole else [])


def test_files_of_one_name_and_other_bytes_stop_their_table(csv):
    result, rows = csv.results["two_bytes"], csv.rows("two_bytes")
    assert result.failed and rows == [(1, "a"), (2, "b")], f"one of them was taken: {rows}"
    assert result.names(f"two_bytes/{FILE1}", f"two_bytes/old/{FILE1}"), f"without both paths: {result.note}"


def test_a_copy_that_appears_later_is_not_another_file(csv):
    for name in (LOAD, FILE1):
        _write(csv, "copied_later", f"backup/2024/{name}", _text(csv, "copied_later", name))
    for verb in (csv.load, csv.merge):
        result = verb(tables=["copied_later"])["copied_later"]
        assert result.status == "unchanged", f"taken for another file: {result.status}: {result.note}"
    assert [r[:2] for r in csv.rows("copied_later")] == [(1, "a"), (3, "c")]


@pytest.mark.parametrize("table", ["unpacked_now", "header_now"])
def test_a_form_that_changes_in_mid_life_is_seen_from_the_files_or_named_as_that(csv, table):
    if csv.results[table].failed and table == "header_now":
        assert csv.results[table].names(f"{FILE2}.gz"), f"not named where the header begins: {csv.results[table].note}"
    else:
        assert not csv.results[table].failed, f"a setting overrules the file: {csv.results[table].note}"
        assert csv.rows(table) == [(1, "z"), (2, "b")]


def test_a_bad_row_is_kept_by_its_bytes(csv):
    assert csv.rows("latin") == [(1, "a"), (2, "x")]
    (row,) = csv.quarantine("latin")
    assert b"caf\xe9" in row["raw"], f"not the bytes of the file: {row['raw']}"


def test_a_transaction_that_comes_again_moves_no_row_id(csv):
    rows, ids = csv.rows("resent"), csv.row_ids("resent")
    assert rows == [(1, "new"), (2, "b"), (3, "a")]
    csv.source.changes("resent", *RESENT, name=FILE2)
    assert csv.merge(tables=["resent"])["resent"].status == "merged" and csv.rows("resent") == rows
    assert csv.row_ids("resent") == ids, f"ids moved: {ids} became {csv.row_ids('resent')}"


@pytest.fixture(scope="module")
def parquet(of_kind):
    """A world of Parquet files without commit times, and what was said last of each table."""
    target = {"DataFormat": "parquet", "TimestampColumnName": ""}
    w = of_kind("kinds_parquet", target, on_bad_rows="quarantine").table("decimals", *DECIMALS)
    w.table("rendered", "id INT8", "time TIME", "day WSTRING(40)", "moment WSTRING(40)")
    for table in ("text", "torn", "renamed"):
        w.table(table, "id INT8", "a WSTRING(9)", "b WSTRING(9)").source.load(table, (1, "a", "b"))
    one = range(len(PAIRS))
    numbers = [pa.array([p[0] if n == i else None for n in one], pa.decimal128(*p[1])) for i, p in enumerate(PAIRS)]
    w.source.write("decimals", w.source.named(LOAD), _parquet(DECIMALS, [list(one), *numbers]))
    odd = [
        pa.array([0, 86_400_000_000, 86_400_000_001, 0, 0]).view(pa.time64("us")),
        pa.array([0, 0, 0, 2**31 - 1, 0], pa.int32()).view(pa.date32()),
        pa.array([0, 0, 0, 0, 2**62]).view(pa.timestamp("us")),
    ]
    w.source.write("rendered", w.source.named(LOAD), _parquet(["id", "time", "day", "moment"], [[1, 2, 3, 4, 5], *odd]))
    w.loaded()
    changes = _parquet(["Op", "id", "a_new", "b_new", "c_new"], [["U"], [1], ["x"], ["y"], ["z"]])
    for table, data in {"renamed": changes, "torn": changes[:-40], "text": b"U,1,x,y\n" * 9}.items():
        w.source.write(table, PARQUET1, data)
    w.results = w.merge()
    return w


def _parquet(names: list[str], columns: list) -> bytes:
    pq.write_table(pa.table(columns, [n.split()[0] for n in names]), out := io.BytesIO())
    return out.getvalue()


def test_what_arrow_cannot_render_is_a_bad_row(parquet):
    rows = {r[0]: r[1:] for r in parquet.rows("rendered")}
    renderings = [v for r in rows.values() for v in r if "<" in v]
    assert not renderings, f"taken for values: {renderings}"
    assert {i: r[0] for i, r in rows.items()} == {1: "00:00:00", 2: "24:00:00"}
    assert [q["column"] for q in parquet.quarantine("rendered")] == ["time", "day", "moment"]


@pytest.mark.parametrize("form, table", [("parquet", "text"), ("parquet", "torn"), ("csv", "cut_off")])
def test_a_file_that_cannot_be_read_is_named_without_an_error_of_a_library(request, form, table):
    result = request.getfixturevalue(form).results[table]
    assert result.failed and result.code == "file-unreadable", result.note
    assert result.names(f"{table}/{PARQUET1 if form == 'parquet' else FILE1 + '.gz'}"), f"not named: {result.note}"
    raw = re.search(r"Error -\d|zlib|Arrow|EOFError|end-of-stream|magic bytes", result.note)
    assert not raw, f"an error of a library: {result.note}"


def test_all_columns_that_a_file_has_anew_are_named_at_once(parquet):
    result = parquet.results["renamed"]
    assert result.failed and result.names("a_new"), result.note
    assert result.names("b_new", "c_new"), f"not all are named: {result.note}"


REMOVED = {
    "rule-type": "transformation", "rule-id": "1", "rule-action": "remove-column", "rule-target": "column",
    "object-locator": {"schema-name": "public", "table-name": "hidden", "column-name": "secret"},
}  # fmt: skip


@pytest.fixture(scope="module")
def messages(of_kind, kafka):
    """A world of messages, what was said last of each table, and what the library finds of the settings before that."""
    w = of_kind("kinds_kafka", on_bad_rows="quarantine").table("decimals", *DECIMALS)
    w.table("counters", "id INT8", "hits UINT8").table("hidden", "id INT8", "secret WSTRING(9)")
    Topic(w, kafka, IncludeNullAndEmpty=False).rules = {"rules": [REMOVED]}
    about = {"record-type": "data", "operation": "load", "schema-name": "public", "table-name": "decimals"}
    for i, (value, *_) in enumerate(PAIRS):
        w.source.send(f'{{"data": {{"id": {i}, "c{i}": {value}}}, "metadata": {json.dumps(about)}}}')
    w.source.load("counters", (1, 5), (2, 18446744073709552000.0))
    w.source.load("hidden", (1,))
    w.told = w.findings()
    w.results = w.through()
    return w


def test_an_unsigned_number_that_was_rounded_is_reported_and_a_bad_row(messages):
    w, told = messages, messages.told
    assert w.rows("counters") == [(1, 5)], f"a rounded number was taken: {w.rows('counters')}"
    assert [q["column"] for q in w.quarantine("counters")] == ["hits"]
    assert "UseLargeIntegerValue" in told and "hits" in told, f"the setting and its column are not named: {told}"


def test_a_column_that_a_rule_removes_from_messages_is_reported(messages):
    told = f"{messages.told} {messages.results['hidden'].note}"
    assert messages.results["hidden"].failed or messages.rows("hidden") == [(1, None)]
    assert "secret" in told, f"left out without a word: {told}"


def test_a_message_without_a_text_is_reported_in_plain_words(of_kind, kafka):
    w = of_kind("kinds_null").table("t")
    Topic(w, kafka).load("t", (1, "a"))
    w.loaded().source.send(None)
    result = w.merge()["t"]
    assert result.failed and not re.search(r"\b(None|True|False)\b", result.note), f"a word of Python: {result.note}"


def test_a_table_of_a_stream_takes_files_only_by_a_decision(of_kind, kafka):
    w, files = (of_kind("kinds_moved").table("t") for _ in range(2))
    Topic(w, kafka).load("t", (1, "newer"))
    w.loaded()
    files.source.changes("t", U(1, "old"))
    refused = files.merge()["t"]
    assert files.rows("t") == [(1, "newer")], f"an old file went over a newer row: {files.rows('t')}"
    assert refused.failed, refused.status
    adopted = files.decide("t", adopt=FILE1)
    files.source.changes("t", I(2, "b"), name=FILE2)
    assert files.merge()["t"].status == "merged", f"no way on: {adopted.note}"
    assert files.rows("t") == [(1, "newer"), (2, "b")]


def test_a_load_and_changes_of_two_targets_are_two_environments(of_kind):
    full = of_kind("kinds_two", {"DataFormat": "parquet", "TimestampColumnName": ""}).table("t")
    full.source.load("t", (1, "a"), (2, "b"))
    full.loaded()
    ongoing = of_kind("kinds_two", {"AddColumnName": True}).table("t")
    ongoing.source.changes("t", U(1, "x"), D(2))
    assert ongoing.merged().rows("t") == [(1, "x")]


def test_a_look_at_both_folders_of_a_table_shows_one_table(of_kind):
    w = of_kind("kinds_peek").table("t")
    for path in (f"snapshot/public/t/{LOAD}", f"stream/public/t/{FILE1}", f"stream/public/t/{FILE2}"):
        (w.source.folder / path).parent.mkdir(parents=True, exist_ok=True)
        w.source.load("t", (1, "a")).rename(w.source.folder / path)
    _, text = w.command("peek", str(w.source.folder))
    assert re.search(r"\bpublic\.t\b", text), f"folders are taken for schemas: {text[:600]}"


def test_a_file_that_contradicts_the_settings_stops_its_table_in_setup_and_no_other(of_kind):
    w = of_kind("kinds_alone").table("sound").table("other")
    w.source.load("sound", (1, "a"))
    w.source.write("other", LOAD, f"{COMMITTED};1;a\n{COMMITTED};2;b\n")
    code, text = w.command("run", "00_setup")
    assert code != 0 and f"other/{LOAD}" in text, text
    assert w.exists("sound"), f"stopped with it: {text[:600]}"
    assert w.load()["sound"].status == "loaded"


def test_no_cure_leads_to_the_opposite_of_itself(of_kind):
    told = []
    for value in (True, False):
        w = of_kind(f"kinds_circle_{value}".lower(), {"AddColumnName": value}).table("t")
        w.source.write("t", LOAD, f"ts,id,v\n{COMMITTED},1,a\n")
        w.source.write("t", FILE1, f"U,{COMMITTED},1,b\n")
        result = w.through()["t"]
        told += [result.note] if result.failed else []
        assert result.failed or w.rows("t") == [(1, "b")]
    assert all(LOAD in note and FILE1 in note for note in told), f"no word of the other file: {told}"
