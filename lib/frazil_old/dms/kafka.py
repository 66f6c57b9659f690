"""Kafka as a source: the first and last offsets of its partitions, and the messages between two positions.

A partition is named `topic/number`. The credentials come from the environment only: see `LOGIN`. The C client reads few
messages in this process, many in Spark tasks. Messages of unfinished transactions are read too. After a transaction or a
compaction, offsets may be missing. So a partition counts as read when the client has reached its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from frazil_old.dms.stream_retention import Retention, require_retained
from frazil_old.dms.stream_source import (
    ExpiredError,
    MessagePlace,
    Offsets,
    StreamError,
    StreamRead,
    UnreachableError,
    Work,
    named_places,
    named_source,
    numbered,
    parsed_time,
)
from frazil_old.errors import nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


BATCH, BATCH_BYTES = 10_000, 16 << 20
"""A batch has about this many messages, or bytes."""
ASKED = 1000
"""Maximum number of messages per request to the client."""
LAST_MS = 1 << 42
"""Later than the time of any message, in epoch milliseconds."""
FEWEST = 50_000
"""Minimum number of messages for a further task that reads a partition."""


class Reader:
    """A consumer that continues where its last read ended, with the messages that it has fetched since."""

    def __init__(self, config: dict[str, Any]):
        self.config = config
        self.at: Offsets = {}
        self.fetched: list[Any] = []
        """Messages after the end of the last read, and ends of partitions, which the client reports once."""
        self.last_error = ""

    @cached_property
    def consumer(self) -> Any:
        """Kafka's C client, which is made when it is first needed."""
        from confluent_kafka import Consumer

        return Consumer(
            {
                "group.id": "frazil",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 2 * BATCH_BYTES >> 10,
                "fetch.queue.backoff.ms": 10,
                "log_level": 0,
                **self.config,
            }
        )

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.RecordBatch]:
        """Yield the messages between two positions.

        Raise ExpiredError if some have expired, and UnreachableError if none arrives within `PATIENCE_S` seconds.
        """
        if begin != self.at:
            self._assign(begin)
        left, rows, size = {p for p in end if begin[p] < end[p]}, [], 0
        wanted, until = sum(end[p] - begin[p] for p in end), time.monotonic() + PATIENCE_S
        found, self.fetched, self.at = self.fetched, [], {}
        while left:
            new = [*self._messages_before(end, found, left)]
            rows += new
            size, wanted = size + sum(len(row[3] or b"") for row in new), wanted - len(new)
            if rows and (not left or len(rows) >= BATCH or size >= BATCH_BYTES):
                yield _batch(rows)
                rows, size = [], 0
            if new:
                until = time.monotonic() + PATIENCE_S
            elif left and time.monotonic() > until:
                raise UnreachableError(
                    f"no message of {', '.join(sorted(left))} arrived within {PATIENCE_S} s{self.last_error}",
                    "check that the broker is up, and that every executor can reach it and log in",
                )
            if left:  # the client waits until it has this many
                found = self.consumer.consume(min(max(wanted, 1), ASKED), timeout=0.02)
        self.at = dict(end)

    def _assign(self, begin: Offsets) -> None:
        from confluent_kafka import TopicPartition

        self.fetched, self.last_error = [], ""
        self.consumer.assign([TopicPartition(*numbered(p), offset) for p, offset in begin.items()])

    def _messages_before(self, end: Offsets, found: list[Any], left: set[str]) -> Iterator[tuple]:
        """Yield the messages before a read's end; remove partitions that have reached it from `left`."""
        for m in found:
            partition, offset, error = f"{m.topic()}/{m.partition()}", m.offset(), m.error()
            if error is not None and not self._is_end(error, partition):
                continue
            if error is None and offset < end[partition]:
                yield partition, offset, m.timestamp()[1], m.value()
                offset += 1
            elif error is None or offset > end[partition]:
                self.fetched.append(m)
            if offset >= end[partition]:
                left.discard(partition)

    def _is_end(self, error: Any, partition: str) -> bool:
        """Return whether a client error marks the end of a partition; keep the text of others, which the client retries."""
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise ExpiredError(
                f"{partition}: messages expired, or the topic was created again, while they were read",
                "run again: the new message names the tables, and what to do",
            )
        is_end = error.code() == KafkaError._PARTITION_EOF
        self.last_error = self.last_error if is_end else f": {error.str()}"
        return is_end


