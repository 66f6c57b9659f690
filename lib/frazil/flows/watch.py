"""What can be told of an environment without Spark: whether there is anything to do, and how late its tables are."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC
from typing import Any

from frazil.config.settings import Settings
from frazil.dms.newest import moment
from frazil.dms.objects import DmsObject
from frazil.dms.position import Position, pending_changes
from frazil.errors import FrazilError
from frazil.flows.workbook import Workbook
from frazil.lake import lookup


def _spark_is_there() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def pending(book: Workbook) -> dict[str, tuple[Position, list[DmsObject] | int]]:
    """Return each table's position and the change files behind it; raises a FrazilError where a table has no position.

    Of a stream it is how many messages of any table lie there.
    """
    catalog, found, ends = lookup.open_catalog(book.settings), {}, book.stream.ends() if book.stream else {}
    for spec in book.specs.values():
        position = lookup.position_of(lookup.get_table(catalog, spec.target))
        if book.stream:
            found[spec.source] = position, sum(e - position.stream.get(p, 0) for p, e in ends.items())
        else:
            found[spec.source] = position, pending_changes(book.objects(spec, position.last), position, spec.source)
    return found


def nothing_pending(book: Workbook) -> dict[str, dict[str, Any]] | None:
    """Return every table as a result row if no change file lies behind any position, else None.

    None also where Spark runs already, where it cannot be told without Spark, where a table waits for its load, and where
    the run shall do more than apply what is there now: then the run itself looks, and says what it finds.
    """
    if book.settings.check_source or book.settings.run_for_s or _spark_is_there():
        return None
    if book.stream and not book.stream.tells_ends:
        return None
    try:
        found = pending(book)
    except FrazilError:
        return None
    if any(files or not position.loaded for position, files in found.values()):
        return None
    return {t: {"status": "unchanged", "position": position.last or "–"} for t, (position, _) in found.items()}


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
    be told of.
    """
    rows, now = [], time.time()
    catalog = lookup.open_catalog(book.settings)
    for spec in book.specs.values():
        try:
            table = lookup.get_table(catalog, spec.target)
            position = lookup.position_of(table)
            if book.stream:
                count, lag = book.stream.waiting(position.stream)
                rows.append({"table": spec.source, "pending": count, "lag_s": round(lag, 1), "problem": ""})
                continue
            files = pending_changes(book.objects(spec, position.last), position, spec.source)
            lag = max(0.0, now - moment(files[0].name).replace(tzinfo=UTC).timestamp()) if files else 0.0
            rows.append({"table": spec.source, "pending": len(files), "lag_s": round(lag, 1), "problem": ""})
        except FrazilError as e:
            rows.append({"table": spec.source, "pending": None, "lag_s": None, "problem": e.problem})
    return rows
