"""Many messages of a stream: Spark's tasks parse and collapse them by the core, and the result is that of any other read."""

import itertools
import json
import random

import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.messages import MessageNames
from frazil_old.dms.kinesis import COLUMNS as COLUMNS_OF_KINESIS
from frazil_old.dms.kinesis import CachedMessages
from frazil_old.engine import message_batch, message_blocks
from frazil_old.engine.collapsed_batch import Wanted, frame_of
from frazil_old.engine.message_blocks import Part, PartReading
from frazil_old.flows import stream_cdc, stream_read
from helpers import spec_of
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def new_world(kafka, spark, catalog_options, tmp_path):
    def new(partitions: int = 1) -> KafkaWorld:
        number = next(_numbers)
        return KafkaWorld(kafka, tmp_path / f"w{number}", f"many{number}", catalog_options, partitions=partitions)

    return new


@pytest.fixture(autouse=True)
def all_are_many(monkeypatch):
    monkeypatch.setattr(stream_read, "MOST", 0)
    monkeypatch.setattr(message_batch, "MOST", 0)


def _few(monkeypatch):
    monkeypatch.setattr(stream_read, "MOST", message_batch.MOST)


def _here(monkeypatch):
    """Let tasks fail as they do where executors have no Python."""

    def fail(*_):
        raise RuntimeError('Job aborted due to stage failure: Cannot run program "python3": No such file or directory')

    monkeypatch.setattr(message_blocks, "message_blocks", fail)


