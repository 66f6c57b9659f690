"""A full load: all load files of a table become its rows, in one commit. Rows stream from files to files, here or in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import structs

from frazil.core.bad_rows import BAD
from frazil.core.changes import COMMITTED, Changes
from frazil.dms.file_names import order_of
from frazil.dms.load_rule import last_before, require_all_there
from frazil.engine.load_parts import Piece, parts_of
from frazil.engine.tasks import AT_ONCE, in_tasks, is_local
from frazil.engine.waiting_rows import WAITING, BatchFiles
from frazil.iceberg import side_files, swap
from frazil.iceberg.columns import evolved
from frazil.iceberg.data_files import write_files
from frazil.iceberg.doubled_keys import DoubledInLoadError
from frazil.iceberg.live_files import LiveFile
from frazil.iceberg.row_delta import of_files
from frazil.iceberg.swap import Change
from frazil.pipeline import all_changes, facts, quarantine
from frazil.pipeline.batch import Batch, BatchColumns, WrittenBatch
from frazil.pipeline.look import applied_before

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

    from frazil.pipeline.table import Table

HERE = 64 << 20
"""The bytes of a load that this process has written before tasks would have started."""
TASK_MEMORY = 768 << 20
"""The memory that a task takes."""


@dataclass
class _Seen:
    """What passed by while a load was read."""

    rows: int = 0
    began: float = np.inf
    newest: float = -np.inf
    bad: list[pa.Table] = field(default_factory=list)

    def note(self, part: Changes) -> None:
        """Note what passes by."""
        times = part.fact(COMMITTED)
        self.rows += len(part.rows)
        if len(part.bad):
            self.bad.append(part.bad)
        if times is not None and times.null_count < len(times):
            known = times.drop_null().cast(pa.int64()).to_numpy() / 1e6
            self.began, self.newest = min(self.began, known.min()), max(self.newest, known.max())

    def add(self, other: _Seen) -> None:
        """Add what passed by in another part."""
        self.rows, self.bad = self.rows + other.rows, self.bad + other.bad
        self.began, self.newest = min(self.began, other.began), max(self.newest, other.newest)


def write_load(table: Table, batch: Batch, columns: BatchColumns) -> WrittenBatch:
    """Write a table's load where no reader sees it. Its rows take the place of all rows.

    Raises DoubledInLoadError, with the files of a key that is there twice.
    """
    of, seen = _files(batch, columns), _Seen()
    try:
        change = _change(table, of, columns, seen)
    except DoubledInLoadError as error:
        raise _with_files(error, table, of) from None
    bad = pa.concat_tables([BAD.empty_table(), *seen.bad])
    quarantine.require_admitted(_bad_alone(bad), of.paths, columns.spec, table.lake.settings)
    waiting = quarantine.replaced(WAITING.empty_table(), of, bad).waiting
    side_file = side_files.store(table.lake.state, table.name, waiting) if len(waiting) else None
    began = seen.began if np.isfinite(seen.began) else None
    last = batch.planned.last or (last_before(batch.there, began) if batch.there else "")
    if batch.there and (before := applied_before(table)).marks:
        require_all_there(batch.there, before, last, table.source)
    batch = replace(batch, left=tuple(file for file in batch.left if order_of(file.path) > order_of(last)))
    accepted = {name: after for name, after in batch.after.accepted.items() if order_of(after) > order_of(last)}
    position = structs.replace(batch.after, last=last, quarantine=side_file, accepted=accepted)
    counts = {"files": len(batch.files), "rows": seen.rows, "quarantined": len(bad)}
    newest = np.array([seen.newest]) if np.isfinite(seen.newest) else np.empty(0)
    summary = facts.of_batch(batch, counts, newest)
    again = partial(_written_again, table, of, columns)
    return WrittenBatch(batch, swap.written(table.stored, change), position, summary, counts, again)


def _files(batch: Batch, columns: BatchColumns) -> BatchFiles:
    return BatchFiles(columns.reader, [*batch.files.values()], columns.of_files, batch.after.batch)


def _bad_alone(bad: pa.Table) -> Changes:
    return Changes(pa.table({}), pa.table({"file": pa.array([], pa.int32())}), bad)


def _written_again(table: Table, of: BatchFiles, columns: BatchColumns) -> Change:
    return _change(table, of, columns, _Seen())


def _change(table: Table, of: BatchFiles, columns: BatchColumns, seen: _Seen) -> Change:
    """Write all rows of a load, in tasks if they are many, and note what passes by."""
    after, stored, size = evolved(table.stored, columns.plan), table.stored, sum(file.size for file in of.files)
    write = partial(_written, of, bool(table.spec.key), after.metadata, stored.io)
    if size <= HERE:
        written = [*map(write, parts_of(of, 1))]
    else:
        context = table.lake.spark.sparkContext
        parts, done = parts_of(of, context.defaultParallelism), count(1)
        at_once = max(1, table.lake.budget.size // TASK_MEMORY) if is_local(context) else AT_ONCE

        def ended(part: object) -> None:
            table.lake.say(f"{table.source}: {next(done)} of {len(parts)} parts of the load are written")

        written = in_tasks(table.lake.spark, write, parts, ended, at_once)
    for _, of_part in written:
        seen.add(of_part)
    return of_files(stored, "replace", [file for files, _ in written for file in files], after)


def _written(
    of: BatchFiles, keyed: bool, metadata: TableMetadata, io: FileIO, pieces: list[Piece]
) -> tuple[list[LiveFile], _Seen]:
    """Write a part of a load, here or in a task; return the new files, and what passed by."""
    seen = _Seen()

    def rows() -> Iterator[pa.Table]:
        for part in _changes(of, pieces):
            seen.note(part)
            yield part.rows if keyed else all_changes.rows_of(part, of)

    return write_files(metadata, io, rows()), seen


def _changes(of: BatchFiles, pieces: list[Piece]) -> Iterator[Changes]:
    for number, begin, end in pieces:
        if its := of.columns[number]:
            yield from of.reader.read(of.files[number], its, begin, end, number)


def _with_files(error: DoubledInLoadError, table: Table, of: BatchFiles) -> DoubledInLoadError:
    """Return the error with the files in which the keys are that it names."""
    found: dict[str, list[str]] = {}
    for number, file in enumerate(of.paths):
        for part in _changes(of, [(number, 0, None)]):
            keys = part.rows.select(table.spec.key).to_pylist()
            for row, at in zip(keys, part.facts["number"].to_pylist(), strict=True):
                key = ", ".join(f"{name}={value}" for name, value in row.items())
                if key in error.problem:
                    found.setdefault(key, []).append(f"{file} row {at}")
    lines = [f"{key}: {', '.join(places[:5])}" for key, places in found.items() if len(places) > 1]
    return DoubledInLoadError(error.problem, error.cure, lines[:5])
