"""`frazil runs`: the last runs of an environment and how they ended, in the terminal and as a page."""

from __future__ import annotations

import argparse
import contextlib
import json
import time

from frazil.config.private_files import open_runs
from frazil.config.settings import resolve
from frazil.report import runs
from frazil.report.notebook_output import Grid


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--last", type=int, default=20, metavar="N", help="how many runs; default: 20")
    parser.add_argument("--json", action="store_true", help="print all that is known about them, as JSON")


def main(options: argparse.Namespace) -> int:
    """Print the runs, the newest first, and write their page again; return `runs.NOTHING` if there are none."""
    folder = open_runs(resolve("operate", {"env": options.env}).settings)
    found = runs.read(folder)[: options.last]
    with contextlib.suppress(OSError):  # who may only read sees them all the same
        runs.write_index(folder)
    if options.json:
        print(json.dumps(found, default=str))
    else:
        print(Grid([_row(run) for run in found]))
    return runs.OK if found else runs.NOTHING


def _row(run: dict) -> dict:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(run["began"]))
    return {
        "began": began,
        "notebook": run["notebook"],
        "outcome": run["outcome"],
        "s": run.get("seconds"),
        "rows": run.get("rows"),
    }
