"""Apply one batch of changes to its table: read, order, collapse, commit with the position."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from frazil.changes.changeset import change_set
from frazil.changes.collapse import passed_keys
from frazil.config.spec import TableSpec
from frazil.config.sql import identifier
from frazil.core.key_numbers import has_numbers
from frazil.core.texts import driver_rows
from frazil.dms.objects import DmsObject, SourceError
from frazil.dms.position import Position
from frazil.dms.read import has_stray_quote
from frazil.engine import collapsed, small_batch
from frazil.engine.collapsed import Collapsed
from frazil.engine.read_files import require_readable
from frazil.errors import FrazilError
from frazil.flows import quarantine
from frazil.flows.batch import Batch, Plan, plan_of
from frazil.flows.workbook import Workbook
from frazil.lake import commit, jvm, keyless, merge
from frazil.lake.commit import Commit
from frazil.lake.locator import arrow
from frazil.lake.rowdelta import RowDelta, UnfitError
from frazil.lake.tables import Base
from frazil.pipeline.unpacked_size import unpacked_bytes
from frazil.report import latency

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_ROWS = {"changes": 0, "bad": 0, "I": 0, "U": 0, "D": 0, "out_of_sequence": 0, "passed": 0, "age": None, "dms": None}


TOO_MANY_ROWS = "its rows are more than spark.driver.maxResultSize"


class _TooManyRowsError(Exception):
    """A batch whose rows the driver may not collect."""


def apply_batch(
    book: Workbook, spec: TableSpec, base: Base, given: Batch, whole: bool | None = None
) -> tuple[dict[str, int], dict[str, float]]:
    """Read, order, collapse and merge one batch of changes; return its counts, and lag and commit time in seconds.

    One Spark job reads the rows. It caches the collapsed batch, or collects it in the driver for a row delta. The same
    job observes counts, bad rows, key bounds and the quantiles of the commit times. A bad row stops the batch before
    anything is written. In files that are read in pieces it may only be a text with a newline, so these are read
    `whole` first.
    """
    picked_up = time.time()
    if whole is None:
        if done := _by_core(book, spec, base, given, picked_up):
            return done
        whole = not given.may_be_split
    raw, all_end = given.read(whole), given.look(whole)
    partial, aside = "absent" in raw.columns, quarantine.sets_aside(book, spec)[0]
    lane, why = _lane(book, spec, given, partial or spec.narrow)
    plan = plan_of(spec, given, raw, lane, aside)
    found, batch, bad = plan.found, plan.batch, None
    carries = found is not batch  # bad rows stay in the batch until it is known
    try:
        again = jvm.Retries(book.spark, spec.source)
        try:
            rows, keys, bounds = _collapsed(spec, plan)
        except Exception as error:
            if lane and "spark.driver.maxResultSize" in str(error):
                return apply_batch(book, spec, base, replace(given, only_merge=TOO_MANY_ROWS), whole)
            if whole or not has_stray_quote(error):
                require_readable([f.path for f in given.files])
                raise
            return apply_batch(book, spec, base, given, whole=True)
        # Spark cannot observe an empty list; without a key there is no order to contradict.
        seen = {**NO_ROWS, **plan.observed()} if keys else _counted(raw, spec, aside)
        if keys and again.seen():  # a repeated task counts its rows twice
            seen |= plan.recount()
        stats = latency.picked_up(seen, picked_up)
        if stats["bad"] and not whole:
            return apply_batch(book, spec, base, given, whole=True)
        all_end(stats["bad"] > 0)
        if stats["bad"]:
            quarantine.admit(book, spec, raw, stats["bad"], stats["changes"])
            if carries:
                bad = found.where("aside is not null").select("aside.*")
            else:
                batch.persist()
        if stats["passed"]:
            _require_free(book, spec, raw, partial, given.files)
        read_at, summary = time.time(), _summary(stats, keys, given, picked_up)
        position = given.after(commit.new_batch())
        set_aside = (stats["bad"], raw, batch, bad, stats.get("first"))
        with quarantine.beside(book, spec, base, position.batch, *set_aside) as ready:
            done = commit_batch(
                book,
                spec,
                base,
                position,
                lambda: batch,
                (lane, why, rows, bounds),
                summary,
                ready,
                given.record(position.batch),
            )
        _tell(book, spec, stats, given, done.summary, time.time() - picked_up)
    finally:
        # Also when a lane gave up for the MERGE. Freeing what is not cached would wait for others' caching.
        for frame in (f for f in (batch, found) if f.is_cached):
            frame.unpersist()
    return _counts(stats, keys, done, picked_up, read_at)


def _by_core(
    book: Workbook, spec: TableSpec, base: Base, given: Batch, picked_up: float
) -> tuple[dict[str, int], dict[str, float]] | None:
    """Apply a batch that the core reads. Return None, with nothing changed, where Spark's reader has to do it."""
    if not given.collapse or small_batch.why_not(spec) or quarantine.still_waiting(book, spec, base) is not None:
        return None
    lane, why = _lane(book, spec, given, spec.narrow)
    # A large batch with bad rows is read twice. Where they are expected, Spark's reader quarantines them directly.
    if (lane and not has_numbers(spec)) or (
        not given.small and (book.tasks_fail or quarantine.sets_aside(book, spec)[0])
    ):
        return None
    try:
        found = _collapsed_by_core(book, spec, given, to_driver=lane is not None)
    except _TooManyRowsError:
        return _by_core(book, spec, base, replace(given, only_merge=TOO_MANY_ROWS), picked_up)
    if found is None:
        return None
    try:
        given.require_unchanged()
        return _commit_collapsed(book, spec, base, given, (found, lane, why, picked_up))
    finally:
        found.release()


