"""What can be told of an environment without Spark: whether there is anything to do, and how late its tables are."""

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
from frazil.dms.layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.mappings import like
from frazil.dms.newest import moment
from frazil.dms.objects import STRANGE, DmsObject, TableObjects, folders_beside, holds_data
from frazil.dms.position import Position, pending_changes, require_same_load
from frazil.dms.shapes import shapes
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
"""What stands for the table of a message that tells none."""


NO_SPEC = "its folder has data and no spec, so nothing of it arrives: write a spec (see `frazil init`), or name it in without_spec"


def without_spec(book: Workbook) -> list[str]:
    """Return the tables, `schema.table`, whose folders in the source hold data that no spec takes; of a stream none."""
    if book.stream:
        return []
    taken = {"/".join(name) for name in book.known} | {book.endpoint.cdc_path.split("/")[0]}
    try:
        folders = [f for f, what in folders_beside(book.source, taken).items() if what == STRANGE]
        found = [f.replace("/", ".", 1) for f in folders if holds_data(book.source, f)]
    except FrazilError:  # the lines of the tables say so
        return []
    return [t for t in found if not any(like(p, t) for p in book.settings.without_spec)]


def _spark_is_there() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _kept(book: Workbook) -> Callable[[], Kept] | None:
    """Return what looks once, when first asked, at what the stream holds."""
    return cache(book.stream.kept) if book.stream else None


def _pending(
    book: Workbook, catalog: Catalog, spec: TableSpec, kept: Callable[[], Kept] | None, same_load: bool = False
) -> tuple[Position, int, float]:
    """Return a table's position, how many change files (of a stream: messages of any table) lie behind it, and how long the oldest waits.

    Raises a FrazilError where the table has no position or its first load waits, with `same_load` also where the load files
    are not those applied.
    """
    spec.require_sound()
    require_metadata(book.settings, spec.target, depth=1)
    table = lookup.get_table(catalog, spec.target)
    position = lookup.position_of(table, book.name(spec))
    if book.stream:
        return position, *behind(book, spec, position, kept)
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
    """Something that a run with Spark has to keep, though nothing is pending."""


def _look_into(book: Workbook, spec: TableSpec, loads: Sequence[DmsObject], changes: Sequence[DmsObject]) -> None:
    """Raise what the names and first rows of the first and the last file show that a run would read, of each kind."""
    book.check_files(spec, TableObjects(tuple(loads), tuple(changes)))
    for files, phase in ((loads, LOAD_PHASE), (changes, CHANGE_PHASE)):
        shapes(spec, book.endpoint, book.mappings, list(dict.fromkeys((*files[:1], *files[-1:]))), phase)


def behind(
    book: Workbook,
    spec: TableSpec,
    position: Position,
    kept: Callable[[], Kept] | None = None,
    record: Record | None = None,
) -> tuple[int, float]:
    """Return how many change files (of a stream: messages of any table) lie behind a position, and for how many seconds the oldest waits.

    `kept`: what looks at the stream for many tables at once.
    A file's time is that in its name (UTC); 0 seconds where there is none.
    """
    if book.stream:
        begin = position.stream
        if position.loaded:  # what has expired is not merely late
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
    """Let Python's garbage wait: it would go through all modules for each few thousand files that are listed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def nothing_pending(book: Workbook) -> dict[str, dict[str, Any]] | None:
    """Return every table as a result row if no change file lies behind any position, else None.

    None also where Spark runs already, where it cannot be told without Spark, where a table waits for its load or rows wait in
    the quarantine, and where the run shall do more than apply what is there now: then the run itself looks, and says what it
    finds. Raises UnreachableError for a stream that does not answer.
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
    """Return how many rows wait in the quarantine, by table; None where that cannot be told without Spark.

    That is so, too, where a killed run has left rows that nobody has looked after yet.
    """
    try:
        return None if _left_over(book) else lookup.waiting(lookup.quarantine(book.settings))
    except FrazilError:
        return None


def _left_over(book: Workbook) -> bool:
    table = lookup.quarantine(book.settings)
    return table is not None and len(table.refs()) > 1


def became(book: Workbook) -> list[dict[str, Any]]:
    """Return what has become of the rows that were ever set aside: one row per table and status."""
    try:
        found = lookup.records(lookup.quarantine(book.settings))
    except FrazilError:  # the catalog is none that can be read without Spark
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
    """Return the messages that tell no table and lie in the quarantine, in order of place."""
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
    """Tell of messages that tell no table and were set aside after `since`; empty: there are none, or it cannot be told without Spark."""
    try:
        rows = lookup.unreadable(lookup.quarantine(settings))
    except FrazilError:
        return ""
    return many_unreadable([r for r in rows if r["set_aside_at"].timestamp() >= since])


def still_waiting(book: Workbook) -> str:
    """Say how many rows of which tables wait in the quarantine, and messages that tell none; empty: nothing waits."""
    try:
        table = lookup.quarantine(book.settings)
        rows, lost = lookup.waiting(table), lookup.unreadable(table)
    except FrazilError:  # the catalog is none that can be read without Spark
        return ""
    told = [f"{count:,} row(s) of {name}" for name, count in sorted(rows.items()) if name in book.specs]
    return ", ".join([*told, *([many_unreadable(lost)] if lost and book.stream else [])])


def many_unreadable(rows: list[dict[str, Any]]) -> str:
    """Return in words how many messages tell no table, and where the first lies; empty where there are none."""
    if not rows:
        return ""
    return f"{len(rows):,} message(s) that tell no table, from {rows[0]['path']} offset {rows[0]['row_no']} on"


def worst_latency(settings: Settings, since: float) -> float | None:
    """Return the longest time, in seconds, that a change took which was committed to the lake after `since`; None: none was."""
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
    """Return one row per table: files (or messages of any table) pending, and for how many seconds the oldest of them has waited, by its name (UTC).

    A table without pending files is not late, however long its source has been idle. `problem` says why a table cannot
    be told of, or that its load files changed, and `cure` what to do.
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
