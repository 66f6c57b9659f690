"""Worlds whose source is a stream: a topic of the embedded Kafka, or a Kinesis stream of moto's server."""

import json
import time
from abc import ABC, abstractmethod

from frazil_old.config.settings import CdcMergeSettings
from frazil_old.flows.workbook import Workbook
from helpers import World

STAMP = "2026-01-01T10:00:00Z"


class StreamWorld(World, ABC):
    """Messages are written as DMS writes them; `partition` chooses where in the stream."""

    kind = "KafkaSettings"
    source = ""

    def book(self, kind=CdcMergeSettings, **settings):
        (self.root / "endpoint.json").write_text(json.dumps({self.kind: {"IncludeNullAndEmpty": True}}))
        given = {
            "env": "test", "root": str(self.root), "source": self.source, "specs": "specs", "endpoint": "endpoint.json",
            "catalog_options": self.catalog_options, "query_engines": ["spark"], **settings,
        }  # fmt: skip
        return Workbook(kind(**given), self.said.append)

    @abstractmethod
    def send(self, text: str | bytes | None, partition: int = 0) -> "StreamWorld":
        """Put a message into the stream."""

    def message(self, operation, table="t", was=None, partition=0, key_type="schema-table", about=None, **data):
        metadata = {
            "timestamp": STAMP, "record-type": "data", "operation": operation, "partition-key-type": key_type,
            "schema-name": "public", "table-name": table, "commit-timestamp": STAMP, **(about or {}),
        }  # fmt: skip
        image = {"before-image": was} if was is not None else {}
        return self.send(json.dumps({"data": data, **image, "metadata": metadata}), partition)

    def control(self, operation, table="t", partition=0, stamp=STAMP, primary_key=("id",), **columns):
        """A control record; `columns` are those of the table after it (`id="INT64"`, or a dict), else it tells no details."""
        metadata = {"timestamp": stamp, "record-type": "control", "operation": operation, "schema-name": "public", "table-name": table}  # fmt: skip
        told = {n: {"nullable": True, **(c if isinstance(c, dict) else {"type": c})} for n, c in columns.items()}
        details = {"control": {"table-def": {"columns": told, "primary-key": list(primary_key)}}} if columns else {}
        return self.send(json.dumps({**details, "metadata": metadata}), partition)

    def full_load(self, **settings):
        return super().full_load(**{"stream_start": "earliest", "load_complete_when": "declared", **settings})


class KafkaWorld(StreamWorld):
    def __init__(self, kafka, *arguments, partitions: int = 1, topics: int = 1):
        from confluent_kafka import Producer

        super().__init__(*arguments)
        self.kafka, self.topics = kafka, [f"{self.space}{n or ''}" for n in range(topics)]
        self.topic = self.topics[0]
        for topic in self.topics:
            kafka.create_topic(topic, partitions)
        self.source = f"kafka://{kafka.brokers}/{','.join(self.topics)}"
        self._producer = Producer(
            {"bootstrap.servers": kafka.brokers, "log_level": 0, "topic.metadata.refresh.interval.ms": 300}
        )

    def send(self, text, partition=0, topic=0, at_ms=0):
        from confluent_kafka import KafkaException

        value = text.encode() if isinstance(text, str) else text
        for _ in range(60):
            try:
                self._producer.produce(self.topics[topic], value, partition=partition, timestamp=at_ms)
                assert self._producer.flush(30) == 0
                return self
            except KafkaException:  # the producer does not know a new partition yet
                time.sleep(0.5)
        raise AssertionError(f"partition {partition} is not there")


class KinesisWorld(StreamWorld):
    kind = "KinesisSettings"

    def __init__(self, client, *arguments, shards: int = 1):
        super().__init__(*arguments)
        self.client, self.stream = client, self.space
        client.create_stream(StreamName=self.stream, ShardCount=shards)
        self.source = f"kinesis://{client.meta.region_name}/{self.stream}"

    def shards(self) -> list[dict]:
        """The shards that are open, by their range of hash keys."""
        found = self.client.list_shards(StreamName=self.stream)["Shards"]
        opened = [s for s in found if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
        return sorted(opened, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))

    def send(self, text, partition=0):
        start = self.shards()[partition]["HashKeyRange"]["StartingHashKey"]
        data = text if isinstance(text, bytes) else (text or "").encode()
        self.client.put_record(StreamName=self.stream, Data=data, PartitionKey="k", ExplicitHashKey=start)
        return self


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
