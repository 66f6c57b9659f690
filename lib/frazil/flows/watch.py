"""What can be found out about an environment without Spark: whether work is pending, and how late its tables are."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from functools import cache
from typing import TYPE_CHECKING, Any

from frazil.config.settings import Settings
from frazil.config.spec import TableSpec
from frazil.dms.file_columns import shapes
from frazil.dms.layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.listing import STRANGE, DmsObject, TableObjects, folders_beside, holds_data
from frazil.dms.mappings import like
from frazil.dms.newest import moment
from frazil.dms.position import Position, pending_changes, require_same_load
from frazil.dms.streams import Kept, UnreachableError
from frazil.errors import FrazilError
from frazil.flows.stream_look import begin_of
from frazil.flows.workbook import Workbook
from frazil.lake import lookup, record
from frazil.lake.arrival import State, with_known_loads
from frazil.lake.tables import LOAD, POSITION
from frazil.pipeline.lake_trouble import require_metadata

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from frazil.source.applied import Record


NO_TABLE = "no table"
"""The table's name for a message that names none."""


NO_SPEC = "its folder has data and no spec, so nothing of it arrives: write a spec (see `frazil init`), or name it in without_spec"


def without_spec(book: Workbook) -> list[str]:
    """Return the tables, `schema.table`, whose source folders hold data without a spec; none for a stream."""
    if book.stream:
        return []
    taken = {"/".join(name) for name in book.known} | {book.endpoint.cdc_path.split("/")[0]}
    try:
        folders = [f for f, what in folders_beside(book.source, taken).items() if what == STRANGE]
        found = [f.replace("/", ".", 1) for f in folders if holds_data(book.source, f)]
    except FrazilError:  # the tables' own lines report it
        return []
    return [t for t in found if not any(like(p, t) for p in book.settings.without_spec)]


def _spark_is_there() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _kept(book: Workbook) -> Callable[[], Kept] | None:
    """Return a function that reads the stream's contents once, on its first call."""
    return cache(book.stream.kept) if book.stream else None


def _pending(
    book: Workbook, catalog: Catalog, spec: TableSpec, kept: Callable[[], Kept] | None, same_load: bool = False
) -> tuple[Position, int, float]:
    """Return a table's position, how much is after it, and how long the oldest has waited.

    It counts change files, or a stream's messages of any table. Raises a FrazilError if the table has no position or
    its first load waits. With `same_load` it also does if the load files are not those applied.
    """
    spec.require_sound()
    require_metadata(book.settings, spec.target, depth=1)
    table = lookup.get_table(catalog, spec.target)
    position = lookup.position_of(table, book.name(spec))
    if book.stream:
        return position, *pending_of(book, spec, position, kept)
    state = State(book.name(spec), spec.source, position, table.metadata.properties[POSITION], record.of_table(table))
    there = book.objects(spec, position, watch=True, record=state.record)
    there, same = with_known_loads(there, state)
    if there.loads and position.awaits_load:
        raise FrazilError(
            f"{spec.source}: {len(there.loads)} load file(s) came after 01_full_load found none",
            "run 01_full_load again",
        )
    if same_load:
        require_same_load(there, position, table.properties.get(LOAD), spec.source)
    found = book.arrivals(spec, state, there)
    given_up = set(getattr(book.settings, "go_on_without", ())) & set(state.record.awaited)
    if (same or found.same or given_up) and not same_load:
        raise UnsureError(f"{spec.source}: files are gone, or have another time", "the run keeps what is known of them")
    if same_load:
        _look_into(book, spec, () if position.loaded else there.loads, found.pending)
    return position, *_waits(found.pending)


class UnsureError(FrazilError):
    """Something that a run with Spark has to record, though nothing is pending."""


def _look_into(book: Workbook, spec: TableSpec, loads: Sequence[DmsObject], changes: Sequence[DmsObject]) -> None:
    """Raise what a run would report from the names and first rows of the first and the last file of each kind."""
    book.check_files(spec, TableObjects(tuple(loads), tuple(changes)))
    for files, phase in ((loads, LOAD_PHASE), (changes, CHANGE_PHASE)):
        shapes(spec, book.endpoint, book.mappings, list(dict.fromkeys((*files[:1], *files[-1:]))), phase)


def pending_of(
    book: Workbook,
    spec: TableSpec,
    position: Position,
    kept: Callable[[], Kept] | None = None,
    record: Record | None = None,
) -> tuple[int, float]:
    """Return how much is after a position, and for how many seconds the oldest has waited.

    It counts change files, or a stream's messages of any table. `kept`: reads the stream once for many tables. A file's
    time is in its name (UTC); 0 seconds if it has none.
    """
    if book.stream:
        begin = position.stream
        if position.loaded:  # expired messages are more than late
            begin = begin_of(book, spec, position, (kept or book.stream.kept)())
        count, waits = book.stream.waiting(begin)
        return count, round(waits, 1)
    return _waits(pending_changes(book.objects(spec, position), position, spec.source, record))


