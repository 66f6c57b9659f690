"""Many messages of a stream: Spark's tasks parse and collapse them by the core, and the result is that of any other read."""

import itertools
import random

import pytest

from frazil.engine import held_messages, message_blocks
from frazil.flows import stream_read, streams
from frazil.flows.stream_groups import groups_of, groups_of_facts
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
    monkeypatch.setattr(message_blocks, "MOST", 0)


@pytest.fixture
def without_spark(monkeypatch):
    """Note each frame that Spark's reader makes; during a load it has to."""
    read, real = [], stream_read._Routed.frame

    def noted(self):
        read.append(self.book)
        return real(self)

    monkeypatch.setattr(stream_read._Routed, "frame", noted)
    return read


def _few(monkeypatch):
    monkeypatch.setattr(stream_read, "MOST", held_messages.MOST)


def _by_spark(monkeypatch):
    """Let Spark's reader read all messages."""
    monkeypatch.setattr(stream_read, "_by_core", lambda *_: None)


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
def test_many_messages_end_as_few_do_and_as_spark_reads_them(new_world, monkeypatch, lane):
    tables, results = ("t0", "t1", "t2"), []
    for way in (lambda _: None, _few, _by_spark):
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
def loaded(new_world, without_spark):
    """A table of two columns with one row, whose load is behind its position."""
    w = new_world().table("t").message("load", id=1, v="a").loaded()
    without_spark.clear()
    return w


@pytest.mark.parametrize("few", [0, held_messages.MOST])
def test_the_table_follows_control_records_among_many_messages(loaded, without_spark, monkeypatch, few):
    monkeypatch.setattr(message_blocks, "MOST", few)
    w = loaded.message("insert", id=2, v="b").message("update", id=1, v="z")
    w.control("add-column", id="INT64", v="STRING", new="STRING").message("insert", id=3, v="c", new="n")
    w.merged(changes={"new": "add"})
    assert w.rows("t") == [(1, "z", None), (2, "b", None), (3, "c", "n")]
    w.message("insert", id=4, v="d", new="m").merged(changes={"new": "add"})
    assert w.rows("t")[3:] == [(4, "d", "m")] and not without_spark


def test_each_table_applies_only_what_is_after_its_position(loaded, monkeypatch):
    w = loaded.table("u").message("load", "u", id=1, v="a")
    w.setup()
    real = streams._Run._apply

    def fail(self, spec, *more):
        if spec.source.endswith(".u"):
            raise OSError("not now")
        return real(self, spec, *more)

    w.full_load()
    w.message("insert", id=2, v="b").message("insert", "u", id=2, v="b").message("update", id=2, v="c")
    with monkeypatch.context() as patch:
        patch.setattr(streams._Run, "_apply", fail)
        w.merge()
    assert (len(w.rows("t")), len(w.rows("u"))) == (2, 1)
    w.message("delete", id=1, v="c").message("insert", "u", id=3, v="c")
    done = w.merge()
    assert done["t"].counts["changes"] == 1 and done["u"].counts["changes"] == 2
    assert w.rows("t") == [(2, "c")] and w.rows("u") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_may_be_created_from_the_messages(loaded, without_spark):
    new = f"{loaded.space}_later"
    w = loaded.control("create-table", new, id="INT64", v="STRING").message("insert", new, id=5, v="x")
    w.message("insert", id=2, v="b")
    w.merge(unknown_tables="create")
    assert w.rows("t") == [(1, "a"), (2, "b")] and not without_spark
    assert w.full_load()[new].status == "loaded"
    w.merged()
    assert [tuple(r) for r in w.spark.table(f"lake.public.{new}").collect()] == [(5, "x")]


def test_a_bad_row_is_named_by_spark_and_nothing_of_its_batch_is_applied(new_world):
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


def test_where_tasks_fail_spark_reads_and_a_line_says_why(loaded, monkeypatch):
    def fail(*_):
        raise OSError("no Python on the executors")

    monkeypatch.setattr(message_blocks, "message_blocks", fail)
    w = loaded.message("insert", id=2, v="b").merged()
    assert w.rows("t") == [(1, "a"), (2, "b")]
    assert any("Spark reads the messages" in line and "no Python on the executors" in line for line in w.said)


def test_many_messages_are_grouped_as_spark_groups_them(new_world, monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr(message_blocks, "PARSED_AT_ONCE", 3)
    monkeypatch.setattr(message_blocks, "AT_ONCE", 5)
    w = new_world(partitions=2)
    _send_changes(w, 5, ("t0", "t1"), 40)
    w.control("add-column", "t0", id="INT64").control("drop-table", "t1", partition=1).message("load", "t0", id=3)
    for value in (
        b"\xff",
        None,
        "",
        '{"metadata": {}}',
        '{"data": 5, "metadata": {"record-type": "data", "operation": "insert"}}',
    ):
        w.send(value)
    w.send(
        '{"x": 1} {"metadata": {"record-type": "data", "operation": "insert", "schema-name": "p", "table-name": "t"}}'
    )
    stream = w.table("t0").book().stream
    frame = stream.take(w.spark, stream.earliest()).frame
    blocks, facts = stream_read._parsed_by_tasks(frame, "before-image")

    def known(groups):
        alike = {(g.object, g.kind, g.operation, g.schema, g.table): replace(g, columns=(), records=()) for g in groups}
        return alike, {k: ({*g.columns}, {*g.records}) for k, g in zip(alike, groups, strict=True)}

    ours = known(groups_of_facts(facts))
    assert ours == known(groups_of(stream_read.routed(frame))) and len(ours[0]) > 9
    blocks.unpersist()
