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
from frazil.dms.objects import DmsObject, TableObjects
from frazil.dms.position import Position, after_changes, pending_changes, take_batch
from frazil.dms.read import CHANGE_PHASE, may_be_split, read_rows
from frazil.flows.workbook import TableResult, Workbook
from frazil.lake import commit, merge
from frazil.lake.commit import Commit, PositionMovedError
from frazil.lake.tables import Base, read_base
from frazil.observe import latency

NO_ROWS = {"changes": 0, "bad": 0, "I": 0, "U": 0, "D": 0, "out_of_sequence": 0, "age": None, "dms": None}


def _held(there: TableObjects, position: Position) -> str:
    """Say what changes wait for, if they do: they belong on top of the load that lies there, and on no other."""
    if not position.loaded:
        return "the full load is applied"
    if there.loads and there.load_digest != position.load_digest:
        return "the load files that changed are applied: run 01_full_load, see on_changed_load"
    return ""


def plan(book: Workbook) -> list[dict]:
    """Return one row per table: the change files that are pending behind its position. Nothing is changed."""

    def look(spec: TableSpec) -> dict:
        base = read_base(book.spark, book.name(spec))
        there = book.objects(spec, base.position.last)
        pending = pending_changes(there, base.position, spec.source)
        held = pending and _held(there, base.position)
        return {
            "action": f"held until {held}" if held else "merge" if pending else "nothing new",
            "files": len(pending), "mb": round(sum(o.size for o in pending) / 1e6, 3), "position": base.position.last or "–",
            "key_changes": "followed" if book.mappings.before_image(spec) else "old row stays: no before-image columns",
        }  # fmt: skip

    return book.plan(look)


def run(book: Workbook) -> list[TableResult]:
    """Apply what is pending, table by table, until nothing is left or `max_batches` is reached. Tables fail alone.

    With `run_for_s` it looks again every `trigger_s` seconds for that long; a table that failed is not tried again.
    """
    s, until = book.settings, time.monotonic() + book.settings.run_for_s
    total = {spec.source: TableResult(spec.source, "unchanged", "nothing new") for spec in book.specs.values()}
    while True:
        began = time.monotonic()
        for result in book.each_table(
            lambda spec: _one_pass(book, spec, total[spec.source].counts.get("batches", 0)),
            skip=[t for t, r in total.items() if r.failed],
        ):
            _add(total[result.table], result)
        if time.monotonic() >= until:
            return list(total.values())
        time.sleep(max(0.0, min(began + s.trigger_s, until) - time.monotonic()))


def _add(total: TableResult, result: TableResult) -> None:
    """Fold one pass over a table into what the run has done to it so far."""
    for name, count in result.counts.items():
        total.counts[name] = total.counts.get(name, 0) + count
    total.seconds += result.seconds
    if result.status != "unchanged":
        total.status, total.note = result.status, result.note


def _one_pass(book: Workbook, spec: TableSpec, before: int) -> TableResult:
    """Apply what is pending behind one table's position now; what comes meanwhile waits, so that other tables get their turn."""
    s, name = book.settings, book.name(spec)
    done, end = TableResult(spec.source, "unchanged", "nothing new"), ""
    commit.remove_abandoned_branches(book.spark, name)
    while not s.max_batches or before + done.counts.get("batches", 0) < s.max_batches:
        base = read_base(book.spark, name)
        there = book.objects(spec, base.position.last)
        pending = pending_changes(there, base.position, spec.source)
        end = end or (pending[-1].name if pending else "")
        pending = [o for o in pending if o.name <= end]
        if not pending:
            break
        if held := _held(there, base.position):
            return TableResult(
                spec.source, "held", f"{len(pending)} change file(s) wait until {held}", counts=done.counts
            )
        files = take_batch(pending, s.max_batch_mb << 20, s.max_batch_files)
        try:
            counts = apply_batch(book, spec, base, files)
        except PositionMovedError as e:
            return TableResult(spec.source, "skipped", str(e), counts=done.counts)
        _add(done, TableResult(spec.source, "merged", "", counts={"batches": 1, "files": len(files), **counts}))
        left = len(pending) - len(files)
        book.progress(
            f"{spec.source}: batch of {len(files)} file(s), {counts['changes']:,} changes; {left} file(s) left"
        )
    return done


def apply_batch(
    book: Workbook, spec: TableSpec, base: Base, files: list[DmsObject], whole: bool | None = None
) -> dict[str, int]:
    """Read, order, collapse and merge one batch of change files; return its counts.

    One Spark job reads the files and caches the collapsed batch; what is learnt on the way (counts, bad rows, key bounds,
    quantiles of the commit times) is observed in the same job. A bad row stops the batch before anything is written; one in
    files that were read in pieces may be but a text with a newline, so these are read `whole` first.
    """
    picked_up = time.time()
    if whole is None:
        whole = not may_be_split(spec, files, book.endpoint, book.mappings, CHANGE_PHASE)
    raw = read_rows(book.spark, spec, book.endpoint, book.mappings, files, CHANGE_PHASE, whole)
    seen, order = Observation(), Observation()
    changes = change_set(raw, spec).observe(
        seen, F.count("*").alias("changes"), F.count("bad").alias("bad"),
        *[F.count_if(F.col("op") == op).alias(op) for op in ("I", "U", "D")],
        *latency.measures(picked_up),
    )  # fmt: skip
    batch = last_per_key(changes, spec, order).persist()
    try:
        first = F.col(f"after.`{spec.key[0]}`")
        keys, low, high = batch.agg(F.count("*"), F.min(first), F.max(first)).first()
        stats = {**seen.get, **order.get} if keys else NO_ROWS  # Spark has no observation of nothing
        if stats["bad"] and not whole:
            return apply_batch(book, spec, base, files, whole=True)
        if stats["bad"]:
            raise explain_bad(raw, spec)
        if stats["out_of_sequence"]:
            book.progress(
                f"{spec.source}: {stats['out_of_sequence']} change(s) contradict DMS's own sequence; file order stands"
            )
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
        "frazil.latency": latency.sketch(stats, picked_up),
    }


def _commit(
    book: Workbook,
    spec: TableSpec,
    base: Base,
    files: list[DmsObject],
    batch: DataFrame,
    bounds: tuple,
    summary: dict[str, str],
) -> Commit:
    def write(branch: str, properties: dict[str, str]) -> None:
        merge.merge(book.spark, branch, batch, spec, properties, bounds)

    position = after_changes(base.position, files, commit.new_batch())
    return commit.commit_batch(book.spark, book.name(spec), base, position, write, summary)
