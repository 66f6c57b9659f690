"""One read of a stream for all tables: what it contains, and which part belongs to each table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.core.bad_rows import SHOWN, BadRows
from frazil.core.messages import is_readable, with_bytes
from frazil.dms.control import CREATE, Definition, definition
from frazil.dms.messages import known_columns, message_names
from frazil.dms.position import Position
from frazil.dms.streams import ARRIVED, Offsets, StreamError, Taken, stream_of
from frazil.engine import message_blocks
from frazil.engine.collapsed import Collapsed, Wanted
from frazil.engine.held_messages import MOST, HeldMessage, changes_of, parse_messages, places_of
from frazil.engine.message_blocks import SAMPLED, Blocks
from frazil.engine.message_parts import Around, Part, Reading, latest
from frazil.engine.small_batch import collapse_messages
from frazil.flows import unreadable
from frazil.flows.control_schema import names_in_messages
from frazil.flows.stream_groups import Group, groups_of_facts, groups_of_messages
from frazil.flows.tasks import tasks_or_here
from frazil.flows.workbook import Workbook
from frazil.lake import commit
from frazil.lake.frames import of_arrow
from frazil.lake.tables import Base

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

WAITS = "the full load is applied: run 01_full_load"
APART = "load records came after the load that was applied: run 01_full_load with on_changed_load=reload"


@dataclass(frozen=True)
class Read:
    """The messages that reads took for all tables, in groups, and as a frame.

    `held`: the same in this process, if they are few. `blocks`: what was made of many (`message_blocks`).
    """

    book: Workbook
    frame: DataFrame | None = None
    groups: list[Group] = field(default_factory=list)
    held: list[HeldMessage] | None = None
    blocks: Blocks | None = None

    def part(self, spec: TableSpec, begin: Offsets, before: tuple[str, int] | None = None, loads: bool = False) -> Part:
        """Return a table's changes after a position, and `before` a place if one is given; or its load records."""
        return Part(self.book.mappings.target_name(spec), begin, before, loads)

    def changes_seen(self, part: Part) -> tuple[int, frozenset[str]]:
        """Return how many messages a part has, and the names in them."""
        if self.held is None:
            return message_blocks.count_changes(self.blocks, part)
        mine = self._held_of(part)
        return len(mine), frozenset(name for m in mine for name in m.message.data)

    def collapse(self, spec: TableSpec, part: Part, count: int, wanted: Wanted) -> Collapsed:
        """Return a part of about `count` messages, with only the last change per key, and its bad rows."""
        order = {p: i for i, p in enumerate(sorted({g.object for g in self.groups}))}
        partitions, every = len(part.begin.keys() - {ARRIVED}), max(1, count // SAMPLED)
        names, scheme = message_names(spec, self.book.mappings), self.book.stream.scheme
        reading = Reading(spec, names, part, order, partitions, every, scheme)
        if self.held is not None:
            found = collapse_messages(self._held_of(part), replace(reading, every=1), wanted)
        else:
            found = message_blocks.collapse_part(self.blocks, reading, count, wanted)
        return replace(found, bad=self._with_bytes(found.bad, reading, wanted)) if found.bad.count else found

    def newest_arrival(self, part: Part) -> int | None:
        """Return when the last message of a part arrived, in milliseconds; None if it has none."""
        return max((at for _, at, _ in self._places(part, latest)), default=None)

    def around(self, part: Part, around: Around) -> list[tuple[str, int | None, int]]:
        """Return what `around` says of a part's messages, by partition."""
        return self._places(part, around)

    def unreadable(self, partitions: Iterable[str]) -> DataFrame:
        """Return the messages in some partitions that name no table, in the columns of a stream."""
        from pyspark.sql import functions as F

        wanted = [*partitions]
        if self.held is None:
            frame = self.frame.where(F.col("object").isin(wanted))
            found = message_blocks.unreadable(frame, self.book.before_field, self.book.tasks_fail)
        else:
            found = of_arrow(self.book.spark, _unreadable_of(self.held, wanted))
        when = "timestamp_millis(arrived) as arrived"
        return found.selectExpr("object", "offset", when, "cast(value as string) as value")

    def release(self) -> None:
        """Free Spark's memory for the blocks."""
        if hasattr(self.blocks, "unpersist"):
            self.blocks.unpersist()

    def _held_of(self, part: Part) -> list[HeldMessage]:
        return changes_of(self.held, part.table, part.begin, part.before, part.loads)

    def _places(self, part: Part, tell: Callable[[str, pa.Table], tuple]) -> list[tuple]:
        if self.held is None:
            return message_blocks.places_told(self.blocks, part, tell)
        return [(partition, *tell(partition, rows)) for partition, rows in places_of(self._held_of(part))]

    def _with_bytes(self, bad: BadRows, reading: Reading, wanted: Wanted) -> BadRows:
        """Return bad rows with their messages' bytes; if there are too many for the quarantine, only those to be shown."""
        rows = bad.rows if bad.count <= wanted.most_bad else bad.rows[:SHOWN]
        names = {partition.order: partition.name for partition in reading.partitions}
        places = [(names[order], row.place) for order, row in rows]
        if self.held is None:
            values = message_blocks.values_at(self.frame, places)
        else:
            values = {(m.partition, str(m.place)): m.value for m in self.held}
        whole = [
            (order, with_bytes(row, values[place], reading.spec))
            for (order, row), place in zip(rows, places, strict=True)
        ]
        return replace(bad, rows=whole)


def _unreadable_of(held: Sequence[HeldMessage], partitions: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    schema = {"object": pa.string(), "offset": pa.int64(), "arrived": pa.int64(), "value": pa.binary()}
    lost = []
    for m in held:
        told = m.message
        if m.partition in partitions and not is_readable(told.kind, told.operation, told.schema, told.table):
            lost.append({"object": m.partition, "offset": m.place, "arrived": m.arrived_ms, "value": m.value})
    return pa.Table.from_pylist(lost, pa.schema([*schema.items()]))


@contextmanager
def messages(book: Workbook, *taken: Taken, loads: bool = False) -> Iterator[Read]:
    """Parse the messages of reads for all tables, and name those of no table. `loads`: tables take their load records."""
    read = None
    try:
        read = read_messages(book, taken, loads)
        unreadable.look_after(book, read.unreadable, read.groups)
        _tell(book, read.groups)
        yield read
    finally:
        if read is not None:
            read.release()
        for t in taken:
            t.release()


def read_messages(book: Workbook, taken: Sequence[Taken], loads: bool = False) -> Read:
    """Return the messages of reads as the core parses them: few in this process, many in Spark's tasks."""
    from pyspark.sql import DataFrame

    frames = [t.frame for t in taken if t.frame is not None]
    if not frames:
        return Read(book, held=[])
    whole = reduce(DataFrame.unionByName, frames)
    if (held := _held(book, taken)) is not None:
        return Read(book, whole, groups_of_messages(held), held)
    told = "this process parses the messages"
    blocks, facts = tasks_or_here(book, told, lambda here: _parsed(whole, book.before_field, loads, here))
    groups = groups_of_facts(one for text in facts for one in json.loads(text))
    return Read(book, whole, groups, blocks=blocks)


def _parsed(whole: DataFrame, before_field: str, loads: bool = False, here: bool = False) -> tuple[Blocks, list[str]]:
    """Let tasks, or this process, parse messages; return the blocks, which Spark keeps, and the facts about them."""
    from pyspark import StorageLevel

    if here:
        made = message_blocks.blocks_here(whole, before_field, loads)
        return made, made["facts"].drop_null().to_pylist()
    blocks = message_blocks.message_blocks(whole, before_field, loads).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        told = blocks.where("facts is not null").select("facts").collect()
    except Exception:
        blocks.unpersist()
        raise
    return blocks, [row.facts for row in told]


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
