"""What Kafka and Kinesis have in common: positions by partition or shard, and the result of a read between two positions.

A place in a partition is a number, that of the next message. A position of Kinesis also has `ARRIVED` (epoch
milliseconds): no message after the position arrived earlier.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from frazil.errors import FrazilError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Offsets = dict[str, int]
ARRIVED = "arrived"
RELOAD = "the missing changes can only come with a new load: reload the table in DMS, then 01_full_load with on_changed_load=reload"


class StreamError(FrazilError):
    """A stream does not exist, or its messages are not DMS's."""


class UnreachableError(StreamError):
    """A stream does not answer."""


class ExpiredError(StreamError):
    """A stream no longer has the messages that a table needs next, or was replaced by another one."""

    decision = True


_RAISED = re.compile(rf"{re.escape(__name__)}\.(\w+Error): (.*)\n  cure: (.*)")


def raised_in_task(error: Exception) -> StreamError | None:
    """Return the StreamError by which a Spark job failed: its class does not survive the way to the driver."""
    found = _RAISED.search(str(error))
    kinds = {kind.__name__: kind for kind in (StreamError, UnreachableError, ExpiredError)}
    return kinds[found[1]](found[2], found[3]) if found and found[1] in kinds else None


Work = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
Place = tuple[str, str]
"""A partition, and the offset or sequence number of a message in it."""


class Messages(Protocol):
    """The messages of a read, as batches of `object`, `offset`, `arrived` in milliseconds, and `value`.

    They can be read again.
    """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read them in this process."""

    def in_tasks(self, work: Work, schema: str) -> DataFrame:
        """Return the rows that `work` makes of them in Spark's tasks, which read them when the rows are needed."""

    def around(self, places: Iterable[Place]) -> Messages:
        """Return those at some places, and perhaps others."""


@dataclass(frozen=True)
class Taken:
    """The result of one read: messages, its end, and whether it reached the present end.

    `release` frees Spark's memory for it. `count` is the maximum number of messages, if known.
    """

    messages: Messages | None
    end: Offsets
    caught_up: bool
    release: Callable[[], None] = lambda: None
    count: int | None = None


def stream_of(partition: str) -> str:
    """Return the name of a partition's topic or stream."""
    return partition.rpartition("/")[0]


def numbered(partition: str) -> tuple[str, int]:
    """Return the topic of a Kafka partition, and its number."""
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def remade(was: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the names of topics or streams that were replaced by others."""
    return [name for name, told in was.items() if now.get(name, told) != told]


@dataclass(frozen=True)
class Kept:
    """The state of the streams: their identities (`Stream.made`), and a check that raises for a position outside of what is kept.

    `cut` returns the partitions whose messages after a position may have expired. Not `sure`: a user stated the
    position, which may mean the first kept message.
    """

    made: dict[str, str]
    check: Callable[[Offsets, str, str], Offsets]
    cut: Callable[[Offsets, bool], set[str]]

    def __call__(self, position: Offsets, who: str, of: dict[str, str], only: str = "") -> Offsets:
        """Return a position without partitions that are gone and were read; `who` owns it, `of` is the `made` of its time.

        Raise ExpiredError if messages after it were lost, or if its streams were replaced by others of the same name.
        If all of its messages are in `only` one topic, changes of other topics lose nothing.
        """
        if names := [n for n in remade(of, self.made) if only in ("", n)]:
            raise ExpiredError(f"{who}: {', '.join(names)} was made anew since its position was taken", RELOAD)
        return self.check(position, who, only)


class Stream(Protocol):
    """A stream that DMS writes to; `tells_ends`: whether `ends` gives the number of messages."""

    scheme: str
    tells_ends: bool

    def start(self, where: str) -> Offsets:
        """Return the position for parameter `stream_start`; it is never guessed."""

    def kept(self) -> Kept:
        """Read the present state; see `Kept`."""

    def made(self) -> dict[str, str]:
        """Return an identity of each topic or stream by name: it changes if the topic is created again."""

    def ends(self) -> Offsets:
        """Return each partition's present end; 0 if only a read can tell it."""

    def earliest(self) -> Offsets:
        """Return the position before all kept messages."""

    def take(self, spark: SparkSession, begin: Offsets, most: int = 0) -> Taken:
        """Read the present messages from a position on, or about `most` of them."""

    def waiting(self, position: Offsets) -> tuple[int, float]:
        """Return the number of messages after a position, and the maximum age of the oldest in seconds."""


def named_source(scheme: str, address: str, example: str) -> tuple[str, tuple[str, ...]]:
    """Return the host and the names in `scheme://host/name,name`."""
    host, _, names = address.removeprefix(scheme).partition("/")
    named = tuple(n for n in names.split(",") if n)
    if not host or not named:
        raise StreamError(f"parameter 'source' = '{address}'", f"write {example}")
    return host, named


def moment(where: str) -> datetime:
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
    """Return the position that `stream_start` states as JSON, with a place for every partition."""
    try:
        told = {p: int(o) for p, o in json.loads(where).items()}
    except (ValueError, TypeError):
        raise StreamError(f"stream_start = {where}", 'write JSON: {"topic/0": 17}') from None
    if told.keys() != known.keys():
        raise StreamError(f"stream_start = {where} and the partitions are {', '.join(known)}", "name each one")
    return told


def furthest(a: Offsets, b: Offsets) -> Offsets:
    """Return, by partition, the later of two positions."""
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in {**a, **b}}


def nearest_start(positions: Iterable[Offsets]) -> Offsets:
    """Return the earliest of several positions, in the partitions that all of them know: the start of a common read."""
    positions = list(positions)
    return {p: min(o[p] for o in positions) for p in positions[0] if all(p in o for o in positions)}
