"""What Kafka and Kinesis have in common: positions by partition or shard, and what one read between two of them took.

A place in a partition is a number and means the next message. Beside the places a position of Kinesis holds `ARRIVED`
(epoch milliseconds): no message behind it came earlier.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from frazil.config.sql import beside, literal
from frazil.errors import FrazilError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets = dict[str, int]
ARRIVED = "arrived"
RELOAD = "the missing changes can only come with a new load: reload the table in DMS, then 01_full_load with on_changed_load=reload"


class StreamError(FrazilError):
    """A stream that is not there, or messages that are none of DMS's."""


class UnreachableError(StreamError):
    """A stream that does not answer."""


class ExpiredError(StreamError):
    """A stream that no longer holds what a table needs next, or that is another one."""

    decision = True


Message = tuple[str, int, int, bytes | None]


@dataclass(frozen=True)
class Taken:
    """What one read took: messages (`object`, `offset`, `arrived`, `value`), where it ends, and whether it reached what was there.

    `release` frees what Spark holds of it. `count`: how many messages it has at most, where that is known. `at_once` reads
    the same messages without Spark, as (partition, offset, arrived in ms, value), or gives None where that fails.
    """

    frame: DataFrame | None
    end: Offsets
    caught_up: bool
    release: Callable[[], None] = lambda: None
    count: int | None = None
    at_once: Callable[[], list[Message] | None] = lambda: None


def stream_of(partition: str) -> str:
    """Return the name of the topic or stream that a partition is of."""
    return partition.rpartition("/")[0]


def numbered(partition: str) -> tuple[str, int]:
    """Return the topic that a partition of Kafka is of, and its number there."""
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def remade(was: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the names under which there are other topics or streams now."""
    return [name for name, told in was.items() if now.get(name, told) != told]


@dataclass(frozen=True)
class Kept:
    """What a look at the streams found: which ones they are (`Stream.made`), and a check that raises where a position lies outside.

    `cut` returns the partitions of which messages behind a position may have expired; not `sure`: it is where somebody said
    to begin, which may mean the first one that is kept.
    """

    made: dict[str, str]
    check: Callable[[Offsets, str, str], Offsets]
    cut: Callable[[Offsets, bool], set[str]]

    def __call__(self, position: Offsets, who: str, of: dict[str, str], only: str = "") -> Offsets:
        """Return a position, less what is there no more and was read; `who` has it, `of` is what was `made` when it was taken.

        Raises ExpiredError where messages behind it were lost, or it is of streams whose names others have now. Where all
        of its messages lie in `only` one topic, what became of others is no loss.
        """
        if names := [n for n in remade(of, self.made) if only in ("", n)]:
            raise ExpiredError(f"{who}: {', '.join(names)} was made anew since its position was taken", RELOAD)
        return self.check(position, who, only)


class Stream(Protocol):
    """A stream that DMS writes to; `tells_ends`: whether `ends` says how many messages are there."""

    scheme: str
    tells_ends: bool

    def start(self, where: str) -> Offsets:
        """Return the position that parameter `stream_start` means; it is never guessed."""

    def kept(self) -> Kept:
        """Look at what is there; see `Kept`."""

    def made(self) -> dict[str, str]:
        """Return by name which topics or streams these are: one that is made anew under its name is told otherwise."""

    def ends(self) -> Offsets:
        """Return where each partition ends now; 0 where that cannot be told without reading."""

    def earliest(self) -> Offsets:
        """Return the position before everything that is still kept."""

    def take(self, spark: SparkSession, begin: Offsets, most: int = 0) -> Taken:
        """Read from a position on what is there now, or about `most` messages of it."""

    def waiting(self, position: Offsets) -> tuple[int, float]:
        """Return how many messages lie behind a position, and for how many seconds the oldest has at most."""

    def place_sql(self, place: int) -> str:
        """Return the SQL of a place, to compare `offset` with."""


def behind_sql(stream: Stream, position: Offsets) -> str:
    """Return the SQL condition of messages that lie behind a position."""
    places = {p: o for p, o in position.items() if p != ARRIVED and o}
    here = f"offset >= {place_by_sql(stream, places, stream.place_sql(0))}" if places else "true"
    since = beside(literal(str(position.get(ARRIVED))), "object")
    return f"{here} and arrived >= timestamp_millis({since})" if position.get(ARRIVED) else here


def place_by_sql(stream: Stream, places: Offsets, otherwise: str = "null") -> str:
    """Return the SQL of the place that a message's partition has among some."""
    told = " ".join(f"when {literal(p)} then {stream.place_sql(o)}" for p, o in places.items())
    return f"case object {told} else {otherwise} end" if told else otherwise


def named_source(scheme: str, address: str, example: str) -> tuple[str, tuple[str, ...]]:
    """Return what `scheme://host/name,name` names: the host and the names."""
    host, _, names = address.removeprefix(scheme).partition("/")
    named = tuple(n for n in names.split(",") if n)
    if not host or not named:
        raise StreamError(f"parameter 'source' = '{address}'", f"write {example}")
    return host, named


def moment(where: str) -> datetime:
    """Return the time that `stream_start` names, UTC where it says no zone."""
    try:
        at = datetime.fromisoformat(where)
    except ValueError:
        raise StreamError(
            f"stream_start = '{where}': where in the stream does this table begin?",
            "set it to earliest, latest, a time such as 2026-01-31T12:00:00Z, or places as JSON",
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def named_places(where: str, known: Offsets) -> Offsets:
    """Return the position that `stream_start` states as JSON, a place for every partition."""
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
    """Return the earliest of several positions, in the partitions that all of them know: where one read for all begins."""
    positions = list(positions)
    return {p: min(o[p] for o in positions) for p in positions[0] if all(p in o for o in positions)}
