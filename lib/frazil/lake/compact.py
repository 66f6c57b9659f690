"""Compaction beside ingestion: rewrite data files in slices, each committed on its own with the deletes that arrived meanwhile.

A slice is staged without a commit. What was deleted from its old files since is mapped to the new ones (by `_row_id`
on v3, by the key on v2) and goes into the commit, which Iceberg refuses if yet another delete arrived: then the
mapping is done again. Ingestion is never waited on for longer than one batch, and never locked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from frazil.config.session import low_priority
from frazil.config.settings import MaintenanceSettings
from frazil.lake import jvm, jvm_rewrite, jvm_schema
from frazil.lake.carry import ORDER, CompactionError, carried_deletes, names_of, order_of
from frazil.lake.commit import may_try_again, remove_abandoned_branches
from frazil.lake.fold import left_to_ingestion
from frazil.lake.order import quoted, sorted_rows
from frazil.lake.tables import BRANCH_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLICE = "frazil.slice"
TASK_ROWS = 50_000
"""So many rows a task that compares a slice with what it was has."""


@dataclass(frozen=True)
class Slice:
    """Data files that become one: their paths, bytes and live rows."""

    files: tuple[str, ...]
    bytes: int
    rows: int


def slices(spark: SparkSession, table: jvm.JavaTable, s: MaintenanceSettings) -> list[Slice]:
    """Pack the files that are small, or of which much is deleted, into slices of about the target size; smallest first.

    Files of another partition spec, those with equality deletes and those that ingestion will replace itself are left
    alone; a slice never spans partitions.
    """
    tasks = jvm_rewrite.Tasks(spark, table, table.currentSnapshot().snapshotId())
    spec_id, young = table.spec().specId(), left_to_ingestion(spark, table)
    bins: dict[str, list[tuple[int, int, bool, str]]] = {}
    for path, told in tasks.told.items():
        file, deletes = told["data-file"], told.get("delete-files") or []
        if (
            path in young
            or file["spec-id"] != spec_id
            or any(d["content"].upper().startswith("EQUALITY") for d in deletes)
        ):
            continue
        gone = sum(d["record-count"] for d in jvm_rewrite.own_deletes(spark, tasks, path))
        rows, size = file["record-count"], file["file-size-in-bytes"]
        worn = gone > s.max_deleted_share * rows
        if worn or size < s.small_file_mb << 20:
            bins.setdefault(json.dumps(file.get("partition")), []).append((size, rows - gone, worn, path))
    packed: list[Slice] = []
    for entries in bins.values():
        group: list[tuple[int, int, bool, str]] = []
        for entry in [*sorted(entries), None]:
            if (
                entry is None
                or sum(e[0] for e in group) + entry[0] > s.target_file_mb << 20
                or len(group) >= s.slice_files
            ):
                if len(group) > 1 or any(e[2] for e in group):
                    packed.append(Slice(tuple(e[3] for e in group), sum(e[0] for e in group), sum(e[1] for e in group)))
                group = []
            if entry is not None:
                group.append(entry)
    return packed


def compact(
    spark: SparkSession, name: str, key: tuple[str, ...], s: MaintenanceSettings, run: str, say: Callable[[str], None]
) -> dict[str, int]:
    """Compact a table slice by slice within the run's bounds of time and bytes, and return what was done.

    Stopped or killed, it goes on where it was with the next run: the plan is made from the table alone.
    """
    remove_abandoned_branches(spark, name)  # a dead batch must not hold compaction up
    table, began = jvm.load_table(spark, name), time.monotonic()
    planned = slices(spark, table, s)
    counts = dict.fromkeys(("slices", "planned_files", "rewritten_files", "added_files", "carried_deletes"), 0)
    counts |= {"planned_files": sum(len(p.files) for p in planned), "attempts": 0, "given_up": 0}
    done, head = 0, 0
    for number, piece in enumerate(planned, 1):
        if done and (time.monotonic() - began > s.max_run_s or done + piece.bytes > s.max_run_mb << 20):
            say(f"{name}: stopped at the run's bounds before slice {number} of {len(planned)}; the next run goes on")
            break
        # Somebody else commits too: a batch comes first, and catches up.
        if head and _head(spark, name).parentId() != head:
            _until_somebody_commits(spark, name)
        head = _head(spark, name).snapshotId()
        with low_priority(spark):
            found = compact_slice(spark, name, key, piece, s, f"{run}/{number}")
        for field, value in found.items():
            counts[field] = max(counts[field], value) if field == "attempts" else counts[field] + value
        done += piece.bytes
    return counts


def compact_slice(
    spark: SparkSession, name: str, key: tuple[str, ...], piece: Slice, s: MaintenanceSettings, mark: str
) -> dict[str, int]:
    """Rewrite one slice and commit it; `mark` names it in the snapshot summary, by which an unknown outcome is resolved."""
    table = jvm.load_table(spark, name)
    start, began = table.currentSnapshot(), time.time()
    before = jvm_rewrite.Tasks(spark, table, start.snapshotId())
    if not all(path in before for path in piece.files):
        return {"given_up": 1}
    tasks = [before[path] for path in piece.files]
    old = jvm_rewrite.data_files(spark, tasks)
    new, moved, order = _rewrite(spark, table, tasks, key, s)
    committed = False
    try:
        for attempt in range(1, s.slice_attempts + 1):
            if attempt > 1 or _head(spark, name).snapshotId() != start.snapshotId():
                _until_somebody_commits(spark, name)
            table = _after_the_batch_in_flight(spark, name, s.yield_s)
            if table is None:
                table = jvm.load_table(spark, name)
                continue
            current = table.currentSnapshot()
            now = jvm_rewrite.Tasks(spark, table, current.snapshotId())
            if not all(path in now for path in piece.files):
                return {"given_up": 1, "attempts": attempt}
            deletes, count = carried_deletes(spark, table, before, now, piece.files, new, moved, order)
            facts = {"files": len(piece.files), "added": len(new), "carried": count, "attempt": attempt,
                     "began": round(began * 1000), "bytes": piece.bytes}  # fmt: skip
            summary = {
                "frazil.kind": "compact",
                SLICE: mark,
                "frazil.counts": json.dumps(facts),
                ORDER: names_of(order),
            }
            try:
                gone = [d for path in piece.files for d in jvm_rewrite.own_deletes(spark, now, path)]
                jvm_rewrite.commit_rewrite(
                    spark, table, current.snapshotId(), start.sequenceNumber(), old, gone, new, deletes, summary
                )
            except Exception as error:
                committed = _happened(spark, name, mark)
                if not committed and not may_try_again(error):
                    committed = True  # of unknown outcome: its files must stay, the orphan removal takes them if unused
                    raise
            else:
                committed = True
            if committed:
                return {"slices": 1, "rewritten_files": len(tasks), "added_files": len(new), "carried_deletes": count,
                        "attempts": attempt}  # fmt: skip
            jvm_rewrite.remove_files(table, deletes)
        return {"given_up": 1, "attempts": s.slice_attempts}
    finally:
        jvm.let_go(moved)
        if not committed:
            jvm_rewrite.remove_files(table, new)


def _rewrite(
    spark: SparkSession, table: Any, old: list[Any], key: tuple[str, ...], s: MaintenanceSettings
) -> tuple[list[Any], DataFrame, dict[str, dict[str, int]]]:
    """Write the slice's live rows as new files, by one task, so that a core is left to ingestion.

    Returns the files, none of rows that are all deleted; where each live row moved, from old_file, old_row to new_file, new_row, kept in memory or on
    disk; and `order_of` them. Raises CompactionError unless every row is found again exactly once with the same values.
    """
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F

    columns = [*jvm_schema.ids(spark, table)]
    names = ["_row_id"] if table.operations().current().formatVersion() >= 3 else list(key)
    with jvm_rewrite.staged(spark, table, old) as (group, rows):
        ordered = sorted_rows(rows.coalesce(1), s)
        new = jvm_rewrite.write_staged(spark, table, group, ordered, s.target_file_mb * 2 << 20)

    def placed(frame: DataFrame, side: str) -> DataFrame:
        ids = [F.col(quoted(n)).alias(f"id{i}") for i, n in enumerate(names)]
        values = [F.col(quoted(c)).alias(f"c{i}") for i, c in enumerate(columns)]
        # Staged tables have no `_file` and `_pos` everywhere; one partition per file gives the row's number in it.
        number = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1)).alias("row")
        return frame.select(F.lit(side).alias("side"), *ids, F.input_file_name().alias("file"), number, *values)

    with ExitStack() as held:
        # Of rows that were all deleted no new file is left.
        sides = {"old": old, "new": [jvm_rewrite.task_of(spark, table, f) for f in new]}
        frames = [placed(held.enter_context(jvm_rewrite.staged(spark, table, tasks, by_file=True))[1], side)
                  for side, tasks in sides.items() if tasks]  # fmt: skip
        # Read by one task, and compared in small ones: a batch waits for its core as long as one of them is running.
        ids, parts = [f"id{i}" for i in range(len(names))], 1 + sum(f.recordCount() for f in new) // TASK_ROWS
        both = reduce(DataFrame.union, frames).coalesce(1)
        # A hash takes no notice of a null: where they stand is told beside the values.
        told = [x for i in range(len(columns)) for x in (F.col(f"c{i}"), F.isnull(f"c{i}"))]
        values = F.xxhash64(*told).alias("hash")
        both = both.select("side", *ids, "file", "row", values).repartition(parts, *(ids or ["hash"]))
        if not ids:  # v2 without a key: equal rows are paired as they come, any of them stands for any other
            same = Window.partitionBy("side", "hash").orderBy("file", "row")
            both, ids = both.withColumn("nth", F.row_number().over(same)), [F.col("hash").alias("equal"), "nth"]
        found = [
            f"max(if(side = '{s}', {c}, null)) as {s}_{c}" for s in ("old", "new") for c in ("file", "row", "hash")
        ]
        pairs = both.groupBy(*ids).agg(F.count("*").alias("rows"), *map(F.expr, found))
        moved = pairs.localCheckpoint(eager=False)  # not `persist`: see `jvm.let_go`
        wrong = "coalesce(rows = 2 and old_hash = new_hash, false)"
        n = moved.selectExpr("count(*) pairs", f"count_if(not {wrong}) wrong").first()
    if n.wrong or n.pairs != sum(f.recordCount() for f in new):
        jvm.let_go(moved)
        jvm_rewrite.remove_files(table, new)
        raise CompactionError(
            f"{table.name()}: {n.wrong} of {n.pairs} rows are not the same after the rewrite",
            "nothing was committed; run again",
        )
    return new, moved, order_of(moved)


def _after_the_batch_in_flight(spark: SparkSession, name: str, patience: float) -> Any | None:
    """Return the table as soon as no batch is being written on a branch of it; None if one still is after `patience` seconds.

    A batch that a compaction overtakes has to be written again; the one in flight shall win.
    """
    until = time.monotonic() + patience
    while True:
        table = jvm.load_table(spark, name)
        if not jvm.branches(spark, table, BRANCH_PREFIX):
            return table
        if time.monotonic() > until:
            remove_abandoned_branches(spark, name)
            return None
        time.sleep(0.05)


def _head(spark: SparkSession, name: str) -> jvm.JavaSnapshot:
    return jvm.load_table(spark, name).currentSnapshot()


def _until_somebody_commits(spark: SparkSession, name: str, patience: float = 2.0) -> None:
    """Wait for the next commit: behind it there is the most time until another one, and no batch has to be written again."""
    until, last = time.monotonic() + patience, _head(spark, name).snapshotId()
    while time.monotonic() < until and _head(spark, name).snapshotId() == last:
        time.sleep(0.05)


def _happened(spark: SparkSession, name: str, mark: str) -> bool:
    return any(x.summary().get(SLICE) == mark for x in jvm.ancestors(jvm.load_table(spark, name)))
