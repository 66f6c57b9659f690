"""`frazil down`: list what an environment has made, and then delete exactly what was listed."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from frazil.config.settings import Settings, resolve
from frazil.dms.storage import walk
from frazil.errors import FrazilError
from frazil.flows.workbook import Workbook
from frazil.lake import lookup
from frazil.lake.tables import POSITION
from frazil.observe import runs


class DownError(FrazilError):
    """What was listed for deletion is not what lies there now, or nothing was listed."""


@dataclass(frozen=True)
class Listed:
    """What would be deleted: tables by name with their metadata file, every file below them, run folders."""

    tables: dict[str, str]
    files: list[str]
    folders: list[str]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--yes", action="store_true", help="delete what the last `frazil down` without it has listed")


def main(options: argparse.Namespace) -> int:
    """Without `--yes` list and keep the list; with it delete what stands there, if nothing has changed since."""
    settings = resolve("setup", {"env": options.env}).settings
    book = Workbook(settings, lambda text: None)
    kept, now = book.folder / "down.json", listed(book)
    if not options.yes:
        for table in now.tables:
            print(f"table {table}")
        for path in [*now.files, *now.folders]:
            print(path)
        print(
            f"{len(now.tables)} table(s), {len(now.files)} file(s), {len(now.folders)} run folder(s): nothing is deleted yet;"
        )
        print(f"  frazil down --env {options.env} --yes deletes exactly these")
        kept.write_text(json.dumps(asdict(now)), encoding="utf-8")
        return runs.OK if now.tables or now.folders else runs.NOTHING
    if not kept.exists():
        raise DownError("nothing was listed yet", f"run frazil down --env {options.env} first and read what it lists")
    if json.loads(kept.read_text(encoding="utf-8")) != asdict(now):
        raise DownError("what lies there is no longer what was listed", "stop what writes there, and list again")
    delete(settings, now)
    kept.unlink()
    runs.write_index(book.folder)
    print(f"deleted {len(now.tables)} table(s), {len(now.files)} file(s), {len(now.folders)} run folder(s)")
    return runs.OK


def listed(book: Workbook) -> Listed:
    """List the tables of the specs that carry Frazil's position, with all files below them, and the run folders."""
    tables, files = {}, []
    try:
        catalog = lookup.open_catalog(book.settings)
    except lookup.CatalogError:
        catalog = None
    for spec in book.specs.values() if catalog else ():
        try:
            table = lookup.get_table(catalog, spec.target)
        except lookup.CatalogError:
            continue
        if POSITION in table.metadata.properties:
            tables[spec.target] = table.metadata_location
            files += [e.path for e in walk(table.location().removeprefix("file:"))]
    folders = sorted(str(r["folder"]) for r in runs.read(book.folder) if r["outcome"] != "running")
    return Listed(tables, files, folders)


def delete(settings: Settings, what: Listed) -> None:
    """Drop the tables from the catalog, then delete the files, empty folders among them, and the run folders."""
    catalog = lookup.open_catalog(settings) if what.tables else None
    for target in what.tables:
        table = lookup.get_table(catalog, target)
        place, root = table.location().removeprefix("file:"), table.location()
        catalog.drop_table(target)
        for file in [f for f in what.files if f.startswith(f"{place}/")]:
            table.io.delete(root + file[len(place) :])
        if "://" not in place:
            for folder in sorted((p for p in Path(place).rglob("*") if p.is_dir()), reverse=True):
                folder.rmdir()
            Path(place).rmdir()
    for folder in what.folders:
        shutil.rmtree(folder)
