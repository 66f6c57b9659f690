"""Few messages of a stream are read, ordered and collapsed in this process."""

from __future__ import annotations

import itertools

import pytest

from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def w(kafka, spark, catalog_options, tmp_path):
    return KafkaWorld(kafka, tmp_path / "w", f"held{next(_numbers)}", catalog_options)


def _here(messages) -> list[tuple]:
    """The messages that this process reads: partition, offset, arrival, value."""
    return [tuple(row.values()) for batch in messages.batches() for row in batch.to_pylist()]


def _in_tasks(messages) -> list[tuple]:
    rows = messages.in_tasks(lambda batches: batches, "object string, offset bigint, arrived bigint, value binary")
    return [(*row[:3], row[3] and bytes(row[3])) for row in rows.collect()]


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


def test_bytes_that_are_no_text_are_shown_and_stop_the_table(w):
    w.table("t").message("load", id=1, v="a").loaded()
    w.send(b"\xff\xfe no message").message("insert", id=2, v="b")
    done = w.merge(lane="rowdelta")
    assert "none of DMS's" in done["t"].note and "no message" in done["t"].note and "offset 1" in done["t"].note
    w.merge(lane="rowdelta", on_unreadable="report")
    assert w.rows("t") == [(1, "a"), (2, "b")]


# --- bad messages
