"""Many messages of a stream as a Spark job.

Tasks parse each message once, into blocks of Arrow by table, which Spark keeps. Each table then types and collapses its
own blocks as a large batch of files does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.changes import Changes
from frazil.core.messages import Key, MessageNames, columns_of, gather, seconds_of, type_columns
from frazil.dms.control import TELLING
from frazil.dms.streams import ARRIVED, Offsets
from frazil.engine.collapsed import Collapsed, Wanted
from frazil.engine.exchange import BLOCK_SCHEMA, packed
from frazil.engine.held_messages import MOST
from frazil.engine.large_batch import (
    BUCKET_BYTES,
    RowForm,
    collapse_blocks,
    collapsed_rows,
    collapsing,
    counted_blocks,
)
from frazil.engine.partitions import bucket_of_each_partition
from frazil.engine.tally import BYTES_A_CHANGE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA = "facts string, object string, schema string, table string, block binary"
"""A row is one block of a table's changes from one partition, or facts about messages."""
AT_ONCE = 50_000
"""About this many messages become blocks together."""
SAMPLED = 50_000
"""About this many changes count for the quantiles of delays."""
PARSED_AT_ONCE = 10_000
"""This many messages are parsed together: their values stay in the processor's cache."""
SAMPLE = 200
"""This many characters of a message that names no table are shown."""


@dataclass(frozen=True)
class Part:
    """The part of a read that a table applies: its changes from a position on, and `before` a place of one partition."""

    table: tuple[str, str]
    begin: Offsets
    before: tuple[str, int] | None = None

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
        is_mine = pc.greater_equal(messages["arrived"], self.begin.get(ARRIVED, 0))
        begin = self.begin.get(partition, 0)
        is_mine = pc.and_(is_mine, pc.greater_equal(messages["place"], _place(begin, messages)))
        if self.before:
            is_mine = pc.and_(is_mine, pc.less(messages["place"], _place(self.before[1], messages)))
        return messages if pc.all(is_mine).as_py() else messages.filter(is_mine)


def _place(place: int, messages: pa.Table) -> Any:
    """Return a place in the form of messages' own: a number, or as many digits."""
    import pyarrow as pa

    digits = messages["place"]
    return f"{place:0{len(digits[0].as_py())}}" if pa.types.is_string(digits.type) and len(digits) else place


@dataclass(frozen=True)
class Reading:
    """How a table's part is read; every `every`-th change counts for the delays."""

    spec: TableSpec
    names: MessageNames
    part: Part
    order: Mapping[str, int]
    """Each partition's place in the order."""
    spread_over: int = 1
    """Over how many partitions the table's messages are spread."""
    every: int = 1

    def changes_of(self, blocks: Iterator[pa.RecordBatch]) -> Iterator[tuple[Changes, int, np.ndarray]]:
        """Yield the changes in blocks, the place of their partition in the order, and when DMS built the good ones."""
        import pyarrow.compute as pc

        for some in blocks:
            for partition, messages in self.part.rows_of(some):
                changes = type_columns(messages, self.spec, self.names, self.spread_over)
                if changes.bad:
                    messages = messages.filter(pc.is_in(messages["number"], changes.rows["number"]))
                yield changes, self.order[partition], seconds_of(messages["built"])


# --- messages into blocks


def message_blocks(messages: DataFrame, before_field: str) -> DataFrame:
    """Return the blocks of all tables' changes in messages (`object`, `offset`, `arrived`, `value`), and facts."""
    given = messages.selectExpr("object", "offset", "unix_millis(arrived) as arrived", "value")
    return given.mapInArrow(_parsing(before_field), SCHEMA)


