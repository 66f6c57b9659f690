"""How a batch of changes is written: new rows and deletes, the rows that wait, and what its commit says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import structs

from frazil.dms import quarantine_files
from frazil.dms.empty_load import require_load
from frazil.dms.file_names import order_of
from frazil.dms.pending import LateFileError
from frazil.errors import Finding, FrazilError
from frazil.iceberg import commits
from frazil.iceberg.commits import Change
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.locate import Finder, locate, wants_segments
from frazil.iceberg.row_delta import write_batch, write_rows
from frazil.iceberg.stored_values import NoStoredRowError
from frazil.pipeline import batch_summary, quarantine
from frazil.pipeline.batch import BatchChanges, BatchLatest, WrittenBatch

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table


class KeyTakenError(FrazilError, code="key-taken", decision=True):
    """One statement gave stored rows each other's keys, and the log does not say which is which. Restart the table, which loads it again."""


def write_changes(table: Table, latest: BatchLatest) -> WrittenBatch:
    """Write the files of a batch of changes where no reader sees them; of a replay as well.

    Raises KeyTakenError, LateFileError, LoadMissingError, and the errors of `iceberg.row_delta`.
    """
    changes = latest.changes
    batch = changes.batch
    if batch.kind == "changes":
        are_stored, names = partial(_are_stored, table), [*batch.files]
        require_load(changes.changes, batch.planned, table.spec.key, names, table.source, are_stored)
        _require_not_older(table, changes)
    latest, change = _written(table, latest)
    counts = _counts(latest)
    told = replace(change, summary=batch_summary.of_batch(batch, counts, *changes.times))
    kept, side_file = latest.kept, batch.planned.quarantine
    if kept.waiting is not kept.before or batch.replay:
        side_file = quarantine_files.store(table.lake.state, table.name, kept.waiting)
    position = structs.replace(batch.after, quarantine=side_file)
    return WrittenBatch(batch, commits.written(table.stored, told), position, counts, partial(_change, table, latest))


def _written(table: Table, latest: BatchLatest) -> tuple[BatchLatest, Change]:
    """Write a batch; partial rows whose stored rows are missing wait, as bad rows do."""
    changes, before, doubted = latest.changes, latest.kept.before, set[str]()
    while True:
        try:
            return latest, _change(table, latest)
        except NoStoredRowError as error:
            doubted |= quarantine.doubted_keys(latest.latest, error.places)
            kept = quarantine.kept(before, changes.changes, changes.columns.files, table.spec.key, doubted)
            if kept.latest is None or kept.added == latest.kept.added:
                raise
            latest = replace(latest, kept=kept, latest=kept.latest)


def _change(table: Table, latest: BatchLatest) -> Change:
    """Write the files of a batch for the table's present state. Raises KeyTakenError."""
    stored, plan, found = table.stored, latest.changes.columns.plan, latest.latest
    if not table.spec.key:
        return write_rows(stored, "append", [found.rows], plan)
    taken = found.transient.filter(pa.array(_are_stored(table, found.transient))).slice(0, 3).to_pylist()
    if taken:
        keys = ", ".join(f"{name}={value}" for row in taken for name, value in row.items())
        cure = "restart the table, which loads it again; or let the source log the changes of keys one by one"
        raise KeyTakenError(f"{table.source}: the key {keys} was given to another row by one statement", cure)
    return write_batch(stored, _finder(table), found, plan)


def _finder(table: Table) -> Finder:
    """Return what finds the rows of keys: segments where they pay for themselves, else scans, by tasks in a large table."""
    lake = table.lake
    if table.segments is None and wants_segments(table.stored, lake.settings.run_for_s > 0, lake.budget.size // 4):
        table.segments = Segments()
    return table.segments or lake.tasks.scan


def _are_stored(table: Table, keys: pa.Table) -> np.ndarray:
    """Return which keys the table has."""
    there = np.zeros(len(keys), bool)
    for found in locate(table.stored, _finder(table), keys):
        there[found.n] = True
    return there


def _require_not_older(table: Table, changes: BatchChanges) -> None:
    """Raise LateFileError if an accepted late file has changes from before those that are applied."""
    batch, (committed, _) = changes.batch, changes.times
    if order_of([*batch.files][0]) >= order_of(batch.planned.last):
        return
    newest = max((float(s.summary.get(batch_summary.NEWEST, 0)) for s in table.stored.ancestors()), default=0.0)
    if (committed < newest).any():
        detail = "; it has changes from before those that are applied, which it would undo"
        raise Finding(LateFileError, tuple(batch.files), detail).raised(table.source)


def _counts(latest: BatchLatest) -> dict[str, int]:
    """Return what a batch has, writes and leaves waiting."""
    batch, changes, deleted, kept = latest.changes.batch, latest.changes.changes, latest.latest.deleted, latest.kept
    found = {"files": len(batch.files), "changes": len(changes.rows) + len(changes.bad)}
    found |= {"written": int((~deleted).sum()), "deleted": int(deleted.sum())}
    if not batch.replay:
        return {**found, "quarantined": kept.added}
    replayed = len(batch.replay.rows) - kept.added - kept.obsolete
    return {"replayed": replayed, "still_bad": kept.added + len(kept.before), **found}
