"""Apply one batch of changes to its table: read, order, collapse, commit with the position.

A batch is files of a table, or its messages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier
from frazil_old.config.time_sql import driver_rows
from frazil_old.dms.file_integrity import FileWatch
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.file_names import time_of_name
from frazil_old.dms.position import PositionError, named
from frazil_old.dms.source_errors import SourceError
from frazil_old.dms.stream_source import StreamError
from frazil_old.engine import collapsed_batch, latency_sketch, load_files, small_batch
from frazil_old.engine.collapsed_batch import Collapsed, Wanted
from frazil_old.engine.load_files import FilesToWrite, write_data_files
from frazil_old.engine.write_rows import Written
from frazil_old.errors import FrazilError, many
from frazil_old.flows import bad_row_limits, quarantine
from frazil_old.flows.file_batch import Batch, FileBatch, megabytes, to_write
from frazil_old.flows.quarantine import OfBatch
from frazil_old.flows.tasks_or_here import in_tasks_or_here
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, commit, jvm, merge
from frazil_old.lake.commit import Commit, CommitMetadata, RowDeltaUnsupportedError
from frazil_old.lake.tables import TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


TOO_MANY_ROWS = "its rows are more than spark.driver.maxResultSize"


class _TooManyRowsError(Exception):
    """A batch whose rows the driver may not collect."""


def apply_batch(
    book: Workbook, spec: TableSpec, base: TableState, batch: Batch
) -> tuple[dict[str, int], dict[str, float]]:
    """Read, order, collapse and commit one batch of changes; return its counts, and latency and commit time in seconds.

    A bad row that may not be quarantined stops the batch before anything is written.
    """
    applying = _Applying(book, spec, base, batch)
    if spec.policy == "append" and isinstance(batch, FileBatch):
        done = applying.append_rows(batch)
    else:
        try:
            done = applying.apply_changes()
        except _TooManyRowsError:
            done = applying.apply_changes(TOO_MANY_ROWS)
    book.on_commit(spec)  # at once, since a pass may have many batches
    return done


def write_files(
    book: Workbook, spec: TableSpec, watch: FileWatch, phase: int, require: Callable[[int], None] = lambda rows: None
) -> Written:
    """Write the good rows of files to data files of their table; raise an error unless the others may be quarantined.

    Raise it also if a file is not as listed. `require` raises an error for a number of rows that is not the expected one.
    """
    table, most_bad = jvm.load_table(book.spark, book.name(spec)), bad_row_limits.most_kept(book, spec)

    def read(here: bool) -> Written:
        files = FilesToWrite(book.source_table(spec), watch.files, phase, most_bad, here)
        return write_data_files(book.spark, table, files)

    try:
        written = in_tasks_or_here(book, spec, read)
    except FrazilError:
        watch.require_unchanged()  # a file that is still being written may be anything
        raise
    bad, rows = written.tally.bad, written.tally.rows + written.tally.bad.count
    try:
        watch.require_unchanged()
        require(rows)
        bad_row_limits.admit_rows(book, spec, bad, rows, written.files)
    except Exception:
        load_files.delete_written(table, written)
        raise
    return written


class _Applying:
    """One batch on its way into its table."""

    def __init__(self, book: Workbook, spec: TableSpec, base: TableState, batch: Batch):
        self.book, self.spec, self.base, self.batch = book, spec, base, batch
        self.name, self.picked_up = book.name(spec), time.time()

    # --- tables that keep every change

    def append_rows(self, batch: FileBatch) -> tuple[dict[str, int], dict[str, float]]:
        """Add every change of change files as a row."""
        book, written = self.book, write_files(self.book, self.spec, batch.watch, CHANGE_PHASE)
        rows = written.tally.rows
        seen, read_at = written.tally.counts_and_delays(), time.time()
        stats = latency_sketch.with_age_at_pickup(seen, self.picked_up)
        metadata = _with_lane(self._metadata(stats, rows), "append", "the table keeps every change")

        def write(branch: str, properties: dict[str, str]) -> None:
            load_files.put(book.spark, branch, written, properties, batch.watch)

        of_batch = OfBatch(written.tally.bad, written.files)
        with quarantine.quarantined_with_commit(book, self.spec, self.base, metadata, of_batch) as with_quarantine:
            done = commit.commit_batch(book.spark, self.name, self.base, with_quarantine, write)
        return self._counts(stats, rows, done, read_at)

    # --- tables that keep the last change per key, or count equal rows

    def apply_changes(self, why_large: str = "") -> tuple[dict[str, int], dict[str, float]]:
        """Collapse the batch and commit it by a lane. `why_large`: why the driver may not collect its rows."""
        batch = to_write(self.book, self.spec, self.batch.size, self.batch.files)
        lane, why = self.book.lanes.choose(self.name, self.spec, replace(batch, why_large=why_large), self.base)
        found = self._collapsed(rows_in_driver=lane == "rowdelta")
        try:
            self.batch.require_unchanged()
            bad_row_limits.admit_rows(self.book, self.spec, found.bad, found.counts_and_delays["changes"], found.files)
            if found.counts_and_delays["transient_keys"]:
                self._require_free(found)
            if found.counts_and_delays["out_of_sequence"]:
                self._require_order()
            return self._commit_collapsed(found, lane, why)
        finally:
            found.release()

    def _collapsed(self, rows_in_driver: bool) -> Collapsed:
        book, spec = self.book, self.spec
        waits = quarantine.still_waiting(book, spec, self.base) is not None
        places = waits or bad_row_limits.quarantines_bad_rows(book, spec)[0]
        wanted = Wanted(rows_in_driver, places, bad_row_limits.most_kept(book, spec))
        try:
            return in_tasks_or_here(book, spec, lambda here: self.batch.collapse(replace(wanted, read_here=here)))
        except Exception as error:
            if rows_in_driver and "spark.driver.maxResultSize" in str(error):
                raise _TooManyRowsError from None
            raise

    def _require_free(self, found: Collapsed) -> None:
        """Raise SourceError if a transient key is stored; see `key_changes.leaves_transient_key`."""
        book, spec, files = self.book, self.spec, self.batch.files
        key = [identifier(k) for k in spec.key]
        transient = collapsed_batch.frame_of(book.spark, found.transient_keys, spec).select("after.*").select(*key)
        stored = book.spark.table(self.name).select(*key)
        if hit := driver_rows(transient.join(stored, list(spec.key), "left_semi").limit(3)).collect():
            away = f" move the change files from before that load away ({files[0].name} …)," if files else ""
            named = "; ".join(", ".join(f"{k}={v}" for k, v in row.asDict().items()) for row in hit)
            raise SourceError(
                f"{spec.source}: a row was given the key of another one that was there, which then got another key itself ({named}): "
                "a statement that changes keys among stored rows, such as SET id = id + 1, which changes row by row do not show",
                f"have DMS load the table again,{away} and run 01_full_load with on_changed_load=reload; nothing of this batch was applied",
            )

    def _require_order(self) -> None:
        """Raise an error if the changes are out of DMS's sequence, and are messages, or files with names of an hour that autumn repeats."""
        if "messages" in self.batch.size:
            raise StreamError(
                f"{self.spec.source}: changes of one key are in two partitions, and the older one would be applied last: keys moved when "
                "partitions were added",
                "run 02_cdc_merge with a smaller max_batch_messages, down to 1, until it is applied: such batches end at one time in all "
                "partitions; nothing of this batch was applied",
            )
        partition, files = self.book.endpoint.date_partition, self.batch.files
        if repeated := [f.path for f in files if partition.is_repeated(time_of_name(f.name))]:
            raise PositionError(
                f"{self.spec.source}: changes are out of DMS's own sequence, and files are named in an hour that {partition.timezone} repeats: "
                f"{named(repeated)}",
                "put those that DMS wrote in the second of the two hours, and all later files, into another folder; run 02_cdc_merge, put them back, "
                "and run it with late_files=after; nothing of this batch was applied",
            )

    def _commit_collapsed(self, found: Collapsed, lane: str, why: str) -> tuple[dict[str, int], dict[str, float]]:
        """Commit a collapsed batch and the records of its bad rows; report it, and return its counts."""
        book, spec = self.book, self.spec
        stats, read_at = latency_sketch.with_age_at_pickup(found.counts_and_delays, self.picked_up), time.time()
        metadata = self._metadata(stats, found.keys)

        def frame() -> DataFrame:
            return found.frame if found.frame is not None else collapsed_batch.frame_of(book.spark, found.rows, spec)

        of_batch = OfBatch(found.bad, found.files, frame)
        rows = RowsToMerge(frame, why, found.bounds)
        with quarantine.quarantined_with_commit(book, spec, self.base, metadata, of_batch) as with_quarantine:
            done = self._commit_by_lane(lane, with_quarantine, found, rows)
        self._report(stats, done.summary)
        return self._counts(stats, found.keys, done, read_at)

    def _commit_by_lane(self, lane: str, metadata: CommitMetadata, found: Collapsed, rows: RowsToMerge) -> Commit:
        """Commit a batch by its lane, or by a MERGE if a row delta cannot write it."""
        book, spec = self.book, self.spec
        if lane == "merge":
            return commit_by_merge(book, spec, self.base, metadata, rows)
        of_lane = _with_lane(metadata, lane, rows.why)
        try:
            if lane == "scan":
                from frazil_old.engine.scan_row_delta import commit_by_scan

                return commit_by_scan(book.spark, (self.name, self.base), spec, found, of_lane)
            row_delta = book.lanes.row_delta(self.name, spec)
            return row_delta.commit_by_index(self.base, small_batch.for_row_delta(found.rows, spec), of_lane)
        except RowDeltaUnsupportedError as error:
            why = book.lanes.rule_out_row_delta(self.name, error)
        frame = rows.frame().persist()
        try:
            rows = replace(rows, frame=lambda: frame, why=why)
            return commit_by_merge(book, spec, self.base, metadata, rows)
        finally:
            frame.unpersist()

    def _metadata(self, stats: dict[str, Any], keys: int) -> CommitMetadata:
        """Return the new position, and a summary with counts and a sketch of source commit times.

        The ledger is made of these.
        """
        position = self.batch.position_after(batch_branches.new_batch())
        counts = {"changes": stats["changes"], "I": stats["I"], "U": stats["U"], "D": stats["D"], "keys": keys,
                  "out_of_sequence": stats["out_of_sequence"], "quarantined": stats["bad"], **self.batch.size}  # fmt: skip
        summary = {
            "frazil.kind": "changes",
            "frazil.counts": json.dumps(counts, separators=(",", ":")),
            "frazil.latency": latency_sketch.sketch(
                stats, self.picked_up, self.batch.files, self.book.endpoint.date_partition
            ),
        }
        return CommitMetadata(position, summary, self.batch.record(position.batch))

    def _report(self, stats: dict[str, Any], summary: dict[str, str]) -> None:
        """Report changes out of sequence, and another lane than before."""
        book, source = self.book, self.spec.source
        if count := stats["out_of_sequence"]:
            book.progress(
                f"{source}: {many(count, 'change')} out of DMS's own sequence, applied in the order of the files"
            )
        took = time.time() - self.picked_up
        if text := book.lanes.note(self.name, summary, megabytes(self.batch.size), took):
            book.progress(f"{source}: {text}")

    def _counts(
        self, stats: dict[str, Any], keys: int, done: Commit, read_at: float
    ) -> tuple[dict[str, int], dict[str, float]]:
        counts = {"changes": stats["changes"], "inserts": stats["I"], "updates": stats["U"], "deletes": stats["D"], "keys": keys,
                  "added": done.count("added-records"), **({"quarantined": stats["bad"]} if stats["bad"] else {})}  # fmt: skip
        committed = done.committed_at / 1000
        return counts, {
            **latency_sketch.source_to_commit(stats, committed - self.picked_up),
            "commit_s": max(0.0, committed - read_at),
        }


