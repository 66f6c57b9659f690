"""A full load: all load files of a table become its rows, in one commit. Rows stream from files to files."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from frazil.core.changes import COMMITTED, Changes, concat
from frazil.dms.file_names import order_of
from frazil.dms.load_rule import last_before, require_all_there
from frazil.dms.pending import CLOCKS_S
from frazil.engine.waiting_rows import WAITING
from frazil.iceberg import side_files, swap
from frazil.iceberg.doubled_keys import DoubledInLoadError
from frazil.iceberg.row_delta import write_rows
from frazil.iceberg.swap import Change
from frazil.pipeline import all_changes, facts, quarantine
from frazil.pipeline.batch import Batch, BatchColumns, WrittenBatch
from frazil.pipeline.look import LoadWaitsError, applied_before
from frazil.pipeline.waiting_keys import places_of

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table


def write_load(table: Table, batch: Batch, columns: BatchColumns) -> WrittenBatch:
    """Write a table's load where no reader sees it. Its rows take the place of all rows.

    Raises DoubledInLoadError, with the files of a key that is there twice; LoadWaitsError if DMS loaded more rows.
    """
    bad_parts, micros = list[Changes](), list[int | None]()

    def write() -> Change:
        return write_rows(table.stored, "replace", _rows(table, batch, columns, bad_parts, micros), columns.plan)

    try:
        change = write()
    except DoubledInLoadError as error:
        raise _with_files(error, table, batch, columns) from None
    bad = concat([all_changes.no_changes(columns.spec), *bad_parts])
    counts = {"files": len(batch.files), "rows": sum(file.rows for file in change.add), "quarantined": len(bad.bad)}
    _require_as_many(table, counts["rows"] + counts["quarantined"])
    quarantine.require_admitted(bad, columns.files.paths, columns.spec, table.lake.settings)
    waiting = quarantine.kept(WAITING.empty_table(), bad, columns.files, ()).waiting
    times = sorted(time / 1e6 for time in micros if time is not None)
    last = batch.planned.last or last_before(batch.there, times[0] if times else None)
    if (before := applied_before(table)).marks:
        require_all_there(batch.there, before, last, table.source)
    accepted = {name: after for name, after in batch.after.accepted.items() if order_of(after) > order_of(last)}
    side_file = side_files.store(table.lake.state, table.name, waiting)
    position = structs.replace(batch.after, last=last, quarantine=side_file, accepted=accepted)
    told = replace(change, summary=facts.of_batch(_left_after(batch, last), counts, np.array(times[-1:]), None))
    return WrittenBatch(batch, swap.written(table.stored, told), position, counts, write)


def _rows(
    table: Table, batch: Batch, columns: BatchColumns, bad: list[Changes], micros: list[int | None]
) -> Iterator[pa.Table]:
    """Yield the rows of all load files; add bad rows, and the first and the last time of each part in microseconds."""
    said, count = -1, len(batch.files)
    for number, _, part in columns.changes(batch):
        if number != said and count > 1:
            table.lake.say(f"{table.source}: load file {number + 1} of {count}")
            said = number
        bad.append(replace(all_changes.no_changes(columns.spec), bad=part.bad, bad_facts=part.bad_facts))
        if (times := part.fact(COMMITTED)) is not None:
            micros += pc.min_max(times.cast(pa.int64())).as_py().values()
        yield part.rows if table.spec.key else all_changes.rows_of(part, columns.files)


def _with_files(error: DoubledInLoadError, table: Table, batch: Batch, columns: BatchColumns) -> DoubledInLoadError:
    """Return the error with the files in which the keys are that it names."""
    found, paths = defaultdict[str, list[str]](list), [*batch.files]
    for _, _, part in columns.changes(batch):
        rows = part.rows.select(table.spec.key).to_pylist()
        for row, (file, number) in zip(rows, places_of(part.facts), strict=True):
            key = ", ".join(f"{name}={value}" for name, value in row.items())
            if key in error.problem:
                found[key].append(f"{paths[file]} row {number}")
    lines = [f"{key}: {', '.join(places[:5])}" for key, places in found.items() if len(places) > 1]
    return DoubledInLoadError(error.problem, error.cure, lines[:5])


def _require_as_many(table: Table, rows: int) -> None:
    """Raise LoadWaitsError if DMS says that it loaded more rows than the load files have."""
    if rows < (loaded := table.lake.source.gate.loaded_rows(table.source)):
        problem = f"{table.source}: its load files have {rows:,} rows, and DMS loaded {loaded:,}"
        raise LoadWaitsError(problem, "run 01_full_load when all load files are there")


def _left_after(batch: Batch, last: str) -> Batch:
    """Return a load with the change files that follow it: none from before it, and none from the future."""
    soon, written_s = time.time() + CLOCKS_S, batch.there.partition.written_s
    left = (file for file in batch.left if order_of(file.path) > order_of(last))
    return replace(batch, left=tuple(file for file in left if written_s(file.name) <= soon))
