"""Kinesis as a source: executors read each shard up to the time when the read began.

A shard is named `stream/shardId-…`. Its place is the last sequence number read plus 1, and 0 before the first read. After
all of a closed shard was read, its place is after its end. Only then are its child shards read, which keeps the order of
a key's changes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from frazil_old.config.spark_session import missing_python, without_python
from frazil_old.config.sql import literal
from frazil_old.dms.stream_retention import RELOAD, Retention
from frazil_old.dms.stream_source import (
    ARRIVED,
    ExpiredError,
    MessagePlace,
    Offsets,
    StreamError,
    StreamRead,
    UnreachableError,
    Work,
    named_places,
    named_source,
    parsed_time,
    stream_name,
)
from frazil_old.errors import nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DIGITS = 56  # of a sequence number; padded, they sort as text
SKEW_MS = 3_600_000  # clocks of the two sides differ by less
PAUSE_S, ATTEMPTS = 0.2, 12  # a shard allows five reads a second
BATCH = 10_000
COLUMNS = "object string, offset string, arrived bigint, value binary"


def _client(region: str, login: dict[str, str]) -> Any:
    import boto3
    from botocore.config import Config

    retries = {"mode": "standard", "max_attempts": ATTEMPTS}  # throttled and failed calls, with exponential backoff
    return boto3.client("kinesis", region_name=region, config=Config(retries=retries), **login)


def _ship_code() -> None:
    """Send this module and its imports to the executors: they need boto3, but not Frazil."""
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Shard:
    """One shard as the stream lists it; `end` is its last sequence number if it is closed, else None."""

    name: str
    parents: tuple[str, ...]
    end: int | None

    def is_read(self, position: Offsets) -> bool:
        """Return whether a position is after the end of the closed shard."""
        return self.end is not None and position.get(self.name, 0) > self.end


@dataclass(frozen=True)
class Kinesis:
    """The streams that a DMS task writes to."""

    region: str
    names: tuple[str, ...]
    scheme = "kinesis://"
    has_end_offsets = False

    @staticmethod
    def from_address(address: str) -> Kinesis:
        """Return the source for an address `kinesis://region/stream,stream`."""
        return Kinesis(*named_source(Kinesis.scheme, address, "kinesis://region/stream,stream"))

    @cached_property
    def _login(self) -> dict[str, str]:
        """The credentials that boto3 finds on the driver, for the executors; never shown."""
        import boto3

        found, given = boto3.Session().get_credentials(), {}
        if found:
            keys = found.get_frozen_credentials()
            given = {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
            given |= {"aws_session_token": keys.token} if keys.token else {}
        address = os.environ.get("AWS_ENDPOINT_URL_KINESIS")
        return given | ({"endpoint_url": address} if address else {})

    @cached_property
    def _kinesis(self) -> Any:
        try:
            return _client(self.region, self._login)
        except ImportError:
            raise StreamError("boto3 is not installed", "pip install 'frazil[workbook]'") from None

    def _ask(self, call: str, **what: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._kinesis, call)(**what)
        except self._kinesis.exceptions.ResourceNotFoundException:
            known = self._kinesis.list_streams()["StreamNames"]
            raise StreamError(
                f"no stream '{what.get('StreamName')}' in {self.region}", nearest(str(what.get("StreamName")), known)
            ) from None
        except (BotoCoreError, ClientError) as e:
            raise UnreachableError(
                f"Kinesis in {self.region}: {call}: {e}", "check the credentials and the network"
            ) from None

    def _shards(self) -> dict[str, Shard]:
        shards: dict[str, Shard] = {}
        for stream in self.names:
            request: dict[str, Any] = {"StreamName": stream}
            while request:
                page = self._ask("list_shards", **request)
                for s in page["Shards"]:
                    parents = (s.get("ParentShardId"), s.get("AdjacentParentShardId"))
                    end = s["SequenceNumberRange"].get("EndingSequenceNumber")
                    name = f"{stream}/{s['ShardId']}"
                    shards[name] = Shard(name, tuple(f"{stream}/{p}" for p in parents if p), int(end) if end else None)
                request = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
        return shards

    def ends(self) -> Offsets:
        """Return 0 for each listed shard: Kinesis does not report where a shard ends."""
        return dict.fromkeys(self._shards(), 0)

    def earliest(self) -> Offsets:
        """Return the position before all retained messages."""
        return {**self.ends(), ARRIVED: 0}

    def start(self, where: str) -> Offsets:
        """Return the position for parameter `stream_start`, which has no default."""
        if where == "earliest":
            return self.earliest()
        if where.startswith("{"):
            return {**named_places(where, self.ends()), ARRIVED: 0}
        at = time.time() if where == "latest" else parsed_time(where).timestamp()
        return {**self.ends(), ARRIVED: round(at * 1000)}

    def _summaries(self) -> dict[str, dict[str, Any]]:
        answers = {s: self._ask("describe_stream_summary", StreamName=s) for s in self.names}
        return {s: answer["StreamDescriptionSummary"] for s, answer in answers.items()}

    def stream_ids(self) -> dict[str, str]:
        """Return the creation time of each stream."""
        return _creation_times(self._summaries())

    def arns(self) -> list[str]:
        """Return the ARNs of the streams."""
        return [s["StreamARN"] for s in self._summaries().values()]

    def retention(self) -> Retention:
        """Return the check that raises ExpiredError if messages after a position may have expired."""
        summaries = self._summaries()
        stream_ids, hours = _creation_times(summaries), min(s["RetentionPeriodHours"] for s in summaries.values())
        shards, since = self._shards(), (time.time() - hours * 3600) * 1000

        def check(position: Offsets, who: str, only: str) -> Offsets:
            kept = {p: o for p, o in position.items() if p in shards or p == ARRIVED}
            if position and kept.keys() <= {ARRIVED}:
                raise ExpiredError(
                    f"{who}: the stream has none of its position's shards", "check whether the stream was created again"
                )
            if position and position.get(ARRIVED, 0) < since:
                raise ExpiredError(
                    f"{who}: the stream was last read to {datetime.fromtimestamp(position.get(ARRIVED, 0) / 1000, UTC):%F %T} UTC and "
                    f"keeps messages for {hours} hours: some may have expired before they were applied",
                    RELOAD,
                )
            return kept

        def may_have_expired(begin: Offsets, sure: bool) -> set[str]:
            if sure and not begin.get(ARRIVED):  # sequence numbers from the user
                return set()
            created = {name: float(at) * 1000 for name, at in stream_ids.items()}
            return {p for p in shards if max(begin.get(ARRIVED, 0), created.get(stream_name(p), 0)) < since}

        return Retention(stream_ids, check, may_have_expired)

    def take(self, spark: SparkSession, begin: Offsets, most: int = 0) -> StreamRead:
        """Read all shards in parallel after a position, until they reach the current time, or about `most` messages."""
        from pyspark import StorageLevel

        shards, now = self._shards(), round(time.time() * 1000)
        unread = [s for s in shards.values() if not s.is_read(begin)]
        ready = [s for s in unread if not any(p in shards and not shards[p].is_read(begin) for p in s.parents)]
        if not ready:
            return StreamRead(None, {**begin, **dict.fromkeys(shards.keys() - begin.keys(), 0)}, True)
        given = [(s.name, begin.get(s.name, 0), s.end) for s in ready]
        reader = _Reader(self.region, self._login, begin.get(ARRIVED, 0), now, most // len(ready) if most else 0)

        def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for some in numbers for number in some.column(0).to_pylist()):
                yield from map(_batch, reader(given[number]))

        _ship_code()
        rows = spark.range(0, len(given), 1, len(given)).mapInArrow(run, COLUMNS)
        cached = rows.persist(StorageLevel.MEMORY_AND_DISK)
        # The last row of each shard is not a message: its offset is how far the shard was read, and its time shows
        # whether the read reached the current time.
        try:
            ends = cached.where("value is null").select("object", "offset", "arrived").collect()
        except Exception as error:
            cached.unpersist()
            raise (without_python(missing) if (missing := missing_python(error)) else error) from None
        caught_up, whole = all(at == now for _, _, at in ends), len(ready) == len(unread)
        end = {s: begin.get(s, 0) for s in shards} | {s: int(o) for s, o, _ in ends}
        # If Spark repeats the read, it may get more messages, which this filter drops.
        places = " ".join(f"when {literal(s)} then '{o}'" for s, o, _ in ends)
        messages = CachedMessages(cached.where(f"value is not null and offset < case object {places} end"))
        # Child shards that are not read yet may have older messages than the last ones of their parents.
        seen = min(at for _, _, at in ends) - SKEW_MS if whole else 0
        end[ARRIVED] = max(begin.get(ARRIVED, 0), seen)
        return StreamRead(messages, end, caught_up and whole, cached.unpersist)

    def waiting(self, position: Offsets) -> tuple[int, float]:
        """Return 0, as Kinesis has no count, and the seconds since all messages had been read."""
        return 0, max(0.0, time.time() - (position.get(ARRIVED, 0) + SKEW_MS) / 1000)


@dataclass(frozen=True)
class CachedMessages:
    """Messages in Spark's cache, as only the read itself shows where it ends."""

    frame: DataFrame

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the messages to this process, one partition at a time; tasks need no Python."""
        rows = self.frame.toLocalIterator()
        while some := list(islice(rows, BATCH)):
            yield _batch(some)

    def in_tasks(self, work: Work, schema: str) -> DataFrame:
        """Return the rows that `work` makes of the messages in Spark tasks."""
        return self.frame.mapInArrow(work, schema)

    def around(self, places: Iterable[MessagePlace]) -> CachedMessages:
        """Return the messages at some places."""
        wanted = ", ".join(literal("/".join(place)) for place in places)
        return CachedMessages(self.frame.where(f"concat_ws('/', object, offset) in ({wanted})"))


def _creation_times(summaries: dict[str, dict[str, Any]]) -> dict[str, str]:
    times = {name: s.get("StreamCreationTimestamp") for name, s in summaries.items()}
    return {name: f"{at.timestamp():.3f}" for name, at in times.items() if at}


def _batch(rows: Iterable[tuple]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = pa.schema({"object": pa.string(), "offset": pa.string(), "arrived": pa.int64(), "value": pa.binary()})
    return pa.record_batch([*zip(*rows, strict=True)], schema=schema)


@dataclass(frozen=True)
class _Reader:
    """Reads one shard (`name`, `place`, `end`) into blocks of rows of `COLUMNS`."""

    region: str
    login: dict[str, str]
    since_ms: int
    until_ms: int
    most: int

    def __call__(self, shard: tuple[str, int, int | None]) -> Iterator[list[tuple]]:
        name, place, end = shard
        client = _client(self.region, self.login)
        iterator, count, at = self._iterator(client, name, place), 0, 0
        while True:
            try:
                got = client.get_records(ShardIterator=iterator, Limit=min(BATCH, self.most or BATCH))
            except client.exceptions.ExpiredIteratorException:
                iterator = self._iterator(client, name, place)
                continue
            rows = [
                (
                    name,
                    f"{int(r['SequenceNumber']):0{DIGITS}}",
                    int(r["ApproximateArrivalTimestamp"].timestamp() * 1000),
                    r["Data"],
                )
                for r in got["Records"]
            ]
            if rows:
                place, at, count = int(rows[-1][1]) + 1, rows[-1][2], count + len(rows)
                yield rows
            iterator = got.get("NextShardIterator")
            at_end = not iterator or (not got["Records"] and got.get("MillisBehindLatest", 0) == 0)
            caught_up = at_end or (end is None and at > self.until_ms)
            if caught_up or (self.most and count >= self.most):
                break
            if not got["Records"]:
                time.sleep(PAUSE_S)
        if caught_up and end is not None:
            place = max(place, end + 1)
        read_until = self.until_ms if caught_up else min(at, self.until_ms - 1)
        yield [(name, f"{place:0{DIGITS}}", read_until, None)]

    def _iterator(self, client: Any, name: str, place: int) -> str:
        stream, shard = name.split("/")
        kind: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if place:
            kind = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(place - 1)}
        elif self.since_ms:
            kind = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": datetime.fromtimestamp(self.since_ms / 1000, UTC)}
        return client.get_shard_iterator(StreamName=stream, ShardId=shard, **kind)["ShardIterator"]
