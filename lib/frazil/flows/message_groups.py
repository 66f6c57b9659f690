"""A summary of the messages of one read for the driver: groups of similar messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from frazil.core.messages import is_readable
from frazil.dms.stream_source import Offsets

BY = ("object", "kind", "operation", "schema", "table")


@dataclass(frozen=True)
class Group:
    """Similar messages of one partition.

    It has their number, bytes, first and last place, first arrival, columns, and an unreadable one.
    """

    object: str
    kind: str | None
    operation: str | None
    schema: str | None
    table: str | None
    readable: bool
    count: int
    bytes: int
    first: int
    last: int
    arrived: int
    sample: str | None
    columns: tuple[str, ...]
    records: tuple[tuple[str, int, str], ...] = ()
    """Control records that may hold a definition: when DMS made each, its place, and its text."""

    @property
    def is_load(self) -> bool:
        """Whether these are load records."""
        return self.kind == "data" and self.operation == "load"

    def is_after(self, position: Offsets) -> bool:
        """Whether some of them are after a position."""
        return self.last >= position.get(self.object, 0)


def groups_of_facts(facts: Iterable[dict[str, Any]]) -> list[Group]:
    """Return the groups of messages from the facts that `message_blocks` has about each part."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for part in facts:
        found.setdefault(tuple(part[name] for name in BY), []).append(part)
    return [_together(mine) for mine in found.values()]


def _together(parts: list[dict[str, Any]]) -> Group:
    first = min(parts, key=lambda part: part["first"])
    readable = is_readable(*(first[name] for name in BY[1:]))
    return Group(
        *(first[name] for name in BY),
        readable,
        sum(p["count"] for p in parts),
        sum(p["bytes"] for p in parts),
        first["first"],
        max(p["last"] for p in parts),
        min(p["arrived"] for p in parts),
        None if readable else first["sample"],
        tuple({name for p in parts for name in p["columns"]}),
        tuple(tuple(r) for p in parts for r in p["records"]),
    )
