"""`frazil table`: pause, resume, reload or drop one table."""

from __future__ import annotations

import argparse
import json
import shlex

from frazil_old import exit_codes
from frazil_old.cli import down, run
from frazil_old.config.settings import resolve
from frazil_old.errors import many
from frazil_old.flows.plan import plan
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, table_pause
from frazil_old.lake.tables import TableError

ACTIONS = {
    "pause": "apply nothing to the table until it is resumed; its rows stay readable, and nothing is lost",
    "resume": "let the next run apply what has come since",
    "reload": "show what a new load of DMS would replace; with --yes replace the rows",
    "drop": "list the table's files in the lake; with --yes delete them",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=ACTIONS, help="; ".join(f"{name}: {text}" for name, text in ACTIONS.items()))
    parser.add_argument("table", metavar="SCHEMA.TABLE", help="the source table")
    parser.add_argument("--why", default="", help="pause: the reason, which plan, runs and checks then show")
    parser.add_argument("--yes", action="store_true", help="reload, drop: do what they show without it")


def main(options: argparse.Namespace) -> int:
    """Carry out one action for one table and return its exit code."""
    return {"pause": _pause, "resume": _resume, "reload": _reload, "drop": _drop}[options.action](options)


def _table(options: argparse.Namespace) -> jvm.JavaTable:
    """Return the table in the lake; raise TableError if it does not exist."""
    book = Workbook(resolve("setup", {"env": options.env, "tables": [options.table]}).settings)
    spec = book.specs[options.table]
    if not book.exists(spec):
        raise TableError(
            f"{book.name(spec)} does not exist", "leave it out of runs with parameter tables, or create it"
        )
    return jvm.load_table(book.spark, book.name(spec))


def _pause(options: argparse.Namespace) -> int:
    since = table_pause.pause(_table(options), options.why)
    print(f"{options.table}: paused {since}")
    print("a batch in progress is still committed; keep DMS's files, and a stream's messages, until it is resumed")
    return exit_codes.OK


def _resume(options: argparse.Namespace) -> int:
    before = table_pause.resume(_table(options))
    print(f"{options.table}: was paused {before}; the next run continues" if before else "it is not paused")
    return exit_codes.OK if before else exit_codes.NOTHING


def _reload(options: argparse.Namespace) -> int:
    """Show the plan of a reload; with --yes run 01_full_load for the table."""
    parameters = [["tables", json.dumps([options.table])], ["on_changed_load", "reload"]]
    if options.yes:
        return run.main(
            argparse.Namespace(
                notebook="01_full_load", env=options.env, p=parameters, timeout=None, idle_ok=False, follow=True
            )
        )
    book = Workbook(resolve("full_load", {"env": options.env, "tables": [options.table]}).settings)
    (row,) = plan(book, "reload")
    print(f"{options.table}: {row['decision'] or row['action']}")
    if "reload" in row["action"] or book.stream:
        print(
            f"the new load replaces all rows, in one commit: {many(row['load'], 'file') if row.get('load') else 'its files'}, {row.get('mb', 0):g} MB"
        )
        print(f"  frazil table reload {shlex.quote(options.table)} --env {options.env} --yes")
        return exit_codes.OK
    print("DMS has written no new load of it; this has DMS do so:")
    print(f"  {_dms_command(options)}")
    return exit_codes.NOTHING


def _dms_command(options: argparse.Namespace) -> str:
    """Return the command by which DMS loads the table again."""
    task = resolve("aws", {"env": options.env}).settings.replication_task or "TASK_ARN"
    schema, _, name = options.table.partition(".")
    loaded = shlex.quote(f"SchemaName={schema},TableName={name}")
    return f"aws dms reload-tables --replication-task-arn {task} --tables-to-reload {loaded}"


def _drop(options: argparse.Namespace) -> int:
    return down.main(argparse.Namespace(env=options.env, table=options.table, yes=options.yes, json=False))
