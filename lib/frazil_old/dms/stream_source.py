"""What Kafka and Kinesis have in common: positions by partition or shard, and the result of a read between two positions.

A place in a partition is the number of the next message. A position of Kinesis also has `ARRIVED` (epoch
milliseconds): no message after the position arrived earlier.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from frazil_old.errors import FrazilError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Offsets = dict[str, int]
ARRIVED = "arrived"


class StreamError(FrazilError):
    """A stream does not exist, or DMS did not write its messages."""


class UnreachableError(StreamError):
    """A stream does not answer."""


class ExpiredError(StreamError):
    """A stream no longer has the messages that a table needs next, or was replaced by another one."""

    decision = True


_RAISED = re.compile(rf"{re.escape(__name__)}\.(\w+Error): (.*)\n  cure: (.*)")


def raised_in_task(error: Exception) -> StreamError | None:
    """Return the StreamError that made a Spark job fail: the driver gets only its text."""
    found = _RAISED.search(str(error))
    kinds = {kind.__name__: kind for kind in (StreamError, UnreachableError, ExpiredError)}
    return kinds[found[1]](found[2], found[3]) if found and found[1] in kinds else None


Work = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
MessagePlace = tuple[str, str]
"""A partition, and the offset or sequence number of a message in it."""


class Messages(Protocol):
    """The messages of a read, as batches of `object`, `offset`, `arrived` in milliseconds, and `value`.

    They can be read more than once.
    """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the messages in this process."""

    def in_tasks(self, work: Work, schema: str) -> DataFrame:
        """Return the rows that `work` makes of the messages in Spark tasks, which read them when the rows are needed."""

    def around(self, places: Iterable[MessagePlace]) -> Messages:
        """Return the messages at some places, and perhaps others."""


@dataclass(frozen=True)
class StreamRead:
    """The result of one read: messages, its end, and whether it reached the stream's current end.

    `release` frees Spark's memory for it. `count` is the maximum number of messages, if known.
    """

    messages: Messages | None
    end: Offsets
    caught_up: bool
    release: Callable[[], None] = lambda: None
    count: int | None = None


def stream_name(partition: str) -> str:
    """Return the name of a partition's topic or stream."""
    return partition.rpartition("/")[0]


def numbered(partition: str) -> tuple[str, int]:
    """Return the topic of a Kafka partition, and its number."""
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def named_source(scheme: str, address: str, example: str) -> tuple[str, tuple[str, ...]]:
    """Return the host and the names in `scheme://host/name,name`."""
    host, _, names = address.removeprefix(scheme).partition("/")
    named = tuple(n for n in names.split(",") if n)
    if not host or not named:
        raise StreamError(f"parameter 'source' = '{address}'", f"write {example}")
    return host, named


def parsed_time(where: str) -> datetime:
    """Return the time in `stream_start`; without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(where)
    except ValueError:
        raise StreamError(
            f"stream_start = '{where}': where in the stream does this table begin?",
            "set it to earliest, latest, a time such as 2026-01-31T12:00:00Z, or places as JSON",
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def named_places(where: str, known: Offsets) -> Offsets:
    """Return the position in `stream_start`, which is JSON with a place for every partition."""
    try:
        position = {p: int(o) for p, o in json.loads(where).items()}
    except (ValueError, TypeError):
        raise StreamError(f"stream_start = {where}", 'write JSON: {"topic/0": 17}') from None
    if position.keys() != known.keys():
        raise StreamError(f"stream_start = {where}, but the partitions are {', '.join(known)}", "name each one")
    return position


def max_offsets(a: Offsets, b: Offsets) -> Offsets:
    """Return, by partition, the later of two positions."""
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in {**a, **b}}


def min_offsets(positions: Iterable[Offsets]) -> Offsets:
    """Return the earliest of several positions, in the partitions that all of them know: the start of a common read."""
    positions = list(positions)
    return {p: min(o[p] for o in positions) for p in positions[0] if all(p in o for o in positions)}
