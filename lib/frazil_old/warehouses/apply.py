"""Make what a warehouse needs, and drop exactly that again. What was made is recorded in `runs/<env>/warehouses`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.connect import names_in, rows_of
from frazil_old.warehouses.family import LakeTable, Made, WarehouseError, family

MADE_EARLIER = "made earlier"


def parts(w: Warehouse, tables: Sequence[LakeTable]) -> dict[str, list[str]]:
    """Return all that the warehouse needs, in order: the steps of people, files, and statements by when they are run."""
    module = family(w)
    files = {f"file {name}": [f"{k}={v}" for k, v in found.items()] for name, found in module.files(w).items()}
    return {
        "by you": module.cloud_steps(w, tables), **files, "apply": [m.create for m in module.made(w, tables)],
        "after commits": [s for t in tables for s in module.refresh(w, t)],
        "read back": [s for t in tables if (s := module.read_back(w, t))],
    }  # fmt: skip


def shown(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return all that the warehouse needs as lines; those that are no statements and no entries of a file are comments."""
    lines = [f"-- {w.name}: {w.entries.engine}"]
    for what, found in parts(w, tables).items():
        if what == "by you":
            lines += [f"-- by you: {step}" for step in found]
        elif what.startswith("file "):
            lines += [f"-- {what}", *found]
        else:
            lines += [] if what == "apply" else [f"-- {what}: {'' if found else 'nothing to do'}".rstrip()]
            lines += [f"{statement};" for statement in found]
    return lines


@dataclass
class Record:
    """The file with what Frazil made in one warehouse, oldest first."""

    file: Path

    def read(self) -> list[Made]:
        """Return what was made."""
        try:
            return [Made(**m) for m in json.loads(self.file.read_text(encoding="utf-8"))] if self.file.exists() else []
        except (TypeError, ValueError):
            cure = "restore it; or remove it: then undo leaves what was made, and you drop it in the warehouse"
            raise WarehouseError(f"{self.file} is damaged", cure) from None

    @property
    def tables(self) -> set[str]:
        """The source tables for which something was made."""
        return {m.table for m in self.read()}

    def write(self, made: Sequence[Made]) -> None:
        """Replace the file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps([asdict(m) for m in made], indent=1), encoding="utf-8")
        new.replace(self.file)


def record_of(w: Warehouse, folder: Path) -> Record:
    """Return the record of a warehouse in the run folder of its environment."""
    return Record(folder / "warehouses" / f"{w.prefix}.json")


def apply(
    w: Warehouse, tables: Sequence[LakeTable], connection: Any, record: Record, say: Callable[[Made, str], None]
) -> None:
    """Make what is missing, in order, and say of each object whether it was there. It may be repeated.

    An object is recorded before its statement runs, so that `undo` also drops it after a kill.
    """
    for m in family(w).made(w, tables):
        before = record.read()
        if m.name.lower() in names_in(w, connection, m.find):
            ours = any(b.drop == m.drop for b in before)
            say(m, MADE_EARLIER if ours else "was there, stays after undo")
            continue
        record.write([*(b for b in before if b.drop != m.drop), m])
        try:
            rows_of(w, connection, m.create)
        except WarehouseError:
            if m.name.lower() not in names_in(w, connection, m.find):
                record.write(before)
            raise
        say(m, "made")


def undo(
    w: Warehouse, connection: Any, record: Record, say: Callable[[Made, str], None], only: Sequence[str] = ()
) -> bool:
    """Drop what `apply` made, newest first; with `only` what it made for these source tables alone.

    Return whether all of it is gone: an object that the warehouse does not drop stays recorded, and the others go.
    """
    gone = True
    for m in reversed(record.read()):
        if only and m.table not in only:
            continue
        try:
            rows_of(w, connection, m.drop)
        except WarehouseError as e:
            say(m, f"stays: {e.problem}")
            gone = False
            continue
        record.write([b for b in record.read() if b.drop != m.drop])
        say(m, "dropped")
    return gone
