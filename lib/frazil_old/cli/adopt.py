"""`frazil adopt`: take over an Iceberg table that another pipeline has fed, at a position that the operator gives."""

from __future__ import annotations

import argparse

from frazil_old import exit_codes
from frazil_old.config.settings import resolve
from frazil_old.flows.adopt import adopt
from frazil_old.flows.workbook import Workbook


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--table", required=True, metavar="SCHEMA.TABLE", help="the source table")
    parser.add_argument(
        "--position",
        required=True,
        metavar="FILE",
        help="the last change file that the table holds, a time (UTC), or `load`: none",
    )


def main(options: argparse.Namespace) -> int:
    """Adopt the table and print where it continues."""
    book = Workbook(resolve("setup", {"env": options.env, "tables": [options.table]}).settings)
    print(adopt(book, options.table, options.position))
    return exit_codes.OK
