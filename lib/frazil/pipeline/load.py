"""A full load: all load files of a table become its rows, in one commit. Rows stream from files to files, here or in tasks."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from frazil.core.changes import concat
from frazil.dms import quarantine_files
from frazil.dms.file_names import order_of
from frazil.dms.load_rule import last_before, require_all_there
from frazil.dms.pending import CLOCKS_S
from frazil.engine.replay_files import WAITING, BatchFiles
from frazil.engine.tasks import LoadPart, file_parts, write_part
from frazil.iceberg import commits
from frazil.iceberg.columns import evolved
from frazil.iceberg.commits import Change
from frazil.iceberg.doubled_keys import DoubledInLoadError
from frazil.iceberg.row_delta import change_of
from frazil.pipeline import all_changes, batch_summary, quarantine
from frazil.pipeline.batch import Batch, BatchColumns, WrittenBatch
from frazil.pipeline.next_batch import LoadWaitsError, applied_before
from frazil.pipeline.waiting_keys import places_of

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table


def write_load(table: Table, batch: Batch, columns: BatchColumns) -> WrittenBatch:
    """Write a table's load where no reader sees it. Its rows take the place of all rows.

    Raises DoubledInLoadError, with the files of a key that is there twice; LoadWaitsError if DMS loaded more rows.
    """
    lake, of, parts = table.lake, columns.files, list[LoadPart]()
    rows_of = None if table.spec.key else all_changes.rows_of

    def write() -> Change:
        after, jobs = evolved(table.stored, columns.plan), file_parts(of)
        work = partial(write_part, of, rows_of, after.metadata, table.stored.io)
        parts[:] = lake.tasks.run(work, jobs, lambda done: lake.say(f"{table.source}: {done} of the load are written"))
        return change_of(table.stored, "replace", [file for files, *_ in parts for file in files], after)

    try:
        change = write()
    except DoubledInLoadError as error:
        raise _with_files(error, table, of) from None
    bad = concat([all_changes.no_changes(columns.spec), *(bad for _, of_part, _ in parts for bad in of_part)])
    counts = {"files": len(batch.files), "rows": sum(file.rows for file in change.add), "quarantined": len(bad.bad)}
    _require_as_many(table, counts["rows"] + counts["quarantined"])
    quarantine.require_admitted(bad, of.paths, columns.spec, lake.settings)
    waiting = quarantine.kept(WAITING.empty_table(), bad, of, ()).waiting
    times = sorted(time / 1e6 for *_, micros in parts for time in micros if time is not None)
    last = batch.planned.last or last_before(batch.there, times[0] if times else None)
    if (before := applied_before(table)).marks:
        require_all_there(batch.there, before, last, table.source)
    accepted = {name: after for name, after in batch.after.accepted.items() if order_of(after) > order_of(last)}
    side_file = quarantine_files.store(lake.state, table.name, waiting)
    position = structs.replace(batch.after, last=last, quarantine=side_file, accepted=accepted)
    told = replace(change, summary=batch_summary.of_batch(_left_after(batch, last), counts, np.array(times[-1:]), None))
    return WrittenBatch(batch, commits.written(table.stored, told), position, counts, write)


def _with_files(error: DoubledInLoadError, table: Table, of: BatchFiles) -> DoubledInLoadError:
    """Return the error with the files in which the keys are that it names."""
    found, paths = defaultdict[str, list[str]](list), of.paths
    for _, _, part in of.changes(range(len(paths))):
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