def _with_lane(metadata: CommitMetadata, lane: str, why: str) -> CommitMetadata:
    return replace(metadata, summary={**metadata.summary, "frazil.lane": lane, "frazil.lane-reason": why})


@dataclass(frozen=True)
class RowsToMerge:
    """The rows of a MERGE: `frame` returns them. `why` the batch takes its lane is recorded."""

    frame: Callable[[], DataFrame]
    why: str
    bounds: tuple[Any, Any] = (None, None)
    """The smallest and the largest first key, None if no literal can express them."""


def commit_by_merge(
    book: Workbook, spec: TableSpec, base: TableState, metadata: CommitMetadata, rows: RowsToMerge
) -> Commit:
    """Commit a batch by a MERGE, or by what a table without a key needs."""
    frame = rows.frame()

    def write(branch: str, properties: dict[str, str]) -> None:
        if spec.policy == "append":
            merge.replace_rows(book.spark, branch, frame, properties, empty_first=False)
        elif spec.policy == "multiset":
            merge.apply_net(book.spark, branch, frame, spec, properties)
        else:
            # With row numbers Spark refuses a source where it copies files: show it rows, not how they were read.
            seen = frame.localCheckpoint() if base.copy_on_write else frame
            merge.merge(book.spark, branch, seen, spec, properties, rows.bounds)

    return commit.commit_batch(book.spark, book.name(spec), base, _with_lane(metadata, "merge", rows.why), write)
