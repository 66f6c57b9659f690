"""What maintenance keeps because a warehouse still serves it: snapshots and metadata files."""

from __future__ import annotations

import time
from dataclasses import dataclass

from frazil_old.config.spec import TableSpec
from frazil_old.config.warehouses import declared
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm

MARGIN_H, UNKNOWN_H = 0.02, 87_600.0
"""Hours that are added to the age of a served state, and those that keep all if the state is not known."""


@dataclass(frozen=True)
class Held:
    """What maintenance keeps of a table for warehouses: states since `keep_hours` ago, and metadata files. `why`: for whom."""

    keep_hours: float = 0.0
    metadata: tuple[str, ...] = ()
    why: str = ""


def held(book: Workbook, spec: TableSpec) -> Held:
    """Return what the declared warehouses still serve of a table and maintenance must therefore keep."""
    readers = {n for n, w in declared(book.settings).items() if w.reads(spec.source)}
    if not readers:
        return Held()
    from frazil_old.flows import ledger

    name, keep, why = book.name(spec), 0.0, []
    found = [r for r in ledger.holders(book, name) if r.warehouse in readers]
    table = jvm.load_table(book.spark, name) if found else None
    for r in found:
        snapshot = r.snapshot_id or _snapshot_of(book, name, r.metadata)
        there = table.snapshot(snapshot) if snapshot else None
        if there and snapshot == table.currentSnapshot().snapshotId():
            continue
        if snapshot and not there:
            continue  # it is gone: nothing can be kept
        keep = max(keep, (time.time() - there.timestampMillis() / 1000) / 3600 + MARGIN_H if there else UNKNOWN_H)
        state = f"snapshot {snapshot}" if snapshot else r.metadata
        why.append(f"warehouse {r.warehouse} serves {state} since {r.since:%Y-%m-%d %H:%M:%S}")
    return Held(keep, tuple(r.metadata for r in found if r.metadata), "; ".join(why))


def _snapshot_of(book: Workbook, name: str, metadata: str) -> int | None:
    """Return the snapshot of a metadata file that the table's log still names."""
    from frazil_old.warehouses.refresher import place

    log_of = book.spark.table(f"{name}.metadata_log_entries").collect()
    return next((r.latest_snapshot_id for r in log_of if place(r.file) == place(metadata)), None)
