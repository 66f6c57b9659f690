"""Whether the lake is fresh now: what waits after each table's position, however quiet its source is."""

from __future__ import annotations

import time
from typing import Any

from frazil.config.spec import TableSpec
from frazil.flows.pending_work import pending_of
from frazil.flows.workbook import Workbook
from frazil.lake.tables import read_base
from frazil.report.latency import Analysis


def now(book: Workbook, a: Analysis) -> list[dict[str, Any]]:
    """Return one row per table: its waiting change files, the age of the oldest, and the age of the newest change.

    A table without waiting files is fresh, however old its newest change is. Nothing is changed.
    """
    newest = a.slices.groupby("table")[["newest_ms", "committed_ms"]].max() if a.count else None
    at = time.time()

    def ago(table: str, column: str) -> float | None:
        if newest is None or table not in newest.index or newest[column].isna()[table]:
            return None
        return round(float(at - newest[column][table] / 1000), 1)

    def look(spec: TableSpec) -> dict[str, Any]:
        base = read_base(book.spark, book.name(spec))
        count, waiting = pending_of(book, spec, base.position, record=base.record)
        return {
            "state": "behind" if count else "fresh", "pending_files": count,
            "waiting_s": waiting if count or book.stream else None,
            "newest_change_s_ago": ago(spec.source, "newest_ms"), "last_commit_s_ago": ago(spec.source, "committed_ms"),
        }  # fmt: skip

    return [{"state": r.pop("action", "fresh"), **r} for r in book.plan(look)]
