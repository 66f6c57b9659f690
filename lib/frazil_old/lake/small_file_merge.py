"""Small files of row deltas, merged during ingestion: the rows of some commits become one file, from memory.

A commit each second leaves a file each second, and a scan opens them all. The rows of the last files are still in
memory, so nothing is read. The live ones are written again, in order, and replace their files in a separate commit,
after the batch is visible. Other writers see a compaction: the rows keep their ids and the sequence number of their
change.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from frazil_old.lake import commit_retry, jvm, jvm_maintenance
from frazil_old.lake.data_file_writer import LAST_UPDATED, ROW_ID
from frazil_old.lake.rewrite_files import ORDER, file_name
from frazil_old.lake.row_delta_files import NewFile, in_order, write_rows

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import SparkSession

    from frazil_old.config.spec import TableSpec
    from frazil_old.lake.index_sync import Locator

KIND = "fold"
MERGE_AFTER = 16
"""Number of commits whose files are merged into one."""
SMALL_BYTES = 1 << 18
"""Maximum memory for the rows of a commit. Larger ones are not kept: their files are not that small."""
AT_WORK_S, LOOK_BACK = 60.0, 200
SPREAD = 0.618034
"""The golden ratio's inverse: the fractional parts of its multiples are evenly spread for any number of tables."""


@dataclass(frozen=True)
class SmallFile:
    """A data file of this run: its rows as committed, on v3 with their ids, and the snapshot that added it."""

    path: str
    rows: Table
    snapshot: int


class SmallFileMerge:
    """Collects one table's newest small files and their rows, and merges them after `MERGE_AFTER` commits.

    The tables of a run commit at the same pace. The first merge of the `nth` table comes earlier, so that no single
    pass waits for all merges.
    """

    def __init__(self, nth: int = 0):
        self.commits = int(MERGE_AFTER * (nth * SPREAD % 1))
        self.files: list[SmallFile] = []

    def remember(self, rows: Table, written: list[NewFile], snapshot: int) -> None:
        """Keep the rows of a commit. They are `in_order` and fill its files one after the other."""
        count = sum(f.rows for f in written)
        if not count or rows.slice(0, count).nbytes > SMALL_BYTES:
            return
        start = 0
        for file in written:
            self.files.append(SmallFile(file.path, rows.slice(start, file.rows), snapshot))
            start += file.rows
        self.commits += 1

    @property
    def due(self) -> bool:
        """Whether enough commits were collected."""
        return self.commits >= MERGE_AFTER

    def merge(self, spark: SparkSession, at: Locator, spec: TableSpec, fields: list[tuple[int, str, str]]) -> None:
        """Rewrite the collected files as one file per partition. If another writer commits first, they stay as they are."""
        young, self.files, self.commits = self.files, [], 0
        table = jvm.load_table(spark, at.name)
        head = table.currentSnapshot()
        if head.snapshotId() != at.snapshot:
            return
        parts: dict[str, list[SmallFile]] = {}
        for y in young:
            file = at.live_files.get(y.path)
            of_now = (ROW_ID in y.rows.column_names) == at.has_row_ids
            if file and of_now and file.spec_id == table.spec().specId() and file.deletes == file.own:
                parts.setdefault(json.dumps(file.partition), []).append(y)
        young = [y for several in parts.values() if len(several) > 1 for y in several]
        old = jvm_maintenance.added_files(spark, table, {y.snapshot for y in young})
        if not young or not all(y.path in old for y in young):
            return
        rows = in_order(_live(table, at, young))
        new = write_rows(spark, table, rows, spec, fields)
        files = jvm_maintenance.Replacement(
            jvm.java_list(spark, [old[y.path] for y in young]),
            [d for y in young for d in at.live_files[y.path].own],
            [f.file for f in new],
        )
        try:
            head = jvm_maintenance.commit_rewrite(
                spark, table, at.snapshot, head.sequenceNumber(), files, _summary(at, young, new)
            )
        except Exception as error:
            if not commit_retry.is_known_failure(error):
                raise
            jvm_maintenance.remove_files(table, files.new)
            return
        if head.parentId() == at.snapshot:  # otherwise another writer committed in between: the next batch catches up
            at.merged(rows, new, [y.path for y in young], head)


def _live(table: jvm.JavaTable, at: Locator, young: list[SmallFile]) -> Table:
    """Return the live rows of the files; on v3, where they have ids, also the sequence numbers of their last changes."""
    import numpy as np
    import pyarrow as pa

    kept = []
    for y in young:
        live = np.ones(y.rows.num_rows, bool)
        live[at.vector(table, y.path).to_array()] = False
        rows = y.rows.filter(pa.array(live))
        if at.has_row_ids:
            sequence = np.full(rows.num_rows, table.snapshot(y.snapshot).sequenceNumber(), np.int64)
            rows = rows.append_column(LAST_UPDATED, pa.array(sequence))
        kept.append(rows)
    return pa.concat_tables(kept)


def _summary(at: Locator, young: list[SmallFile], new: list[NewFile]) -> dict[str, str]:
    """Return the snapshot's summary, which states for each new file whose rows it has, in order."""
    parts: dict[str, list[str]] = {}
    for y in young:
        parts.setdefault(json.dumps(at.live_files[y.path].partition), []).append(file_name(y.path))
    order = {file_name(f.path): parts[json.dumps(f.partition)] for f in new}
    facts = {"files": len(young), "added": len(new), "rows": sum(f.rows for f in new)}
    return {"frazil.kind": KIND, "frazil.counts": json.dumps(facts), ORDER: json.dumps(order)}


def _is_old(snapshot: jvm.JavaSnapshot) -> bool:
    """Return whether a snapshot is too old to show that ingestion is active."""
    return time.time() - snapshot.timestampMillis() / 1000 > AT_WORK_S


def is_ingesting(table: jvm.JavaTable) -> bool:
    """Return whether a batch of changes was committed in the last minute."""
    for snapshot in jvm.ancestors(table):
        if _is_old(snapshot):
            return False
        if snapshot.summary().get("frazil.kind") == "changes":
            return True
    return False


def left_to_ingestion(spark: SparkSession, table: jvm.JavaTable) -> set[str]:
    """Return the files added since the last merge if ingestion is active: it will soon replace them itself."""
    behind: set[int] = set()
    for snapshot in islice(jvm.ancestors(table), LOOK_BACK):
        if not behind and _is_old(snapshot):
            return set()
        if snapshot.summary().get("frazil.kind") == KIND:
            return set(jvm_maintenance.added_files(spark, table, behind))
        behind.add(snapshot.snapshotId())
    return set()
