"""A full load: all load files of a table become its rows, in one commit. Rows stream from files to files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import structs

from frazil.core.bad_rows import BAD
from frazil.core.changes import COMMITTED, Changes
from frazil.dms.file_names import order_of
from frazil.dms.load_rule import last_before, require_all_there
from frazil.engine.waiting_rows import WAITING
from frazil.iceberg import side_files, swap
from frazil.iceberg.doubled_keys import DoubledInLoadError
from frazil.iceberg.row_delta import write_rows
from frazil.iceberg.swap import Change
from frazil.pipeline import all_changes, facts, quarantine
from frazil.pipeline.batch import Batch, BatchColumns, WrittenBatch
from frazil.pipeline.look import LoadWaitsError, applied_before

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table


@dataclass
class _Seen:
    """What passed by while a load was read."""

    rows: int = 0
    began: float = np.inf
    newest: float = -np.inf
    bad: list[pa.Table] = field(default_factory=list)


def write_load(table: Table, batch: Batch, columns: BatchColumns) -> WrittenBatch:
    """Write a table's load where no reader sees it. Its rows take the place of all rows.

    Raises DoubledInLoadError, with the files of a key that is there twice.
    """
    seen = _Seen()
    try:
        change = write_rows(table.stored, "replace", _rows(table, batch, columns, seen), columns.plan)
    except DoubledInLoadError as error:
        raise _with_files(error, table, batch, columns) from None
    bad = pa.concat_tables([BAD.empty_table(), *seen.bad])
    if seen.rows + len(bad) < (rows := table.lake.source.loaded_rows(table.source)):
        problem = f"{table.source}: its load files have {seen.rows + len(bad):,} rows, and DMS loaded {rows:,}"
        raise LoadWaitsError(problem, "run 01_full_load when all load files are there")
    of = columns.files(batch)
    quarantine.require_admitted(_bad_alone(bad), of.paths, columns.spec, table.lake.settings)
    waiting = quarantine.kept(WAITING.empty_table(), _bad_alone(bad), of, ()).waiting
    side_file = side_files.store(table.lake.state, table.name, waiting)
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
    again = partial(_written_again, table, batch, columns)
    return WrittenBatch(batch, swap.written(table.stored, change), position, summary, counts, again)


def _bad_alone(bad: pa.Table) -> Changes:
    return Changes(pa.table({}), pa.table({"file": pa.array([], pa.int32())}), bad)


def _written_again(table: Table, batch: Batch, columns: BatchColumns) -> Change:
    return write_rows(table.stored, "replace", _rows(table, batch, columns, _Seen()), columns.plan)


def _with_files(error: DoubledInLoadError, table: Table, batch: Batch, columns: BatchColumns) -> DoubledInLoadError:
    """Return the error with the files in which the keys are that it names."""
    found, paths = dict[str, list[str]](), [*batch.files]
    for part, file in _parts(batch, columns):
        keys = part.rows.select(table.spec.key).to_pylist()
        for row, number in zip(keys, part.facts["number"].to_pylist(), strict=True):
            key = ", ".join(f"{name}={value}" for name, value in row.items())
            if key in error.problem:
                found.setdefault(key, []).append(f"{paths[file]} row {number}")
    lines = [f"{key}: {', '.join(places[:5])}" for key, places in found.items() if len(places) > 1]
    return DoubledInLoadError(error.problem, error.cure, lines[:5])


def _parts(batch: Batch, columns: BatchColumns) -> Iterator[tuple[Changes, int]]:
    """Yield the changes of all files, each with the number of its file."""
    for number, (file, its) in enumerate(zip(batch.files.values(), columns.of_files, strict=True)):
        if its:
            yield from ((part, number) for part in columns.reader.read(file, its, number=number))


def _rows(table: Table, batch: Batch, columns: BatchColumns, seen: _Seen) -> Iterator[pa.Table]:
    """Yield the rows of all load files, and note what passes by."""
    of, said = columns.files(batch), -1
    *before, size = accumulate((file.size for file in batch.files.values()), initial=0)
    for part, number in _parts(batch, columns):
        if said != number and len(before) > 1:
            done = before[number] / size
            table.lake.say(f"{table.source}: load file {number + 1} of {len(before)}, {done:.0%} done")
            said = number
        _note(part, seen)
        yield part.rows if table.spec.key else all_changes.rows_of(part, of)


def _note(part: Changes, seen: _Seen) -> None:
    times = part.fact(COMMITTED)
    seen.rows += len(part.rows)
    if len(part.bad):
        seen.bad.append(part.bad)
    if times is not None and times.null_count < len(times):
        known = times.drop_null().cast(pa.int64()).to_numpy() / 1e6
        seen.began, seen.newest = min(seen.began, known.min()), max(seen.newest, known.max())
