"""The messages of a stream as blocks of Arrow, by table, and the part of them that one table takes.

Each message is parsed once: many by Spark's tasks, whose blocks Spark keeps, few by this process. Each table then types
and collapses its own blocks as batches of files are. Where no task can run Python, this process parses all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import repeat
from typing import TYPE_CHECKING, Any, Union

from frazil_old.config.spec import TableSpec
from frazil_old.core.changes import Changes
from frazil_old.core.messages import (
    Key,
    MessageNames,
    columns_of,
    gather,
    is_readable,
    seconds_of,
    type_messages,
    with_sequence,
)
from frazil_old.core.types import arrow_of
from frazil_old.dms.control_records import DEFINING_OPERATIONS
from frazil_old.dms.stream_source import ARRIVED, MessagePlace, Messages, Offsets, StreamError, Work
from frazil_old.engine.read_files import PartitionRead
from frazil_old.engine.row_form import packed
from frazil_old.lake.small_frames import of_arrow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


Blocks = Union["DataFrame", "pa.Table"]
"""Rows of `SCHEMA`: in a frame that Spark keeps, or in this process."""
SCHEMA = "facts string, object string, schema string, table string, loads boolean, block binary"
"""A row is one block of a table's changes or load records from one partition, or facts about messages."""
AT_ONCE = 50_000
"""About this many messages become blocks together."""
MOST_BYTES = 64 << 20
"""At most about this many bytes of messages are in memory together."""
SAMPLED = 50_000
"""About this many changes count for the quantiles of delays."""
PARSED_AT_ONCE = 10_000
"""This many messages are parsed together: their values stay in the processor's cache."""
SAMPLE = 200
"""This many characters of a message that names no table are shown."""
READ_BITS = 40
"""Fewer than 2 ** 40 messages of a partition are numbered in one read."""


# --- messages into blocks


def message_blocks(messages: Sequence[Messages], before_field: str, loads: bool = False) -> DataFrame:
    """Return the blocks of all tables in the messages of some reads, and facts; tasks read and parse them.

    They are blocks of changes. With `loads` they are blocks of load records, and of changes only the places.
    """
    works = (_parsing(before_field, loads, read << READ_BITS) for read in range(len(messages)))
    return _in_tasks(messages, works, SCHEMA)


def blocks_here(batches: Iterable[pa.RecordBatch], before_field: str, loads: bool = False) -> pa.Table:
    """Return the same, made by this process."""
    import pyarrow as pa

    return pa.Table.from_batches(_parsing(before_field, loads)(iter(batches)), _row().schema)


