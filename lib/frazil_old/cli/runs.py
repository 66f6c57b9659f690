"""`frazil runs`: the last runs of an environment and how they ended, in the terminal and as a page."""

from __future__ import annotations

import argparse
import contextlib
import json

from frazil_old import exit_codes
from frazil_old.config.private_files import open_runs
from frazil_old.config.settings import resolve
from frazil_old.config.timestamps import clock
from frazil_old.report import runs
from frazil_old.report.notebook_output import Grid


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--last", type=int, default=20, metavar="N", help="how many runs; default: 20")
    parser.add_argument("--json", action="store_true", help="print all that is known about them, as JSON")


def main(options: argparse.Namespace) -> int:
    """Print the runs, the newest first, and write their page again; return `exit_codes.NOTHING` if there are none."""
    folder = open_runs(resolve("operate", {"env": options.env}).settings)
    found = runs.read(folder)[: options.last]
    with contextlib.suppress(OSError):  # who may only read sees them all the same
        runs.write_index(folder)
    if options.json:
        print(json.dumps(found, default=str))
    else:
        shown = [{"rows": None, **r, "began": clock(r["began"] * 1000)[:19], "s": r.get("seconds")} for r in found]
        print(Grid(shown, "began", "notebook", "outcome", "s", "rows"))
    return exit_codes.OK if found else exit_codes.NOTHING
