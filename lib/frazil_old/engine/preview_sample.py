"""The first records of a table's files, and the changes in them, read as a run reads them: enough to show what a run does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import BadRow
from frazil_old.core.changes import PLACE, Changes
from frazil_old.core.key_changes import LEAVE, events
from frazil_old.core.latest_per_key import Latest, last_events
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.source_errors import SourceError
from frazil_old.dms.storage import is_s3
from frazil_old.engine.collapsed_batch import Tally
from frazil_old.engine.read_files import Block, Extent, FileToRead, ReadPlan, read_blocks
from frazil_old.engine.small_batch import numbered

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS, MOST_BYTES = 1000, 1 << 20
"""A sample ends with this record, or with this byte of them."""
EXTENT = Extent(rows=MOST_ROWS, block=256 << 10, most=4 << 20)
MOST_PARQUET = 8 << 20
"""A Parquet file on S3 is read as a whole, so a sample takes no larger one."""
Place = tuple[int, int]
"""A record's file, by its number in the sample, and the record's number in that file."""
Key = tuple


@dataclass(frozen=True)
class SampleRecord:
    """A record that is a change, or a bad row; `index` is the change's place in `Sample.changes`."""

    place: Place
    index: int | None
    bad: BadRow | None = None


class Sample:
    """The first records of some files, in order; `whole`: whether these are all records of the files."""

    def __init__(self, spec: TableSpec, files: Sequence[FileToRead], blocks: Sequence[tuple[int, Block]], whole: bool):
        self.spec, self.files, self.whole = spec, list(files), whole
        self._blocks = list(blocks)

    @cached_property
    def changes(self) -> pa.Table:
        """The changes in order, with their `PLACE`."""
        return numbered(((b.changes, order, math.nan) for order, b in self._blocks), self.spec, Tally())

    @cached_property
    def records(self) -> list[SampleRecord]:
        """The changes and the bad rows, in order."""
        places = self._places(self.changes)
        found = [SampleRecord(place, index) for index, place in enumerate(places)]
        found += [SampleRecord((order, bad.number), None, bad) for order, b in self._blocks for bad in b.changes.bad]
        return sorted(found, key=lambda record: record.place)

    @staticmethod
    def _places(rows: pa.Table) -> list[Place]:
        return list(zip(*(rows[name].to_pylist() for name in PLACE), strict=True))

    def fields(self, place: Place) -> list[object] | None:
        """Return the fields of a record as its file has them; None for a line with too many or too few fields."""
        import numpy as np

        order, number = place
        for at, block in self._blocks:
            found = np.flatnonzero(block.numbers == number) if at == order else ()
            if len(found):
                return [column[int(found[0])].as_py() for column in block.fields.columns]
        return None

    # --- by key

    @cached_property
    def steps(self) -> pa.Table:
        """The events in order: a change of a key counts at its old key and at its new one."""
        return events(self.changes, self.spec)

    @cached_property
    def latest(self) -> Latest:
        """The last event per key."""
        return last_events(self.steps, self.spec)

    def keys_of(self, rows: pa.Table) -> list[Key]:
        """Return the key of each row."""
        parts = [rows[f"new_{self.spec.names.index(k)}"].to_pylist() for k in self.spec.key]
        return list(zip(*parts, strict=True))

    @cached_property
    def places_by_key(self) -> dict[Key, list[Place]]:
        """The places of each key's events, in order."""
        found: dict[Key, list[Place]] = {}
        for key, place in zip(self.keys_of(self.steps), self._places(self.steps), strict=True):
            found.setdefault(key, []).append(place)
        return found

    @cached_property
    def left(self) -> dict[Place, int]:
        """The changes of a key, each with the index in `steps` of the row at its old key."""
        steps = zip(self._places(self.steps), self.steps["step"].to_pylist(), strict=True)
        return {place: i for i, (place, step) in enumerate(steps) if step == LEAVE}

    @cached_property
    def outlived(self) -> dict[Place, Place]:
        """The changes that a later one replaced, each with the place of the last change of its key."""
        ends = dict(zip(self.keys_of(self.latest.rows), self._places(self.latest.rows), strict=True))
        # A change of a key has two steps, and the second one counts: the row at its new key.
        steps = zip(self.keys_of(self.steps), self._places(self.steps), strict=True)
        found = {place: ends[key] for key, place in steps}
        return {place: end for place, end in found.items() if place != end}


def read_sample(spec: TableSpec, planned: Sequence[FileToRead], read: ReadPlan, listed: Sequence[DmsObject]) -> Sample:
    """Read the first records of files; raise FrazilError, as a run does, for a file that cannot be read."""
    blocks: list[tuple[int, Block]] = []
    rows = size = 0
    for order, (file, there) in enumerate(zip(planned, listed, strict=True)):
        if there.is_parquet and is_s3(there.path) and there.size > MOST_PARQUET:
            raise SourceError(f"{there.path} is too large to be shown", "a run reads it")
        for block in read_blocks(file, read, EXTENT):
            blocks.append((order, _first(block, MOST_ROWS - rows)))
            rows += len(block.numbers)
            size += block.fields.nbytes
            if rows >= MOST_ROWS or size >= MOST_BYTES:
                return Sample(spec, planned, blocks, whole=False)
    return Sample(spec, planned, blocks, whole=True)


def _first(block: Block, most: int) -> Block:
    """Return the first records of a block."""
    if len(block.numbers) <= most:
        return block
    import pyarrow as pa
    import pyarrow.compute as pc

    end = int(block.numbers[most])
    good = block.changes.rows
    good = good.filter(pc.less(good["number"], pa.scalar(end)))
    bad = tuple(b for b in block.changes.bad if b.number < end)
    return Block(block.fields.slice(0, most), block.numbers[:most], Changes(good, bad))
