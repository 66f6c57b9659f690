"""Small files of the row-delta lane, folded by the lane itself: what some commits wrote becomes one file, from memory.

A commit each second leaves a file each second, and a scan opens them all. The rows of the last ones are still at hand, so
nothing is read: the live ones are written once more, in order, and replace their files in a commit of their own, behind the
batch that is visible already. To others it is a compaction: the rows keep their ids and the sequence number of their change.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from frazil.lake import jvm, jvm_rewrite, jvm_rowdelta
from frazil.lake.carry import ORDER, file_name
from frazil.lake.data_files import LAST_UPDATED, ROW_ID
from frazil.lake.deltafiles import NewFile, in_order, write_rows

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import SparkSession

    from frazil.config.spec import TableSpec
    from frazil.lake.locator import Locator

KIND = "fold"
SMALL_BYTES = 1 << 18
"""Rows of a commit that take more memory than this are not kept: their files are not that small."""
AT_WORK_S, LOOK_BACK = 60.0, 200
SPREAD = 0.618034
"""Multiples of the golden ratio, without their integers, lie evenly, however many there are."""


@dataclass(frozen=True)
class Young:
    """A data file of this run: its rows as they were written to it, and the snapshot that added it."""

    path: str
    rows: Table
    snapshot: int


class Fold:
    """The newest small files of one table and their rows, until there are `after` commits of them; 0: never.

    The tables of a run commit in step, so the `nth` one's first fold comes earlier: else one pass would wait for all folds.
    """

    def __init__(self, after: int, nth: int = 0):
        self.after, self.commits = after, int(after * (nth * SPREAD % 1))
        self.young: list[Young] = []

    def remember(self, rows: Table, written: list[NewFile], snapshot: int) -> None:
        """Keep the rows of a commit, `in_order`, which fill its files one after the other."""
        count = sum(f.rows for f in written)
        if not self.after or not count or rows.slice(0, count).nbytes > SMALL_BYTES:
            return
        start = 0
        for file in written:
            self.young.append(Young(file.path, rows.slice(start, file.rows), snapshot))
            start += file.rows
        self.commits += 1

    @property
    def due(self) -> bool:
        """Whether there are enough of them."""
        return 0 < self.after <= self.commits

    def fold(self, spark: SparkSession, at: Locator, spec: TableSpec, fields: list[tuple[int, str, str]]) -> None:
        """Rewrite them as one file for each partition. Whoever comes in between is right: then they stay as they are."""
        young, self.young, self.commits = self.young, [], 0
        table = jvm.load_table(spark, at.name)
        head = table.currentSnapshot()
        if head.snapshotId() != at.snapshot:
            return
        parts: dict[str, list[Young]] = {}
        for y in young:
            file = at.plan.get(y.path)
            if file and file.spec_id == table.spec().specId() and file.deletes == file.own:
                parts.setdefault(json.dumps(file.partition), []).append(y)
        young = [y for several in parts.values() if len(several) > 1 for y in several]
        old = jvm_rewrite.added_files(spark, table, {y.snapshot for y in young})
        if not young or not all(y.path in old for y in young):
            return
        rows = in_order(_live(table, at, young, old))
        new = write_rows(spark, table, rows, spec, fields)
        try:
            head = jvm_rewrite.commit_rewrite(
                spark, table, at.snapshot, head.sequenceNumber(), _listed(spark, [old[y.path] for y in young]),
                [d for y in young for d in at.plan[y.path].own], [f.file for f in new], [], _summary(at, young, new),
            )  # fmt: skip
        except Exception as error:
            if not jvm.is_known_failure(error):
                raise
            jvm_rewrite.remove_files(table, [f.file for f in new])
            return
        if head.parentId() == at.snapshot:  # else somebody was in between: the next batch follows
            at.folded(rows, new, [y.path for y in young], head)


def _live(table: jvm.JavaTable, at: Locator, young: list[Young], old: dict[str, Any]) -> Table:
    """Return what is left of the files' rows, on v3 with their ids and the sequence numbers of their last changes."""
    import numpy as np
    import pyarrow as pa

    kept = []
    for y in young:
        live = np.ones(y.rows.num_rows, bool)
        live[at.vector(table, y.path).to_array()] = False
        rows = y.rows.filter(pa.array(live))
        first = old[y.path].firstRowId() if int(jvm_rowdelta.format_version(table)) >= 3 else None
        if first is not None:
            sequence = np.full(rows.num_rows, table.snapshot(y.snapshot).sequenceNumber(), np.int64)
            rows = rows.append_column(ROW_ID, pa.array(np.flatnonzero(live) + first))
            rows = rows.append_column(LAST_UPDATED, pa.array(sequence))
        kept.append(rows)
    return pa.concat_tables(kept)


def _summary(at: Locator, young: list[Young], new: list[NewFile]) -> dict[str, str]:
    """Return what the snapshot tells: whose rows, in order, each new file has."""
    parts: dict[str, list[str]] = {}
    for y in young:
        parts.setdefault(json.dumps(at.plan[y.path].partition), []).append(file_name(y.path))
    order = {file_name(f.path): parts[json.dumps(f.partition)] for f in new}
    facts = {"files": len(young), "added": len(new), "rows": sum(f.rows for f in new)}
    return {"frazil.kind": KIND, "frazil.counts": json.dumps(facts), ORDER: json.dumps(order)}


def _listed(spark: SparkSession, files: list[Any]) -> Any:
    listed = jvm.package(spark, "java.util").ArrayList()
    for file in files:
        listed.add(file)
    return listed


def left_to_ingestion(spark: SparkSession, table: jvm.JavaTable) -> set[str]:
    """Return the files behind the last fold, while ingestion is at work: it replaces them itself before long."""
    behind: set[int] = set()
    for snapshot in islice(jvm.ancestors(table), LOOK_BACK):
        if not behind and time.time() - snapshot.timestampMillis() / 1000 > AT_WORK_S:
            return set()
        if snapshot.summary().get("frazil.kind") == KIND:
            return set(jvm_rewrite.added_files(spark, table, behind))
        behind.add(snapshot.snapshotId())
    return set()
