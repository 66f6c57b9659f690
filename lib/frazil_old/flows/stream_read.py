"""One read of a stream for all tables: what it contains, and which part belongs to each table.

The driver sees groups of similar messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import SHOWN, BadRow, BadRows
from frazil_old.core.messages import is_readable, with_bytes
from frazil_old.dms.control_records import CREATE, Definition, definition
from frazil_old.dms.mappings import known_columns, message_names
from frazil_old.dms.position import Position
from frazil_old.dms.stream_source import ARRIVED, Messages, Offsets, StreamError, StreamRead, stream_name
from frazil_old.engine import message_batch, message_blocks
from frazil_old.engine.collapsed_batch import Collapsed, Wanted
from frazil_old.engine.message_batch import MOST
from frazil_old.engine.message_blocks import MOST_BYTES, SAMPLED, Blocks, Part, PartReading
from frazil_old.errors import many
from frazil_old.flows.control_record_changes import names_in_messages
from frazil_old.flows.tasks_or_here import tasks_or_here
from frazil_old.flows.unreadable_messages import handle_unreadable
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import commit
from frazil_old.lake.tables import TableState

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


BY = ("object", "kind", "operation", "schema", "table")


@dataclass(frozen=True)
class Group:
    """Similar messages of one partition.

    It has their number, first and last place, first arrival, columns, and an unreadable one.
    """

    object: str
    kind: str | None
    operation: str | None
    schema: str | None
    table: str | None
    readable: bool
    count: int
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
        """Return whether some of them are after a position."""
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
        first["first"],
        max(p["last"] for p in parts),
        min(p["arrived"] for p in parts),
        None if readable else first["sample"],
        tuple({name for p in parts for name in p["columns"]}),
        tuple(tuple(r) for p in parts for r in p["records"]),
    )


WAITS = "the full load is applied: run 01_full_load"
APART = "load records came after the load that was applied: run 01_full_load with on_changed_load=reload"


@dataclass(frozen=True)
class Read:
    """The messages that reads took for all tables: in groups, and in blocks (`message_blocks`).

    `given` are the messages themselves, which may be read again. `is_small`: this process read them, without a Spark job.
    """

    book: Workbook
    given: Sequence[Messages] = ()
    groups: list[Group] = field(default_factory=list)
    blocks: Blocks | None = None
    is_small: bool = False

    def part(self, spec: TableSpec, begin: Offsets, before: tuple[str, int] | None = None, loads: bool = False) -> Part:
        """Return a table's changes after a position, and `before` a place if one is given; or its load records."""
        return Part(self.book.mappings.target_name(spec), begin, before, loads)

    def collapse(self, spec: TableSpec, part: Part, count: int, wanted: Wanted) -> Collapsed:
        """Return a part of about `count` messages, with only the last change per key, and its bad rows."""
        in_order = sorted({g.object for g in self.groups}, key=lambda name: (len(name), name))  # added ones come last
        order = {p: i for i, p in enumerate(in_order)}
        partitions = [p for p in part.begin if p != ARRIVED and self.book.may_have_messages_in(spec, stream_name(p))]
        every = max(1, count // SAMPLED)
        names, scheme = message_names(spec, self.book.mappings), self.book.stream.scheme
        reading = PartReading(spec, names, part, order, len(partitions), every, scheme)
        found = message_batch.collapse_part(self.blocks, reading, count, wanted)
        return replace(found, bad=self._with_bytes(found.bad, reading, wanted)) if found.bad.count else found

    def unreadable(self, partitions: Iterable[str]) -> DataFrame:
        """Return the messages in some partitions that name no table, in the columns of a stream."""
        from pyspark.sql import functions as F

        here = self.is_small or self.book.tasks_fail
        found = message_blocks.unreadable(self.book.spark, self.given, self.book.before_field, here)
        found = found.where(F.col("object").isin([*partitions]))
        when = "timestamp_millis(arrived) as arrived"
        return found.selectExpr("object", "offset", when, "cast(value as string) as value")

    def release(self) -> None:
        """Free Spark's memory for the blocks."""
        if hasattr(self.blocks, "unpersist"):
            self.blocks.unpersist()

    def _with_bytes(self, bad: BadRows, reading: PartReading, wanted: Wanted) -> BadRows:
        """Return bad rows with their messages' bytes; if there are too many for the quarantine, only those to be shown."""
        rows = bad.rows if bad.count <= wanted.most_bad else bad.rows[:SHOWN]
        names = {partition.order: partition.name for partition in reading.partitions}
        places = [(names[order], row.place) for order, row in rows]
        values = message_blocks.values_at(self.given, places)
        whole: dict[int, list[BadRow]] = {}
        for (order, row), place in zip(rows, places, strict=True):
            whole.setdefault(order, []).append(with_bytes(row, values[place], reading.spec))
        return replace(bad, by_file=whole)


@contextmanager
def messages(book: Workbook, *taken: StreamRead, loads: bool = False) -> Iterator[Read]:
    """Parse the messages of reads for all tables, and name those of no table. `loads`: tables take their load records."""
    read = None
    try:
        read = read_messages(book, taken, loads)
        handle_unreadable(book, read)
        _report_ignored(book, read.groups)
        yield read
    finally:
        if read is not None:
            read.release()
        for t in taken:
            t.release()


def read_messages(book: Workbook, taken: Sequence[StreamRead], loads: bool = False) -> Read:
    """Return the messages of reads as the core parses them: few in this process, many in Spark's tasks."""
    given = [t.messages for t in taken if t.messages is not None]
    are_few = not given or sum(MOST if t.count is None else t.count for t in taken) < MOST
    few = _held(given) if are_few else None
    if few is not None:
        blocks, facts = _parsed_here(few, book.before_field, loads)
    else:
        fallback = "this process parses the messages"
        blocks, facts = tasks_or_here(book, fallback, lambda here: _parsed(book, given, loads, here))
    groups = groups_of_facts(one for text in facts for one in json.loads(text))
    return Read(book, given, groups, blocks, few is not None)


def _parsed(book: Workbook, given: Sequence[Messages], loads: bool, here: bool) -> tuple[Blocks, list[str]]:
    """Let tasks, or this process, read and parse messages; return the blocks, which Spark keeps, and the facts about them."""
    from pyspark import StorageLevel

    if here:
        return _parsed_here(message_blocks.batches_here(given), book.before_field, loads)
    blocks = message_blocks.message_blocks(given, book.before_field, loads).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        rows = blocks.where("facts is not null").select("facts").collect()
    except Exception:
        blocks.unpersist()
        raise
    return blocks, [row.facts for row in rows]


def _parsed_here(batches: Iterable[pa.RecordBatch], before_field: str, loads: bool) -> tuple[pa.Table, list[str]]:
    blocks = message_blocks.blocks_here(batches, before_field, loads)
    return blocks, blocks["facts"].drop_null().to_pylist()


def _held(given: Sequence[Messages]) -> list[pa.RecordBatch] | None:
    """Return a few messages, which this process reads; None if they are too large together."""
    batches, size = [], 0
    for batch in message_blocks.batches_here(given):
        batches.append(batch)
        size += batch.nbytes
        if size > MOST_BYTES:
            return None
    return batches


def _report_ignored(book: Workbook, groups: list[Group]) -> None:
    """Name what no table will get: other tables' messages and control records."""
    taken, others = {book.mappings.target_name(s) for s in book.specs.values()}, {}
    for g in (g for g in groups if g.readable):
        if (g.schema, g.table) not in taken:
            name = ".".join(filter(None, (g.schema, g.table))) or "no table"
            others[name] = others.get(name, 0) + g.count
        elif g.kind == "control":
            book.progress(
                f"{g.schema}.{g.table}: {many(g.count, 'control record')} {g.operation}, from offset {g.first} of {g.object}"
            )
    if others:
        named = ", ".join(f"{n} ({c})" for n, c in sorted(others.items()))
        book.progress(f"messages of tables without a spec, ignored: {named}")


def keep_position(
    book: Workbook, spec: TableSpec, base: TableState, position: Position, kind: str = "position"
) -> None:
    """Commit a position without rows."""
    metadata = commit.CommitMetadata(position, {"frazil.kind": kind})
    commit.commit_batch(book.spark, book.name(spec), base, metadata, lambda branch, summary: None)


def own(book: Workbook, spec: TableSpec, groups: Iterable[Group]) -> list[Group]:
    """Return the groups of a table's data; raise StreamError if some are in another topic than the mappings name."""
    found = [g for g in groups if g.kind == "data" and (g.schema, g.table) == book.mappings.target_name(spec)]
    topic = book.topic(spec)
    if topic and (other := [g for g in found if stream_name(g.object) != topic]):
        at = ", ".join(
            sorted({f"{g.object} from offset {min(h.first for h in other if h.object == g.object)}" for g in other})
        )
        raise StreamError(
            f"{spec.source} is mapped to topic '{topic}', and {sum(g.count for g in other)} of its messages are in {at}",
            "correct the copy of the mappings; if DMS was set to another topic meanwhile, leave kafka-target-topic out of it",
        )
    return found


def definitions(
    book: Workbook, spec: TableSpec, groups: Iterable[Group], position: Offsets
) -> list[tuple[str, int, Definition]]:
    """Return the control records of a table after a position, in DMS's order: partition, place, definition.

    Records from before the table was recreated are ignored.
    """
    records: list[tuple[str, int, Definition]] = []
    for g, place, one in records_of(book, book.mappings.target_name(spec), groups):
        if place < position.get(g.object, 0):
            continue
        if g.operation == CREATE:
            records = []
        elif one:
            records.append((g.object, place, one))
    return records


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
            f"add it to {spec.file}: the table follows. With IncludeTableAlterOperations and IncludeControlDetails DMS sends "
            "what came, and the policy changes: {new: add} adds it",
        )
