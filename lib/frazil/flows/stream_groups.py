"""What the driver learns of the messages of one read: groups of those that are alike."""

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

BY = ("object", "kind", "operation", "schema", "table")
FACTS = {
    "readable": READABLE, "bytes": "coalesce(octet_length(value), 0)", "arrived": "unix_millis(arrived)",
    "sample": f"if({READABLE}, null, left(value, 200))", "columns": f"if(kind = 'data', {COLUMN_NAMES}, null)",
    "record": f"if(kind = 'control' and operation in {TELLING}, struct(built, offset, value), null)",
}  # fmt: skip
"""The SQL of what a group is told from, beside a message's place."""
NAMES_SQL = f"array_distinct(flatten(collect_set({FACTS['columns']})))"
"""The SQL of all names in the data of some messages."""


@dataclass(frozen=True)
class Group:
    """Messages of one partition that are alike: how many, of how many bytes, the first and last place, the first arrival, their columns, one that is unreadable."""

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
        """Whether some of them lie behind a position."""
        return self.last >= position.get(self.object, 0)


def groups_of(frame: DataFrame) -> list[Group]:
    """Return the groups of `routed` messages: all that the driver learns of them."""
    from pyspark.sql import functions as F

    found = frame.groupBy(*BY).agg(
        F.expr(f"first({FACTS['readable']})").alias("readable"), F.count("*").alias("count"), F.expr(f"sum({FACTS['bytes']})").alias("bytes"),
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.expr(f"min({FACTS['arrived']})").alias("arrived"),
        F.expr(f"min_by({FACTS['sample']}, offset)").alias("sample"), F.expr(NAMES_SQL).alias("columns"),
        F.expr(f"collect_list({FACTS['record']})").alias("records"),
    )  # fmt: skip
    return [_group(r.asDict()) for r in found.collect()]


def grouped(messages: Iterable[dict[str, Any]]) -> list[Group]:
    """Return the same of messages that were brought to the driver with their `FACTS`."""
    found: dict[tuple, list[dict[str, Any]]] = {}
    for m in messages:
        found.setdefault(tuple(m[n] for n in BY), []).append(m)
    return [
        _group({
            **dict(zip(BY, key, strict=True)), "readable": mine[0]["readable"], "count": len(mine), "bytes": sum(m["bytes"] for m in mine),
            "first": min(m["offset"] for m in mine), "last": max(m["offset"] for m in mine), "arrived": min(m["arrived"] for m in mine),
            "sample": min(mine, key=lambda m: m["offset"])["sample"], "columns": {n for m in mine for n in m["columns"] or ()},
            "records": [tuple(m["record"].values()) for m in mine if m["record"]],
        })
        for key, mine in found.items()
    ]  # fmt: skip


def _group(told: dict[str, Any]) -> Group:
    records = tuple((built or "", int(place), text) for built, place, text in told["records"])
    more = {
        "first": int(told["first"]),
        "last": int(told["last"]),
        "columns": tuple(told["columns"]),
        "records": records,
    }
    return Group(**{**told, **more})
