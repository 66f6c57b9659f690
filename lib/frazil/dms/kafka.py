"""Kafka as a source: where its partitions begin and end now, and Spark batches between stated offsets.

Offsets are told by partition, `topic/number`, and mean the next message: those from `begin` up to but without `end`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets = dict[str, int]
SCHEME, PATIENCE_S = "kafka://", 20
RELOAD = "the missing changes can only come with a new load: reload the table in DMS, then 01_full_load with on_changed_load=reload"


class StreamError(FrazilError):
    """A stream that cannot be reached, or that no longer holds what a table needs next."""


@dataclass(frozen=True)
class Kafka:
    """The topics that a DMS task writes to."""

    brokers: str
    topics: tuple[str, ...]

    @staticmethod
    def from_address(address: str) -> Kafka:
        """Return the source that `kafka://host:port,host:port/topic,topic` names."""
        brokers, _, topics = address.removeprefix(SCHEME).partition("/")
        named = tuple(t for t in topics.split(",") if t)
        if not brokers or not named:
            raise StreamError(f"parameter 'source' = '{address}'", "write kafka://host:port,host:port/topic,topic")
        return Kafka(brokers, named)

    @cached_property
    def _admin(self):
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise StreamError("confluent-kafka is not installed", "pip install 'frazil[kafka]'") from None
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    def _listed(self, spec: Any) -> Offsets:
        """Return what the brokers say of every partition, as the kind of question asks."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            known = self._admin.list_topics(timeout=PATIENCE_S).topics
            for topic in self.topics:
                if topic not in known:
                    names = [t for t in known if not t.startswith("__")]
                    raise StreamError(f"no topic '{topic}' at {self.brokers}", nearest(topic, names))
            parts = [TopicPartition(t, p) for t in self.topics for p in known[t].partitions]
            asked = self._admin.list_offsets(dict.fromkeys(parts, spec), request_timeout=PATIENCE_S)
            return {f"{at.topic}/{at.partition}": found.result(2 * PATIENCE_S).offset for at, found in asked.items()}
        except KafkaException as e:
            raise StreamError(f"{self.brokers} do not answer: {e.args[0].str()}", "is the broker up?") from None

    def ends(self) -> Offsets:
        """Return each partition's end now."""
        from confluent_kafka.admin import OffsetSpec

        return self._listed(OffsetSpec.latest())

    def earliest(self) -> Offsets:
        """Return each partition's first message that is still kept."""
        from confluent_kafka.admin import OffsetSpec

        return self._listed(OffsetSpec.earliest())

    def start(self, where: str) -> Offsets:
        """Return the offsets that parameter `stream_start` means; it is never guessed."""
        from confluent_kafka.admin import OffsetSpec

        if where in ("earliest", "latest"):
            return self.earliest() if where == "earliest" else self.ends()
        if where.startswith("{"):
            first = self.earliest()
            told = json.loads(where)
            if told.keys() != first.keys():
                raise StreamError(f"stream_start = {where} and the partitions are {', '.join(first)}", "name each one")
            check_kept(told, first, self.ends(), "stream_start")
            return {p: int(o) for p, o in told.items()}
        try:
            at = datetime.fromisoformat(where)
        except ValueError:
            raise StreamError(
                f"stream_start = '{where}': where in the stream does this table begin?",
                "set it to earliest, latest, a time such as 2026-01-31T12:00:00Z, or offsets as JSON",
            ) from None
        since = at if at.tzinfo else at.replace(tzinfo=UTC)
        found, ends = self._listed(OffsetSpec.for_timestamp(int(since.timestamp() * 1000))), self.ends()
        return {p: o if o >= 0 else ends[p] for p, o in found.items()}

    def read(self, spark: SparkSession, begin: Offsets, end: Offsets) -> DataFrame:
        """Return the messages between two positions as Kafka's reader gives them: topic, partition, offset, key, value."""
        parts = [p for p in end if begin[p] < end[p]]
        return (
            spark.read.format("kafka").option("kafka.bootstrap.servers", self.brokers)
            .option("assign", json.dumps({t: [n for _, n, _ in rows] for t, rows in _by_topic(parts, end)}))
            .option("startingOffsets", json.dumps({t: {n: o for _, n, o in rows} for t, rows in _by_topic(parts, begin)}))
            .option("endingOffsets", json.dumps({t: {n: o for _, n, o in rows} for t, rows in _by_topic(parts, end)}))
            .option("failOnDataLoss", "true").option("kafkaConsumer.pollTimeoutMs", PATIENCE_S * 1000)
            .load()
        )  # fmt: skip


def _by_topic(parts: Iterable[str], offsets: Offsets) -> list[tuple[str, list[tuple[str, int, int]]]]:
    rows: dict[str, list[tuple[str, int, int]]] = {}
    for p in parts:
        topic, number = p.rsplit("/", 1)
        rows.setdefault(topic, []).append((topic, int(number), offsets[p]))
    return list(rows.items())


def check_kept(position: Offsets, earliest: Offsets, ends: Offsets, who: str) -> None:
    """Raise StreamError where the stream no longer holds the next message of a position, or is another one."""
    for p, offset in position.items():
        if p not in ends:
            raise StreamError(
                f"{who}: its position names {p}, which the topics do not have", "was the topic made anew?"
            )
        if offset < earliest[p]:
            raise StreamError(
                f"{who}: messages {offset} to {earliest[p] - 1} of {p} have expired before they were applied", RELOAD
            )
        if offset > ends[p]:
            raise StreamError(
                f"{who}: its position in {p} is {offset} and the partition ends at {ends[p]}: the topic was made anew",
                "reload the table in DMS, drop it in the lake, and set it up again",
            )
    for p in ends.keys() - position.keys():
        if earliest[p]:
            raise StreamError(f"{who}: partition {p} is new, and messages before {earliest[p]} have expired", RELOAD)


def furthest(a: Offsets, b: Offsets) -> Offsets:
    """Return, by partition, the later of two positions."""
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in {**a, **b}}


def nearest_start(positions: Iterable[Offsets], ends: Offsets) -> Offsets:
    """Return, by partition, the earliest of several positions: where one read for all begins."""
    positions = list(positions)
    return {p: min((o.get(p, 0) for o in positions), default=e) for p, e in ends.items()}


def limited(begin: Offsets, ends: Offsets, messages: int) -> Offsets:
    """Return an end so that about `messages` lie before it, shared among the partitions that have any."""
    waiting = sorted((ends[p] - begin[p], p) for p in ends if ends[p] > begin[p])
    end, left = dict(begin), max(messages, len(waiting))
    for i, (count, p) in enumerate(waiting):
        taken = min(count, left // (len(waiting) - i))
        end[p], left = begin[p] + taken, left - taken
    return end
