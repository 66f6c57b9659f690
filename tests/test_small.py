"""Small batches of a stream: planned once, read anew each time, and never mistaken for the one before."""

from __future__ import annotations

import itertools
import json
import os
import signal
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition

from frazil.dms import kafka_reader
from frazil.dms.messages import routed
from frazil.dms.streams import ARRIVED
from frazil.flows import apply, batch, small, stream_read, streams
from frazil.flows.stream_groups import grouped, groups_of
from frazil.lake import jvm
from stream_world import STAMP, KafkaWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def w(kafka, spark, catalog_options, tmp_path):
    return KafkaWorld(kafka, tmp_path / "w", f"small{next(_numbers)}", catalog_options)


@pytest.fixture
def plans(monkeypatch):
    """Note each plan that Spark makes of a batch."""
    made, plan = [], batch._plan

    def noted(spec, *given, **more):
        made.append(spec)
        return plan(spec, *given, **more)

    monkeypatch.setattr(batch, "_plan", noted)
    return made


def _run(w, monkeypatch, *steps, **settings):
    """Make one pass per step, each after that has sent its messages; a run ends after the last one."""
    real, waiting = streams._Run.one_pass, list(steps)

    def one_pass(self):
        if waiting:
            waiting.pop(0)()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self)

    monkeypatch.setattr(streams._Run, "one_pass", one_pass)
    done = w.merge(lane="rowdelta", run_for_s=600, trigger_s=0, **settings)
    monkeypatch.setattr(streams._Run, "one_pass", real)
    return done


def _counts(w) -> list[dict]:
    rows = w.spark.sql(f"SELECT summary FROM {w.name('t')}.snapshots ORDER BY committed_at").collect()
    return [json.loads(r.summary["frazil.counts"]) for r in rows if r.summary.get("frazil.kind") == "changes"]


def test_batches_of_any_size_go_through_one_plan(w, plans, monkeypatch, tmp_path):
    w.table("t").message("load", id=1, v="a").loaded()
    monkeypatch.setattr(small.tempfile, "tempdir", str(tmp_path))  # the machine's is everyone's

    def few():
        w.message("insert", id=2, v="b")

    def many():
        for i in range(10, 400):
            w.message("insert", id=i, v="x" * 50)

    def others():
        assert len(list(tmp_path.glob("frazil-*"))) == 1
        w.message("update", id=2, v="c").message("delete", id=1).message("update", id=500, v="d", was={"id": 10})

    done = _run(w, monkeypatch, few, many, others, few)
    assert done["t"].counts["batches"] == 4 and len(plans) == 1
    assert sorted(w.rows("t")) == sorted([(2, "b"), *[(i, "x" * 50) for i in range(11, 400)], (500, "d")])
    assert [(c["changes"], c["I"], c["U"], c["D"]) for c in _counts(w)] == [(1, 1, 0, 0), (390, 390, 0, 0), (3, 0, 2, 1), (1, 1, 0, 0)]  # fmt: skip
    assert not list(tmp_path.glob("frazil-*"))


@pytest.mark.slow
def test_a_plan_is_made_anew_when_the_table_or_its_partitioning_changes(w, plans, monkeypatch):
    w.table("t").message("load", id=1, v="a").loaded()
    _run(
        w, monkeypatch,
        lambda: w.message("insert", id=2, v="b"),
        lambda: w.control("add-column", id="INT64", v="STRING", new="STRING").message("insert", id=3, v="c", new="n"),
        lambda: (w.spark.sql(f"ALTER TABLE {w.name('t')} ADD PARTITION FIELD v"), w.message("insert", id=4, v="d", new="m")),
        lambda: w.message("insert", id=5, v="e", new="l"),
        changes={"new": "add"},
    )  # fmt: skip
    assert w.rows("t") == [(1, "a", None), (2, "b", None), (3, "c", "n"), (4, "d", "m"), (5, "e", "l")]
    assert len(plans) >= 3


def test_a_bad_row_stops_its_batch_and_not_the_plan(w, plans, monkeypatch):
    w.table("t", "id INT8", "n INT4").message("load", id=1, n=1).loaded()
    done = _run(
        w, monkeypatch,
        lambda: w.message("insert", id=2, n=2),
        lambda: w.message("insert", id=3, n=3_000_000_000),
    )  # fmt: skip
    assert done["t"].status == "failed" and "offset 2" in done["t"].note and "3000000000" in done["t"].note
    assert w.rows("t") == [(1, 1), (2, 2)] and len(plans) == 1


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


def test_few_messages_are_read_without_a_job_for_them_and_by_one_where_the_client_fails(w, monkeypatch):
    w.table("t").message("load", id=1, v="a").loaded()
    read, at_once = [], kafka_reader.Reader.read

    def spark_reads(frame):
        read.append(frame)
        return bring(frame)

    bring = stream_read.bring_messages
    monkeypatch.setattr(stream_read, "bring_messages", spark_reads)

    def fail():
        monkeypatch.setattr(kafka_reader.Reader, "read", lambda *_: None)
        w.message("insert", id=4, v="d")

    def recover():
        monkeypatch.setattr(kafka_reader.Reader, "read", at_once)
        w.message("insert", id=5, v="e")

    add = [lambda i=i: w.message("insert", id=i, v="b") for i in (2, 3)]
    _run(w, monkeypatch, *add, fail, recover)
    assert len(read) == 1 and [r[0] for r in w.rows("t")] == [1, 2, 3, 4, 5]


