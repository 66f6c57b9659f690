"""`frazil down`: list what an environment has created, then delete exactly what was listed."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old import exit_codes
from frazil_old.config.paths import without_scheme
from frazil_old.config.settings import Settings, resolve
from frazil_old.config.warehouses import declared
from frazil_old.dms.position import POSITION
from frazil_old.dms.storage import is_s3, location, remove, walk
from frazil_old.errors import FrazilError, many
from frazil_old.flows import quarantine_counts
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.lake.row_delta_self_test import PREFIX
from frazil_old.lake.tables import ADOPTED
from frazil_old.report import runs
from frazil_old.warehouses.apply import record_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


class DownError(FrazilError):
    """What exists now differs from the deletion list, or nothing was listed."""


@dataclass(frozen=True)
class Listed:
    """What would be deleted: tables by name with their metadata file, every file below them, namespaces, run folders."""

    tables: dict[str, str]
    files: list[str]
    namespaces: list[str]
    folders: list[str]

    def __str__(self) -> str:
        return f"{many(self.tables, 'table')}, {many(self.files, 'file')}, {many(self.namespaces, 'namespace')}, {many(self.folders, 'folder')} of runs"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--yes", action="store_true", help="delete what the last `frazil down` without it has listed")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    parser.set_defaults(table="")


def main(options: argparse.Namespace) -> int:
    """Without `--yes`, list and store the list; with it, delete what is listed, if nothing has changed since."""
    tables = [options.table] if options.table else []
    settings = resolve("setup", {"env": options.env, "tables": tables}).settings
    book = Workbook(settings, lambda text: None)
    command = f"table drop {shlex.quote(options.table)}" if tables else "down"
    again = f"frazil {command} --env {options.env}"
    kept = book.folder / f"down{'.' + hashlib.sha256(options.table.encode()).hexdigest()[:8] if tables else ''}.json"
    now, left = one_table(book) if tables else listed(book)
    facts = json.dumps({"env": options.env, "deleted": options.yes, **asdict(now), "left": left})
    listing = json.dumps(asdict(now)).encode()
    if not options.yes:
        kept.write_bytes(listing)
        if options.json:
            print(facts)
        else:
            _print(now, left, again)
        return exit_codes.OK if now.tables or now.folders else exit_codes.NOTHING
    if not kept.exists():
        raise DownError("nothing was listed yet", f"run {again} first and read what it lists")
    if kept.read_bytes() != listing:
        raise DownError("what exists is no longer what was listed", "stop what writes to the lake, and list again")
    delete(settings, now)
    kept.unlink()
    if not tables:
        runs.write_index(book.folder)
    print(facts if options.json else f"deleted {now}")
    return exit_codes.OK


def _print(now: Listed, left: list[str], again: str) -> None:
    """Print what would be deleted and what not."""
    for table in now.tables:
        print(f"table {table}")
    for namespace in now.namespaces:
        print(f"namespace {namespace}")
    for path in [*now.files, *now.folders]:
        print(path)
    for line in left:
        print(f"not deleted: {line}")
    print(f"{now}: nothing is deleted yet;")
    print(f"  {again} --yes deletes exactly these")


def listed(book: Workbook) -> tuple[Listed, list[str]]:
    """List what the environment has created; also return what is not deleted, with reasons.

    The list has the tables of its specs that Frazil created, and its own tables in `ops` unless they have rows about
    other tables. It includes all files below these, and the remains of killed self-tests. It also has the namespaces
    that Frazil created and that are then empty, run folders, key indexes and charts.
    """
    own = {f"{book.settings.ops_namespace}.{name}": column for name, column in pyiceberg_catalog.OPS.items()}
    tables, files, left, catalog = _tables(book, own)
    for target, table in pyiceberg_catalog.scratch(catalog, _spaces(book)) if catalog else ():
        tables[target] = table.metadata_location
        files += [e.path for e in walk(_place(table))]
    if (book.folder / "warehouses").is_dir():
        left.append(f"what warehouses have: frazil warehouse undo --env {book.settings.env} drops it")
    known = set(files)
    places = [p for p in _folders(book) if "://" not in p or is_s3(p)]
    # Killed self-tests may leave files without a table in the catalog.
    files += [e.path for place in places for e in walk(place, prefix=PREFIX) if e.path not in known]
    spaces = sorted({t.rpartition(".")[0] for t in tables})
    namespaces = [n for n in spaces if pyiceberg_catalog.made_by_us(catalog, n, tables)]
    folders = sorted(str(r["folder"]) for r in runs.read(book.folder) if r["outcome"] != "running")
    folders += [str(f) for f in [book.folder / "index", book.folder / "charts"] if f.is_dir()]
    folders += sorted(str(f) for space in _folders(book) for f in Path(space).glob(f"{PREFIX}*") if "://" not in space)
    return Listed(tables, files, namespaces, folders), left


def one_table(book: Workbook) -> tuple[Listed, list[str]]:
    """List the table of the book's single spec with its files; also return what is not deleted."""
    tables, files, left, _ = _tables(book, {})
    rows = quarantine_counts.waiting_of(book, quarantine_counts.known_records(book.settings) or [])
    if tables and (waiting := sum(rows.get(s, 0) for s in book.specs)):
        left.append(
            f"{many(waiting, 'row')} waiting in the quarantine: 02_cdc_merge with quarantine=discard discards them"
        )
    return Listed(tables, files, [], []), [*left, *_in_warehouses(book)]


