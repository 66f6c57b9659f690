"""Few messages of a stream are read, ordered and collapsed in this process."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, TopicPartition

from frazil_old.dms import kafka as kafka_reader
from frazil_old.dms.kafka import Kafka
from frazil_old.dms.stream_source import ExpiredError, UnreachableError
from frazil_old.engine import message_batch, message_blocks
from frazil_old.engine.message_batch import MOST
from frazil_old.flows import stream_cdc, stream_read
from frazil_old.lake.rollback import RolledBackError
from frazil_old.lake.tables import read_table_state
from helpers import slow
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def w(kafka, spark, catalog_options, tmp_path):
    return KafkaWorld(kafka, tmp_path / "w", f"held{next(_numbers)}", catalog_options)


@pytest.fixture
def by_tasks(monkeypatch):
    """Note each read whose messages tasks parse."""
    read, parsed = [], stream_read._parsed

    def noted(*given):
        read.append(given)
        return parsed(*given)

    monkeypatch.setattr(stream_read, "_parsed", noted)
    return read


def _run(w, monkeypatch, *steps, lane="rowdelta", **settings):
    """Make one pass per step, each after that has sent its messages; a run ends after the last one."""
    real, waiting = stream_cdc._Run.one_pass, list(steps)

    def one_pass(self):
        if waiting:
            waiting.pop(0)()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self)

    monkeypatch.setattr(stream_cdc._Run, "one_pass", one_pass)
    done = w.merge(lane=lane, run_for_s=600, trigger_s=0, **settings)
    monkeypatch.setattr(stream_cdc._Run, "one_pass", real)
    return done


def _counts(w) -> list[dict]:
    rows = w.spark.sql(f"SELECT summary FROM {w.name('t')}.snapshots ORDER BY committed_at").collect()
    return [json.loads(r.summary["frazil.counts"]) for r in rows if r.summary.get("frazil.kind") == "changes"]


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_batches_of_few_messages_are_applied_without_spark_reading_them(w, by_tasks, monkeypatch, lane):
    w.table("t").message("load", id=1, v="a").loaded()

    def few():
        w.message("insert", id=2, v="b")

    def many():
        for i in range(10, 400):
            w.message("insert", id=i, v="x" * 50)

    def others():
        w.message("update", id=2, v="c").message("delete", id=1).message("update", id=500, v="d", was={"id": 10})

    done = _run(w, monkeypatch, few, many, others, few, lane=lane)
    assert done["t"].counts["batches"] == 4 and not by_tasks
    assert sorted(w.rows("t")) == sorted([(2, "b"), *[(i, "x" * 50) for i in range(11, 400)], (500, "d")])
    assert [(c["changes"], c["I"], c["U"], c["D"]) for c in _counts(w)] == [(1, 1, 0, 0), (390, 390, 0, 0), (3, 0, 2, 1), (1, 1, 0, 0)]  # fmt: skip


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_values_of_every_type_come_as_they_were_sent(w, spark, by_tasks, lane):
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
    assert not by_tasks


@pytest.mark.slow
def test_the_table_follows_control_records_among_few_messages(w, by_tasks, monkeypatch):
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
    assert not by_tasks


def test_a_bad_row_stops_its_batch_with_its_offset_and_value(w, by_tasks, monkeypatch):
    w.table("t", "id INT8", "n INT4").message("load", id=1, n=1).loaded()
    done = _run(
        w, monkeypatch,
        lambda: w.message("insert", id=2, n=2),
        lambda: w.message("insert", id=3, n=3_000_000_000),
    )  # fmt: skip
    assert done["t"].status == "failed" and "offset 2" in done["t"].note and "3000000000" in done["t"].note
    assert f"kafka://{w.topic}/0 offset 2: column 'n': '3000000000' does not fit INT4" in done["t"].note
    assert w.rows("t") == [(1, 1), (2, 2)] and not by_tasks


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_of_partitions_each_keeps_its_own_place(w, kafka, by_tasks, lane):
    w = KafkaWorld(kafka, w.root / "two", f"{w.space}two", w.catalog_options, partitions=2)
    w.table("t").message("load", id=1, v="a").loaded()
    w.message("insert", id=2, v="b", partition=1).message("update", id=1, v="b")
    assert w.merged(lane=lane).rows("t") == [(1, "b"), (2, "b")]
    w.message("update", id=2, v="c", partition=1).message("update", id=2, v="d", partition=1)
    assert w.merged(lane=lane).rows("t") == [(1, "b"), (2, "d")]
    assert not by_tasks


def _here(messages) -> list[tuple]:
    """The messages that this process reads: partition, offset, arrival, value."""
    return [tuple(row.values()) for batch in messages.batches() for row in batch.to_pylist()]


def _in_tasks(messages) -> list[tuple]:
    rows = messages.in_tasks(lambda batches: batches, "object string, offset bigint, arrived bigint, value binary")
    return [(*row[:3], row[3] and bytes(row[3])) for row in rows.collect()]


def test_this_process_reads_what_tasks_read_from_wherever(w, kafka):
    w = KafkaWorld(kafka, w.root / "two", f"{w.space}two", w.catalog_options, partitions=2)
    stream = w.table("t").book().stream

    def both(position: dict, most: int = 0) -> dict:
        taken = stream.take(w.spark, position, most)
        found = sorted(_here(taken.messages), key=lambda m: m[:2])
        assert found == sorted(_in_tasks(taken.messages), key=lambda m: m[:2])
        assert len(found) == taken.count
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
        offsets = [o for batch in reader.read(begin, end) for o in batch["offset"].to_pylist()]
        assert offsets == list(range(begin[name], end[name]))
        begin = end
    assert both({}) == both(first) == both(begin)


@pytest.mark.parametrize("fewest", [1, 7, 1000])
def test_a_partition_with_many_messages_is_read_by_several_tasks_in_small_batches(w, kafka, monkeypatch, fewest):
    monkeypatch.setattr(kafka_reader, "FEWEST", fewest)
    monkeypatch.setattr(kafka_reader, "BATCH", 3)
    monkeypatch.setattr(kafka_reader, "ASKED", 1)
    w = KafkaWorld(kafka, w.root / "two", f"{w.space}two{fewest}", w.catalog_options, partitions=2)
    for i in range(41):
        w.send(f"{i}", partition=i % 10 == 0)
    messages = w.table("t").book().stream.take(w.spark, {}).messages
    parts = messages._parts(2)
    assert len(parts) == (2 if fewest == 1000 else 3) and {p for p, *_ in parts} == {f"{w.topic}/0", f"{w.topic}/1"}
    assert sorted(int(m[3]) for m in _in_tasks(messages)) == sorted(int(m[3]) for m in _here(messages)) == [*range(41)]
    assert max(batch.num_rows for batch in messages.batches()) == 3
    (at,) = _here(messages.around([(f"{w.topic}/1", "2")]))
    assert at[:2] == (f"{w.topic}/1", 2) and at[3] == b"20"


def test_what_a_transaction_leaves_in_the_log_is_no_message_and_no_gap(w, kafka):
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
        assert [m[3] for m in _here(taken.messages)] == [m[3] for m in _in_tasks(taken.messages)] == [b"%d" % n]
        end = taken.end


def test_few_messages_that_are_large_together_are_parsed_by_tasks(w, by_tasks, monkeypatch):
    monkeypatch.setattr(stream_read, "MOST_BYTES", 1000)
    monkeypatch.setattr(kafka_reader, "BATCH", 1)
    w.table("t").message("load", id=1, v="a").loaded()
    for i in (2, 3, 4):
        w.message("insert", id=i, v="x" * 90)
    w.merged()
    assert len(by_tasks) == 1 and [r[0] for r in w.rows("t")] == [1, 2, 3, 4]


def _expire(w, until: int) -> None:
    admin = w.kafka.admin()
    for done in admin.delete_records([TopicPartition(w.topic, 0, until)]).values():
        done.result(30)


@pytest.mark.parametrize("most", [MOST, 0])
def test_messages_that_expire_before_they_are_read_are_an_error_and_never_a_gap(w, monkeypatch, most):
    monkeypatch.setattr(stream_read, "MOST", most)
    w.table("t").message("load", id=1, v="a").loaded()
    for i in range(2, 6):
        w.message("insert", id=i, v="b")
    take = Kafka.take

    def taken(*given):
        found = take(*given)
        _expire(w, 3)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Kafka, "take", taken)
        with pytest.raises(ExpiredError, match=f"{w.topic}/0: messages expired"):
            w.merge()
    assert w.rows("t") == [(1, "a")]
    assert "to 2 of" in w.merge()["t"].note


def test_a_bad_message_that_expires_before_its_bytes_are_read_again_is_an_error(w, monkeypatch):
    w.table("t", "id INT8", "n INT4").message("load", id=1, n=1).loaded()
    w.message("insert", id=2, n="x").message("insert", id=3, n=3)
    at = message_blocks.values_at

    def values_at(*given):
        _expire(w, 2)
        return at(*given)

    monkeypatch.setattr(message_blocks, "values_at", values_at)
    failed = w.merge(**BAD, ops_namespace=f"{w.space}_ops")["t"]
    assert failed.failed and f"{w.topic}/0: messages expired" in failed.note and w.rows("t") == [(1, 1)]


@pytest.mark.parametrize("most", [MOST, slow(0)])
def test_a_broker_that_falls_silent_while_messages_are_read_is_named_with_a_remedy(w, monkeypatch, most):
    monkeypatch.setattr(stream_read, "MOST", most)
    monkeypatch.setattr(kafka_reader, "PATIENCE_S", 1)
    w.table("t").message("load", id=1, v="a").loaded().message("insert", id=2, v="b")
    taken = w.book().stream.take(w.spark, {})
    beyond = replace(taken, messages=replace(taken.messages, end={f"{w.topic}/0": 9}))
    with pytest.raises(UnreachableError, match=f"no message of {w.topic}/0 arrived within") as silent:
        stream_read.read_messages(w.book(), [beyond])
    assert silent.value.cure == "check that the broker is up, and that every executor can reach it and log in"


def test_executors_without_the_client_are_named_and_this_process_reads(w, monkeypatch):
    monkeypatch.setattr(stream_read, "MOST", 0)

    real = kafka_reader.MessageRange.in_tasks

    def in_tasks(self, work, schema):
        def without(batches):
            sys.modules["confluent_kafka"] = None
            try:
                yield from work(batches)
            finally:
                del sys.modules["confluent_kafka"]

        return real(self, without, schema)

    w.table("t").message("load", id=1, v="a").loaded().message("insert", id=2, v="b").message("delete", id=1)
    monkeypatch.setattr(kafka_reader.MessageRange, "in_tasks", in_tasks)
    assert w.merged().rows("t") == [(2, "b")]
    assert any("this process parses the messages" in line and "confluent_kafka" in line for line in w.said), w.said


def test_bytes_that_are_no_text_are_shown_and_stop_the_table(w):
    w.table("t").message("load", id=1, v="a").loaded()
    w.send(b"\xff\xfe no message").message("insert", id=2, v="b")
    done = w.merge(lane="rowdelta")
    assert "none of DMS's" in done["t"].note and "no message" in done["t"].note and "offset 1" in done["t"].note
    w.merge(lane="rowdelta", on_unreadable="report")
    assert w.rows("t") == [(1, "a"), (2, "b")]


# --- bad messages

ABOUT = {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}
BAD = {"on_bad_rows": "quarantine", "max_bad_rows": 99, "max_bad_percent": 100.0}


def _records(w) -> list[tuple]:
    """Return what the quarantine keeps of each bad message: place, column, reason, key, old key, whether it is followed."""
    rows = w.spark.table(f"lake.{w.space}_ops.quarantine").where("table_name is not null").collect()
    last = {r.id: r for r in sorted(rows, key=lambda r: (r.sequence, r.changed_at))}
    return sorted(
        (r.path.rpartition("/")[2], int(r.row_no), r.column_name, r.reason, r.key, r.old_key, r.keyed, r.status)
        for r in last.values()
    )


def send_bad(w) -> list[tuple]:
    """Send one message of each fault; return what the quarantine keeps of them."""
    w.message("insert", id=3, n="x").message("update", was={"id": 1}, id=30, n=3_000_000_000)
    w.message("truncate", id=5).message("insert", n=6).message("insert", id=7, about={"commit-timestamp": "2026-01-01"})
    w.message("update", was={"id": "y"}, id=8, at="2026-01-01T00:00:00+02:00").message("insert", id="z")
    return [
        ("0", 1, "n", "column 'n': 'x' does not fit INT4 (int in the lake)", '["3"]', None, True, "waiting"),
        ("0", 2, "n", "column 'n': '3000000000' does not fit INT4 (int in the lake)", '["30"]', '["1"]', True, "waiting"),
        ("0", 3, "op", "unknown operation 'truncate', none of I, U, D or their OpValues", '["5"]', None, True, "waiting"),
        ("0", 4, "key", "no value in key column id", None, None, False, "waiting"),
        ("0", 5, "timestamp", "commit timestamp '2026-01-01' is not yyyy-MM-ddTHH:mm:ss.SSSSSSZ", '["7"]', None, True, "waiting"),
        ("0", 6, "id", "old value of column 'id': 'y' does not fit INT8 (bigint in the lake)", '["8"]', None, False, "waiting"),
        ("0", 7, "id", "column 'id': 'z' does not fit INT8 (bigint in the lake)", '["z"]', None, False, "waiting"),
    ]  # fmt: skip


@pytest.mark.parametrize("most", [MOST, 0])
@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_each_bad_message_is_set_aside_with_its_place_reason_and_key(w, monkeypatch, most, lane):
    monkeypatch.setattr(stream_read, "MOST", most)
    monkeypatch.setattr(message_batch, "MOST", most)
    given = {**BAD, "ops_namespace": f"{w.space}_ops", "lane": lane}
    w.table("t", "id INT8", "n INT4", "at DATETIME").message("load", id=1, n=1).loaded()
    told = send_bad(w)
    broken = '{"data": {"id": , "metadata": ' + json.dumps(ABOUT) + "}"
    w.send(broken).message("insert", id=9, n=9).merged(**given)
    told.append(("0", 8, "fields", f"not JSON as DMS writes it: {broken}"[:300], None, None, False, "waiting"))
    assert _records(w) == told
    assert w.rows("t") == [(1, 1, None), (9, 9, None)]
    rows = w.spark.table(f"lake.{w.space}_ops.quarantine").collect()
    assert {int(r.row_no): bytes(r.raw) for r in rows}[8].decode() == broken
    (first,) = (r for r in rows if r.row_no == "1")
    assert (first.path, first.object, first.form, first.phase) == (f"kafka://{w.topic}/0", f"{w.topic}/0", "json", 1)
    assert (first.op, first.commit_ts, json.loads(first.raw)["data"]) == (
        "I",
        "2026-01-01 10:00:00",
        {"id": 3, "n": "x"},
    )
    assert first.written_at is not None and list(first.layout) == []


@pytest.mark.parametrize("most", [MOST, 0])
def test_what_came_later_in_its_partition_makes_a_bad_message_obsolete(w, kafka, monkeypatch, most):
    """Within a partition the offset counts, between partitions their order."""
    monkeypatch.setattr(stream_read, "MOST", most)
    monkeypatch.setattr(message_batch, "MOST", most)
    w = KafkaWorld(kafka, w.root / "two", f"{w.space}two", w.catalog_options, partitions=2)
    w.table("t", "id INT8", "n INT4").loaded()
    for key, partition in ((1, 0), (2, 1)):
        w.message("insert", id=key, n=1, partition=partition).message("update", id=key, n="x", partition=partition)
    w.message("update", id=2, n=3, partition=1)
    w.merged(**BAD, ops_namespace=f"{w.space}_ops")
    assert [(r[0], r[1], r[-1]) for r in _records(w)] == [("0", 1, "waiting"), ("1", 1, "obsolete")]
    w.message("update", id=1, n=5).merged(**BAD, ops_namespace=f"{w.space}_ops")
    assert [r[-1] for r in _records(w)] == ["obsolete", "obsolete"]
    assert w.rows("t") == [(1, 5), (2, 3)]


@pytest.mark.parametrize("most", [MOST, 0])
def test_a_batch_of_bad_messages_alone_is_applied(w, monkeypatch, most):
    monkeypatch.setattr(stream_read, "MOST", most)
    monkeypatch.setattr(message_batch, "MOST", most)
    w.table("t", "id INT8", "n INT4").message("load", id=1, n=1).loaded()
    w.message("insert", id=2, n="x").message("insert", id=3, n="y").merged(**BAD, ops_namespace=f"{w.space}_ops")
    assert (w.rows("t"), len(_records(w))) == ([(1, 1)], 2)
    w.message("insert", id=2, n=2).merged(**BAD, ops_namespace=f"{w.space}_ops")
    assert w.rows("t") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("most", [MOST, 0])
@pytest.mark.parametrize("policy", ["append", "multiset"])
def test_tables_without_a_key_take_load_records_and_changes_as_they_are(w, monkeypatch, most, policy):
    monkeypatch.setattr(stream_read, "MOST", most)
    monkeypatch.setattr(message_batch, "MOST", most)
    w.table("t", "id INT8", "v NCLOB", key=())
    w.specs["t"]["without_key"] = policy
    (w.root / "specs/t.yml").write_text(json.dumps(w.specs["t"]))
    w.message("load", id=1, v="a").message("load", id=1, v="a").message("load", id=2, v="b").loaded()
    w.message("insert", id=3, v="c").message("delete", id=1, v="a").message(
        "update", was={"id": 2, "v": "b"}, id=2, v="B"
    )
    w.merged()
    rows = sorted(tuple(r) for r in w.spark.table(w.name("t")).select("id", "v").collect())
    if policy == "multiset":
        assert rows == [(1, "a"), (2, "B"), (3, "c")]
        return
    assert rows == [(1, "a"), (1, "a"), (1, "a"), (2, "B"), (2, "b"), (3, "c")]
    more = w.spark.table(w.name("t")).orderBy("_seq", "_row").select("_op", "_object", "_row", "_seq").collect()
    assert sorted((r._op, r._row) for r in more) == [("D", 2), ("I", 1), ("I", 1), ("I", 2), ("I", 3), ("U", 3)]
    assert {r._object for r in more} == {f"{w.topic}/0"} and all(len(r._seq) == 16 for r in more)


def test_a_table_that_is_rolled_back_during_a_run_gets_its_changes_again(w, monkeypatch):
    w.table("t").message("load", id=1, v="a").loaded()
    first = []

    def note():
        first.extend(w.spark.sql(f"SELECT snapshot_id FROM {w.name('t')}.refs WHERE name = 'main'").collect())
        w.message("insert", id=2, v="b")

    def roll_back():
        w.spark.sql(f"CALL lake.system.rollback_to_snapshot('{w.name('t')}', {first[0].snapshot_id})")
        with pytest.raises(RolledBackError) as stopped:
            read_table_state(w.spark, w.name("t"))
        w.spark.sql(stopped.value.cure.partition(": ")[2])
        assert w.rows("t") == [(1, "a")]

    _run(w, monkeypatch, note, roll_back)
    assert w.rows("t") == [(1, "a"), (2, "b")]


class _Client:
    """A client of Kafka that returns the given messages, one after another."""

    def __init__(self, *found):
        self.found = list(found)

    def assign(self, partitions):
        pass

    def consume(self, most, timeout):
        time.sleep(timeout)
        return [self.found.pop(0)] if self.found else []


class _Found:
    """A message of the client, or with an error code an event."""

    def __init__(self, offset, partition=0, code=None):
        self._offset, self._partition, self._code = offset, partition, code

    def topic(self):
        return "t"

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset

    def error(self):
        return self._code and KafkaError(self._code)

    def timestamp(self):
        return 1, 0

    def value(self):
        return b"{}"


def _read(reader, begin, end) -> list[int]:
    begin, end = ({f"t/{n}": at for n, at in enumerate(ats)} for ats in (begin, end))
    return [o for batch in reader.read(begin, end) for o in batch["offset"].to_pylist()]


def test_messages_that_arrive_slowly_are_read_and_only_silence_is_an_error(monkeypatch):
    monkeypatch.setattr(kafka_reader, "PATIENCE_S", 0.3)
    reader = kafka_reader.Reader({})
    reader.consumer = _Client(*(_Found(n) for n in range(40)))
    assert _read(reader, [0], [40]) == [*range(40)]
    with pytest.raises(UnreachableError, match="no message of t/0 arrived within"):
        _read(reader, [40], [41])


def test_an_end_that_a_read_meets_after_its_own_ends_the_next_read(monkeypatch):
    """The client reports an end once. Offset 2 is the mark of a transaction, and no message."""
    monkeypatch.setattr(kafka_reader, "PATIENCE_S", 0.3)
    reader = kafka_reader.Reader({})
    reader.consumer = _Client(_Found(0), _Found(1), _Found(3, code=KafkaError._PARTITION_EOF), _Found(0, partition=1))
    assert _read(reader, [0, 0], [1, 1]) == [0, 0]
    assert _read(reader, [1, 1], [3, 1]) == [1]
