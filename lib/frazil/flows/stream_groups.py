"""A summary of the messages of one read for the driver: groups of similar messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.core.messages import is_readable
from frazil.dms.control import TELLING
from frazil.dms.streams import Offsets

if TYPE_CHECKING:
    from frazil.engine.held_messages import HeldMessage

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


def groups_of_messages(messages: Iterable[HeldMessage]) -> list[Group]:
    """Return the groups of messages that this process holds."""
    found: dict[tuple[Any, ...], list[HeldMessage]] = {}
    for m in messages:
        said = m.message
        found.setdefault((m.partition, said.kind, said.operation, said.schema, said.table), []).append(m)
    return [_group_of(key, mine) for key, mine in found.items()]


def groups_of_facts(facts: Iterable[dict[str, Any]]) -> list[Group]:
    """Return the groups of messages that tasks have parsed, from what each of them tells (`message_blocks`)."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for told in facts:
        found.setdefault(tuple(told[name] for name in BY), []).append(told)
    return [_together(mine) for mine in found.values()]


def _together(parts: list[dict[str, Any]]) -> Group:
    first = min(parts, key=lambda part: part["first"])
    readable = is_readable(*(first[name] for name in BY[1:]))
    return Group(
        *(first[name] for name in BY), readable, sum(p["count"] for p in parts), sum(p["bytes"] for p in parts),
        first["first"], max(p["last"] for p in parts), min(p["arrived"] for p in parts), None if readable else first["sample"],
        tuple({name for p in parts for name in p["columns"]}), tuple(tuple(r) for p in parts for r in p["records"]),
    )  # fmt: skip


def _group_of(key: tuple[Any, ...], messages: list[HeldMessage]) -> Group:
    partition, kind, operation, schema, table = key
    first = min(messages, key=lambda m: m.place)
    readable = is_readable(kind, operation, schema, table)
    sample = None if readable or first.value is None else first.value.decode("utf-8", "replace")[:200]
    columns = {name for m in messages for name in m.message.data} if kind == "data" else set()
    telling = messages if kind == "control" and operation in TELLING else []
    records = tuple((m.message.built or "", m.place, (m.value or b"").decode("utf-8", "replace")) for m in telling)
    return Group(
        partition, kind, operation, schema, table, readable, len(messages), sum(len(m.value or b"") for m in messages),
        first.place, max(m.place for m in messages), min(m.arrived_ms for m in messages), sample, tuple(columns), records,
    )  # fmt: skip
