"""The part of a stream's messages that one table takes, and how it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.changes import Changes
from frazil.core.messages import MessageNames, seconds_of, type_columns
from frazil.dms.stream_source import ARRIVED, Offsets
from frazil.engine.read_plan import PartitionRead

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True)
class Part:
    """The part of a read that a table takes: its changes from a position on, and `before` a place of one partition.

    `loads`: its load records instead.
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


def latest(_: str, messages: pa.Table) -> tuple[int, int]:
    """Return when the latest of some messages arrived, and how many they are."""
    import pyarrow.compute as pc

    return pc.max(messages["arrived"]).as_py(), len(messages)


@dataclass(frozen=True)
class Around:
    """Places by partition around which messages are looked for: the `last` of some, and those `seen` by a first read."""

    last: Offsets
    seen: Offsets
    newest_ms: int

    def __call__(self, partition: str, messages: pa.Table) -> tuple[int | None, int]:
        """Return the last of a partition's messages before `last`, and how many seen ones have a later place and time."""
        import pyarrow.compute as pc

        places, before = messages["place"], None
        is_after = pc.greater_equal(messages["arrived"], self.newest_ms)
        is_after = pc.and_(is_after, pc.less(places, _place(self.seen.get(partition, 0), messages)))
        if (at := self.last.get(partition)) is not None:
            before = pc.max(places.filter(pc.less(places, _place(at, messages)))).as_py()
            is_after = pc.and_(is_after, pc.greater(places, _place(at, messages)))
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
                changes = type_columns(messages, self.spec, self.names, self.spread_over)
                if changes.rows.num_rows < len(messages):
                    messages = messages.filter(pc.is_in(messages["number"], changes.rows["number"]))
                yield changes, self.order[partition], seconds_of(messages["built"])
