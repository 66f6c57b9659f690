"""`frazil visible`: watch through PyIceberg when commits can be read, for the last stage of the latency notebook."""

from __future__ import annotations

import argparse
import threading

from frazil.config.settings import resolve
from frazil.flows import visibility
from frazil.flows.interrupts import stop_requests
from frazil.flows.workbook import Workbook
from frazil.report.runs import OK


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
        print(f"{visibility.watch(book, stop, options.every)} commits seen")
    return OK
