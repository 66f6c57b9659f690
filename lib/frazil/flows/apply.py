"""Apply one batch of changes to its table: read, order, collapse, commit with the position."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.config.sql import identifier
from frazil.core.bad_rows import BadRows
from frazil.core.key_numbers import has_numbers
from frazil.core.time_sql import driver_rows
from frazil.dms.listing import DmsObject, SourceError
from frazil.dms.unpacked_size import unpacked_bytes
from frazil.engine import collapsed_batch, load_files, small_batch
from frazil.engine.collapsed_batch import Collapsed, Wanted
from frazil.engine.read_files import FileToRead
from frazil.engine.write_rows import Written
from frazil.errors import FrazilError
from frazil.flows import quarantine
from frazil.flows.batch import Batch
from frazil.flows.quarantine import OfBatch
from frazil.flows.tasks_or_driver import in_tasks_or_here
from frazil.flows.workbook import Workbook
from frazil.lake import commit, jvm, merge, multiset_write
from frazil.lake.commit import Commit, Facts
from frazil.lake.row_delta import UnfitError
from frazil.lake.tables import Base
from frazil.report import latency

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOO_MANY_ROWS = "its rows are more than spark.driver.maxResultSize"


class _TooManyRowsError(Exception):
    """A batch whose rows the driver may not collect."""


def apply_batch(book: Workbook, spec: TableSpec, base: Base, given: Batch) -> tuple[dict[str, int], dict[str, float]]:
    """Read, order, collapse and commit one batch of changes; return its counts, and lag and commit time in seconds.

    A bad row that may not be quarantined stops the batch before anything is written.
    """
    picked_up = time.time()
    if spec.policy == "append" and given.files:
        return _append(book, spec, base, given, picked_up)
    lane, why = _lane(book, spec, base, given)
    waits = quarantine.still_waiting(book, spec, base) is not None
    aside = quarantine.quarantines_bad_rows(book, spec)[0]
    wanted = Wanted(latency.QUANTILES, lane == "rowdelta", waits or aside, quarantine.most_kept(book, spec))
    try:
        found = _collapsed(book, spec, given, wanted)
    except _TooManyRowsError:
        return apply_batch(book, spec, base, replace(given, why_large=TOO_MANY_ROWS))
    try:
        given.require_unchanged()
        quarantine.admit_rows(book, spec, found.bad, found.seen["changes"], found.files)
        if found.seen["passed"]:
            keys = collapsed_batch.frame_of(book.spark, found.passed, spec).select("after.*")
            _require_free(book, spec, keys, given.files)
        return _commit_collapsed(book, spec, base, given, (found, lane, why, picked_up))
    finally:
        found.release()


def _append(
    book: Workbook, spec: TableSpec, base: Base, given: Batch, picked_up: float
) -> tuple[dict[str, int], dict[str, float]]:
    """Add every change of a batch as a row."""
    table, most_bad = jvm.load_table(book.spark, book.name(spec)), quarantine.most_kept(book, spec)
    try:
        written = in_tasks_or_here(book, spec, lambda here: given.write(table, most_bad, here))
    except FrazilError:
        given.require_unchanged()  # a file that is still being written may be anything
        raise
    try:
        given.require_unchanged()
        tally = written.tally
        quarantine.admit_rows(book, spec, tally.bad, tally.rows + tally.bad.count, written.files)
    except FrazilError:
        load_files.delete_written(table, written)
        raise
    return _commit_appended(book, spec, base, given, (written, picked_up))


def _commit_appended(
    book: Workbook, spec: TableSpec, base: Base, given: Batch, by_core: tuple[Written, float]
) -> tuple[dict[str, int], dict[str, float]]:
    """Commit the data files of a batch; `by_core` ends with the time of its pick-up."""
    (written, picked_up), tally = by_core, by_core[0].tally
    stats = latency.picked_up(tally.seen(latency.QUANTILES), picked_up)
    read_at, position = time.time(), given.after(commit.new_batch())
    summary = _summary(stats, tally.rows, given, picked_up)
    summary |= {"frazil.lane": "append", "frazil.lane-reason": "the table keeps every change"}
    records = partial(_records, book, spec, base, position.batch, (tally.bad, written.files))
    with quarantine.quarantined_with_commit(
        book, spec, base, position.batch, OfBatch(tally.bad.count, records)
    ) as ready:

        def write(branch: str, properties: dict[str, str]) -> None:
            load_files.put(book.spark, branch, written, properties)
            ready()

        facts = Facts(position, summary, given.record(position.batch))
        done = commit.commit_batch(book.spark, book.name(spec), base, facts, write)
    return _counts(stats, tally.rows, done, picked_up, read_at)


def _collapsed(book: Workbook, spec: TableSpec, given: Batch, wanted: Wanted) -> Collapsed:
    try:
        return in_tasks_or_here(book, spec, lambda here: given.collapse(replace(wanted, in_process=here)))
    except FrazilError:
        given.require_unchanged()  # a file that is still being written may be anything
        raise
    except Exception as error:
        if wanted.in_driver and "spark.driver.maxResultSize" in str(error):
            raise _TooManyRowsError from None
        raise


def _commit_collapsed(
    book: Workbook, spec: TableSpec, base: Base, given: Batch, by_core: tuple[Collapsed, str, str, float]
) -> tuple[dict[str, int], dict[str, float]]:
    """Commit the core's result for a batch by the chosen lane; `by_core` ends with the time of its pick-up."""
    found, lane, why, picked_up = by_core
    stats, read_at, position = latency.picked_up(found.seen, picked_up), time.time(), given.after(commit.new_batch())
    facts = Facts(position, _summary(stats, found.keys, given, picked_up), given.record(position.batch))

    def as_frame() -> DataFrame:
        return found.frame if found.frame is not None else collapsed_batch.frame_of(book.spark, found.rows, spec)

    records = partial(_records, book, spec, base, position.batch, (found.bad, found.files))
    of_batch = OfBatch(found.bad.count, records, as_frame)
    with quarantine.quarantined_with_commit(book, spec, base, position.batch, of_batch) as ready:
        done = commit_by_lane(book, spec, base, facts, WritePath(as_frame, why, found.bounds, lane, found), ready)
    _tell(book, spec, stats, given, done.summary, time.time() - picked_up)
    return _counts(stats, found.keys, done, picked_up, read_at)


