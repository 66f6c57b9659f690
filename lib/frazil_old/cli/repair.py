"""`frazil repair`: repair, without loss, what stops tables: a schema that others changed, or snapshots from the future."""

from __future__ import annotations

import argparse

from frazil_old import exit_codes
from frazil_old.config.settings import resolve
from frazil_old.flows.workbook import Workbook
from frazil_old.lake.clocks import retime
from frazil_old.lake.other_writers import restore_columns


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--table", metavar="SCHEMA.TABLE", help="the source table; left out: all of them, and Frazil's own"
    )


def main(options: argparse.Namespace) -> int:
    """Repair the tables and print what was done."""
    book = Workbook(resolve("setup", {"env": options.env, "tables": [options.table] if options.table else []}).settings)
    names = [book.name(s) for s in book.specs.values() if book.exists(s)]
    if not options.table:
        names += [
            n
            for table in ("commits", "maintenance", "quarantine")
            if book.spark.catalog.tableExists(n := book.ops(table))
        ]
    done = [line for name in names for mend in (restore_columns, retime) if (line := mend(book.spark, name))]
    print("\n".join(done) or "nothing to repair")
    return exit_codes.OK