def _batch(rows: list[tuple]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = pa.schema({"object": pa.string(), "offset": pa.int64(), "arrived": pa.int64(), "value": pa.binary()})
    return pa.record_batch([*zip(*rows, strict=True)], schema=schema)


@dataclass(frozen=True)
class MessageRange:
    """The messages between two positions; `reader` is the one of this process."""

    spark: SparkSession
    reader: Reader
    begin: Offsets
    end: Offsets

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the messages in this process; if there are many, one partition after another to save memory."""
        if sum(self.end[p] - begin for p, begin in self.begin.items()) < BATCH:
            yield from self.reader.read(self.begin, self.end)
            return
        for partition, begin, end in self._parts(1):
            yield from self.reader.read({partition: begin}, {partition: end})

    def in_tasks(self, work: Work, schema: str) -> DataFrame:
        """Return the rows that `work` makes of the messages in Spark tasks; each task has its own consumer."""
        config, parts = self.reader.config, self._parts(self.spark.sparkContext.defaultParallelism)

        def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for some in numbers for number in some.column(0).to_pylist()):
                partition, begin, end = parts[number]
                yield from work(Reader(config).read({partition: begin}, {partition: end}))

        return self.spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, schema)

    def around(self, places: Iterable[MessagePlace]) -> MessageRange:
        """Return the messages from the first to the last of some places in each partition, read by a new consumer for threads."""
        own = [(p, int(o)) for p, o in places if p in self.end and self.begin[p] <= int(o) < self.end[p]]
        begin, end = dict(sorted(own, reverse=True)), dict(sorted((p, o + 1) for p, o in own))
        return MessageRange(self.spark, Reader(self.reader.config), begin, end)

    def _parts(self, tasks: int) -> list[tuple[str, int, int]]:
        """Return the ranges for tasks: several tasks read a partition with many messages."""
        counts = {p: self.end[p] - begin for p, begin in self.begin.items() if begin < self.end[p]}
        size, parts = max(FEWEST, sum(counts.values()) // tasks), []
        for p, count in counts.items():
            number = max(1, round(count / size))
            cuts = [self.begin[p] + count * i // number for i in range(number + 1)]
            parts += [(p, *cut) for cut in zip(cuts, cuts[1:], strict=False)]
        return parts


PATIENCE_S = 20
ELECTING = (5, 6, 74, 75)
"""Kafka's errors LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH: a broker has just started."""
LOGIN = {
    "FRAZIL_KAFKA_SECURITY_PROTOCOL": "security.protocol",
    "FRAZIL_KAFKA_SASL_MECHANISM": "sasl.mechanism",
    "FRAZIL_KAFKA_USERNAME": "sasl.username",
    "FRAZIL_KAFKA_PASSWORD": "sasl.password",
    "FRAZIL_KAFKA_CA_FILE": "ssl.ca.location",
}
"""{environment variable: property of Kafka's C client}. The CA file is PEM; each executor has it too."""


def _login() -> dict[str, str]:
    return {name: os.environ[variable] for variable, name in LOGIN.items() if os.environ.get(variable)}


@dataclass(frozen=True)
class Kafka:
    """The topics that a DMS task writes to."""

    brokers: str
    names: tuple[str, ...]
    scheme = "kafka://"
    has_end_offsets = True

    @staticmethod
    def from_address(address: str) -> Kafka:
        """Return the source for an address `kafka://host:port,host:port/topic,topic`."""
        return Kafka(*named_source(Kafka.scheme, address, "kafka://host:port,host:port/topic,topic"))

    @cached_property
    def _admin(self):
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise StreamError("confluent-kafka is not installed", "pip install 'frazil[kafka]'") from None
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0, **_login()})

    def reader(self) -> Reader:
        """Return a new consumer of the topics."""
        return Reader({"bootstrap.servers": self.brokers, **_login()})

    @cached_property
    def _reader(self) -> Reader:
        return self.reader()

    def _with_retries(self, request: Callable[[], Any]) -> Any:
        """Return the result of a request; repeat it while the brokers elect a leader."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return request()
            except KafkaException as e:
                if e.args[0].code() not in ELECTING or time.monotonic() > until:
                    raise UnreachableError(
                        f"{self.brokers} do not answer: {e.args[0].str()}",
                        f"check that the broker is up, and that the environment has the credentials ({', '.join(LOGIN)})",
                    ) from None
            time.sleep(0.5)

    def stream_ids(self) -> dict[str, str]:
        """Return each topic's id; brokers before 2.8 have none."""
        from confluent_kafka import TopicCollection

        def ask() -> dict[str, str]:
            topics = TopicCollection(list(self.names))
            found = self._admin.describe_topics(topics, request_timeout=PATIENCE_S)
            return {topic: str(described.result(2 * PATIENCE_S).topic_id) for topic, described in found.items()}

        return {topic: topic_id for topic, topic_id in self._with_retries(ask).items() if topic_id.strip("A=")}

    def _offsets(self, kind: str, *at: int) -> Offsets:
        """Return the offset of every partition; `kind` names one of Kafka's `OffsetSpec`."""
        from confluent_kafka.admin import OffsetSpec

        return self._with_retries(lambda: self._list_offsets(getattr(OffsetSpec, kind)(*at)))

    def _list_offsets(self, spec: Any) -> Offsets:
        from confluent_kafka import TopicPartition

        known = self._admin.list_topics(timeout=PATIENCE_S).topics
        for topic in self.names:
            if topic not in known:
                names = [t for t in known if not t.startswith("__")]
                raise StreamError(f"no topic '{topic}' at {self.brokers}", nearest(topic, names))
        parts = [TopicPartition(t, p) for t in self.names for p in known[t].partitions]
        futures = self._admin.list_offsets(dict.fromkeys(parts, spec), request_timeout=PATIENCE_S)
        return {f"{at.topic}/{at.partition}": found.result(2 * PATIENCE_S).offset for at, found in futures.items()}

    def ends(self) -> Offsets:
        """Return each partition's current end."""
        return self._offsets("latest")

    def earliest(self) -> Offsets:
        """Return the offset of each partition's first retained message."""
        return self._offsets("earliest")

    def start(self, where: str) -> Offsets:
        """Return the offsets for parameter `stream_start`, which has no default."""
        if where in ("earliest", "latest"):
            return self._offsets(where)
        if where.startswith("{"):
            return self.retention().checked_position(named_places(where, self.ends()), "stream_start", {})
        found, ends = self._offsets("for_timestamp", int(parsed_time(where).timestamp() * 1000)), self.ends()
        return {p: o if o >= 0 else ends[p] for p, o in found.items()}

    def retention(self) -> Retention:
        """Read the retained range of the topics; the result raises ExpiredError for a position outside it."""
        earliest, ends, stream_ids = self.earliest(), self.ends(), self.stream_ids()

        def may_have_expired(begin: Offsets, sure: bool) -> set[str]:
            known = {p: o for p, o in begin.items() if sure or o > earliest.get(p, 0)}
            return {p for p, first in earliest.items() if first > known.get(p, 0)}

        return Retention(stream_ids, partial(require_retained, earliest, ends), may_have_expired)

    def take(self, spark: SparkSession, begin: Offsets, most: int = 0) -> StreamRead:
        """Read the current messages after a position, or about `most` of them.

        DMS writes all changes of a key to one partition, until partitions are added. So a partition that is not in the
        position is read only with all messages that the others got before its own.
        """
        ends = self.ends()
        new = {p: o for p, o in ends.items() if p not in begin}
        old = {p: o for p, o in (self.ends() if new else ends).items() if p in begin}
        begin = {**dict.fromkeys(new, 0), **{p: begin[p] for p in old}}
        end = self._limited(begin, old, most)
        if end == old:
            end |= self._limited(begin, new, most)
        begin = {p: begin[p] for p in end}
        messages = MessageRange(spark, self._reader, begin, end) if begin != end else None
        return StreamRead(messages, end, end == {**old, **new}, count=sum(end[p] - begin[p] for p in end))

    def _limited(self, begin: Offsets, ends: Offsets, messages: int) -> Offsets:
        """Return an end after about `messages` messages, which is one time in all partitions; 0: after all.

        So an older change of a key that moved between partitions is never in a later batch.
        """

        def count(end: Offsets) -> int:
            return sum(end[p] - begin[p] for p in end)

        if not messages or count(ends) <= messages:
            return dict(ends)
        fits, end, since, until = {}, ends, 0, LAST_MS
        while until - since > 1 and count(fits) < max(messages // 2, 1):
            at = (since + until) // 2
            found = self._offsets("for_timestamp", at)
            reached = {p: min(max(found[p], begin[p]), last) if found[p] >= 0 else last for p, last in ends.items()}
            if count(reached) <= messages:
                fits, since = reached, at
            else:
                end, until = reached, at
        return fits if count(fits) else end

    def waiting(self, position: Offsets) -> tuple[int, float]:
        """Return the number of messages after a position, and the age of the oldest in seconds."""
        from confluent_kafka import TopicPartition

        ends = self.ends()
        if not (count := sum(e - position.get(p, 0) for p, e in ends.items())):
            return 0, 0.0
        firsts = [TopicPartition(*numbered(p), position.get(p, 0)) for p, e in ends.items() if position.get(p, 0) < e]
        consumer, times = self.reader().consumer, []
        for first in firsts:
            consumer.assign([first])
            found = consumer.consume(1, timeout=PATIENCE_S)
            times += [m.timestamp()[1] / 1000 for m in found if not m.error()]
        consumer.close()
        return count, max(0.0, time.time() - min(times, default=time.time()))
