"""How late the tables are: what waits after each position, and how long the newest changes took."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from frazil_old.config.settings import Settings
from frazil_old.config.spec import TableSpec
from frazil_old.dms.stream_source import UnreachableError
from frazil_old.errors import FrazilError
from frazil_old.flows.pending_work import pending_of, state_of, stream_retention
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.lake.table_pause import PausedError
from frazil_old.lake.tables import read_table_state

if TYPE_CHECKING:
    from frazil_old.report.latency import Analysis


def worst_latency(settings: Settings, since: float) -> float | None:
    """Return the longest time in seconds from source to lake of a change committed after `since`; None: no change."""
    worst = []
    with suppress(FrazilError):
        book = Workbook(settings, lambda text: None)
        catalog = book.catalog
        for spec in book.specs.values():
            with suppress(FrazilError):  # a table that cannot be read says nothing about the others
                for at, summary in pyiceberg_catalog.commits(pyiceberg_catalog.get_table(catalog, spec.target), since):
                    sketch = json.loads(summary.get("frazil.latency", "{}"))
                    if sketch.get("age"):
                        worst.append((at - sketch["picked_up"] + sketch["age"][-1]) / 1000)
    return max(worst, default=None)


def per_table(book: Workbook) -> list[dict[str, Any]]:
    """Return one row per table: what is pending, and for how many seconds the oldest has waited.

    It counts files, or messages of any table. The time is that in the file's name. A table without pending files
    is not late, however long its source has been idle. `problem` is why the state of a table is unknown, or that its
    load files changed; `cure` says what to do. `paused` is since when a table is paused; then nothing is counted.
    """
    rows, retention = [], stream_retention(book)
    book.catalog  # noqa: B018  if the lake cannot be read, that is no table's problem
    for spec in book.specs.values():
        row = {"table": spec.source, "pending": None, "lag_s": None, "problem": "", "cure": ""}
        try:
            _, row["pending"], row["lag_s"] = state_of(book, spec, retention, same_load=True)
        except UnreachableError:
            raise
        except PausedError as e:
            row["paused"] = e.note
        except FrazilError as e:
            row |= {"problem": e.problem, "cure": e.cure}
        rows.append(row)
    return rows


def fresh_now(book: Workbook, a: Analysis) -> list[dict[str, Any]]:
    """Return one row per table: how much is `pending`, the wait of the oldest, and the age of the newest change.

    It counts files, or messages of any table. A table for which nothing waits is fresh, however old its newest change
    is. Nothing is changed.
    """
    newest, at = a.slices.groupby("table")[["newest_ms", "committed_ms"]].max().to_dict("index"), time.time()

    def ago(table: str, column: str) -> float | None:
        ms = newest.get(table, {}).get(column, math.nan)
        return None if math.isnan(ms) else round(at - ms / 1000, 1)

    def look(spec: TableSpec) -> dict[str, Any]:
        base = read_table_state(book.spark, book.name(spec))
        count, waiting = pending_of(book, spec, base)
        return {
            "state": "paused" if base.paused else "late" if count else "fresh", "pending": count,
            "waiting_s": waiting if count or book.stream else None,
            "newest_change_ago_s": ago(spec.source, "newest_ms"), "last_commit_ago_s": ago(spec.source, "committed_ms"),
        }  # fmt: skip

    return [{"state": r.pop("action", "fresh"), **r} for r in book.row_per_table(look)]
