"""`frazil visible`: watch through PyIceberg when commits can be read, for the last stage of the latency notebook."""

from __future__ import annotations

import argparse
import threading
import time
from contextlib import nullcontext, suppress

from frazil_old.config.settings import resolve
from frazil_old.exit_codes import OK
from frazil_old.flows.interrupts import stop_requests
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for how long (until stopped)")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two looks (0.5)")


def main(options: argparse.Namespace) -> int:
    """Watch until time is up or a stop is requested."""
    book = Workbook(resolve("latency", {"env": options.env}).settings)
    with stop_requests(print) as stop:
        clock = threading.Timer(min(options.seconds, threading.TIMEOUT_MAX), stop.set)
        clock.daemon = True
        clock.start()
        print(f"{watch(book, stop, options.every)} commits seen")
    return OK


WRITE_S = 60.0


def watch(book: Workbook, stop: threading.Event, every_s: float = 0.5) -> int:
    """Read every table through PyIceberg until `stop` is set; return the number of commits seen.

    A commit is seen at most `every_s` plus one read after it became visible. Commits of the first read are not
    measured. Results are written to the ledger every minute and at the end; a kill loses at most that minute's, and
    duplicates nothing.
    """
    catalog = book.catalog
    known: dict[str, set[int]] = {}
    kept: list[tuple] = []
    written, count, last = time.monotonic(), 0, False
    while not last:
        last = stop.wait(every_s)
        for spec in book.specs.values():
            try:
                there = pyiceberg_catalog.seen(pyiceberg_catalog.get_table(catalog, spec.target))
            except pyiceberg_catalog.CatalogError:
                continue  # not created yet
            now = round(time.time() * 1000)
            new = there - known.get(spec.source, there)
            known[spec.source] = there | known.get(spec.source, set())
            kept += [(book.name(spec), snapshot, now, "pyiceberg") for snapshot in sorted(new)]
        if kept and (last or time.monotonic() - written > WRITE_S):
            written = time.monotonic()
            with nullcontext() if last else suppress(pyiceberg_catalog.CatalogError):  # then the next minute adds them
                pyiceberg_catalog.append(catalog, book.settings.ops_namespace, pyiceberg_catalog.VISIBLE, kept)
                count, kept = count + len(kept), []
    return count
