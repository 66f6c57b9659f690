"""The last stage of a change's way, measured: when an engine that is not Spark sees the commits."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

from frazil.flows.workbook import Workbook
from frazil.lake import lookup

WRITE_S = 60.0


def watch(book: Workbook, stop: threading.Event, every_s: float = 0.5) -> int:
    """Look at every table through PyIceberg until `stop` is set, write into the ledger when each commit was seen; return how many.

    A commit is seen at most `every_s` and one look after it could be: that is the error. What is there at the first look is
    not measured. What was seen is written every minute and at the end; a kill loses that minute's, and doubles nothing.
    """
    catalog = lookup.open_catalog(book.settings)
    known: dict[str, set[int]] = {}
    kept: list[dict[str, Any]] = []
    written, count, last = time.monotonic(), 0, False
    while not last:
        last = stop.wait(every_s)
        for spec in book.specs.values():
            try:
                there = lookup.seen(lookup.get_table(catalog, spec.target))
            except lookup.CatalogError:
                continue  # not created yet
            now = datetime.now(UTC)
            new = there - known.get(spec.source, there)
            known[spec.source] = there | known.get(spec.source, set())
            kept += [
                {"name": book.name(spec), "snapshot_id": s, "seen_at": now, "engine": "pyiceberg"} for s in sorted(new)
            ]
        if kept and (last or time.monotonic() - written > WRITE_S):
            lookup.append_seen(catalog, book.settings.ops, kept)
            written, count, kept = time.monotonic(), count + len(kept), []
    return count
