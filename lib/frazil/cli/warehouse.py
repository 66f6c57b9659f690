"""`frazil warehouse`: show, make, and drop again what the declared warehouses need to read the tables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from frazil.config.settings import ParameterError, resolve
from frazil.config.warehouses import Warehouse, declared
from frazil.errors import nearest
from frazil.flows.workbook import Workbook
from frazil.lake import pyiceberg_catalog
from frazil.report import runs
from frazil.warehouses.apply import apply, record_of, shown, undo
from frazil.warehouses.connect import connected
from frazil.warehouses.family import LakeTable, WarehouseError, family


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "action", choices=("show", "apply", "undo"), help="print statements, run them, drop what they made"
    )
    parser.add_argument("--warehouse", metavar="NAME", help="only this one of the section `warehouses`")
    parser.add_argument("--table", metavar="SCHEMA.TABLE", action="append", default=[], help="only this source table")


def main(options: argparse.Namespace) -> int:
    """Carry out the action for each declared warehouse; return an exit code."""
    book = Workbook(resolve("operate", {"env": options.env, "tables": options.table}).settings)
    code = runs.OK
    for w in _chosen(book, options.warehouse):
        tables = tables_of(book, w)
        if options.action == "show":
            print("\n".join(shown(w, tables)))
        elif not family(w).DRIVER:
            print(f"{w.name}: {w.entries.engine} is a library: nothing to {options.action}")
        elif not _change(book, w, tables, options):
            code = runs.FAILED
    return code


def _change(book: Workbook, w: Warehouse, tables: Sequence[LakeTable], options: argparse.Namespace) -> bool:
    def say(text: str) -> None:
        print(f"{w.name}: {text}")

    record, connection = record_of(w, book.folder), connected(w)
    try:
        if options.action == "undo":
            return undo(w, connection, record, say, options.table)
        apply(w, tables, connection, record, say)
        return True
    finally:
        connection.close()


def _chosen(book: Workbook, name: str | None) -> list[Warehouse]:
    found = declared(book.settings)
    if not found:
        raise ParameterError(
            f"params/{book.settings.env}.yml declares no warehouse", "add a section `warehouses`, see params/README.md"
        )
    if name and name not in found:
        raise ParameterError(f"no warehouse '{name}'", nearest(name, found))
    return [w for n, w in found.items() if name in (None, n)]


def tables_of(book: Workbook, w: Warehouse) -> list[LakeTable]:
    """Return the tables that a warehouse reads; with their metadata files if it is bound to these."""
    specs = [s for s in book.specs.values() if not s.problem and w.reads(s.source)]
    if not specs:
        raise WarehouseError(f"warehouse '{w.name}' reads none of the tables", "correct its entry `tables`")
    if not getattr(family(w), "PINNED", False) or w.entries.account:
        return [LakeTable(s.source, s.target) for s in specs]
    catalog = pyiceberg_catalog.open_catalog(book.settings)
    return [
        LakeTable(s.source, s.target, pyiceberg_catalog.get_table(catalog, s.target).metadata_location) for s in specs
    ]
