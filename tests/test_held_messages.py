"""Few messages of a stream are read, ordered and collapsed in this process; Spark reads them where that may not judge them."""

from __future__ import annotations

import itertools
import json
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition

from frazil.dms import kafka_reader
from frazil.dms.messages import routed
from frazil.engine.held_messages import parse_messages
from frazil.flows import streams
from frazil.flows.stream_groups import groups_of, groups_of_messages
from stream_world import STAMP, KafkaWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def w(kafka, spark, catalog_options, tmp_path):
    return KafkaWorld(kafka, tmp_path / "w", f"held{next(_numbers)}", catalog_options)


@pytest.fixture
def by_spark(monkeypatch):
    """Note each batch that Spark reads."""
    read, rows_of = [], streams.rows_of

    def noted(book, spec, *more, **place):
        read.append(spec.source)
        return rows_of(book, spec, *more, **place)

    monkeypatch.setattr(streams, "rows_of", noted)
    return read


def _run(w, monkeypatch, *steps, lane="rowdelta", **settings):
    """Make one pass per step, each after that has sent its messages; a run ends after the last one."""
    real, waiting = streams._Run.one_pass, list(steps)

    def one_pass(self):
        if waiting:
            waiting.pop(0)()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self)

    monkeypatch.setattr(streams._Run, "one_pass", one_pass)
    done = w.merge(lane=lane, run_for_s=600, trigger_s=0, **settings)
    monkeypatch.setattr(streams._Run, "one_pass", real)
    return done


def _counts(w) -> list[dict]:
    rows = w.spark.sql(f"SELECT summary FROM {w.name('t')}.snapshots ORDER BY committed_at").collect()
    return [json.loads(r.summary["frazil.counts"]) for r in rows if r.summary.get("frazil.kind") == "changes"]


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_batches_of_few_messages_are_applied_without_spark_reading_them(w, by_spark, monkeypatch, lane):
    w.table("t").message("load", id=1, v="a").loaded()

    def few():
        w.message("insert", id=2, v="b")

    def many():
        for i in range(10, 400):
            w.message("insert", id=i, v="x" * 50)

    def others():
        w.message("update", id=2, v="c").message("delete", id=1).message("update", id=500, v="d", was={"id": 10})

    done = _run(w, monkeypatch, few, many, others, few, lane=lane)
    assert done["t"].counts["batches"] == 4 and not by_spark
    assert sorted(w.rows("t")) == sorted([(2, "b"), *[(i, "x" * 50) for i in range(11, 400)], (500, "d")])
    assert [(c["changes"], c["I"], c["U"], c["D"]) for c in _counts(w)] == [(1, 1, 0, 0), (390, 390, 0, 0), (3, 0, 2, 1), (1, 1, 0, 0)]  # fmt: skip


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_values_of_every_type_come_as_they_were_sent(w, spark, by_spark, lane):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        w.table(
            "t",
            "id INT8",
            "n NUMERIC(20,4)",
            "r REAL8",
            "at DATETIME",
            "day DATE",
            "b BYTES(9)",
            "y BOOLEAN",
            "v NCLOB",
        )
        w.message("load", id=1).loaded()
        w.message(
            "update", id=1, n=12345678901.0625, r=1e-3, at="1969-12-31T23:59:59.999999Z", day="0001-01-01",
            b="00ff", y=True, v="\u00e9 '\\\n",
        ).message("insert", id=2**53 + 1, at="9999-12-31T00:00:00Z")  # fmt: skip
        w.merged(lane=lane)
        text = [f"cast({c} as string)" for c in ("id", "n", "r", "at", "day", "hex(b)", "y", "v")]
        rows = [tuple(r) for r in w.spark.table(w.name("t")).orderBy("id").selectExpr(*text).collect()]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    first = (
        "1",
        "12345678901.0625",
        "0.001",
        "1969-12-31 23:59:59.999999",
        "0001-01-01",
        "00FF",
        "true",
        "\u00e9 '\\\n",
    )
    assert [r[:3] + r[3:] for r in rows] == [first, (str(2**53 + 1), None, None, "9999-12-31 00:00:00", *[None] * 4)]
    assert not by_spark