def test_messages_that_expired_are_not_read_by_the_client(w):
    stream = w.table("t").book().stream
    for n in range(4):
        w.send(f"{n}")
    taken, admin = stream.take(w.spark, {}), w.kafka.admin()
    for done in admin.delete_records([TopicPartition(w.topic, 0, 2)]).values():
        done.result(30)
    assert taken.at_once() is None


def test_lines_that_are_not_read_again_stop_the_batch(w, monkeypatch):
    w.table("t").message("load", id=1, v="a").loaded()
    real = small.Table.rows
    monkeypatch.setattr(small.Table, "rows", lambda self: real(self).where("offset <> 2"))
    w.message("insert", id=2, v="b").message("insert", id=3, v="c")
    done = w.merge(lane="rowdelta")
    assert "2 messages were written down, and 1 read again" in done["t"].note
    assert w.rows("t") == [(1, "a")]


def test_a_plan_that_could_not_be_run_is_forgotten(w, plans, monkeypatch):
    w.table("t").message("load", id=1, v="a").loaded()
    real, failing = apply.arrow, [True]

    def arrow(rows):
        if failing:
            failing.clear()
            raise OSError("no such luck")
        return real(rows)

    monkeypatch.setattr(apply, "arrow", arrow)
    _run(w, monkeypatch, lambda: w.message("insert", id=2, v="b"), lambda: streams.time.sleep(1.5))
    assert w.rows("t") == [(1, "a"), (2, "b")] and len(plans) == 2


def test_a_plan_of_several_stages_is_not_used_again(spark, tmp_path):
    """Spark keeps what the first stage gave: the second action would not see the new file."""
    (tmp_path / "f").write_text("a")
    lines = spark.read.text((tmp_path / "f").as_uri(), wholetext=True)
    one, two = lines.coalesce(1).selectExpr("upper(value) v"), lines.repartition(3).selectExpr("upper(value) v")
    assert jvm.is_one_stage(one) and not jvm.is_one_stage(two)
    assert one.collect() == two.collect() == [("A",)]
    (tmp_path / "f").write_text("longer than it was")
    assert one.collect() == [("LONGER THAN IT WAS",)] and two.collect() == [("A",)]


def test_messages_come_back_as_they_were(spark, tmp_path):
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    texts = [
        b'{"data":{"id":1},"metadata":{"record-type":"data","operation":"insert","schema-name":"p","table-name":"t","timestamp":"x"}}',
        '{"data":{"v":"a\\tb\\u00e9\\"\U0001f427"},"metadata":{"record-type":"data","operation":"update","schema-name":"p\\n","table-name":"t"}}'.encode(),
        '{"data":{"v":"\ufffd\0"},"metadata":{"record-type":"data","operation":"delete","schema-name":"p","table-name":"t"}}'.encode(),
    ]
    messages = spark.createDataFrame(
        [("topic/0", 2**53 + 1 + i, at, text) for i, text in enumerate(texts)],
        "object string, offset bigint, arrived timestamp, value binary",
    )
    frame = routed(messages).drop("m")
    brought = small.bring_messages(frame)
    table = small.Table(spark, str(tmp_path), "bigint")
    lines = [line for name in (("p", "t"), ("p\n", "t")) for line in brought.of(name, {})]
    table.file.write_text(f"[{','.join(lines)}]")
    assert table.rows().dtypes == frame.dtypes
    told = [f.withColumn("value", f.value.cast("binary")).orderBy("offset").collect() for f in (frame, table.rows())]
    assert len(told[0]) == 3 and told[0] == told[1]
    assert len(brought.of(("p", "t"), {"topic/0": 2**53 + 2})) == 1
    assert brought.of(("p", "t"), {ARRIVED: 1}) is None


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

    few = known(grouped(small.bring_messages(frame).messages))
    assert few == known(groups_of(frame)) and len(few[0]) == 10
    given = [(r[0], r[1], int(r[2].timestamp()) * 1000, r[3]) for r in rows]
    with closing(small.Small(spark)) as by_client:
        assert known(grouped(by_client.bring(given).messages)) == few
        assert known(grouped(by_client.bring(given[:3]).messages)) == known(
            grouped(small.bring_messages(frame.where("offset > 97")).messages)
        )


@pytest.mark.parametrize(
    "odd", [b"x" * (small.LONGEST + 1), b'{"\xff": 1}', b"\xed\xa0\x80"], ids=["long", "not UTF-8", "surrogate"]
)
def test_odd_messages_stay_with_spark(spark, odd):
    given = [("topic/0", i, datetime(2026, 1, 1, tzinfo=UTC), value) for i, value in enumerate((b"x", None, odd))]
    frame = routed(spark.createDataFrame(given, "object string, offset bigint, arrived timestamp, value binary"))
    assert small.bring_messages(frame) is None and len(small.bring_messages(frame.where("offset < 2")).messages) == 2
    with closing(small.Small(spark)) as by_client:
        messages = [("topic/0", i, 0, value) for i, value in enumerate((b"x", None, odd))]
        assert by_client.bring(messages) is None and len(by_client.bring(messages[:2]).messages) == 2