def _in_warehouses(book: Workbook) -> Iterator[str]:
    """Yield what warehouses have of the tables of the book's specs, with the command that drops it."""
    for w in declared(book.settings).values():
        made = record_of(w, book.folder).tables
        for source in sorted(made.intersection(book.specs)):
            drops = f"frazil warehouse undo --env {w.env} --warehouse {w.name} --table {shlex.quote(source)}"
            yield f"what warehouse {w.name} has of it: {drops} drops it"


def _tables(book: Workbook, own: dict[str, str]) -> tuple[dict[str, str], list[str], list[str], Catalog | None]:
    """Return the tables to delete with their metadata files, all their files, what is kept and why, and the catalog."""
    tables, files, left = {}, [], []
    try:
        catalog = book.catalog
    except pyiceberg_catalog.CatalogError as e:
        catalog, left = None, [f"tables: {e.problem}"]
    for target in [*(s.target for s in book.specs.values() if not s.problem), *own] if catalog else ():
        try:
            table = pyiceberg_catalog.get_table(catalog, target)
        except pyiceberg_catalog.CatalogError:
            continue
        if why := _foreign_to(book, table, own.get(target)):
            left.append(f"table {target}: {why}")
        else:
            tables[target] = table.metadata_location
            files += [e.path for e in walk(_place(table))]
    return tables, files, left, catalog


def _spaces(book: Workbook) -> list[str]:
    return sorted({s.target.rpartition(".")[0] for s in book.specs.values()})


def _folders(book: Workbook) -> list[str]:
    """Return the folders of the specs' namespaces in the warehouse."""
    warehouse = book.settings.catalog_options.get("warehouse", "").rstrip("/")
    place = warehouse if "://" in warehouse else str(Path(book.settings.root) / warehouse)
    return [f"{place}/{space.replace('.', '/')}" for space in _spaces(book)] if warehouse else []


def _foreign_to(book: Workbook, table: Table, column: str | None) -> str:
    """Return why a table does not belong to this environment; empty if it does.

    `column`: the column of tables' names, for a table of `ops`.
    """
    properties = table.metadata.properties
    if column is None:
        return "" if POSITION in properties and ADOPTED not in properties else "Frazil did not create it"
    if column not in table.schema().column_names:
        return "Frazil did not create it"
    ours = {name for s in book.specs.values() for name in (s.source, s.target, book.name(s))}
    ours |= {None} if book.stream else set()  # messages that name no table
    others = pyiceberg_catalog.tells_of(table, column) - ours
    return (
        f"it also has rows about {', '.join(sorted(o or quarantine_counts.NO_TABLE for o in others)[:3])}"
        if others
        else ""
    )


def _place(table: Table) -> str:
    """Return a table's folder in the spelling of `walk`."""
    return location(without_scheme(table.location()))


def delete(settings: Settings, what: Listed) -> None:
    """Drop tables and namespaces from the catalog, and delete the files, empty folders and run folders."""
    catalog = pyiceberg_catalog.open_catalog(settings) if what.tables else None
    for target in what.tables:
        table = pyiceberg_catalog.get_table(catalog, target)
        place = _place(table)
        catalog.drop_table(target)
        remove([f for f in what.files if f.startswith(f"{place}/")])
        if "://" not in place:
            for folder in sorted((p for p in Path(place).rglob("*") if p.is_dir()), reverse=True):
                folder.rmdir()
            Path(place).rmdir()
    remove([f for f in what.files if is_s3(f) or Path(f).exists()])  # of self-tests whose table is not in the catalog
    for namespace in what.namespaces:
        catalog.drop_namespace(namespace)
    for folder in what.folders:
        shutil.rmtree(folder, ignore_errors=PREFIX in folder)  # it may be deleted already, with its table
