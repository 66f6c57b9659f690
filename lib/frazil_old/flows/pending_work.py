"""Whether work is pending, found out without Spark: change files and messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from frazil_old.config.spec import TableSpec
from frazil_old.dms.changed_load import require_same_load
from frazil_old.dms.file_columns import first_and_last, shapes
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.pending_changes import AppliedState, require_applicable, with_known_loads
from frazil_old.dms.position import POSITION, Position
from frazil_old.dms.stream_retention import Retention
from frazil_old.dms.stream_source import UnreachableError
from frazil_old.errors import FrazilError, many
from frazil_old.flows.quarantine_counts import waiting
from frazil_old.flows.stream_position import begin_of
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog, stored_applied_files
from frazil_old.lake.storage_errors import require_metadata
from frazil_old.lake.table_pause import PAUSED, PausedError, paused_error
from frazil_old.lake.tables import LOAD, TableState


def _spark_is_there() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def stream_retention(book: Workbook) -> Callable[[], Retention] | None:
    """Return a function that reads the stream's contents once, on its first call."""
    return cache(book.stream.retention) if book.stream else None


def state_of(
    book: Workbook, spec: TableSpec, retention: Callable[[], Retention] | None, same_load: bool = False
) -> tuple[Position, int, float]:
    """Return a table's position, how much is after it, and how long the oldest has waited.

    It counts change files, or a stream's messages of any table. Raises a FrazilError if the table has no position or
    its first load waits. With `same_load` it also does if the load files are not those applied. Raises PausedError for
    a paused table.
    """
    spec.require_sound()
    require_metadata(book.settings, spec.target, depth=1)
    table = pyiceberg_catalog.get_table(book.catalog, spec.target)
    if why := table.properties.get(PAUSED):
        raise paused_error(why, spec.source)
    position = pyiceberg_catalog.position_of(table, book.name(spec))
    if book.stream:
        return position, *_messages_after(book, spec, position, retention)
    state = AppliedState(
        book.name(spec),
        spec.source,
        position,
        table.metadata.properties[POSITION],
        stored_applied_files.of_table(table),
    )
    there = book.objects(spec, position, may_list_fully=True, record=state.record)
    there, same = with_known_loads(there, state)
    if there.loads and position.awaits_load:
        raise FrazilError(
            f"{spec.source}: {many(there.loads, 'load file')} came after 01_full_load found none",
            "run 01_full_load again",
        )
    if same_load:
        require_same_load(there, position, table.properties.get(LOAD), spec.source)
    found = book.require_applicable(spec, state, there)
    given_up = set(getattr(book.settings, "go_on_without", ())) & set(state.record.awaited)
    if (same or found.same or given_up) and not same_load:
        raise FrazilError(f"{spec.source}: files are gone, or have another time", "the run records this")
    if same_load:
        _look_into(book, spec, () if position.loaded else there.loads, found.pending)
    return position, *_waits(book, found.pending)


def _look_into(book: Workbook, spec: TableSpec, loads: Sequence[DmsObject], changes: Sequence[DmsObject]) -> None:
    """Raise what a run would report from the names and first rows of the first and the last file of each kind."""
    book.check_files(spec, TableObjects(tuple(loads), tuple(changes)))
    for files, phase in ((loads, LOAD_PHASE), (changes, CHANGE_PHASE)):
        shapes(book.source_table(spec), first_and_last(files), phase)


def pending_of(book: Workbook, spec: TableSpec, base: TableState) -> tuple[int, float]:
    """Return how much is after a table's position, and for how many seconds the oldest has waited.

    It counts change files, or a stream's messages of any table. A file's time is in its name.
    """
    if book.stream:
        return _messages_after(book, spec, base.position, book.stream.retention)
    state = AppliedState(book.name(spec), spec.source, base.position, base.stored, base.record)
    return _waits(book, require_applicable(book.objects(spec, base.position, record=base.record), state).pending)


def _messages_after(
    book: Workbook, spec: TableSpec, position: Position, retention: Callable[[], Retention]
) -> tuple[int, float]:
    begin = position.stream
    if position.loaded:  # expired messages are more than late
        begin = begin_of(book, spec, position, retention())
    count, waits = book.stream.waiting(begin)
    return count, round(waits, 1)


def _waits(book: Workbook, files: list[DmsObject]) -> tuple[int, float]:
    if not files:
        return 0, 0.0
    return len(files), round(max(0.0, time.time() - book.endpoint.date_partition.written_s(files[0].name)), 1)


def nothing_pending(book: Workbook) -> dict[str, dict[str, Any]] | None:
    """Return every table as a result row if nothing is pending after any position, else None.

    None also if Spark already runs or is needed to find out, if a table waits for its load, or if rows wait in the
    quarantine. It is None, too, if the run does more than apply what exists now. Then the run itself checks and
    reports. Raises UnreachableError for a stream that does not answer.
    """
    s = book.settings
    if s.check_source or s.run_for_s or s.quarantine != "show" or _spark_is_there():
        return None
    if book.stream and not book.stream.has_end_offsets:
        return None
    try:
        retention = stream_retention(book)
        found = {spec.source: _idle(book, spec, retention) for spec in book.specs.values()}
    except UnreachableError:
        raise
    except FrazilError:
        for spec in book.specs.values():
            book.list_in_full(spec)
        return None
    if waiting(book) != {}:
        return None
    return None if None in found.values() else found


def _idle(book: Workbook, spec: TableSpec, retention: Callable[[], Retention] | None) -> dict[str, Any] | None:
    """Return the result row of a table for which nothing is pending, or which is paused; None for another."""
    try:
        position, count, _ = state_of(book, spec, retention)
    except PausedError as e:
        return {"status": "paused", "position": "", "note": e.note}
    if count or not position.loaded:
        return None
    return {"status": "unchanged", "position": position.place}
