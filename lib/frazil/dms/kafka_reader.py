"""Reads Kafka messages between two positions with the C client: few in this process, many in Spark tasks.

Messages of unfinished transactions are read too. After a transaction or a compaction, offsets may be missing. So a
partition counts as read when the client has reached its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil.dms.stream_source import ExpiredError, Offsets, Place, UnreachableError, Work, numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 20
BATCH, BATCH_BYTES = 10_000, 16 << 20
"""A batch has about this many messages, or bytes."""
ASKED = 1000
"""Maximum number of messages per request to the client."""
FEWEST = 50_000
"""Minimum number of messages for a further task that reads a partition."""


class Reader:
    """A consumer that continues where its last read ended, with the messages that it has fetched since."""

    def __init__(self, config: dict[str, Any]):
        self.config = config
        self.at: Offsets = {}
        self.fetched: list[Any] = []
        """Messages after the end of the last read."""
        self.last_error = ""

    @cached_property
    def _consumer(self) -> Any:
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
                rows, size, until = [], 0, time.monotonic() + PATIENCE_S
            elif time.monotonic() > until:
                raise UnreachableError(
                    f"no message of {', '.join(sorted(left))} arrived within {PATIENCE_S} s{self.last_error}",
                    "check that the broker is up, and that every executor can reach it and log in",
                )
            if left:  # the client waits until it has this many
                found = self._consumer.consume(min(max(wanted, 1), ASKED), timeout=0.02)
        self.at = dict(end)

    def _assign(self, begin: Offsets) -> None:
        from confluent_kafka import TopicPartition

        self.fetched, self.last_error = [], ""
        self._consumer.assign([TopicPartition(*numbered(p), offset) for p, offset in begin.items()])

    def _messages_before(self, end: Offsets, found: list[Any], left: set[str]) -> Iterator[tuple]:
        """Yield the messages before a read's end; remove partitions that have reached it from `left`."""
        for m in found:
            partition, offset, error = f"{m.topic()}/{m.partition()}", m.offset(), m.error()
            if error is not None and not self._is_end(error, partition):
                continue
            if error is None and offset < end[partition]:
                yield partition, offset, m.timestamp()[1], m.value()
                offset += 1
            elif error is None:
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

    kinds = {"object": pa.string(), "offset": pa.int64(), "arrived": pa.int64(), "value": pa.binary()}
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [*kinds])


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

    def around(self, places: Iterable[Place]) -> MessageRange:
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


__all__ = ["MessageRange", "Reader"]