def batches_here(messages: Sequence[Messages]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of some reads in this process."""
    return (batch for some in messages for batch in some.batches())


def _in_tasks(messages: Sequence[Messages], works: Iterable[Work], schema: str) -> DataFrame:
    from pyspark.sql import DataFrame

    return reduce(DataFrame.union, (some.in_tasks(work, schema) for some, work in zip(messages, works, strict=False)))


def _parsing(before_field: str, loads: bool = False, first: int = 0) -> Work:
    """Return the function of a parsing task: from messages in the order of their partitions to rows of `SCHEMA`.

    `first` is the first number for messages whose place is no number: a later read has a greater one.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        waiting: list[pa.RecordBatch] = []
        form = _BlockForm(before_field, loads, first)
        for batch in batches:
            waiting.append(batch)
            if sum(b.num_rows for b in waiting) >= AT_ONCE or sum(b.nbytes for b in waiting) >= MOST_BYTES:
                yield from _parsed(pa.Table.from_batches(waiting), form)
                waiting = []
        if waiting:
            yield from _parsed(pa.Table.from_batches(waiting), form)

    return run


@dataclass(frozen=True)
class _BlockForm:
    """What a task makes of messages; `numbered` counts those that it has seen of each partition."""

    before_field: str
    loads: bool
    first: int
    numbered: dict[str, int] = field(default_factory=dict)


def _parsed(messages: pa.Table, form: _BlockForm) -> Iterator[pa.RecordBatch]:
    """Yield the blocks of some messages."""
    import pyarrow.compute as pc

    partitions = pc.unique(messages["object"]).to_pylist()
    for partition in partitions:
        mine = messages.filter(pc.equal(messages["object"], partition)) if len(partitions) > 1 else messages
        yield from _of_partition(partition, mine, form)


def _of_partition(partition: str, messages: pa.Table, form: _BlockForm) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    first = form.numbered.get(partition, form.first)
    form.numbered[partition] = first + len(messages)
    is_number = pa.types.is_integer(messages["offset"].type)
    numbers = messages["offset"] if is_number else pa.array(range(first, first + len(messages)), pa.int64())
    messages = messages.append_column("number", numbers)
    facts, blocks = [], {}
    for start in range(0, len(messages), PARSED_AT_ONCE):
        some = messages.slice(start, PARSED_AT_ONCE).combine_chunks()
        values, places = some["value"].to_pylist(), some.select(["number", "offset", "arrived"])
        for key, rows in gather(values, form.before_field).items():
            mine = places.take(pa.array([row[0] for row in rows]))
            facts.append(_facts(partition, key, mine, values, rows))
            is_load = key.operation == "load"
            if key.kind == "data" and is_readable(*key[:4]) and (form.loads or not is_load):
                columns = columns_of(key, rows, mine["number"]) if is_load == form.loads else mine.select(["number"])
                found = columns.append_column("place", mine["offset"]).append_column("arrived", mine["arrived"])
                blocks.setdefault((key.schema, key.table, is_load, key.data), []).append(found)
    yield _row(facts=json.dumps(facts), object=partition)
    for (schema, table, is_load, _), found in blocks.items():
        block = packed(pa.concat_tables(found, promote_options="default").combine_chunks())
        yield _row(object=partition, schema=schema, table=table, loads=is_load, block=block)


def _row(**values: Any) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = dict(map(str.split, SCHEMA.split(", ")))
    return pa.RecordBatch.from_pydict({n: pa.array([values.get(n)], arrow_of(kind)) for n, kind in kinds.items()})


def _facts(partition: str, key: Key, places: pa.Table, values: list[bytes | None], rows: list[tuple]) -> dict[str, Any]:
    """Return what the driver learns about some messages: see `stream_read.Group`."""
    import pyarrow.compute as pc

    ends, first, records = pc.min_max(places["offset"]), values[rows[0][0]], []
    if key.kind == "control" and key.operation in DEFINING_OPERATIONS:
        at = places["offset"].to_pylist()
        records = [(row[1] or "", int(p), _shown(values[row[0]])) for row, p in zip(rows, at, strict=True)]
    return {
        "object": partition, "kind": key.kind, "operation": key.operation, "schema": key.schema, "table": key.table,
        "count": len(rows), "first": int(ends["min"].as_py()), "last": int(ends["max"].as_py()),
        "arrived": pc.min(places["arrived"]).as_py(),
        "sample": None if first is None else _shown(first)[:SAMPLE], "columns": key.data if key.kind == "data" else (), "records": records,
    }  # fmt: skip


def _shown(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


# --- messages again, by their places


def values_at(messages: Sequence[Messages], places: Sequence[MessagePlace]) -> dict[MessagePlace, bytes | None]:
    """Return the bytes of messages at some places, which this process reads again."""
    found, wanted = {}, set(places)
    for some in batches_here([some.around(wanted) for some in messages]):
        at = zip(some["object"].to_pylist(), map(str, some["offset"].to_pylist()), strict=True)
        found |= {place: some["value"][i].as_py() for i, place in enumerate(at) if place in wanted}
    if lost := wanted - found.keys():
        partition, place = min(lost)
        raise StreamError(f"{partition} has no message {place} any more, which was just read", "run again")
    return found


def unreadable(spark: SparkSession, messages: Sequence[Messages], before_field: str, here: bool) -> DataFrame:
    """Return the messages that name no table: parsed again by tasks, or by this process (`here`)."""
    import pyarrow as pa

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            keys = gather(some["value"].to_pylist(), before_field).items()
            lost = [row[0] for key, rows in keys if not is_readable(*key[:4]) for row in rows]
            found = some.take(pa.array(sorted(lost), pa.int64()))
            yield found.set_column(1, "offset", found["offset"].cast(pa.string()))

    if here:
        return of_arrow(spark, pa.Table.from_batches(run(batches_here(messages))))
    return _in_tasks(messages, repeat(run), "object string, offset string, arrived bigint, value binary")


# --- what blocks hold


def of_table(blocks: Blocks, part: Part) -> Blocks:
    """Return the blocks (`object`, `block`) of a table's changes or load records."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    schema, table = part.table
    if isinstance(blocks, DataFrame):
        is_mine = (F.col("schema") == schema) & (F.col("table") == table) & (F.col("loads") == part.loads)
        return blocks.where(is_mine).select("object", "block")
    import pyarrow.compute as pc

    is_mine = pc.and_(pc.equal(blocks["schema"], schema), pc.equal(blocks["table"], table))
    return blocks.filter(pc.and_(is_mine, pc.equal(blocks["loads"], part.loads))).select(["object", "block"])


def _of_each_block(
    blocks: Blocks, part: Part, describe: Callable[[str, pa.Table], dict[str, Any]], schema: str
) -> list[dict]:
    """Return what `describe(partition, messages)` returns for each block of a part."""
    from pyspark.sql import DataFrame

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for some in batches:
            for partition, messages in part.rows_of(some):
                yield pa.RecordBatch.from_pylist([describe(partition, messages)])

    mine = of_table(blocks, part)
    if isinstance(mine, DataFrame):
        return [row.asDict() for row in mine.mapInArrow(run, schema).collect()]
    return [row for batch in run(iter(mine.to_batches())) for row in batch.to_pylist()]


def count_changes(blocks: Blocks, part: Part) -> tuple[int, frozenset[str]]:
    """Return how many changes a part has, and the names in them."""

    def describe(_: str, messages: pa.Table) -> dict[str, Any]:
        names = [n.removeprefix("data.") for n in messages.column_names if n.startswith("data.")]
        return {"changes": len(messages), "names": names}

    counted = _of_each_block(blocks, part, describe, "changes bigint, names array<string>")
    return sum(row["changes"] for row in counted), frozenset(n for row in counted for n in row["names"])


def find_places(blocks: Blocks, part: Part, find: Callable[[str, pa.Table], Sequence[int | None]]) -> list[tuple]:
    """Return, for each block of a part, its partition and the two numbers that `find(partition, messages)` returns."""

    def as_texts(partition: str, messages: pa.Table) -> dict[str, Any]:
        a, b = (None if number is None else str(number) for number in find(partition, messages))
        return {"object": partition, "a": a, "b": b}

    found = _of_each_block(blocks, part, as_texts, "object string, a string, b string")
    return [(row["object"], *(row[n] and int(row[n]) for n in ("a", "b"))) for row in found]


@dataclass(frozen=True)
class Part:
    """The part of a read that a table takes: its changes from a position on, and `before` a place of one partition.

    `loads`: its load records instead. Only where the position has no place in a partition, it begins at a time.
    """

    table: tuple[str, str]
    begin: Offsets
    before: tuple[str, int] | None = None
    loads: bool = False

    def rows_of(self, blocks: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        """Yield the partition and the messages of each block that has some."""
        import pyarrow as pa

        for partition, block in zip(blocks["object"].to_pylist(), blocks["block"], strict=True):
            messages = self._of_part(partition, pa.ipc.open_stream(block.as_buffer()).read_all())
            if messages.num_rows:
                yield partition, messages

    def _of_part(self, partition: str, messages: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        if self.before and partition != self.before[0]:
            return messages.slice(0, 0)
        if begin := self.begin.get(partition, 0):
            is_mine = pc.greater_equal(messages["place"], _place(begin, messages))
        else:
            is_mine = pc.greater_equal(messages["arrived"], self.begin.get(ARRIVED, 0))
        if self.before:
            is_mine = pc.and_(is_mine, pc.less(messages["place"], _place(self.before[1], messages)))
        return messages if pc.all(is_mine).as_py() else messages.filter(is_mine)


def _place(place: int, messages: pa.Table) -> Any:
    """Return a place in the form of messages' own: a number, or as many digits."""
    import pyarrow as pa

    digits = messages["place"]
    return f"{place:0{len(digits[0].as_py())}}" if pa.types.is_string(digits.type) and len(digits) else place


def arrivals(_: str, messages: pa.Table) -> tuple[int, int]:
    """Return when the first and the last of some messages arrived."""
    import pyarrow.compute as pc

    ends = pc.min_max(messages["arrived"])
    return ends["min"].as_py(), ends["max"].as_py()


def last_arrival(before_ms: int, _: str, messages: pa.Table) -> tuple[int | None, None]:
    """Return when the last of some messages arrived before a time."""
    import pyarrow.compute as pc

    return pc.max(messages["arrived"].filter(pc.less(messages["arrived"], before_ms))).as_py(), None


@dataclass(frozen=True)
class Around:
    """Load records around which changes are looked for.

    It has the place of the `last` in each partition, the arrivals of the first and the newest, and where a first read
    of the stream ended (`seen`).
    """

    last: Offsets
    seen: Offsets
    first_ms: int
    newest_ms: int

    def __call__(self, partition: str, messages: pa.Table) -> tuple[int | None, int]:
        """Return the last change of a partition before the load records, and how many seen ones come after all of them.

        In a partition without load records, a change is before them if it arrived before them all.
        """
        import pyarrow.compute as pc

        places = messages["place"]
        is_after = pc.greater_equal(messages["arrived"], self.newest_ms)
        is_after = pc.and_(is_after, pc.less(places, _place(self.seen.get(partition, 0), messages)))
        if (at := self.last.get(partition)) is not None:
            is_before = pc.less(places, _place(at, messages))
            is_after = pc.and_(is_after, pc.greater(places, _place(at, messages)))
        else:
            is_before = pc.less(messages["arrived"], self.first_ms)
        before = pc.max(places.filter(is_before)).as_py()
        return None if before is None else int(before), pc.sum(is_after).as_py() or 0


@dataclass(frozen=True)
class PartReading:
    """How a table's part is read; every `every`-th change counts for the delays."""

    spec: TableSpec
    names: MessageNames
    part: Part
    order: Mapping[str, int]
    """Each partition's place in the order."""
    spread_over: int = 1
    """Over how many partitions the table's messages are spread."""
    every: int = 1
    scheme: str = ""
    """That of the stream, with which the name of a partition is its path."""

    @property
    def partitions(self) -> list[PartitionRead]:
        """The partitions in order."""
        return [PartitionRead(self.scheme + name, order, name) for name, order in self.order.items()]

    def changes_of(self, blocks: Iterator[pa.RecordBatch]) -> Iterator[tuple[Changes, int, np.ndarray]]:
        """Yield the changes in blocks, the place of their partition in the order, and when DMS built the good ones."""
        import pyarrow.compute as pc

        for some in blocks:
            for partition, messages in self.part.rows_of(some):
                changes = type_messages(messages, self.spec, self.names, self.spread_over)
                if changes.rows.num_rows < len(messages):
                    messages = messages.filter(pc.is_in(messages["number"], changes.rows["number"]))
                if self.spec.policy == "key":  # others keep the sequence, or have no order
                    arrived = messages["arrived"].combine_chunks()
                    changes = replace(changes, rows=with_sequence(changes.rows, arrived))
                yield changes, self.order[partition], seconds_of(messages["built"])
