"""`frazil plan`: what a run would do to each table, and what needs a decision first. Nothing is changed."""

from __future__ import annotations

import argparse
import sys

from frazil.cli.hooks import call_hooks
from frazil.config.query_engines import explained
from frazil.config.settings import resolve
from frazil.flows import pending_work
from frazil.flows.plan import DecisionNeededError, plan, require_no_decision
from frazil.flows.workbook import Workbook
from frazil.report import runs
from frazil.report.notebook_output import Grid, shared


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--strict", action="store_true", help="end with an error if a table needs a decision")


def main(options: argparse.Namespace) -> int:
    """Print the plan; with --strict return `runs.DECISION` if a table needs a decision."""
    loads, book = (Workbook(resolve(n, {"env": options.env}).settings) for n in ("full_load", "cdc_merge"))
    rows = plan(book, loads.settings.on_changed_load, loads)
    short = ("notes", "impossible", "decision")
    names = [k for k in max(rows, key=len, default={}) if k not in short]  # a table that stops has few of them
    print(Grid([{k: row.get(k, "") for k in names} for row in rows]))
    for word in short:
        for text, tables in shared(rows, word).items():
            print(f"{', '.join(tables)}: {word}: {text}")
    print("\n".join(explained(book.query_engines)))
    for table in pending_work.without_spec(book):
        print(f"{table}: {pending_work.NO_SPEC}")
    if trouble := runs.unusable(book.folder):
        print(f"runs: {trouble}; no run could be stored", file=sys.stderr)
        operate = resolve("operate", {"env": options.env}).settings
        call_hooks(operate, {"env": options.env, "outcome": "planned", "trouble": trouble})
    try:
        require_no_decision(rows)
    except DecisionNeededError as e:
        print(e.problem.splitlines()[0], file=sys.stderr)
        return runs.DECISION if options.strict else runs.OK
    return runs.OK