@pytest.mark.slow
def test_the_table_follows_control_records_among_few_messages(w, by_spark, monkeypatch):
    w.table("t").message("load", id=1, v="a").loaded()
    _run(
        w, monkeypatch,
        lambda: w.message("insert", id=2, v="b"),
        lambda: w.message("update", id=1, v="z").control("add-column", id="INT64", v="STRING", new="STRING").message("insert", id=3, v="c", new="n"),
        lambda: (w.spark.sql(f"ALTER TABLE {w.name('t')} ADD PARTITION FIELD v"), w.message("insert", id=4, v="d", new="m")),
        lambda: w.message("insert", id=5, v="e", new="l"),
        changes={"new": "add"},
    )  # fmt: skip
    assert w.rows("t") == [(1, "z", None), (2, "b", None), (3, "c", "n"), (4, "d", "m"), (5, "e", "l")]
    assert not by_spark


def test_a_bad_row_stops_its_batch_with_its_offset_and_value(w, by_spark, monkeypatch):
    w.table("t", "id INT8", "n INT4").message("load", id=1, n=1).loaded()
    done = _run(
        w, monkeypatch,
        lambda: w.message("insert", id=2, n=2),
        lambda: w.message("insert", id=3, n=3_000_000_000),
    )  # fmt: skip
    assert done["t"].status == "failed" and "offset 2" in done["t"].note and "3000000000" in done["t"].note
    assert w.rows("t") == [(1, 1), (2, 2)] and len(by_spark) == 1


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_of_partitions_each_keeps_its_own_place(w, kafka, by_spark, lane):
    w = KafkaWorld(kafka, w.root / "two", f"{w.space}two", w.catalog_options, partitions=2)
    w.table("t").message("load", id=1, v="a").loaded()
    w.message("insert", id=2, v="b", partition=1).message("update", id=1, v="b")
    assert w.merged(lane=lane).rows("t") == [(1, "b"), (2, "b")]
    w.message("update", id=2, v="c", partition=1).message("update", id=2, v="d", partition=1)
    assert w.merged(lane=lane).rows("t") == [(1, "b"), (2, "d")]
    assert not by_spark


def test_the_client_reads_what_spark_reads_from_wherever(w, kafka):
    w = KafkaWorld(kafka, w.root / "two", f"{w.space}two", w.catalog_options, partitions=2)
    stream = w.table("t").book().stream

    def both(position: dict, most: int = 0) -> dict:
        taken = stream.take(w.spark, position, most)
        rows = taken.frame.selectExpr("object", "offset", "unix_millis(arrived)", "value").collect()
        by_spark = sorted((*r[:3], r[3] and bytes(r[3])) for r in rows)
        assert sorted(taken.at_once(), key=lambda m: m[:2]) == sorted(by_spark, key=lambda m: m[:2])
        return taken.end

    for i, value in enumerate(("a", None, b"\xff", "", "x" * 100_000)):
        w.send(value, partition=i % 2, at_ms=1_770_000_000_123 + i)
    first = both({})
    w.send("more", partition=1)
    second = both(first)
    for i in range(60):
        w.send(f"yet more {i}", partition=i > 9)
    third = both(second, 4)
    begin, reader = third, kafka_reader.Reader({"bootstrap.servers": kafka.brokers})
    for p, count in ((0, 1), (1, 40), (0, 5), (1, 8)):  # what comes from behind an end is not lost
        name = f"{w.topic}/{p}"
        end = {**begin, name: begin[name] + count}
        assert [m[:2] for m in reader.read(begin, end)] == [(name, o) for o in range(begin[name], end[name])]
        begin = end
    assert both({}) == both(first) == both(begin)


