"""`frazil warehouse`: set up the declared warehouses, refresh them, read back what they serve, and remove them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from frazil_old import exit_codes
from frazil_old.config.settings import ParameterError, resolve
from frazil_old.config.warehouses import Warehouse, declared
from frazil_old.errors import FrazilError, nearest
from frazil_old.flows import warehouses
from frazil_old.flows.workbook import Workbook
from frazil_old.warehouses.apply import apply, record_of, shown, undo
from frazil_old.warehouses.connect import connected
from frazil_old.warehouses.family import LakeTable, Made, family


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    text = "print statements, run them, refresh now, read back what is served, drop what `apply` made"
    parser.add_argument("action", choices=("show", "apply", "refresh", "check", "undo"), help=text)
    parser.add_argument("--warehouse", metavar="NAME", help="only this one of the section `warehouses`")
    parser.add_argument("--table", metavar="SCHEMA.TABLE", action="append", default=[], help="only this source table")


def main(options: argparse.Namespace) -> int:
    """Carry out the action for each declared warehouse; return an exit code."""
    book = Workbook(resolve("operate", {"env": options.env, "tables": options.table}).settings)
    return max(_attempt(book, w, options) for w in _chosen(book, options.warehouse))


def _attempt(book: Workbook, w: Warehouse, options: argparse.Namespace) -> int:
    """Carry out the action for a warehouse and return the exit code; an error is printed, so that the others are done."""
    try:
        return _carry_out(book, w, options)
    except FrazilError as e:
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
        return exit_codes.FAILED


def _carry_out(book: Workbook, w: Warehouse, options: argparse.Namespace) -> int:
    action = options.action
    if action != "show" and not family(w).DRIVER:
        print(f"{w.name}: {w.entries.engine} is a library: nothing to {action}")
        return exit_codes.OK
    if action == "undo":  # the lake may be gone by then
        return _undo(book, w, options.table)
    tables = warehouses.tables_of(book, w)
    has_all = len(tables) == len(warehouses.specs_of(book, w))
    if action == "show":
        print("\n".join(shown(w, tables)))
    elif action == "apply":
        with closing(connected(w)) as connection:
            apply(w, tables, connection, record_of(w, book.folder), _told_by(w))
        return exit_codes.OK if has_all else exit_codes.FAILED
    elif not _all_served(book, w, tables, action == "refresh") or not has_all:
        return exit_codes.BREACH
    return exit_codes.OK


def _all_served(book: Workbook, w: Warehouse, tables: Sequence[LakeTable], refresh: bool) -> bool:
    """Print and record what a warehouse serves of each table; return whether none is late or unreachable."""
    found = warehouses.look_at(book, w, tables, refresh)
    for seen in found:
        print(f"{w.name}: {seen.table}: {seen.status}" + (f": {seen.why}" if seen.why else ""))
    return len(found) == len(tables) and all(seen.status in ("served", "unknown") for seen in found)


def _undo(book: Workbook, w: Warehouse, only: Sequence[str]) -> int:
    record = record_of(w, book.folder)
    for table in sorted(set(only) - record.tables):
        print(f"{w.name}: nothing was made for {table}")
    with closing(connected(w)) as connection:
        return exit_codes.OK if undo(w, connection, record, _told_by(w), only) else exit_codes.FAILED


def _told_by(w: Warehouse) -> Callable[[Made, str], None]:
    return lambda m, what: print(f"{w.name}: {m.what} {m.name}: {what}")


def _chosen(book: Workbook, name: str | None) -> list[Warehouse]:
    found = declared(book.settings)
    if not found:
        raise ParameterError(
            f"params/{book.settings.env}.yml declares no warehouse", "add a section `warehouses`, see params/README.md"
        )
    if name and name not in found:
        raise ParameterError(f"no warehouse '{name}'", nearest(name, found))
    return [w for n, w in found.items() if name in (None, n)]
