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


def like_aws(patch) -> None:
    """Let moto keep the records of a split or merged shard where they are, and end and write no closed shard, as AWS does."""
    from collections import OrderedDict
    from hashlib import md5

    from moto.kinesis.models import KinesisBackend, Stream
    from moto.kinesis.utils import decompose_shard_iterator

    def keeping(real):
        def reshard(self, *arguments, **named):
            kept = {shard: shard.records for shard in self.shards.values()}
            for shard in kept:
                shard.records = OrderedDict()
            try:
                return real(self, *arguments, **named)
            finally:
                for shard, records in kept.items():
                    shard.records = records

        return reshard

    for name in ("split_shard", "merge_shards"):
        patch.setattr(Stream, name, keeping(getattr(Stream, name)))

    def open_shard(self, partition_key, explicit_hash_key):
        place = int(explicit_hash_key) if explicit_hash_key else int(md5(partition_key.encode()).hexdigest(), 16)
        return next(s for s in self.shards.values() if s.is_open and s.starting_hash <= place <= s.ending_hash)

    patch.setattr(Stream, "get_shard_for_key", open_shard)
    real = KinesisBackend.get_records

    def get_records(self, stream_arn, shard_iterator, limit):
        after, records, late = real(self, stream_arn, shard_iterator, limit)
        stream, name, place = decompose_shard_iterator(after)
        shard = self.describe_stream(stream_arn=stream_arn, stream_name=stream).get_shard(name)
        over = not shard.is_open and int(place) >= shard.get_max_sequence_number()
        return None if over else after, records, late

    patch.setattr(KinesisBackend, "get_records", get_records)
