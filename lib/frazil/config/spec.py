"""A table spec: what one source table is called, how its columns are typed, and what its key is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from frazil.errors import FrazilError, nearest

TYPES = {
    "BOOLEAN", "INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4", "UINT8", "NUMERIC", "REAL4", "REAL8",
    "STRING", "WSTRING", "CLOB", "NCLOB", "BYTES", "BLOB", "DATE", "TIME", "DATETIME",
}  # fmt: skip


class SpecError(FrazilError):
    """A table spec that cannot be right: correct the file that the message names."""


@dataclass(frozen=True)
class Column:
    """A source column, typed by the DMS data type of the source endpoint (dms type names, any case)."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""
    utc: bool = False
    """DATETIME only: the values are instants in UTC (`timestamp`), not wall-clock times (`timestamp_ntz`)."""

    @property
    def dms_type(self) -> str:
        """The type's bare name, upper case: `NUMERIC` for `numeric(12,2)`."""
        return self.type.split("(")[0].strip().upper()

    @property
    def arguments(self) -> tuple[int, ...]:
        """The numbers between the type's brackets: `(12, 2)` for `numeric(12,2)`."""
        inside = re.search(r"\(([^)]*)\)", self.type)
        return tuple(int(x) for x in inside.group(1).split(",")) if inside else ()


@dataclass(frozen=True)
class TableSpec:
    """One source table and the Iceberg table it becomes; `columns` are in the order in which DMS writes them."""

    source: str
    target: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    comment: str = ""
    file: str = "<memory>"

    @property
    def schema_name(self) -> str:
        """The source schema: the folder above the table's own."""
        return self.source.split(".", 1)[0]

    @property
    def table_name(self) -> str:
        """The source table: the name of its folder."""
        return self.source.split(".", 1)[1]

    @property
    def names(self) -> list[str]:
        """The column names, in file order."""
        return [c.name for c in self.columns]

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return next(c for c in self.columns if c.name == name)


def _known(what: dict, allowed, where: str) -> None:
    for name in what:
        if name not in allowed:
            raise SpecError(f"{where}: unknown entry '{name}'", nearest(name, allowed))


def _column(entry, where: str) -> Column:
    if not isinstance(entry, dict) or not entry.get("name") or not entry.get("type"):
        raise SpecError(f"{where}: a column needs a name and a type, not {entry!r}", "write {name: id, type: INT8}")
    where = f"{where}: column '{entry['name']}'"
    _known(entry, list(Column.__dataclass_fields__), where)
    column = Column(**{**entry, "name": str(entry["name"]), "type": str(entry["type"])})
    if column.dms_type not in TYPES:
        raise SpecError(f"{where}: unknown DMS type '{column.type}'", nearest(column.dms_type, TYPES))
    if column.dms_type == "NUMERIC" and not (
        len(column.arguments) == 2 and 0 <= column.arguments[1] <= column.arguments[0] <= 38
    ):
        raise SpecError(f"{where}: '{column.type}' has no usable precision and scale", "write NUMERIC(p,s), p up to 38")
    return column


def parse_spec(raw: dict, where: str = "<memory>") -> TableSpec:
    """Check one spec as read from YAML and return it; every refusal names the file, the entry and the cure."""
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: not a table spec", "see params/shop for examples")
    _known(raw, ("source", "target", "comment", "key", "columns"), where)
    source = str(raw.get("source") or "")
    if source.count(".") != 1:
        raise SpecError(f"{where}: source '{source}' is not schema.table", "write source: public.orders")
    columns = tuple(_column(c, where) for c in raw.get("columns") or ())
    names = [c.name for c in columns]
    if not columns:
        raise SpecError(f"{where}: no columns", "list them in the order in which DMS writes them")
    if twice := {n for n in names if names.count(n) > 1}:
        raise SpecError(f"{where}: column {sorted(twice)} is listed twice", "remove one")
    key = raw.get("key") or ()
    key = tuple(str(k) for k in ([key] if isinstance(key, str) else key))
    if not key:
        raise SpecError(f"{where}: no key", "name the columns of the primary key: key: [id]")
    for k in key:
        if k not in names:
            raise SpecError(f"{where}: key column '{k}' is not among the columns", nearest(k, names))
    return TableSpec(source, str(raw.get("target") or source), key, columns, str(raw.get("comment") or ""), where)


def load_specs(folder: Path) -> dict[str, TableSpec]:
    """Read every `*.yml` of a folder and return the specs by source table."""
    files = sorted(Path(folder).glob("*.yml"))
    if not files:
        raise SpecError(f"no table specs in {folder}", "one YAML file per table, as in params/shop")
    specs: dict[str, TableSpec] = {}
    for file in files:
        try:
            raw = yaml.safe_load(file.read_text(encoding="utf-8"))
        except yaml.YAMLError as e:
            raise SpecError(f"{file}: not YAML: {e}", "mend the file") from None
        spec = parse_spec(raw, str(file))
        for other in specs.values():
            if spec.source == other.source or spec.target == other.target:
                raise SpecError(f"{file}: '{spec.source}' → '{spec.target}' is also in {other.file}", "keep one")
        specs[spec.source] = spec
    return specs