def test_the_client_passes_by_what_a_transaction_leaves_in_the_log(w, kafka):
    from confluent_kafka import Producer

    stream, end = w.table("t").book().stream, {}
    for n, way in enumerate(("commit_transaction", "abort_transaction") * 2):
        producer = Producer({"bootstrap.servers": kafka.brokers, "transactional.id": f"{w.topic}{n}", "log_level": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(w.topic, f"{n}", partition=0)
        producer.flush(30)
        getattr(producer, way)(30)
        taken = stream.take(w.spark, end)
        assert [m[3] for m in taken.at_once()] == [bytes(r.value) for r in taken.frame.collect()] == [b"%d" % n]
        end = taken.end


def test_tasks_take_messages_from_spark_where_the_client_fails(w, by_spark, monkeypatch):
    w.table("t").message("load", id=1, v="a").loaded()
    at_once = kafka_reader.Reader.read

    def fail():
        monkeypatch.setattr(kafka_reader.Reader, "read", lambda *_: None)
        w.message("insert", id=4, v="d")

    def recover():
        monkeypatch.setattr(kafka_reader.Reader, "read", at_once)
        w.message("insert", id=5, v="e")

    add = [lambda i=i: w.message("insert", id=i, v="b") for i in (2, 3)]
    _run(w, monkeypatch, *add, fail, recover)
    assert not by_spark and [r[0] for r in w.rows("t")] == [1, 2, 3, 4, 5]


def test_messages_that_are_large_together_are_not_held(w, monkeypatch):
    monkeypatch.setattr(kafka_reader, "MOST_BYTES", 1000)
    stream = w.table("t").book().stream
    for _ in range(3):
        w.send("x" * 400)
    assert stream.take(w.spark, {}).at_once() is None


def test_messages_that_expired_are_not_read_by_the_client(w):
    stream = w.table("t").book().stream
    for n in range(4):
        w.send(f"{n}")
    taken, admin = stream.take(w.spark, {}), w.kafka.admin()
    for done in admin.delete_records([TopicPartition(w.topic, 0, 2)]).values():
        done.result(30)
    assert taken.at_once() is None


def test_few_messages_are_grouped_as_many_are(spark):
    def message(kind: str = "data", operation: str = "insert", table: str = "t", **data) -> str:
        about = {
            "record-type": kind,
            "operation": operation,
            "schema-name": "p",
            "table-name": table,
            "timestamp": STAMP,
        }
        return json.dumps({"data": data, "metadata": about})

    texts = [
        message(id=1), message(id=2, v="b"), message(table="u", id=1), message("control", "add-column", id=3), message("control", "drop-table"),
        message(operation="load", id=5), "no message", None, '{"metadata": {}}', message("control", "create-table"), message("control", "add-column"), "",
    ]  # fmt: skip
    rows = [(f"topic/{i % 2}", 100 - i, datetime(2026, 1, 1, 0, 0, i, 999, UTC), None if t is None else t.encode()) for i, t in enumerate(texts)]  # fmt: skip
    frame = routed(spark.createDataFrame(rows, "object string, offset bigint, arrived timestamp, value binary"))

    def known(groups):
        alike = {(g.object, g.kind, g.operation, g.schema, g.table): replace(g, columns=(), records=()) for g in groups}
        return alike, {k: ({*g.columns}, {*g.records}) for k, g in zip(alike, groups, strict=True)}

    few = known(
        groups_of_messages(parse_messages([(r[0], r[1], int(r[2].timestamp()) * 1000, r[3]) for r in rows], ""))
    )
    assert few == known(groups_of(frame)) and len(few[0]) == 10


def test_bytes_that_are_no_text_are_shown_and_stop_the_table(w):
    w.table("t").message("load", id=1, v="a").loaded()
    w.send(b"\xff\xfe no message").message("insert", id=2, v="b")
    done = w.merge(lane="rowdelta")
    assert "none of DMS's" in done["t"].note and "no message" in done["t"].note and "offset 1" in done["t"].note
    w.merge(lane="rowdelta", on_unreadable="report")
    assert w.rows("t") == [(1, "a"), (2, "b")]
