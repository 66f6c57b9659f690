"""Figures: Kafka's JSON into typed changes, against plain `from_json`; and a backlog of messages for six tables into Iceberg."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from statistics import median

from bench import quarantine
from bench._lake import World, by_turns, figure, lake, of_topic, seconds, to_nothing
from bench.parse import COLUMNS
from frazil_demo.kafka import Kafka as Broker
from frazil_old.config.spec import parse_spec
from frazil_old.dms.kafka import Kafka
from frazil_old.dms.mappings import Mappings, message_names
from frazil_old.engine.message_batch import changes_of_part
from frazil_old.engine.message_blocks import Part, PartReading, message_blocks
from helpers import spec_of

MESSAGES, TIMES, BACKLOG, LOADED, TABLES = 300_000, 5, 1_000_000, 50_000, 6
TYPED = (
    "struct<data: struct<id: bigint, customer: int, quantity: int, price: decimal(12,2), weight: float, due: date, at: timestamp, "
    "status: string, note: string, country: string>, `before-image`: struct<id: bigint>, metadata: struct<timestamp: timestamp, "
    "`record-type`: string, operation: string, `partition-key-type`: string, `schema-name`: string, `table-name`: string, "
    "`transaction-id`: bigint, `commit-timestamp`: timestamp>>"
)


def _message(i: int, key: int, operation: str, table: str, r: random.Random) -> str:
    """Write a message as DMS does with json-unformatted, IncludeNullAndEmpty and IncludeTransactionDetails."""
    day, second = i % 28 + 1, f"{i % 60:02d}"
    return (
        f'{{"data":{{"id":{key},"customer":{r.randrange(10**6)},"quantity":{i % 100},"price":{r.randrange(10**6) / 100:.2f},'
        f'"weight":{r.random():.9g},"due":"2025-{i % 12 + 1:02d}-{day:02d}","at":"2025-01-01T10:00:{second}.123456Z",'
        f'"status":"status{i % 7}","note":"some text number {i}","country":"DE"}},"before-image":{{}},'
        f'"metadata":{{"timestamp":"2026-01-01T00:00:{second}.000001Z","record-type":"data","operation":"{operation}",'
        f'"partition-key-type":"schema-table","schema-name":"public","table-name":"{table}","transaction-id":{i},'
        f'"transaction-record-id":1,"prev-transaction-id":{i - 1},"prev-transaction-record-id":1,'
        f'"commit-timestamp":"2026-01-01T00:00:{second}.{i % 1000000:06d}Z","stream-position":"00000002/{i:08X}.1.00000002/{i:08X}"}}}}\n'
    )


class _Sender:
    def __init__(self, brokers: str, topic: str):
        from confluent_kafka import Producer

        self.topic = topic
        self.producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000, "log_level": 0})  # fmt: skip

    def send(self, text: str, partition: int) -> None:
        while True:
            try:
                self.producer.produce(self.topic, text.encode(), partition=partition % 2)
                return
            except BufferError:
                self.producer.poll(0.2)

    def done(self) -> None:
        assert self.producer.flush(120) == 0


def _parse_ratio(spark, broker: Broker, quick: bool) -> dict:
    from pyspark.sql import functions as F

    count, times = (30_000, 2) if quick else (MESSAGES, TIMES)
    spec, r = parse_spec(spec_of("public.orders", *COLUMNS)), random.Random(1)
    broker.create_topic("parse", 2)
    sender = _Sender(broker.brokers, "parse")
    for i in range(count):
        sender.send(_message(i, i, r.choice(("insert", "update", "update", "delete")), "orders", r), i)
    sender.done()
    source = Kafka.from_address(f"kafka://{broker.brokers}/parse")
    names, part = message_names(spec, Mappings(())), Part(("public", "orders"), {})
    reading = PartReading(spec, names, part, {"parse/0": 0, "parse/1": 1}, 2, 8)

    def plain() -> None:
        taken = source.take(spark, source.earliest()).messages
        values = taken.in_tasks(lambda batches: batches, "object string, offset bigint, arrived bigint, value binary")
        message = F.from_json(F.col("value").cast("string"), TYPED).alias("m")
        to_nothing(values.select("object", "offset", message).select("object", "offset", "m.*"))

    def ours() -> None:
        blocks = message_blocks([source.take(spark, source.earliest()).messages], "before-image")
        to_nothing(changes_of_part(blocks, reading, [0, 1]))

    theirs, own = by_turns(times, plain, ours)
    told = (
        f"{count:,} messages of {len(spec.columns)} columns in 2 partitions, both read by confluent-kafka in tasks, local[2], Spark {spark.version}; plain from_json "
        f"{count / median(theirs):,.0f}/s, typed changes {count / median(own):,.0f}/s; median of {times} pairs of runs"
    )
    return figure("parse_ratio_kafka", median(p / o for p, o in zip(theirs, own, strict=True)), "ratio", told)


def _changes_per_s(beside: World, broker: Broker, quick: bool) -> dict:
    count, loaded = (60_000, 2_000) if quick else (BACKLOG, LOADED)
    w, r, done = of_topic(broker, beside), random.Random(2), {}
    names = [f"t{n}" for n in range(TABLES)]
    for name in names:
        w.table(name, *COLUMNS)
    sender = _Sender(broker.brokers, "bench")
    for i in range(loaded * TABLES):
        sender.send(_message(i, i // TABLES, "load", names[i % TABLES], r), i % TABLES)
    sender.done()
    w.loaded().merged()  # which goes past the load records
    new = [loaded] * TABLES
    for i in range(count):
        t, kind = i % TABLES, r.choices(("insert", "update", "delete"), (20, 75, 5))[0]
        key = new[t] if kind == "insert" else r.randrange(new[t])
        new[t] += kind == "insert"
        sender.send(_message(i, key, kind, names[t], r), t)
    sender.done()
    took = seconds(lambda: done.update(w.merge(max_batch_messages=1_000_000, lane="auto")))
    assert {x.status for x in done.values()} == {"merged"}, [x.note for x in done.values()]
    assert sum(x.counts["changes"] for x in done.values()) == count
    told = (
        f"{count:,} messages for {TABLES} tables of {len(COLUMNS)} columns in 2 partitions into Iceberg, {loaded:,} rows loaded each, "
        f"{max(x.counts['batches'] for x in done.values())} batches per table, local[2], Spark {w.session.version}, broker on the same machine"
    )
    return figure("stream_changes_per_s", count / took, "changes/s", told, 0)


def run(quick: bool = False) -> list[dict]:
    """Measure on an embedded broker, the messages sent before the clock starts; and what setting rows aside costs."""
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "kafka") as broker, lake("local[2]") as world:
        figures = [_parse_ratio(world.session, broker, quick), _changes_per_s(world, broker, quick)]
    return figures + quarantine.run(quick)
