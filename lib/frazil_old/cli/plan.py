"""`frazil plan`: what a run would do to each table, and what needs a decision first. Nothing is changed."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from frazil_old import exit_codes
from frazil_old.cli.hooks import call_hooks
from frazil_old.cli.terminal import cut, wrapped
from frazil_old.config.query_engines import explained
from frazil_old.config.settings import resolve
from frazil_old.errors import grouped
from frazil_old.flows import folders_without_spec
from frazil_old.flows.plan import DecisionNeededError, plan, require_no_decision
from frazil_old.flows.workbook import Workbook
from frazil_old.report import notebook_output, runs
from frazil_old.report.notebook_output import Grid

REMARKS = ("decision", "impossible", "notes")
"""Columns of the plan that are printed below the table, each text once."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--strict", action="store_true", help="end with an error if a table needs a decision")
    parser.add_argument("--tables", nargs="+", default=[], metavar="SCHEMA.TABLE", help="only these source tables")
    parser.add_argument("--wide", action="store_true", help="show all columns, in lines as long as they are")
    parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")


def main(options: argparse.Namespace) -> int:
    """Print the plan; with --strict return `exit_codes.DECISION` if a table needs a decision."""
    given = {"env": options.env, **({"tables": options.tables} if options.tables else {})}
    loads, book = (Workbook(resolve(n, given).settings) for n in ("full_load", "cdc_merge"))
    rows = plan(book, loads.settings.on_changed_load, loads)
    without = [] if options.tables else folders_without_spec.without_spec(book)
    if options.json:
        print(json.dumps({"env": options.env, "tables": rows, "without_spec": list(without)}, default=str))
    else:
        _print(rows, options.wide)
        print("\n".join(explained(book.query_engines)))
        for table in without:
            print(f"{table}: {folders_without_spec.NO_SPEC}")
    if trouble := runs.unusable(book.folder):
        print(f"runs: {trouble}; no run could be stored", file=sys.stderr)
        operate = resolve("operate", {"env": options.env}).settings
        call_hooks(operate, {"env": options.env, "outcome": "planned", "trouble": trouble})
    try:
        require_no_decision(rows)
    except DecisionNeededError as e:
        print(e.problem.splitlines()[0], file=sys.stderr)
        return exit_codes.DECISION if options.strict else exit_codes.OK
    return exit_codes.OK


def _print(rows: list[dict[str, Any]], wide: bool) -> None:
    """Print the verdict, a line per table, and each remark once with its tables."""
    print(repr(notebook_output.plan(rows)).splitlines()[0])
    if wide:
        names = [k for k in max(rows, key=len, default={}) if k not in REMARKS]  # a table that stops has few of them
        print(Grid([{k: row.get(k, "") for k in names} for row in rows]))
    else:
        print(Grid([_short(row) for row in rows]))
    for word in REMARKS if wide else (*REMARKS, "schema"):
        for text, tables in grouped(notebook_output.remarks(rows, word)).items():
            line = f"{', '.join(tables)}: {word}: {text}"
            print(line if wide else "\n".join(wrapped(line, more="  ")))


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Return the cells that fit a terminal; seconds are an estimate."""
    files = (row.get("load") or 0) + (row.get("changes") or 0)
    cells = {"table": cut(row["table"], 26), "action": cut(str(row.get("action", "")), 28)}
    return {**cells, "pending": files, "mb": round(row.get("mb") or 0, 1), "about_s": row.get("about_s")}
