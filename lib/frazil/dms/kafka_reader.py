"""Reads a few Kafka messages with the C client: a Spark job creates a new consumer each time, which takes longer than the read."""

from __future__ import annotations

import time
from typing import Any

from frazil.dms.stream_source import Message, Offsets, numbered

PATIENCE_S = 5
MOST_BYTES = 64 << 20
"""Maximum bytes that this process holds."""


class Reader:
    """One consumer for all reads of a run; it continues where the last read ended, with what it has fetched meanwhile."""

    def __init__(self, config: dict[str, Any]):
        from confluent_kafka import Consumer

        # Like Spark, also read messages of unfinished transactions, and treat an expired offset as an error.
        self.consumer = Consumer({
            "group.id": "frazil", "enable.auto.commit": False, "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted", "enable.partition.eof": True, "queued.max.messages.kbytes": 16384, "log_level": 0, **config,
        })  # fmt: skip
        self.at: Offsets = {}
        self.ahead: list[Any] = []
        """Messages after the last read's end."""

    def read(self, begin: Offsets, end: Offsets) -> list[Message] | None:
        """Return the messages between two places; None if they are too large or too slow, or on errors, which Spark then reports."""
        if begin != self.at:
            self._assign(begin)
        taking = _Taking(end, {p for p in end if begin[p] < end[p]})
        found, self.ahead = self.ahead, []
        self.at, until = {}, time.monotonic() + PATIENCE_S
        while True:
            for m in found:
                if m.error() and not _is_end(m):
                    return None
                if not taking.take(m):
                    self.ahead.append(m)
            if taking.size > MOST_BYTES:
                return None
            if not taking.left:
                self.at = dict(end)
                return taking.messages
            if time.monotonic() > until:
                return None
            wanted = sum(end[p] - begin[p] for p in end) - len(taking.messages)  # it waits for this number
            found = self.consumer.consume(min(max(wanted, 1), 1000), timeout=0.02)

    def _assign(self, begin: Offsets) -> None:
        from confluent_kafka import TopicPartition

        self.ahead = []
        self.consumer.assign([TopicPartition(*numbered(p), offset) for p, offset in begin.items()])


class _Taking:
    """The messages of one read, before `end`; `left` are the partitions whose end is not reached yet."""

    def __init__(self, end: Offsets, left: set[str]):
        self.end, self.left = end, left
        self.messages: list[Message] = []
        self.size = 0

    def take(self, m: Any) -> bool:
        """Add a message, or the notice that its partition ends here; return False for a message after the read's end."""
        partition, offset = f"{m.topic()}/{m.partition()}", m.offset()
        is_news = bool(m.error())
        is_mine = not is_news and offset < self.end[partition]
        if is_mine:
            self.messages.append((partition, offset, m.timestamp()[1], m.value()))
            self.size += len(m.value() or b"")
        if offset + is_mine >= self.end[partition]:
            self.left.discard(partition)
        return is_news or is_mine


def _is_end(message: Any) -> bool:
    from confluent_kafka import KafkaError

    return message.error().code() == KafkaError._PARTITION_EOF


__all__ = ["Reader"]
