"""A batch of changes and its Spark plan: typed, ordered, collapsed, with every figure observed on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial as curry
from typing import TYPE_CHECKING, Any

from frazil.changes.changeset import change_set
from frazil.changes.collapse import last_per_key
from frazil.changes.keyless import appended, net_rows
from frazil.changes.quarantine import with_aside
from frazil.config.spec import TableSpec
from frazil.dms import ends
from frazil.dms.csv import written_at
from frazil.dms.endpoint import EndpointError
from frazil.dms.objects import DmsObject, TableObjects
from frazil.dms.position import Position, after_changes
from frazil.dms.read import CHANGE_PHASE, may_be_split, may_hide_open_text, read_rows
from frazil.engine import small_batch
from frazil.engine.collapsed import Collapsed, Wanted
from frazil.engine.load import FilesToWrite, write_data_files
from frazil.engine.write_rows import Written
from frazil.flows.workbook import Workbook
from frazil.lake import jvm
from frazil.lake.arrival import Reading
from frazil.lake.record import Update
from frazil.lake.rowdelta import RowDelta
from frazil.lake.tables import Base
from frazil.report import latency

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from frazil.lake.jvm import JavaTable

SMALL_MB = 4
SAMPLED_MB = 16
"""Up to this many MB, every change counts for the quantiles of delays; in a batch n times as large, every n-th."""


@dataclass(frozen=True)
class Plan:
    """Spark's plan for a batch.

    It has the `raw` rows, all that was `found`, the `batch` to merge, and what is `brought` for a row delta.
    """

    raw: DataFrame
    found: DataFrame
    batch: DataFrame
    brought: DataFrame | None
    observed: Callable[[], dict[str, Any]]
    """Return what the first job observed; call it after that job."""
    recount: Callable[[], dict[str, Any]] = dict
    """Return the same from separate jobs, which is exact even if Spark repeated tasks in the first one."""


@dataclass(frozen=True)
class Batch:
    """Changes from files or a stream, to apply together.

    `read(whole)` returns raw rows (None: the core reads all), `after(batch id)` the position after them.
    `may_be_split`: see `read.may_be_split`. `size` holds the files, messages and bytes for the snapshot summary.
    """

    read: Callable[[bool], DataFrame] | None
    after: Callable[[str], Position]
    size: dict[str, int]
    may_be_split: bool = False
    files: tuple[DmsObject, ...] = ()
    look: Callable[[bool], Callable[[bool], None]] = lambda whole: lambda bad: None
    """See `ends.look`."""
    require_unchanged: Callable[[], None] = lambda: None
    """Raises SourceError for a file that has changed since it was listed."""
    contests: bool = True
    """Whether changed keys or DMS's own sequence may contradict the order of the rows."""
    only_merge: str = ""
    """Why the batch may not use a row delta, whatever the lane is."""
    record: Callable[[str], dict[str, str]] = lambda batch: {}
    """Takes the batch's id; returns the properties that record which files were applied."""
    collapse: Callable[[Wanted], Collapsed | None] | None = None
    """Collapses a batch that the core can read. Returns None where Spark has to judge rows."""
    write: Callable[[JavaTable, int, bool], Written] | None = None
    """Writes the changes, each as a row, as data files of the table.

    Takes how many bad rows of each file are kept, and whether this process reads them in any case.
    """
    small: bool = True
    """Whether the core reads the batch in this process, without a Spark job."""

    @property
    def megabytes(self) -> float:
        """Return the size of the batch in MB."""
        return self.size_mb(self.size)

    @staticmethod
    def size_mb(size: dict[str, int]) -> float:
        """Return the MB of a batch of this `size`; a message counts as 500 bytes."""
        return size.get("bytes", 500 * size.get("messages", 0)) / 1e6


