"""Measure the last stage of a change: when an engine other than Spark sees the commits."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

from frazil.flows.workbook import Workbook
from frazil.lake import pyiceberg_catalog

WRITE_S = 60.0


def watch(book: Workbook, stop: threading.Event, every_s: float = 0.5) -> int:
    """Read every table through PyIceberg until `stop` is set; return the number of commits seen.

    A commit is seen at most `every_s` plus one read after it became visible. Commits of the first read are not
    measured. Results are written to the ledger every minute and at the end; a kill loses at most that minute's, and
    duplicates nothing.
    """
    catalog = pyiceberg_catalog.open_catalog(book.settings)
    known: dict[str, set[int]] = {}
    kept: list[dict[str, Any]] = []
    written, count, last = time.monotonic(), 0, False
    while not last:
        last = stop.wait(every_s)
        for spec in book.specs.values():
            try:
                there = pyiceberg_catalog.seen(pyiceberg_catalog.get_table(catalog, spec.target))
            except pyiceberg_catalog.CatalogError:
                continue  # not created yet
            now = datetime.now(UTC)
            new = there - known.get(spec.source, there)
            known[spec.source] = there | known.get(spec.source, set())
            kept += [
                {"name": book.name(spec), "snapshot_id": s, "seen_at": now, "engine": "pyiceberg"} for s in sorted(new)
            ]
        if kept and (last or time.monotonic() - written > WRITE_S):
            pyiceberg_catalog.append_seen(catalog, book.settings.ops_namespace, kept)
            written, count, kept = time.monotonic(), count + len(kept), []
    return count
