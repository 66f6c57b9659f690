"""Small batches of messages: Spark plans a table's batch once, and reads its messages anew from the same file each time.

To analyse, plan and compile a batch of a few hundred messages takes Spark three times as long as to run it. A DataFrame keeps its
plan, and each action on it reads its sources again: so a table's batches are one DataFrame over one file, which is written anew
for each of them. That needs a disk that driver and executors share, so a local session. The file is read whole, whatever its
length was when it was planned, and who applies the batch compares the number of changes with that of the lines.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from frazil.config.paths import NO_PATTERNS, file_location
from frazil.config.sql import identifier
from frazil.dms.messages import routed
from frazil.dms.streams import ARRIVED, Message, Offsets
from frazil.flows.stream_groups import BY, FACTS
from frazil.lake.locator import arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST, LONGEST = 8000, 8192
"""How many messages are few, and how many bytes one of these may have."""
COLUMNS = {
    "object": "string", "offset": "", "arrived": "bigint", "value": "string", "broken": "boolean", "kind": "string", "operation": "string",
    "schema": "string", "table": "string", "built": "string", "committed": "string", "spread": "string",
}  # fmt: skip
"""What a line holds of a message, and its types; `arrived` in microseconds, `value` as base64, the offset as the stream has it."""
T = TypeVar("T")


class Brought:
    """Messages of one read on the driver: what each is (`stream_groups.FACTS`), and changes as lines of a table's file."""

    def __init__(self, messages: list[dict[str, Any]]):
        self.messages, self.tables = messages, {}
        for m in messages:
            if m["line"]:
                self.tables.setdefault((m["schema"], m["table"]), []).append(m)

    def of(self, table: tuple[str, str], begin: Offsets) -> list[str] | None:
        """Return the changes of a table behind a position; None if offsets alone do not tell which these are."""
        if ARRIVED in begin:
            return None
        return [m["line"] for m in self.tables.get(table, ()) if int(m["offset"]) >= begin.get(m["object"], 0)]


def bring_messages(frame: DataFrame) -> Brought | None:
    """Bring `routed` messages to the driver, unless one is too long, or no text: Arrow has only texts that are UTF-8."""
    return _brought(_told(frame))


def _told(frame: DataFrame) -> DataFrame:
    """Return what `Brought` holds of `routed` messages."""
    told = {
        **{c: identifier(c) for c in COLUMNS},
        "arrived": "unix_micros(arrived)",
        "value": "base64(cast(value as binary))",
    }
    line = f"to_json(struct({', '.join(f'{sql} as {identifier(c)}' for c, sql in told.items())}))"
    facts = {n: identifier(n) for n in (*BY, "offset")} | FACTS
    facts["line"] = f"if(kind = 'data' and operation <> 'load', {line}, null)"
    odd = f"coalesce(octet_length(value) > {LONGEST} or encode(value, 'UTF-8') <> cast(value as binary), false)"
    return frame.selectExpr("*", f"{odd} as odd").selectExpr(
        *[f"if(odd, null, {sql}) as {identifier(n)}" for n, sql in facts.items()], "odd"
    )


def _brought(told: DataFrame) -> Brought | None:
    rows = arrow(told).to_pylist()
    return None if any(r["odd"] for r in rows) else Brought(rows)


def _is_odd(value: bytes | None) -> bool:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        return True
    return len(text) > LONGEST  # the longer ones of fewer characters Spark tells


class Table:
    """One table's file and what was planned over it."""

    def __init__(self, spark: SparkSession, folder: str, offset: str):
        self.spark, self.file, self.offset = spark, Path(folder) / "messages.json", offset
        self.key: tuple | None = None
        self.made: Any = None

    def rows(self) -> DataFrame:
        """Return what the file holds, whatever that is by then, in the columns of `messages.routed`."""
        kinds = ", ".join(f"{identifier(c)}: {kind or self.offset}" for c, kind in COLUMNS.items())
        told = {"arrived": "timestamp_micros(arrived)", "value": "cast(unbase64(value) as string)"}
        text = self.spark.read.options(**NO_PATTERNS).text(file_location(self.file), wholetext=True)
        rows = text.selectExpr(f"inline(from_json(value, 'array<struct<{kinds}>>'))")
        return rows.selectExpr(*[f"{told.get(c, identifier(c))} as {identifier(c)}" for c in COLUMNS]).coalesce(1)


@dataclass(frozen=True)
class Again:
    """A small batch of messages: their lines, and how a table's raw rows come of them; `key` tells what these depend on."""

    table: Table
    lines: list[str]
    key: tuple
    raw: Callable[[DataFrame], DataFrame]

    def rows(self) -> DataFrame:
        """Write the messages into the table's file; return its raw rows."""
        self._write()
        return self.raw(self.table.rows())

    def plan(self, key: tuple, make: Callable[[DataFrame], T], keep: Callable[[T], bool]) -> T:
        """Write the messages into the table's file; return what `make` made of its raw rows when first asked for by this key.

        It is made each time unless it is one to `keep`.
        """
        table, wanted = self.table, (*self.key, *key)
        if table.key == wanted:
            self._write()
            return table.made
        table.key, table.made = None, make(self.rows())
        table.key = wanted if keep(table.made) else None
        return table.made

    def _write(self) -> None:
        self.table.file.write_text(f"[{','.join(self.lines)}]")

    def forget(self) -> None:
        """Plan anew next time: Spark keeps in a plan that it could not be run."""
        self.table.key = self.table.made = None


class Small:
    """The small batches of a run's tables; where the session is not local, none is."""

    def __init__(self, spark: SparkSession):
        self.spark, self.tables = spark, {}
        self.folder = tempfile.mkdtemp(prefix="frazil-") if _is_local(spark) else None
        self.told: DataFrame | None = None

    def bring(self, messages: list[Message]) -> Brought | None:
        """Return what Spark makes of messages that were read without it; None as by `bring_messages`, or if it did not see them all."""
        if any(_is_odd(value) for *_, value in messages):
            return None
        file = Path(self.folder) / "read.json"
        file.write_text(json.dumps([
            {"object": p, "offset": offset, "arrived": at, "value": None if value is None else base64.b64encode(value).decode()}
            for p, offset, at, value in messages
        ]))  # fmt: skip
        if self.told is None:
            text = self.spark.read.options(**NO_PATTERNS).text(file_location(file), wholetext=True)
            kinds = "object: string, offset: bigint, arrived: bigint, value: string"
            rows = text.selectExpr(f"inline(from_json(value, 'array<struct<{kinds}>>'))").coalesce(1)
            read = rows.selectExpr(
                "object", "offset", "timestamp_millis(arrived) as arrived", "unbase64(value) as value"
            )
            self.told = _told(routed(read))
        try:
            brought = _brought(self.told)
        except Exception:
            self.told = None  # Spark keeps in a plan that it could not be run
            raise
        return brought if brought and len(brought.messages) == len(messages) else None

    @property
    def possible(self) -> bool:
        """Whether there may be any."""
        return self.folder is not None

    def of(self, table: str, frame: DataFrame) -> Table:
        """Return a table's file and plan."""
        if table not in self.tables:
            self.tables[table] = Table(self.spark, tempfile.mkdtemp(dir=self.folder), dict(frame.dtypes)["offset"])
        return self.tables[table]

    def close(self) -> None:
        """Remove the files."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _is_local(spark: SparkSession) -> bool:
    connect = type(spark).__module__.startswith("pyspark.sql.connect")
    return not connect and spark.sparkContext.master.startswith("local")