def _collapsed_by_core(book: Workbook, spec: TableSpec, given: Batch, to_driver: bool) -> Collapsed | None:
    if given.small and not (to_driver or collapsed.can_make_frames()):
        return None
    try:
        return given.collapse(to_driver)
    except FrazilError:  # Spark's reader reports the same, with more detail
        return None
    except Exception as error:  # executors without Python's packages, or too many rows for the driver
        if to_driver and "spark.driver.maxResultSize" in str(error):
            raise _TooManyRowsError from None
        book.progress(f"{spec.source}: Spark reads the batch, as the core could not: {jvm.cause(error)}")
        book.tasks_fail = book.tasks_fail or not given.small
        return None


def _commit_collapsed(
    book: Workbook, spec: TableSpec, base: Base, given: Batch, by_core: tuple[Collapsed, RowDelta | None, str, float]
) -> tuple[dict[str, int], dict[str, float]]:
    """Commit the core's result for a batch by the chosen lane; `by_core` ends with the time of its pick-up."""
    found, lane, why, picked_up = by_core
    stats, read_at, position = latency.picked_up(found.seen, picked_up), time.time(), given.after(commit.new_batch())
    summary, record = _summary(stats, found.keys, given, picked_up), given.record(position.batch)
    rows = lane.with_partition_values(small_batch.with_key_numbers(found.rows, spec)) if lane else None

    def for_merge() -> DataFrame:
        if found.frame is not None:
            return found.frame
        if collapsed.can_make_frames():
            return collapsed.frame_of(book.spark, found.rows, spec)
        return plan_of(spec, given, given.read(True), None, aside=False).batch

    with quarantine.beside(book, spec, base, position.batch) as ready:
        done = commit_batch(
            book, spec, base, position, for_merge, (lane, why, rows, found.bounds), summary, ready, record
        )
    _tell(book, spec, stats, given, done.summary, time.time() - picked_up)
    return _counts(stats, found.keys, done, picked_up, read_at)


def _tell(
    book: Workbook, spec: TableSpec, stats: dict[str, Any], given: Batch, summary: dict[str, str], seconds: float
) -> None:
    if stats["out_of_sequence"]:
        book.progress(
            f"{spec.source}: {stats['out_of_sequence']} change(s) contradict DMS's own sequence; the order in which they lie stands"
        )
    if said := book.lanes.note(book.name(spec), summary, given.megabytes, seconds):
        book.progress(f"{spec.source}: {said}")


def _counts(
    stats: dict[str, Any], keys: int, done: Commit, picked_up: float, read_at: float
) -> tuple[dict[str, int], dict[str, float]]:
    counts = {"changes": stats["changes"], "inserts": stats["I"], "updates": stats["U"], "deletes": stats["D"], "keys": keys,
              "added": done.count("added-records"), **({"quarantined": stats["bad"]} if stats["bad"] else {})}  # fmt: skip
    committed = done.committed_at / 1000
    return counts, {**latency.lag(stats, committed - picked_up), "commit_s": max(0.0, committed - read_at)}


def _lane(book: Workbook, spec: TableSpec, given: Batch, partial: bool) -> tuple[RowDelta | None, str]:
    """Return the row-delta lane, or None for a MERGE, and why.

    A row delta holds its rows in memory, so the number of rows decides, not that of files.
    """
    if given.only_merge and book.lanes.mode != "merge":
        return None, given.only_merge
    lane, why = book.lanes.choose(book.name(spec), spec, given.megabytes, partial)
    most = book.lanes.max_mb
    if lane and given.files and (size := unpacked_bytes(given.files, most * 10**6)) and size > most * 10**6:
        return None, f"{size / 1e6:,.0f} MB of changes or more once unpacked, above rowdelta_max_mb ({most})"
    return lane, why