def _waits(files: list[DmsObject]) -> tuple[int, float]:
    if not files:
        return 0, 0.0
    return len(files), round(max(0.0, time.time() - moment(files[0].name).replace(tzinfo=UTC).timestamp()), 1)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause Python's garbage collection, which would scan all modules every few thousand listed files."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def nothing_pending(book: Workbook) -> dict[str, dict[str, Any]] | None:
    """Return every table as a result row if nothing is pending after any position, else None.

    None also if Spark already runs or is needed to find out, if a table waits for its load, or if rows wait in the
    quarantine. It is None, too, if the run does more than apply what exists now. Then the run itself checks and
    reports. Raises UnreachableError for a stream that does not answer.
    """
    s = book.settings
    if s.check_source or s.run_for_s or s.quarantine != "show" or _spark_is_there():
        return None
    if book.stream and not book.stream.tells_ends:
        return None
    try:
        catalog = lookup.open_catalog(book.settings)
        kept = _kept(book)
        with _no_collection():
            found = {spec.source: _pending(book, catalog, spec, kept) for spec in book.specs.values()}
    except UnreachableError:
        raise
    except FrazilError:
        for spec in book.specs.values():
            book.look_again(spec)
        return None
    aside = waiting(book)
    if aside is None or aside.keys() & book.specs.keys():
        return None
    if any(count or not position.loaded for position, count, _ in found.values()):
        return None
    return {t: {"status": "unchanged", "position": position.place} for t, (position, *_) in found.items()}


def waiting(book: Workbook) -> dict[str, int] | None:
    """Return the number of waiting rows in the quarantine, by table; None if only Spark can find out.

    That includes rows of a killed run that have not been settled yet.
    """
    try:
        return None if _left_over(book) else lookup.waiting(lookup.quarantine(book.settings))
    except FrazilError:
        return None


def _left_over(book: Workbook) -> bool:
    table = lookup.quarantine(book.settings)
    return table is not None and len(table.refs()) > 1


def became(book: Workbook) -> list[dict[str, Any]]:
    """Return the status of all rows that were ever quarantined: one row per table and status."""
    try:
        found = lookup.records(lookup.quarantine(book.settings))
    except FrazilError:  # a catalog that only Spark can read
        from frazil.lake import quarantine

        found = quarantine.records(book.spark, book.ops("quarantine"))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for r in found:
        if r["table_name"] is None or r["table_name"] in book.specs:
            table = r["table_name"] or f"{NO_TABLE}: {r['id'].rsplit(':', 2)[0]}"
            groups.setdefault((table, r["status"]), []).append(r)
    return [
        {
            "table": table, "status": status, "rows": len(rows), "since": f"{min(r['set_aside_at'] for r in rows):%Y-%m-%d %H:%M:%S}",
            "last_change": f"{max(r['changed_at'] for r in rows):%Y-%m-%d %H:%M:%S}",
        }
        for (table, status), rows in sorted(groups.items())
    ]  # fmt: skip


def unreadable(book: Workbook) -> list[dict[str, Any]]:
    """Return the quarantined messages that name no table, in order of place."""
    try:
        return lookup.unreadable(lookup.quarantine(book.settings))
    except FrazilError:
        name = book.ops("quarantine")
        if not book.spark.catalog.tableExists(name):
            return []
        from frazil.lake import quarantine

        rows = quarantine.unreadable(book.spark, name).collect()
        return sorted((r.asDict() for r in rows), key=lambda r: (r["path"], int(r["row_no"])))


def newly_unreadable(settings: Settings, since: float) -> str:
    """Report messages without a table that were quarantined after `since`.

    Empty: none exist, or only Spark can find out.
    """
    try:
        rows = lookup.unreadable(lookup.quarantine(settings))
    except FrazilError:
        return ""
    return many_unreadable([r for r in rows if r["set_aside_at"].timestamp() >= since])


def still_waiting(book: Workbook) -> str:
    """Say how many rows of which tables, and messages without one, wait in the quarantine; empty: nothing waits."""
    try:
        table = lookup.quarantine(book.settings)
        rows, lost = lookup.waiting(table), lookup.unreadable(table)
    except FrazilError:  # a catalog that only Spark can read
        return ""
    told = [f"{count:,} row(s) of {name}" for name, count in sorted(rows.items()) if name in book.specs]
    return ", ".join([*told, *([many_unreadable(lost)] if lost and book.stream else [])])


def many_unreadable(rows: list[dict[str, Any]]) -> str:
    """Say how many messages name no table, and where the first is; empty if none exist."""
    if not rows:
        return ""
    return f"{len(rows):,} message(s) that tell no table, from {rows[0]['path']} offset {rows[0]['row_no']} on"


def worst_latency(settings: Settings, since: float) -> float | None:
    """Return the longest time in seconds from source to lake of a change committed after `since`; None: no change."""
    try:
        book = Workbook(settings, lambda text: None)
        catalog, worst = lookup.open_catalog(settings), []
        for spec in book.specs.values():
            for at, summary in lookup.commits(lookup.get_table(catalog, spec.target), since):
                told = json.loads(summary.get("frazil.latency", "{}"))
                if told.get("age"):
                    worst.append((at - told["picked_up"] + told["age"][-1]) / 1000)
        return max(worst, default=None)
    except FrazilError:
        return None


def lateness(book: Workbook) -> list[dict[str, Any]]:
    """Return one row per table: what is pending, and for how many seconds the oldest has waited.

    It counts files, or messages of any table. The time is that in the file's name (UTC). A table without pending files
    is not late, however long its source has been idle. `problem` says why the state of a table is unknown, or that its
    load files changed; `cure` says what to do.
    """
    rows, catalog, kept = [], lookup.open_catalog(book.settings), _kept(book)
    for spec in book.specs.values():
        try:
            _, count, lag = _pending(book, catalog, spec, kept, same_load=True)
            rows.append({"table": spec.source, "pending": count, "lag_s": round(lag, 1), "problem": "", "cure": ""})
        except UnreachableError:
            raise
        except FrazilError as e:
            rows.append({"table": spec.source, "pending": None, "lag_s": None, "problem": e.problem, "cure": e.cure})
    return rows
