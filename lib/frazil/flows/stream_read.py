"""One read of a stream for all tables: what it contains, and which part belongs to each table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.dms.control import CREATE, Definition, definition
from frazil.dms.messages import CHANGE_PHASE, LOAD_PHASE, common_fields, known_columns, raw_rows, routed
from frazil.dms.position import Position
from frazil.dms.streams import ARRIVED, Offsets, StreamError, Taken, behind_sql, stream_of
from frazil.engine import message_blocks
from frazil.engine.held_messages import MOST, HeldMessage, changes_of, parse_messages
from frazil.flows import unreadable
from frazil.flows.control_schema import names_in_messages
from frazil.flows.stream_groups import NAMES_SQL, Group, groups_of, groups_of_facts, groups_of_messages
from frazil.flows.workbook import Workbook
from frazil.lake import commit, jvm
from frazil.lake.tables import Base

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WAITS = "the full load is applied: run 01_full_load"
APART = "load records lie behind the load that was applied: run 01_full_load with on_changed_load=reload"


class _Routed:
    """Messages that Spark parses and keeps, once somebody asks for them."""

    def __init__(self, book: Workbook, whole: DataFrame | None):
        self.book, self.whole, self.lock = book, whole, threading.Lock()
        self.kept: DataFrame | None = None

    def frame(self) -> DataFrame | None:
        """Return them; None if there are none."""
        from pyspark import StorageLevel

        with self.lock:
            if self.kept is None and self.whole is not None:
                fields = common_fields(self.book.specs.values(), self.book.mappings, self.book.before_field)
                self.kept = routed(self.whole, fields).persist(StorageLevel.MEMORY_AND_DISK)
        return self.kept

    def release(self) -> None:
        """Free Spark's memory for them."""
        if self.kept is not None:
            self.kept.unpersist()


@dataclass(frozen=True)
class Read:
    """The messages that reads took for all tables, in groups, and as a frame if Spark's reader has to judge them.

    `held`: the same messages in this process, if they are few. `blocks`: what tasks made of them (`message_blocks`).
    """

    routed: _Routed
    groups: list[Group]
    held: list[HeldMessage] | None = None
    blocks: DataFrame | None = None

    @property
    def frame(self) -> DataFrame | None:
        """Return the messages as Spark's reader parses them; None if there are none."""
        return self.routed.frame()

    def changes_seen(
        self, book: Workbook, spec: TableSpec, begin: Offsets, before: tuple[str, int] | None
    ) -> tuple[int, frozenset[str]]:
        """Return how many changes of a table are between two places, and the names in them."""
        from pyspark.sql import functions as F

        name = book.mappings.target_name(spec)
        if self.held is not None:
            mine = changes_of(self.held, name, begin, before)
            return len(mine), frozenset(name for m in mine for name in m.message.data)
        if self.blocks is not None:
            return message_blocks.count_changes(self.blocks, message_blocks.Part(name, begin, before))
        rows = messages_of(book, spec, self.frame, False, begin, before)
        count, found = rows.agg(F.count("*"), F.expr(NAMES_SQL)).first()
        return count, frozenset(found)


@contextmanager
def messages(book: Workbook, *taken: Taken, hold: bool = False) -> Iterator[Read]:
    """Hold the messages of reads for all tables, and name those of no table.

    With `hold` the core parses them: few in this process, many in Spark's tasks.
    """
    from pyspark.sql import DataFrame

    frames = [t.frame for t in taken if t.frame is not None]
    by_spark = _Routed(book, reduce(DataFrame.unionByName, frames) if frames else None)
    read = Read(by_spark, [])
    try:
        if frames:
            read = (_by_core(book, taken, by_spark) if hold else None) or Read(by_spark, groups_of(by_spark.frame()))
        unreadable.look_after(book, by_spark.frame, read.groups)
        _tell(book, read.groups)
        yield read
    finally:
        if read.blocks is not None:
            read.blocks.unpersist()
        by_spark.release()
        for t in taken:
            t.release()


def _by_core(book: Workbook, taken: Sequence[Taken], by_spark: _Routed) -> Read | None:
    """Return messages as the core parses them; None if it cannot."""
    held = _held(book, taken)
    if held is not None:
        return Read(by_spark, groups_of_messages(held), held)
    if book.tasks_fail:
        return None
    try:
        blocks, facts = _parsed_by_tasks(by_spark.whole, book.before_field)
    except Exception as error:
        groups = groups_of(by_spark.frame())  # raises the same if the stream is the trouble
        book.progress(f"Spark reads the messages, as the core could not: {jvm.cause(error)}")
        book.tasks_fail = True
        return Read(by_spark, groups)
    return Read(by_spark, groups_of_facts(facts), blocks=blocks)


def _parsed_by_tasks(whole: DataFrame, before_field: str) -> tuple[DataFrame, list[dict[str, Any]]]:
    """Let tasks parse messages; return the blocks, which Spark keeps, and the facts about them."""
    from pyspark import StorageLevel

    blocks = message_blocks.message_blocks(whole, before_field).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        told = blocks.where("facts is not null").select("facts").collect()
    except Exception:
        blocks.unpersist()
        raise
    return blocks, [facts for row in told for facts in json.loads(row.facts)]


def _held(book: Workbook, taken: Sequence[Taken]) -> list[HeldMessage] | None:
    """Return the messages of some reads through the stream's own client; None if they are many, or it fails."""
    if sum(MOST if t.count is None else t.count for t in taken) >= MOST:
        return None
    received = [t.at_once() for t in taken if t.frame is not None]
    return None if None in received else parse_messages((m for some in received for m in some), book.before_field)