def _send_changes(w, seed: int, tables: tuple[str, ...], count: int) -> None:
    """Send random changes of several tables to two partitions, with changed keys, nulls and values of many types."""
    r = random.Random(seed)
    for number in range(count):
        table = r.choice(tables)
        key, new = r.randrange(30), r.randrange(30, 40)
        kind = r.choice(("insert", "update", "update", "delete"))
        was = {"id": key} if kind == "update" and r.random() < 0.3 else None
        about = {"commit-timestamp": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.{r.randrange(10**6):06d}Z"}
        w.message(
            kind, table, was, partition=int(table[1:]) % 2, about=about, id=new if was else key, n=r.choice((None, r.randrange(99))),
            price=r.choice((None, r.randrange(10**6) / 100)), flag=r.choice((None, True, False)),
            at=r.choice((None, f"1969-12-31T23:59:59.{r.randrange(10**6):06d}Z")), v=r.choice((None, "", f"\u00e9 '\\\n {number}")),
        )  # fmt: skip


COLUMNS = ("id INT8", "n INT4", "price NUMERIC(12,2)", "flag BOOLEAN", "at DATETIME", "v NCLOB")


@pytest.mark.parametrize("lane", ["merge", "rowdelta"])
def test_many_messages_end_as_few_do_and_as_this_process_reads_them(new_world, monkeypatch, lane):
    tables, results = ("t0", "t1", "t2"), []
    for way in (lambda _: None, _few, _here):
        w = new_world(partitions=2)
        for table in tables:
            w.table(table, *COLUMNS).message("load", table, id=1, partition=int(table[1:]) % 2)
        w.loaded()
        _send_changes(w, 7, tables, 120)
        with monkeypatch.context() as patch:
            way(patch)
            done = w.merge(lane=lane)
        assert {x.status for x in done.values()} == {"merged"}, done
        results.append([(w.rows(t), done[t].counts) for t in tables])
    assert results[0] == results[1] == results[2]
    assert all(len(rows) > 5 for rows, _ in results[0])


@pytest.fixture
def loaded(new_world):
    """A table of two columns with one row, whose load is behind its position."""
    return new_world().table("t").message("load", id=1, v="a").loaded()


@pytest.mark.parametrize("few", [0, message_batch.MOST])
def test_the_table_follows_control_records_among_many_messages(loaded, monkeypatch, few):
    monkeypatch.setattr(message_batch, "MOST", few)
    w = loaded.message("insert", id=2, v="b").message("update", id=1, v="z")
    w.control("add-column", id="INT64", v="STRING", new="STRING").message("insert", id=3, v="c", new="n")
    w.merged(changes={"new": "add"})
    assert w.rows("t") == [(1, "z", None), (2, "b", None), (3, "c", "n")]
    w.message("insert", id=4, v="d", new="m").merged(changes={"new": "add"})
    assert w.rows("t")[3:] == [(4, "d", "m")]


def test_each_table_applies_only_what_is_after_its_position(loaded, monkeypatch):
    w = loaded.table("u").message("load", "u", id=1, v="a")
    w.setup()
    real = stream_cdc._Run._apply

    def fail(self, spec, *more):
        if spec.source.endswith(".u"):
            raise OSError("not now")
        return real(self, spec, *more)

    w.full_load()
    w.message("insert", id=2, v="b").message("insert", "u", id=2, v="b").message("update", id=2, v="c")
    with monkeypatch.context() as patch:
        patch.setattr(stream_cdc._Run, "_apply", fail)
        w.merge()
    assert (len(w.rows("t")), len(w.rows("u"))) == (2, 1)
    w.message("delete", id=1, v="c").message("insert", "u", id=3, v="c")
    done = w.merge()
    assert done["t"].counts["changes"] == 1 and done["u"].counts["changes"] == 2
    assert w.rows("t") == [(2, "c")] and w.rows("u") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_may_be_created_from_the_messages(loaded):
    new = f"{loaded.space}_later"
    w = loaded.control("create-table", new, id="INT64", v="STRING").message("insert", new, id=5, v="x")
    w.message("insert", id=2, v="b")
    w.merge(unknown_tables="create")
    assert w.rows("t") == [(1, "a"), (2, "b")]
    assert w.full_load()[new].status == "loaded"
    w.merged()
    assert [tuple(r) for r in w.spark.table(f"lake.public.{new}").collect()] == [(5, "x")]


def test_a_bad_row_is_named_and_nothing_of_its_batch_is_applied(new_world):
    w = new_world().table("t", "id INT8", "n INT4").message("load", id=1, n=1).loaded()
    w.message("insert", id=2, n=2).message("insert", id=3, n=3_000_000_000)
    done = w.merge()["t"]
    assert done.status == "failed" and "offset 2" in done.note and "3000000000" in done.note
    assert w.rows("t") == [(1, 1)]


def test_a_message_that_names_no_table_stops_the_table_and_is_shown(loaded):
    w = loaded.send(b"\xff no message").message("insert", id=2, v="b")
    note = w.merge()["t"].note
    assert "no message" in note and "offset 1" in note
    assert w.merged(on_unreadable="report").rows("t") == [(1, "a"), (2, "b")]


def test_where_tasks_fail_this_process_reads_and_a_line_says_why(loaded, monkeypatch):
    _here(monkeypatch)
    w = loaded.message("insert", id=2, v="b").message("insert", id=3, v="c").send(b"\xff no message")
    w.merged(on_unreadable="quarantine", ops_namespace=f"{loaded.space}_ops")
    assert w.rows("t") == [(1, "a"), (2, "b"), (3, "c")]
    assert any("this process parses the messages" in line and 'Cannot run program "python3"' in line for line in w.said)
    rows = w.spark.table(f"lake.{w.space}_ops.quarantine").collect()
    assert [(r.row_no, bytes(r.raw)) for r in rows] == [("3", b"\xff no message")]


def _load(w, many: bool, monkeypatch) -> list:
    with monkeypatch.context() as patch:
        if not many:
            _few(patch)
        return w.full_load(
            load_complete_when="changes", on_bad_rows="quarantine", max_bad_percent=50.0, ops_namespace=f"{w.space}_ops"
        )


@pytest.mark.parametrize("way", ["tasks", "here", "few"])
def test_load_records_become_rows_in_the_order_of_their_partition(new_world, monkeypatch, way):
    w = new_world(partitions=2).table("t", *COLUMNS)
    if way == "here":
        _here(monkeypatch)
    r = random.Random(3)
    w.message("update", id=2, v="of an older task").message("load", id=1, v="old")
    w.message("load", id=1, v="new", at="1969-12-31T23:59:59.000001Z").message(
        "load", id=1, v="new", n=1, price=2.5, flag=True
    )
    for key in range(2, 40):
        w.message("load", id=key, v=f"v{key}", n=r.randrange(99), partition=key % 2)
    w.message("load", id=100, n="x").setup()
    assert _load(w, way != "few", monkeypatch)["t"].status == "waiting", "no change came after it"
    w.message("insert", id=200, v="later")
    done = _load(w, way != "few", monkeypatch)["t"]
    assert (done.status, done.counts) == ("loaded", {"rows": 39, "quarantined": 1}), done.note
    rows = w.rows("t")
    assert rows[0][:4] == (1, 1, rows[0][2], True) and rows[0][5] == "new"
    assert sorted(row[0] for row in rows) == list(range(1, 40))
    (bad,) = w.spark.table(f"lake.{w.space}_ops.quarantine").collect()
    assert (bad.phase, bad.column_name, bad.key, bad.op) == (0, "n", '["100"]', "I") and b'"load"' in bytes(bad.raw)
    assert 200 in [row[0] for row in w.merged().rows("t")]


def test_more_bad_messages_than_allowed_stop_the_table_and_the_first_are_named(new_world):
    w = new_world(partitions=2).table("t", "id INT8", "n INT4").loaded()
    for n in range(20):
        w.message("insert", id=n, n="x" if n % 3 else 1, partition=n % 2)
    w.send(
        '{"data": {"id": , "metadata": {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}}'
    )
    note = w.merge(on_bad_rows="quarantine", max_bad_rows=5, ops_namespace=f"{w.space}_ops")["t"].note
    assert "14 bad rows" in note and "14 of 21 rows are more than max_bad_rows=5" in note
    assert [f"{w.topic}/0 offset {n}: column 'n'" in note for n in (1, 2, 4)] == [True] * 3 and "… and 11 more" in note
    assert "fetch a damaged file again" not in note
    w.merged(on_bad_rows="quarantine", max_bad_rows=14, max_bad_percent=90.0, ops_namespace=f"{w.space}_ops")
    rows = w.spark.table(f"lake.{w.space}_ops.quarantine").collect()
    assert len(rows) == 14 and len({(r.path, r.row_no) for r in rows}) == 14
    assert all(b'"x"' in bytes(r.raw) or r.reason.startswith("not JSON as DMS writes it: {") for r in rows)


def test_a_message_that_cannot_be_read_shows_nothing_of_a_table_that_hides_columns(new_world):
    w = new_world().table("t")
    w.specs["t"]["columns"][1]["mask"] = "sha256"
    (w.root / "specs/t.yml").write_text(json.dumps(w.specs["t"]))
    w.loaded()
    w.send(
        '{"data": {"id": "secret, "metadata": {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}}'
    )
    note = w.merge()["t"].note
    assert "a message that cannot be read, with columns that are masked or left out" in note and "secret" not in note


@pytest.mark.parametrize("count", [0, 10**6])
def test_messages_of_a_later_read_come_later_whatever_their_places_look_like(spark, count):
    """Kinesis's places are texts, which each task numbers."""
    spec = parse_spec(spec_of("public.t", "id INT8", "v NCLOB"))

    def held(*places: int):
        about = {"record-type": "data", "operation": "load", "schema-name": "public", "table-name": "t"}
        values = [json.dumps({"data": {"id": 1, "v": str(place)}, "metadata": about}).encode() for place in places]
        rows = [("s/0", f"{p:056d}", 1_767_225_600_000, value) for p, value in zip(places, values, strict=True)]
        return CachedMessages(spark.createDataFrame(rows, COLUMNS_OF_KINESIS).coalesce(1))

    whole = [held(1, 2, 3), held(4, 5), held(6)]
    blocks = message_blocks.message_blocks(whole, "before-image", loads=True).persist()
    reading = PartReading(
        spec, MessageNames({"id": "id", "v": "v"}), Part(("public", "t"), {"s/0": 2}, loads=True), {"s/0": 0}
    )
    found = message_batch.collapse_part(blocks, reading, count, Wanted(rows_in_driver=False))
    rows = found.frame if found.frame is not None else frame_of(spark, found.rows, spec)
    assert [tuple(r) for r in rows.select("after.*").collect()] == [(1, "6")] and found.counts_and_delays[
        "changes"
    ] == 5
    found.release()
    blocks.unpersist()
