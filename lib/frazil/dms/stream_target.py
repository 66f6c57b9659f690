"""The Kafka or Kinesis target of a DMS task: those of its settings that decide how messages are read."""

from __future__ import annotations

from pathlib import Path

from frazil.dms.documents import target_in
from frazil.dms.endpoint import Target


class StreamTarget(Target):
    """Settings of a Kafka or Kinesis target."""

    broker: str = ""
    """Addresses of the Kafka brokers: `host:9092,host:9092`."""
    topic: str = "kafka-default-topic"
    """Topic of Kafka."""
    stream_arn: str = ""
    """ARN of the Kinesis stream."""
    include_null_and_empty: bool = False
    """Whether messages have nulls and empty texts; without it both are left out, and become null."""
    include_transaction_details: bool = False
    """Whether messages have a commit time; without it there is no latency."""
    include_table_alter_operations: bool = False
    """Whether DMS reports changes of the tables' columns."""
    use_large_integer_value: bool = False
    """Whether integers beyond 2^53 are exact; without it DMS rounds them."""
    no_hex_prefix: bool = False
    """Whether bytes are written without `0x`."""

    @property
    def address(self) -> str:
        """The stream as the setting `source` names it; empty if neither a broker nor a stream is stated."""
        if self.stream_arn:
            return f"kinesis://{self.stream_arn.split(':')[3]}/{self.stream_arn.partition('/')[2]}"
        return f"kafka://{self.broker.replace(' ', '')}/{self.topic}" if self.broker else ""


def stream_target(file: Path) -> StreamTarget:
    """Return the Kafka or Kinesis target in a file: the only one among its endpoints, or bare settings."""
    return target_in(file, StreamTarget, "KafkaSettings", "KinesisSettings")
