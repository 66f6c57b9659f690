"""CDC: a table's change files are applied batch by batch, each in one commit that carries the position."""

from __future__ import annotations

import json
import time
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from frazil.changes.changeset import change_set, explain_bad
from frazil.changes.collapse import last_per_key
from frazil.config.spec import TableSpec
from frazil.dms.csv import CHANGE_PHASE, read_rows
from frazil.dms.objects import DmsObject, list_table
from frazil.dms.position import after_changes, pending_changes, take_batch
from frazil.flows.workbook import TableResult, Workbook
from frazil.lake import commit, merge
from frazil.lake.commit import Commit, PositionMovedError
from frazil.lake.tables import Base, read_base
from frazil.observe.latency import QUANTILES, stage_sketch


def plan(book: Workbook) -> list[dict]:
    """Return one row per table: the change files that are pending behind its position. Nothing is changed."""

    def look(spec: TableSpec) -> dict:
        base = read_base(book.spark, book.name(spec))
        pending = pending_changes(list_table(book.source, spec), base.position, spec.source)
        held = pending and not base.position.loaded
        return {
            "action": "held until the full load is applied" if held else "merge" if pending else "nothing new",
            "files": len(pending), "mb": round(sum(o.size for o in pending) / 1e6, 3), "position": base.position.last or "–",
            "key_changes": "followed" if book.mappings.before_image(spec) else "old row stays: no before-image columns",
        }  # fmt: skip

    return book.plan(look)


def run(book: Workbook) -> list[TableResult]:
    """Apply what is pending, table by table, until nothing is left or `max_batches` is reached. Tables fail alone."""
    s = book.settings

    def work(spec: TableSpec) -> TableResult:
        name, done = book.name(spec), TableResult(spec.source, "unchanged", "nothing new", counts={})
        commit.remove_abandoned_branches(book.spark, name)
        while not s.max_batches or done.counts.get("batches", 0) < s.max_batches:
            base = read_base(book.spark, name)
            pending = pending_changes(list_table(book.source, spec), base.position, spec.source)
            if not pending:
                break
            if not base.position.loaded:
                return TableResult(spec.source, "held", f"{len(pending)} change file(s) wait until the full load is applied")
            files = take_batch(pending, s.max_batch_mb << 20, s.max_batch_files)
            try:
                counts = apply_batch(book, spec, base, files)
            except PositionMovedError as e:
                return TableResult(spec.source, "skipped", str(e), counts=done.counts)
            for k, v in {"batches": 1, "files": len(files), **counts}.items():
                done.counts[k] = done.counts.get(k, 0) + v
            done.status, done.note = "merged", ""
            left = len(pending) - len(files)
            book.progress(f"{spec.source}: batch of {len(files)} file(s), {counts['changes']:,} changes; {left} file(s) left")
        return done

    return book.each_table(work)


def apply_batch(book: Workbook, spec: TableSpec, base: Base, files: list[DmsObject]) -> dict[str, int]:
    """Read, order, collapse and merge one batch of change files; return its counts.

    One Spark job reads the files and caches the collapsed batch; what is learnt on the way (counts, bad rows, key bounds,
    quantiles of the commit times) is observed in the same job. A bad row stops the batch before anything is written.
    """
    picked_up = time.time()
    raw = read_rows(book.spark, spec, book.endpoint, book.mappings, files, CHANGE_PHASE)
    seen, order = Observation(), Observation()
    changes = change_set(raw, spec).observe(
        seen, F.count("*").alias("changes"), F.count("bad").alias("bad"),
        *[F.count_if(F.col("op") == op).alias(op) for op in ("I", "U", "D")],
        F.percentile_approx(F.unix_micros("commit_ts"), F.array(*[F.lit(q) for q in QUANTILES]), 1000).alias("commit_us"),
    )  # fmt: skip
    batch = last_per_key(changes, spec, order).persist()
    try:
        first = F.col(f"after.`{spec.key[0]}`")
        keys, low, high = batch.agg(F.count("*"), F.min(first), F.max(first)).first()
        stats = {**seen.get, **order.get}
        if stats["bad"]:
            raise explain_bad(raw, spec, files)
        if stats["out_of_sequence"]:
            book.progress(f"{spec.source}: {stats['out_of_sequence']} change(s) contradict DMS's own sequence; file order stands")
        done = _commit(book, spec, base, files, batch, (low, high), _summary(stats, keys, files, picked_up))
    finally:
        batch.unpersist()
    return {"changes": stats["changes"], "inserts": stats["I"], "updates": stats["U"], "deletes": stats["D"], "keys": keys,
            "added": done.count("added-records")}  # fmt: skip


def _summary(stats: dict[str, Any], keys: int, files: list[DmsObject], picked_up: float) -> dict[str, str]:
    """What rides in the snapshot summary: counts and a sketch of the source's commit times (the ledger is made of these)."""
    counts = {"changes": stats["changes"], "I": stats["I"], "U": stats["U"], "D": stats["D"], "keys": keys,
              "out_of_sequence": stats["out_of_sequence"], "files": len(files), "bytes": sum(f.size for f in files)}  # fmt: skip
    return {
        "frazil.kind": "changes",
        "frazil.counts": json.dumps(counts, separators=(",", ":")),
        "frazil.latency": stage_sketch(stats["commit_us"], stats["changes"], files, picked_up),
    }


def _commit(
    book: Workbook, spec: TableSpec, base: Base, files: list[DmsObject], batch: DataFrame, bounds: tuple, summary: dict[str, str]
) -> Commit:
    def write(branch: str, properties: dict[str, str]) -> None:
        merge.merge(book.spark, branch, batch, spec, properties, bounds)

    position = after_changes(base.position, files, commit.new_batch())
    return commit.commit_batch(book.spark, book.name(spec), base, position, write, summary)
