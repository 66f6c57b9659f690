"""A few messages of a stream, read by this process: each parsed by the core, with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.core.messages import Message, parse_message
from frazil.dms.streams import ARRIVED, Offsets
from frazil.dms.streams import Message as Received

if TYPE_CHECKING:
    import pyarrow as pa

MOST = 8000
"""Spark reads more messages than this, on all cores."""


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message, with its partition, its place there and its time of arrival."""

    partition: str
    place: int
    arrived_ms: int
    value: bytes | None
    message: Message


def parse_messages(received: Iterable[Received], before_field: str) -> list[HeldMessage]:
    """Return messages in the form that the core reads."""
    return [HeldMessage(p, place, at, value, parse_message(value, before_field)) for p, place, at, value in received]


def changes_of(
    messages: Sequence[HeldMessage],
    table: tuple[str, str],
    begin: Offsets,
    before: tuple[str, int] | None = None,
    loads: bool = False,
) -> list[HeldMessage]:
    """Return the changes of a table (schema, name) from a position on, and `before` a place of one partition if one is given.

    `loads`: return its load records instead.
    """
    found = [
        m for m in messages
        if m.message.kind == "data" and m.message.operation is not None and (m.message.operation == "load") == loads
        and (m.message.schema, m.message.table) == table and m.place >= begin.get(m.partition, 0) and m.arrived_ms >= begin.get(ARRIVED, 0)
    ]  # fmt: skip
    return found if before is None else [m for m in found if m.partition == before[0] and m.place < before[1]]


def places_of(messages: Sequence[HeldMessage]) -> Iterator[tuple[str, pa.Table]]:
    """Yield each partition with the places and the arrivals of its messages."""
    import pyarrow as pa

    for partition in {m.partition for m in messages}:
        mine = [m for m in messages if m.partition == partition]
        yield partition, pa.table({"place": [m.place for m in mine], "arrived": [m.arrived_ms for m in mine]})
