"""A summary of the messages of one read for the driver: groups of similar messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.dms.control import TELLING
from frazil.dms.messages import COLUMN_NAMES
from frazil.dms.streams import Offsets
from frazil.flows.unreadable import READABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from frazil.engine.held_messages import HeldMessage

BY = ("object", "kind", "operation", "schema", "table")
FACTS = {
    "readable": READABLE, "bytes": "coalesce(octet_length(value), 0)", "arrived": "unix_millis(arrived)",
    "sample": f"if({READABLE}, null, left(value, 200))", "columns": f"if(kind = 'data', {COLUMN_NAMES}, null)",
    "record": f"if(kind = 'control' and operation in {TELLING}, struct(built, offset, value), null)",
}  # fmt: skip
"""The SQL columns that a group is made from, besides a message's place."""
NAMES_SQL = f"array_distinct(flatten(collect_set({FACTS['columns']})))"
"""The SQL of all names in the data of some messages."""


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

    def behind(self, position: Offsets) -> bool:
        """Whether some of them are after a position."""
        return self.last >= position.get(self.object, 0)


def groups_of(frame: DataFrame) -> list[Group]:
    """Return the groups of `routed` messages, which are all that the driver learns about them."""
    from pyspark.sql import functions as F

    found = frame.groupBy(*BY).agg(
        F.expr(f"first({FACTS['readable']})").alias("readable"), F.count("*").alias("count"), F.expr(f"sum({FACTS['bytes']})").alias("bytes"),
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.expr(f"min({FACTS['arrived']})").alias("arrived"),
        F.expr(f"min_by({FACTS['sample']}, offset)").alias("sample"), F.expr(NAMES_SQL).alias("columns"),
        F.expr(f"collect_list({FACTS['record']})").alias("records"),
    )  # fmt: skip
    return [_group(r.asDict()) for r in found.collect()]


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


def is_readable(kind: str | None, operation: str | None, schema: str | None, table: str | None) -> bool:
    """Return whether a message's metadata give its kind and table, as `READABLE` does."""
    is_named = kind == "control" or (kind == "data" and schema is not None and table is not None)
    return operation is not None and is_named


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


def _group(told: dict[str, Any]) -> Group:
    records = tuple((built or "", int(place), text) for built, place, text in told["records"])
    more = {
        "first": int(told["first"]),
        "last": int(told["last"]),
        "columns": tuple(told["columns"]),
        "records": records,
    }
    return Group(**{**told, **more})
