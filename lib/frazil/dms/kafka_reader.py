"""Reads a few Kafka messages with the C client: a Spark job creates a new consumer each time, which takes longer than the read."""

from __future__ import annotations

import time
from typing import Any

from frazil.dms.streams import Message, Offsets, numbered

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
        found, ahead, left = self.ahead, [], {p for p in end if begin[p] < end[p]}
        messages: list[Message] = []
        size = 0
        self.at, until = {}, time.monotonic() + PATIENCE_S
        while True:
            for m in found:
                partition, offset = f"{m.topic()}/{m.partition()}", m.offset()
                if m.error():  # at a partition's present end, its offset is that of the next message
                    if not _is_end(m):
                        return None
                    following = offset
                elif offset < end[partition]:
                    messages.append((partition, offset, m.timestamp()[1], m.value()))
                    size += len(m.value() or b"")
                    following = offset + 1
                else:
                    ahead.append(m)
                    following = offset
                if following >= end[partition]:
                    left.discard(partition)
            if size > MOST_BYTES:
                return None
            if not left:
                self.at, self.ahead = dict(end), ahead
                return messages
            if time.monotonic() > until:
                return None
            wanted = sum(end[p] - begin[p] for p in end) - len(messages)  # it waits for this number
            found = self.consumer.consume(min(max(wanted, 1), 1000), timeout=0.02)

    def _assign(self, begin: Offsets) -> None:
        from confluent_kafka import TopicPartition

        self.ahead = []
        self.consumer.assign([TopicPartition(*numbered(p), offset) for p, offset in begin.items()])


def _is_end(message: Any) -> bool:
    from confluent_kafka import KafkaError

    return message.error().code() == KafkaError._PARTITION_EOF


__all__ = ["Reader"]