def _parsing(before_field: str) -> Callable:
    """Return the function of a parsing task: from messages in the order of their partitions to rows of `SCHEMA`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        numbered: dict[str, int] = {}
        for batch in batches:
            held.append(batch)
            if sum(b.num_rows for b in held) >= AT_ONCE:
                yield from _parsed(pa.Table.from_batches(held), numbered, before_field)
                held = []
        if held:
            yield from _parsed(pa.Table.from_batches(held), numbered, before_field)

    return run


def _parsed(messages: pa.Table, numbered: dict[str, int], before_field: str) -> Iterator[pa.RecordBatch]:
    """Yield the blocks of some messages; `numbered` counts those before them in each partition."""
    import pyarrow.compute as pc

    partitions = pc.unique(messages["object"]).to_pylist()
    for partition in partitions:
        mine = messages.filter(pc.equal(messages["object"], partition)) if len(partitions) > 1 else messages
        yield from _of_partition(partition, mine, numbered.get(partition, 0), before_field)
        numbered[partition] = numbered.get(partition, 0) + len(mine)


def _of_partition(partition: str, messages: pa.Table, first: int, before_field: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    is_number = pa.types.is_integer(messages["offset"].type)
    numbers = messages["offset"] if is_number else pa.array(range(first, first + len(messages)), pa.int64())
    messages = messages.append_column("number", numbers)
    facts, blocks = [], {}
    for start in range(0, len(messages), PARSED_AT_ONCE):
        some = messages.slice(start, PARSED_AT_ONCE).combine_chunks()
        values = some["value"].to_pylist()
        for key, rows in gather(values, before_field).items():
            mine = some.select(["number", "offset", "arrived"]).take(pa.array([row[0] for row in rows]))
            facts.append(_facts(partition, key, mine, [values[row[0]] for row in rows], rows))
            if is_change(*key[:4]):
                found = columns_of(key, rows, mine["number"])
                found = found.append_column("place", mine["offset"]).append_column("arrived", mine["arrived"])
                blocks.setdefault((key.schema, key.table, key.data), []).append(found)
    yield _row(facts=json.dumps(facts), object=partition)
    for (schema, table, _), found in blocks.items():
        block = packed(pa.concat_tables(found, promote_options="default").combine_chunks())
        yield _row(object=partition, schema=schema, table=table, block=block)


def _row(**values: Any) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {
        name: pa.binary() if kind == "binary" else pa.string() for name, kind in map(str.split, SCHEMA.split(", "))
    }
    return pa.RecordBatch.from_pydict({n: pa.array([values.get(n)], kind) for n, kind in kinds.items()})


def is_change(kind: str | None, operation: str | None, schema: str | None, table: str | None) -> bool:
    """Return whether messages are changes of a table by their metadata; load records are none."""
    return kind == "data" and operation not in (None, "load") and schema is not None and table is not None


def _facts(partition: str, key: Key, places: pa.Table, values: list[bytes | None], rows: list[tuple]) -> dict[str, Any]:
    """Return what the driver learns about some messages: see `stream_groups.Group`."""
    import pyarrow.compute as pc

    ends, records = pc.min_max(places["offset"]), []
    if key.kind == "control" and key.operation in TELLING:
        at = places["offset"].to_pylist()
        records = [(row[1] or "", int(p), _shown(value)) for row, p, value in zip(rows, at, values, strict=True)]
    return {
        "object": partition, "kind": key.kind, "operation": key.operation, "schema": key.schema, "table": key.table,
        "count": len(values), "bytes": sum(len(value or b"") for value in values),
        "first": int(ends["min"].as_py()), "last": int(ends["max"].as_py()), "arrived": pc.min(places["arrived"]).as_py(),
        "sample": None if values[0] is None else _shown(values[0])[:SAMPLE], "columns": key.data if key.kind == "data" else (), "records": records,
    }  # fmt: skip


def _shown(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


# --- blocks into a collapsed batch


def _of_table(blocks: DataFrame, part: Part) -> DataFrame:
    from pyspark.sql import functions as F

    schema, table = part.table
    return blocks.where((F.col("schema") == schema) & (F.col("table") == table)).select("object", "block")


def count_changes(blocks: DataFrame, part: Part) -> tuple[int, frozenset[str]]:
    """Return how many changes a part has, and the names in them."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for some in batches:
            for _, messages in part.rows_of(some):
                names = [n.removeprefix("data.") for n in messages.column_names if n.startswith("data.")]
                yield pa.RecordBatch.from_pydict({"changes": [len(messages)], "names": [names]})

    counted = _of_table(blocks, part).mapInArrow(count, "changes bigint, names array<string>").collect()
    return sum(row.changes for row in counted), frozenset(n for row in counted for n in row.names)


def collapse_part(blocks: DataFrame, reading: Reading, count: int, wanted: Wanted) -> Collapsed | None:
    """Return the last change per key of a table's part with about `count` changes.

    The rows are in the driver, or in a frame that Spark keeps. None if Spark's reader has to judge them, for a bad one.
    A small part is collapsed in this process.
    """
    import pyarrow as pa

    from frazil.lake.locator import arrow

    mine, form = _of_table(blocks, reading.part), RowForm(reading.spec)
    if count < MOST:
        read = counted_blocks(reading.changes_of(arrow(mine).to_batches()), reading.spec, reading.every, [0])
        found = collapsed_rows(pa.Table.from_batches(collapsing(form)(read)), form, wanted)
    else:
        cores = blocks.sparkSession.sparkContext.defaultParallelism
        partitions = max(cores, count * BYTES_A_CHANGE // BUCKET_BYTES)
        read = changes_of_part(blocks, reading, bucket_of_each_partition(partitions))
        found = collapse_blocks(read, form, partitions, wanted)
    if not found.bad.count:
        return found
    found.release()
    return None


def changes_of_part(blocks: DataFrame, reading: Reading, buckets: Sequence[int]) -> DataFrame:
    """Return the frame of a part's changes, typed and in blocks by bucket."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from counted_blocks(reading.changes_of(batches), reading.spec, reading.every, buckets)

    return _of_table(blocks, reading.part).mapInArrow(run, BLOCK_SCHEMA)