def _tell(book: Workbook, groups: list[Group]) -> None:
    """Name what no table will get: other tables' messages and control records."""
    taken, others = {book.mappings.target_name(s) for s in book.specs.values()}, {}
    for g in (g for g in groups if g.readable):
        if (g.schema, g.table) not in taken:
            name = ".".join(filter(None, (g.schema, g.table))) or "no table"
            others[name] = others.get(name, 0) + g.count
        elif g.kind == "control":
            book.progress(
                f"{g.schema}.{g.table}: {g.count} control record(s) {g.operation}, from offset {g.first} of {g.object}"
            )
    if others:
        named = ", ".join(f"{n} ({c})" for n, c in sorted(others.items()))
        book.progress(f"messages of tables without a spec, passed by: {named}")


def keep_position(book: Workbook, spec: TableSpec, base: Base, position: Position, kind: str = "position") -> None:
    """Commit a position without rows."""
    facts = commit.Facts(position, {"frazil.kind": kind})
    commit.commit_batch(book.spark, book.name(spec), base, facts, lambda branch, summary: None)


def own(book: Workbook, spec: TableSpec, groups: Iterable[Group]) -> list[Group]:
    """Return the groups of a table's data; raise StreamError if some are in another topic than the mappings name."""
    found = [g for g in groups if g.kind == "data" and (g.schema, g.table) == book.mappings.target_name(spec)]
    topic = book.topic(spec)
    if topic and (other := [g for g in found if stream_of(g.object) != topic]):
        at = ", ".join(
            sorted({f"{g.object} from offset {min(h.first for h in other if h.object == g.object)}" for g in other})
        )
        raise StreamError(
            f"{spec.source} is mapped to topic '{topic}', and {sum(g.count for g in other)} of its messages lie in {at}",
            "correct the copy of the mappings; if DMS was told of another topic meanwhile, leave kafka-target-topic out of it",
        )
    return found


def definitions(
    book: Workbook, spec: TableSpec, groups: Iterable[Group], position: Offsets
) -> list[tuple[str, int, Definition]]:
    """Return the control records of a table after a position, in DMS's order: partition, place, definition.

    Records from before the table was recreated are ignored.
    """
    told: list[tuple[str, int, Definition]] = []
    for g, place, one in records_of(book, book.mappings.target_name(spec), groups):
        if place < position.get(g.object, 0):
            continue
        if g.operation == CREATE:
            told = []
        elif one:
            told.append((g.object, place, one))
    return told


def records_of(
    book: Workbook, name: tuple[str, str], groups: Iterable[Group]
) -> list[tuple[Group, int, Definition | None]]:
    """Return the control records of a table by its name in messages: group, place, and definition.

    They are ordered by DMS's own times, since one thread sends them; the data may be in other partitions.
    """
    mine = [(g, *r) for g in groups if g.kind == "control" and (g.schema, g.table) == name for r in g.records]
    return [
        (g, place, definition(text, g.operation, f"{book.stream.scheme}{g.object} offset {place}"))
        for g, _, place, text in sorted(mine, key=lambda r: (r[1], r[0].object, r[2]))
    ]


def require_known(book: Workbook, spec: TableSpec, names: Iterable[str], where: str) -> None:
    """Raise StreamError for a name in messages that nothing announced, unless such columns are ignored."""
    known = {*known_columns(spec, book.mappings), *names_in_messages(spec, book.mappings), *spec.ignored}
    if (unknown := set(names) - known) and spec.changes.new != "ignore":
        raise StreamError(
            f"{spec.source}: unknown column {', '.join(sorted(unknown))} in {where}",
            f"add it to {spec.file}: the table follows. With IncludeTableAlterOperations and IncludeControlDetails DMS tells "
            "what came, and the policy changes: {new: add} adds it",
        )


def rows_of(
    book: Workbook,
    spec: TableSpec,
    frame: DataFrame,
    loads: bool,
    begin: Offsets,
    before: tuple[str, int] | None = None,
) -> DataFrame:
    """Return the raw rows of a table after a position, and `before` a place if one is given: load records, or changes."""
    rows = messages_of(book, spec, frame, loads, begin, before)
    return raw_of(book, spec, rows, loads, len(begin.keys() - {ARRIVED}))


def raw_of(book: Workbook, spec: TableSpec, rows: DataFrame, loads: bool, partitions: int) -> DataFrame:
    """Return the raw rows of a table's own messages, given the number of partitions."""
    phase = LOAD_PHASE if loads else CHANGE_PHASE
    return raw_rows(rows, spec, book.mappings, book.before_field, phase, book.stream.scheme, partitions)


def messages_of(
    book: Workbook,
    spec: TableSpec,
    frame: DataFrame,
    loads: bool,
    begin: Offsets,
    before: tuple[str, int] | None = None,
) -> DataFrame:
    """Return a table's load records, or its changes, after a position, and `before` a place if one is given."""
    from pyspark.sql import functions as F

    schema, table = book.mappings.target_name(spec)
    wanted = (F.col("kind") == "data") & (F.col("schema") == schema) & (F.col("table") == table)
    wanted &= (F.col("operation") == "load") == F.lit(loads)
    if before:
        wanted &= (F.col("object") == before[0]) & F.expr(f"offset < {book.stream.place_sql(before[1])}")
    return frame.where(wanted & F.expr(behind_sql(book.stream, begin)))
