"""Sends the simulator's messages to a Kafka topic or a Kinesis stream: in order per key, each at least once."""

from __future__ import annotations

import time
from typing import Any

from frazil_demo.settings import SimulatorError, Target


class ToKafka:
    """An idempotent producer."""

    def __init__(self, target: Target, delivery_s: float):
        from confluent_kafka import Producer

        self._delivery_s, self._failed = delivery_s, []
        self._producer = Producer({
            "bootstrap.servers": target.broker, "linger.ms": 20, "enable.idempotence": True,
            "delivery.timeout.ms": round(delivery_s * 1000), "partitioner": "murmur2_random", "log_level": 0,
            "queue.buffering.max.messages": 1_000_000,
        })  # fmt: skip

    def send(self, topic: str, key: str, data: bytes) -> None:
        """Pass a message to the producer; wait while its queue is full."""
        while True:
            try:
                self._producer.produce(topic, data, key.encode(), on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.5)
        self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def flush(self) -> None:
        """Wait until the broker has every message; raise SimulatorError if it does not accept them."""
        left = self._producer.flush(self._delivery_s)
        if left or self._failed:
            raise SimulatorError(
                f"{left + len(self._failed)} messages not taken: {self._failed[:1]}", "is the broker up?"
            )


class ToKinesis:
    """Makes calls of up to 500 records; refused records, and all after them, are sent again."""

    MOST = 500

    def __init__(self, target: Target, delivery_s: float):
        import boto3

        parts = target.stream_arn.split(":")
        self._client, self._delivery_s = boto3.client("kinesis", region_name=parts[3]), delivery_s
        self._waiting: list[tuple[str, str, bytes]] = []

    def send(self, topic: str, key: str, data: bytes) -> None:
        """Keep a message until there are enough for a call."""
        self._waiting.append((topic, key, data))
        if len(self._waiting) >= self.MOST:
            self.flush()

    def flush(self) -> None:
        """Send the kept messages; raise SimulatorError if Kinesis does not accept them in time."""
        deadline = time.monotonic() + self._delivery_s
        while self._waiting:
            stream = self._waiting[0][0]
            batch = [w for w in self._waiting[: self.MOST] if w[0] == stream]
            records = [{"Data": data, "PartitionKey": key[:256]} for _, key, data in batch]
            told = self._client.put_records(StreamName=stream, Records=records)["Records"]
            taken = next((i for i, r in enumerate(told) if r.get("ErrorCode")), len(told))
            del self._waiting[:taken]
            if taken < len(told):
                if time.monotonic() > deadline:
                    raise SimulatorError(
                        f"{len(self._waiting)} messages not taken: {told[taken]}", "is the stream there?"
                    )
                time.sleep(0.2)