def _require_free(book: Workbook, spec: TableSpec, raw: DataFrame, partial: bool, files: tuple[DmsObject, ...]) -> None:
    """Raise SourceError if a key is stored that rows only passed on their way to another; see `collapse.passed_keys`."""
    keys = passed_keys(change_set(raw, spec).where("bad is null"), spec, ever=partial)
    stored = book.spark.table(book.name(spec)).select(*[identifier(k) for k in spec.key])
    if hit := driver_rows(keys.join(stored, list(spec.key), "left_semi").limit(3)).collect():
        away = f" move the change files from before that load away ({files[0].name} …)," if files else ""
        named = "; ".join(", ".join(f"{k}={v}" for k, v in row.asDict().items()) for row in hit)
        raise SourceError(
            f"{spec.source}: a row was given the key of another one that was there, which then got another key itself ({named}): "
            "a statement that changes keys among stored rows, such as SET id = id + 1, which changes row by row do not tell",
            f"have DMS load the table again,{away} and run 01_full_load with on_changed_load=reload; nothing of this batch was applied",
        )


def _collapsed(spec: TableSpec, plan: Plan) -> tuple[Any, int, list | None]:
    """Run a batch's first job: collect it in the driver for a row delta, else cache it.

    Return the collected rows, the number of keys, and their bounds.
    """
    from pyspark.sql import functions as F

    if plan.brought is not None:
        rows = arrow(plan.brought)
        return rows, rows.num_rows, None
    if plan.found is plan.batch:
        plan.batch.persist()
    keys, *bounds = plan.batch.agg(F.count("*"), *map(F.expr, merge.bounds_sql(spec))).first()
    return None, keys, bounds


def _counted(raw: DataFrame, spec: TableSpec, aside: bool) -> dict[str, Any]:
    """Count the rows of a batch without any good row."""
    from pyspark.sql import functions as F

    if not aside:
        return NO_ROWS
    changes, bad = change_set(raw, spec).agg(F.count("*"), F.count("bad")).first()
    return {**NO_ROWS, "changes": changes, "bad": bad}


def _summary(stats: dict[str, Any], keys: int, given: Batch, picked_up: float) -> dict[str, str]:
    """Return counts and a sketch of source commit times for the snapshot summary.

    The ledger is made of these.
    """
    counts = {"changes": stats["changes"], "I": stats["I"], "U": stats["U"], "D": stats["D"], "keys": keys,
              "out_of_sequence": stats["out_of_sequence"], "quarantined": stats["bad"], **given.size}  # fmt: skip
    return {
        "frazil.kind": "changes",
        "frazil.counts": json.dumps(counts, separators=(",", ":")),
        "frazil.latency": latency.sketch(stats, picked_up, given.files),
    }


def commit_batch(
    book: Workbook,
    spec: TableSpec,
    base: Base,
    position: Position,
    batch: Callable[[], DataFrame],
    chosen: tuple,
    summary: dict[str, str],
    ready: Callable[[], Any],
    properties: dict[str, str] | None = None,
) -> Commit:
    """Commit a batch by the chosen lane, or by a MERGE (which calls `batch`) if that lane finds that it cannot.

    `ready` is called before the commit is public; `properties` are added to it.
    """
    (lane, why, rows, bounds), name = chosen, book.name(spec)
    if lane:
        ready()
        try:
            return lane.apply(
                base,
                position,
                rows,
                {**summary, "frazil.lane": "rowdelta", "frazil.lane-reason": why},
                properties or {},
            )
        except UnfitError as e:
            why = book.lanes.unfit(name, e)
    frame = batch()
    if lane:
        frame.persist()

    def write(branch: str, properties: dict[str, str]) -> None:
        if spec.policy == "append":
            merge.replace_rows(book.spark, branch, frame, properties, empty_first=False)
        elif spec.policy == "multiset":
            keyless.apply_net(book.spark, branch, frame, spec, properties)
        else:
            # With row numbers Spark refuses a source where it copies files: show it rows, not how they were read.
            seen = frame.localCheckpoint() if base.copies else frame
            merge.merge(book.spark, branch, seen, spec, properties, bounds or (None, None))
        ready()

    summary = {**summary, "frazil.lane": "merge", "frazil.lane-reason": why}
    try:
        return commit.commit_batch(book.spark, name, base, position, write, summary, properties)
    finally:
        if lane:
            frame.unpersist()
