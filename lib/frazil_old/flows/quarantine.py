"""Quarantine bad rows together with their batch, exactly once, and note which waiting rows it makes obsolete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import BadRows
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.position import Position
from frazil_old.engine.read_files import FileToRead, PartitionRead
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm
from frazil_old.lake.batch_branches import kept_under_way
from frazil_old.lake.commit import CommitMetadata
from frazil_old.lake.quarantine_columns import LATER, OBSOLETE, OPEN
from frazil_old.lake.tables import TableState, read_table_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def still_waiting(book: Workbook, spec: TableSpec, base: TableState) -> DataFrame | None:
    """Return the waiting records of a table, after leftovers of killed runs are settled; None: there are none.

    Their number is cached until another run commits to the table.
    """
    batch, count = book.waiting.get(spec.source, ("", None))
    if batch != base.position.batch or count is None:
        base, count = _counted(book, spec, base)
        book.waiting[spec.source] = base.position.batch, count
    if not count:
        return None
    from frazil_old.lake import quarantine_table

    return quarantine_table.waiting(book.spark, book.ops("quarantine"), spec)


def _counted(book: Workbook, spec: TableSpec, base: TableState) -> tuple[TableState, int]:
    """Settle leftovers of killed runs; return a table's state, which may be newer, and how many of its records wait."""
    from pyspark.sql import functions as F

    from frazil_old.lake import quarantine_table

    name = book.ops("quarantine")
    if not book.spark.catalog.tableExists(name):
        return base, 0
    quarantine_table.settle(book.spark, name, book.name(spec))
    rows = quarantine_table.newest(book.spark, name, quarantine_table.of_table(spec))
    last, count = rows.agg(F.max("sequence"), F.count_if(F.col("status").isin(*OPEN))).first()
    if last is not None and last >= _position_sequence(base):
        # Read again: another run may have committed. The history lacks what was built on the position or later.
        base = read_table_state(book.spark, book.name(spec), checked=False)
        if last >= _position_sequence(base):
            quarantine_table.forget(book.spark, name, spec, _position_sequence(base), last)
            return _counted(book, spec, base)
    return base, count


def settle_leftovers(book: Workbook, spec: TableSpec, base: TableState) -> None:
    """Settle leftovers of killed runs for a table, the first time that this run uses it."""
    if spec.source not in book.waiting:
        still_waiting(book, spec, base)


def _position_sequence(base: TableState) -> int:
    return Position.from_json(base.stored)[1]["sequence"]


def before(base: TableState) -> int:
    """Return the `sequence` of records that belong to no batch: they come after the last one."""
    return _position_sequence(base) - 1


@dataclass(frozen=True)
class OfBatch:
    """What a batch means for the quarantine: its bad rows, and its changes, which make waiting rows obsolete.

    `files` are those it was read from; `changes` returns the collapsed batch of a table with a key. A load replaces all
    rows.
    """

    bad: BadRows
    files: Sequence[FileToRead | PartitionRead]
    changes: Callable[[], DataFrame] | None = None
    is_load: bool = False


@contextmanager
def quarantined_with_commit(
    book: Workbook, spec: TableSpec, base: TableState, metadata: CommitMetadata, of: OfBatch
) -> Iterator[CommitMetadata]:
    """Quarantine rows in step with the batch that the block commits, with the metadata that it is given.

    The rows are staged in a separate thread while the block writes the batch. Its commit waits until they are staged.
    """
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql import functions as F

    batch, old, bad = metadata.position.batch, still_waiting(book, spec, base), of.bad.count
    if not bad and old is None:
        yield metadata
        book.waiting[spec.source] = batch, 0
        return
    from frazil_old.engine.quarantine_records import RecordOf, record_frame
    from frazil_old.lake.quarantine_status import NO_PLACE

    common = RecordOf(spec, batch, base.sequence, LOAD_PHASE if of.is_load else CHANGE_PHASE)
    kept: list[DataFrame] = []

    def records() -> DataFrame | None:
        frames = [record_frame(book.spark, of.bad, of.files, common)] if bad else []
        frames += [] if old is None else [old.drop("began").withColumn("place", F.expr(NO_PLACE))]
        seen = Observation()
        unknown_keys = F.expr("count_if(not keyed) as unknown_keys")
        both = reduce(DataFrame.unionByName, frames).observe(seen, unknown_keys).localCheckpoint()
        kept.append(both)
        there = _records(spec, base, batch, both, of, seen.get["unknown_keys"] > 0)
        return None if not bad and there.isEmpty() else there

    known = book.waiting[spec.source][1]
    try:
        with staged(book, spec, base, records, batch) as ready:
            yield replace(metadata, before_commit=ready)
    finally:
        for frame in kept:
            jvm.release(frame)
    book.waiting[spec.source] = batch, None if ready() else known  # None: to be counted


@contextmanager
def staged(
    book: Workbook, spec: TableSpec, base: TableState, records: Callable[[], DataFrame | None], batch: str
) -> Iterator[Callable[[], bool]]:
    """Stage records while the block runs, and publish them if it has committed their batch.

    The block must call the yielded function before it publishes the commit. The call waits until the records are
    staged, and returns whether there were any.
    """
    from frazil_old.lake import quarantine_table

    name, target = book.ops("quarantine"), book.name(spec)

    def stage() -> bool:
        book.take_thread(spec)
        found = records()
        if found is not None:
            quarantine_table.stage(book.spark, name, found, batch, target, base)
        return found is not None

    with kept_under_way(batch), ThreadPoolExecutor(1) as pool:
        staging = pool.submit(stage)
        try:
            yield staging.result
        except Exception:
            if staging.exception() is None and staging.result():
                quarantine_table.settle(book.spark, name, target, batch)
            raise
        if staging.result() and not quarantine_table.settle(book.spark, name, target, batch):
            quarantine_table.require_published(book.spark, name, target, batch)


def _records(
    spec: TableSpec, base: TableState, batch: str, both: DataFrame, of: OfBatch, has_unknown_keys: bool
) -> DataFrame:
    """Return what a batch adds to the quarantine: its bad rows, and waiting rows that the batch supersedes.

    `both` are those rows and all that wait, which have no `place`. For some the key may be unknown (`has_unknown_keys`).
    """
    from pyspark.sql import functions as F

    from frazil_old.lake.quarantine_status import overtaken
    from frazil_old.lake.quarantine_table import changed

    if of.is_load:
        new, old = both.where("place is not null").drop("place"), both.where("place is null")
        return new.unionByName(changed(old, batch, base.sequence, status=OBSOLETE))
    if not spec.key:
        return both.where("place is not null")
    touched = overtaken(both, of.changes(), spec, batch, has_unknown_keys).where(
        F.greatest(*[F.col(c) == batch for c in ("batch", *LATER)])
    )
    return changed(touched, batch, base.sequence)
