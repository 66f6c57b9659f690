"""Small batches of messages: Spark plans a table's batch once, and reads its messages anew from the same file each time.

To analyse, plan and compile a batch of a few hundred messages takes Spark three times as long as to run it. A DataFrame keeps its
plan, and each action on it reads its sources again: so a table's batches are one DataFrame over one file, which is written anew
for each of them. That needs a disk that driver and executors share, so a local session. The file is read whole, whatever its
length was when it was planned, and who applies the batch compares the number of changes with that of the lines.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from frazil.dms.streams import ARRIVED, Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.flows.stream_read import Group

MOST_MB = 8
COLUMNS = {
    "object": "string", "offset": "", "arrived": "bigint", "value": "string", "broken": "boolean", "kind": "string", "operation": "string",
    "schema": "string", "table": "string", "built": "string", "committed": "string", "spread": "string",
}  # fmt: skip
"""What a line holds of a message, and its types; `arrived` in microseconds, `value` as base64, the offset as the stream has it."""
T = TypeVar("T")


class Brought:
    """What one read took, brought to the driver: a JSON text of each message, by table, with its place."""

    def __init__(self, frame: DataFrame | None, groups: list[Group]):
        self.frame, self.lock = frame, Lock()
        self.small = frame is not None and sum(g.bytes for g in groups) < MOST_MB << 20

    def of(self, name: tuple[str, str], begin: Offsets) -> list[str] | None:
        """Return the changes of a table behind a position; None if these are no small batch."""
        if not self.small or ARRIVED in begin:
            return None
        with self.lock:
            mine = self._lines.get(name, [])
        return [line for partition, place, line in mine if place >= begin.get(partition, 0)]

    @cached_property
    def _lines(self) -> dict[tuple[str, str], list[tuple[str, int, str]]]:
        told = {"arrived": "unix_micros(arrived)", "value": "base64(cast(value as binary))"}
        struct = ", ".join(f"{told.get(c, f'`{c}`')} as `{c}`" for c in COLUMNS)
        wanted = self.frame.where("kind = 'data' and operation <> 'load'")
        found: dict[tuple[str, str], list[tuple[str, int, str]]] = {}
        for r in wanted.selectExpr("schema", "`table`", "object", "offset", f"to_json(struct({struct}))").collect():
            found.setdefault((r[0], r[1]), []).append((r[2], int(r[3]), r[4]))
        return found


class Table:
    """One table's file and what was planned over it."""

    def __init__(self, spark: SparkSession, folder: Path, offset: str):
        self.spark, self.file, self.offset = spark, folder / "messages.json", offset
        self.key: Any = None
        self.made: Any = None

    def rows(self) -> DataFrame:
        """Return what the file holds, whatever that is by then, in the columns of `messages.routed`."""
        kinds = ", ".join(f"`{c}`: {kind or self.offset}" for c, kind in COLUMNS.items())
        told = {"arrived": "timestamp_micros(arrived)", "value": "cast(unbase64(value) as string)"}
        text = self.spark.read.text(self.file.as_uri(), wholetext=True)
        rows = text.selectExpr(f"inline(from_json(value, 'array<struct<{kinds}>>'))")
        return rows.selectExpr(*[f"{told.get(c, f'`{c}`')} as `{c}`" for c in COLUMNS]).coalesce(1)


@dataclass(frozen=True)
class Again:
    """A small batch of messages: their lines, and how a table's raw rows come of them; `key` tells what they depend on."""

    table: Table
    lines: list[str]
    key: tuple
    raw: Callable[[DataFrame], DataFrame]

    def plan(self, key: tuple, make: Callable[[DataFrame], T]) -> T:
        """Write the messages into the table's file; return what `make` made of its raw rows when first asked for by this key."""
        self.table.file.write_text(f"[{','.join(self.lines)}]")
        if self.table.key != (wanted := (*self.key, *key)):
            self.table.key, self.table.made = None, make(self.raw(self.table.rows()))
            self.table.key = wanted
        return self.table.made


class Small:
    """The small batches of a run's tables; where the session is not local, none is."""

    def __init__(self, spark: SparkSession):
        self.spark, self.tables = spark, {}
        self.folder = tempfile.TemporaryDirectory(prefix="frazil-") if _is_local(spark) else None

    def of(self, table: str, frame: DataFrame) -> Table | None:
        """Return a table's file and plan."""
        if not self.folder:
            return None
        if table not in self.tables:
            folder = Path(self.folder.name) / table
            folder.mkdir()
            self.tables[table] = Table(self.spark, folder, dict(frame.dtypes)["offset"])
        return self.tables[table]

    def close(self) -> None:
        """Remove the files."""
        if self.folder:
            self.folder.cleanup()


def _is_local(spark: SparkSession) -> bool:
    connect = type(spark).__module__.startswith("pyspark.sql.connect")
    return not connect and spark.sparkContext.master.startswith("local")