def _records(
    book: Workbook, spec: TableSpec, base: Base, batch: str, read: tuple[BadRows, Sequence[FileToRead]]
) -> DataFrame:
    """Return the quarantine's records of a batch's bad rows."""
    from frazil.engine.quarantine_records import RecordOf, record_frame

    return record_frame(book.spark, *read, RecordOf(spec, batch, base.sequence))


def _tell(
    book: Workbook, spec: TableSpec, stats: dict[str, Any], given: Batch, summary: dict[str, str], seconds: float
) -> None:
    if stats["out_of_sequence"]:
        book.progress(
            f"{spec.source}: {stats['out_of_sequence']} change(s) contradict DMS's own sequence; they were applied in the order of the files"
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


def _lane(book: Workbook, spec: TableSpec, base: Base, given: Batch) -> tuple[str, str]:
    """Return the lane of a batch, and why: that of `Lanes.choose`, unless the table or the batch needs another.

    A row delta by index holds its rows in memory, so the number of rows decides, not that of files.
    """
    is_partial = bool(given.files) and book.endpoint.no_sup_value is not None
    lane, why = book.lanes.choose(book.name(spec), spec, given.megabytes, is_partial or spec.narrow)
    if lane == "rowdelta" and (large := given.why_large or _why_large(book, given)):
        lane, why = "scan", large
    if lane == "rowdelta" and not has_numbers(spec):
        lane, why = "scan", "only Spark can number its keys, which are reals or long decimals"
    reason = base.merge_only if lane != "merge" else ""
    if lane == "scan" and not reason:
        reason = load_files.why_spark_writes(jvm.load_table(book.spark, book.name(spec)))
    return ("merge", f"{why}, and {reason}") if reason else (lane, why)


def _why_large(book: Workbook, given: Batch) -> str:
    """Return why packed files are too much for the driver; empty if they are not."""
    most = book.lanes.max_mb
    size = unpacked_bytes(given.files, most * 10**6) or 0
    if size <= most * 10**6:
        return ""
    return f"{size / 1e6:,.0f} MB of changes or more once unpacked, above rowdelta_max_mb ({most})"


def _require_free(book: Workbook, spec: TableSpec, passed: DataFrame, files: tuple[DmsObject, ...]) -> None:
    """Raise SourceError if a key is stored that rows only passed on their way to another; see `latest_per_key.Latest`."""
    keys = passed.select(*[identifier(k) for k in spec.key])
    stored = book.spark.table(book.name(spec)).select(*[identifier(k) for k in spec.key])
    if hit := driver_rows(keys.join(stored, list(spec.key), "left_semi").limit(3)).collect():
        away = f" move the change files from before that load away ({files[0].name} …)," if files else ""
        named = "; ".join(", ".join(f"{k}={v}" for k, v in row.asDict().items()) for row in hit)
        raise SourceError(
            f"{spec.source}: a row was given the key of another one that was there, which then got another key itself ({named}): "
            "a statement that changes keys among stored rows, such as SET id = id + 1, which changes row by row do not show",
            f"have DMS load the table again,{away} and run 01_full_load with on_changed_load=reload; nothing of this batch was applied",
        )


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


@dataclass(frozen=True)
class WritePath:
    """How a batch is written, and why. `frame` returns it for a MERGE, which also writes what proves unfit for the lane."""

    frame: Callable[[], DataFrame]
    why: str
    bounds: tuple[Any, Any] = (None, None)
    """The smallest and the largest first key, None if no literal can express them."""
    lane: str = "merge"
    found: Collapsed | None = None


def commit_by_lane(
    book: Workbook, spec: TableSpec, base: Base, facts: Facts, how: WritePath, ready: Callable[[], Any]
) -> Commit:
    """Commit a batch by its lane; a MERGE also takes a batch that proves unfit for a row delta.

    `ready` is called before the commit is public.
    """
    if how.lane == "merge":
        return _merge(book, spec, base, facts, how, ready)
    ready()
    with_lane = replace(facts, summary={**facts.summary, "frazil.lane": how.lane, "frazil.lane-reason": how.why})
    try:
        return _row_delta(book, spec, base, with_lane, how)
    except UnfitError as error:
        why = book.lanes.unfit(book.name(spec), error)
    frame = how.frame().persist()
    try:
        return _merge(book, spec, base, facts, replace(how, frame=lambda: frame, why=why), ready)
    finally:
        frame.unpersist()


def _row_delta(book: Workbook, spec: TableSpec, base: Base, facts: Facts, how: WritePath) -> Commit:
    """Commit a batch as a row delta; raise UnfitError if a MERGE has to write it."""
    found = how.found
    if how.lane == "scan":
        from frazil.engine.scan_row_delta import commit_by_scan

        return commit_by_scan(book.spark, (book.name(spec), base), spec, found, facts)
    lane = book.lanes.row_delta(book.name(spec), spec)
    rows = lane.with_partition_values(small_batch.for_row_delta(found.rows, spec))
    return lane.apply(base, facts.position, rows, facts.summary, facts.properties)


def _merge(
    book: Workbook, spec: TableSpec, base: Base, facts: Facts, how: WritePath, ready: Callable[[], Any]
) -> Commit:
    """Commit a batch by a MERGE, or by what a table without a key needs."""
    frame = how.frame()

    def write(branch: str, properties: dict[str, str]) -> None:
        if spec.policy == "append":
            merge.replace_rows(book.spark, branch, frame, properties, empty_first=False)
        elif spec.policy == "multiset":
            multiset_write.apply_net(book.spark, branch, frame, spec, properties)
        else:
            # With row numbers Spark refuses a source where it copies files: show it rows, not how they were read.
            seen = frame.localCheckpoint() if base.copies else frame
            merge.merge(book.spark, branch, seen, spec, properties, how.bounds)
        ready()

    of_lane = {"frazil.lane": "merge", "frazil.lane-reason": how.why}
    facts = replace(facts, summary={**facts.summary, **of_lane})
    return commit.commit_batch(book.spark, book.name(spec), base, facts, write)
