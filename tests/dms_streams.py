"""Streams that messages really go to: a topic of Kafka, and a Kinesis stream. `send` returns once a message is there."""

from __future__ import annotations

import time

from dms_writer import Messages


class Topic(Messages):
    """A topic of a broker, which is the fixture `kafka`."""

    def __init__(self, world, broker, partitions: int = 1, name: str = "", **settings):
        from confluent_kafka import Producer

        super().__init__(world.specs, **settings)
        self.broker, self.name = broker, name or world.space
        broker.create_topic(self.name, partitions)
        world.reads(f"kafka://{broker.brokers}/{self.name}", self)
        known = {"bootstrap.servers": broker.brokers, "log_level": 0, "topic.metadata.refresh.interval.ms": 300}
        self.producer = Producer(known)

    def send(self, text: str | bytes, partition: int = 0, at_ms: int = 0) -> None:
        """Put a message into the topic; `at_ms` is its own time, if it is not the present."""
        super().send(text, partition)
        from confluent_kafka import KafkaException

        for _ in range(60):
            try:
                self.producer.produce(self.name, self.sent[-1][1], partition=partition, timestamp=at_ms)
                assert self.producer.flush(30) == 0, "the broker took no message"
                return
            except KafkaException:  # the producer does not know a new partition yet
                time.sleep(0.5)
        raise AssertionError(f"{self.name} has no partition {partition}")


class Shards(Messages):
    """A Kinesis stream, by the client that is the fixture `kinesis`; a partition is the place of an open shard."""

    def __init__(self, world, client, shards: int = 1, **settings):
        super().__init__(world.specs, **settings)
        self.client, self.name = client, world.space
        client.create_stream(StreamName=self.name, ShardCount=shards)
        world.reads(f"kinesis://{client.meta.region_name}/{self.name}", self)

    def send(self, text: str | bytes, partition: int = 0) -> None:
        """Put a message into a shard."""
        super().send(text, partition)
        start = self.open()[partition]["HashKeyRange"]["StartingHashKey"]
        self.client.put_record(StreamName=self.name, Data=self.sent[-1][1], PartitionKey="k", ExplicitHashKey=start)

    def open(self) -> list[dict]:
        """Return the shards that are open, by their range of hash keys."""
        found = self.client.list_shards(StreamName=self.name)["Shards"]
        kept = [s for s in found if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
        return sorted(kept, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))

    def split(self, partition: int = 0) -> None:
        """Split a shard in its middle."""
        shard = self.open()[partition]
        middle = sum(map(int, shard["HashKeyRange"].values())) // 2
        self.client.split_shard(StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))

    def join(self) -> None:
        """Merge the first two shards."""
        one, other = (s["ShardId"] for s in self.open()[:2])
        self.client.merge_shards(StreamName=self.name, ShardToMerge=one, AdjacentShardToMerge=other)