def of_files(
    book: Workbook, spec: TableSpec, base: Base, files: list[DmsObject], there: TableObjects, clear: list[Update]
) -> Batch:
    """Return the batch made of change files, a part of those that are `there`.

    Whatever to clean up after its commit is added to `clear`. When Spark has read the files, they must still be as
    listed.
    """
    if not spec.key and book.endpoint.no_sup_value is not None:
        raise EndpointError(
            f"{spec.source} has no key, and under UseCsvNoSupValue its rows may be partial: nothing tells what they lack",
            "have the source log whole rows and switch UseCsvNoSupValue off, or name a key in the spec",
        )
    reading = Reading(files, spec.source)

    def look(whole: bool) -> Callable[[bool], None]:
        all_end = ends.look(spec, book.endpoint, files, hidden, whole)

        def over(bad: bool) -> None:
            reading.require_unchanged()
            all_end(bad)

        return over

    def record(batch: str) -> dict[str, str]:
        taken = {o.name for o in files}
        awaited = [o.name for o in there.changes if o.name > base.position.last and o.name not in taken]
        table = jvm.load_table(book.spark, book.name(spec))
        update = Update(table, base.record, batch, (*there.loads, *there.changes), awaited)
        clear.append(update.changes(base.position, files, reading.contents(), there))
        return update.properties

    hidden = may_hide_open_text(spec, files, book.endpoint, book.mappings, CHANGE_PHASE)

    def collapse(wanted: Wanted) -> Collapsed | None:
        sent = book.endpoint, book.mappings
        if small or wanted.in_process:
            return small_batch.collapse_files(spec, sent, files, wanted)
        from frazil.engine import large_batch

        return large_batch.collapse_files(book.spark, spec, sent, files, wanted)

    def write(table: JavaTable, most_bad: int, in_process: bool) -> Written:
        given = FilesToWrite(spec, files, CHANGE_PHASE, most_bad, in_process)
        return write_data_files(book.spark, table, given, (book.endpoint, book.mappings))

    told = book.mappings.before_image(spec) or book.mappings.sequence_column(spec)
    small = small_batch.are_small(files) or small_batch.must_be_small(spec, book.endpoint)
    return Batch(
        lambda whole: read_rows(book.spark, spec, book.endpoint, book.mappings, files, CHANGE_PHASE, whole),
        lambda batch: after_changes(base.position, files, batch),
        {"files": len(files), "bytes": sum(f.size for f in files)},
        may_be_split(files, book.endpoint, hidden),
        tuple(files),
        look,
        contests=bool(told),
        record=record,
        require_unchanged=reading.require_unchanged,
        collapse=collapse,
        write=write,
        small=small,
    )


def plan_of(spec: TableSpec, given: Batch, raw: DataFrame, lane: RowDelta | None, aside: bool) -> Plan:
    """Return Spark's plan for a batch."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen, order = Observation(), Observation() if spec.key and given.contests else None
    counted: list[tuple[DataFrame, list]] = []

    def watched(observation: Any, rows: DataFrame, counts: list) -> DataFrame:
        counted.append((rows, counts))
        return rows.observe(observation, *counts)

    partial = "absent" in raw.columns
    carries = aside and spec.policy == "key" and not partial  # bad rows stay in the batch until it is known
    changes = (with_aside if carries else change_set)(raw, spec)
    written = ""
    if given.files and given.megabytes > SAMPLED_MB:
        changes = latency.sample(changes, math.ceil(given.megabytes / SAMPLED_MB))
        written = written_at(given.files, CHANGE_PHASE)
    changes = watched(seen, changes, [
        F.expr("count(*) as changes"), F.expr("count(bad) as bad"),
        *[F.expr(f"count(if(op = '{op}', 1, null)) as {op}") for op in ("I", "U", "D")],
        *latency.measures(written), *([F.expr("min(row_no) as first")] if len(given.files) == 1 else []),
    ])  # fmt: skip
    if lane and given.megabytes < SMALL_MB:
        changes = changes.coalesce(1)  # one task, no shuffle
    if spec.policy == "append":
        batch = appended(changes, good_only=aside)
    elif spec.policy == "multiset":
        batch = net_rows(changes)
    else:
        good = changes.where("bad is null") if aside and not carries else changes
        batch = last_per_key(good, spec, order and curry(watched, order), partial, places=aside, keys=lane is None)
    found = batch.persist() if carries else batch
    batch = found.where("aside is null").drop("aside") if carries else batch
    brought = lane.shaped(batch.drop("place")) if lane else None

    def observed() -> dict[str, Any]:
        return {**seen.get, **(order.get if order else {})}

    def recount() -> dict[str, Any]:
        return {k: v for rows, counts in counted for k, v in rows.agg(*counts).first().asDict().items()}

    return Plan(raw, found, batch, brought, observed, recount)
