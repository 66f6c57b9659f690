"""What Iceberg allows of columns: their names, the promotions of their types, and the steps from some columns to others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count

from frazil.errors import FrazilError
from frazil.iceberg.columns import ICEBERG_NAMES, Columns, Known, Step, iceberg_type
from frazil.settings.column import Column
from frazil.settings.spec import TableSpec

RESERVED = {
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
}  # fmt: skip
"""Names, in any case, of the columns that Iceberg adds to reads: a table with a column of such a name cannot be read."""
_SPARK_NAMES = {iceberg: spark for spark, iceberg in ICEBERG_NAMES.items()}


class SchemaError(FrazilError, code="schema", decision=True):
    """Columns changed in a way that nothing declares. Declare it in the spec, as the message says."""


class NameImpossibleError(SchemaError, code="name-impossible", decision=True):
    """A table of the lake cannot have a column of that name. Give it another name in the spec, with its own as `renamed_from`."""


def require_names(names: Iterable[str], spec: TableSpec, where: str) -> None:
    """Raise NameImpossibleError for names that a table cannot have: reserved ones, and names that differ in their case alone."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        if other is not None or name.lower() in RESERVED:
            why = f"is one name with '{other}' in the lake" if other else "has a name that Iceberg reserves"
            new = free_name(name.strip("_").lower() or "column", {*seen, *spec.lake_names, *RESERVED})
            cure = f"list it in {spec.file} under another name, as name: {new}, renamed_from: {name}"
            cure += "" if name in spec.key else f"; or leave its values out of the lake: exclude: [{name}]"
            raise NameImpossibleError(f"{where}: the column '{name}' {why}", cure)
        seen[name.lower()] = name


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name that no other column has in any case of its letters, with a number behind it if need be."""
    there = {other.lower() for other in taken}
    return next(n for n in chain((name,), (f"{name}_{i}" for i in count(2))) if n.lower() not in there)


def spark_type(kind: str) -> str:
    """Return Spark's name of a type that Iceberg names."""
    return _SPARK_NAMES.get(kind, kind.replace(" ", ""))


def promotes(old: str, new: str) -> bool:
    """Return whether Iceberg makes one type another one without a look at any value; both as Iceberg names them."""
    if not (old.startswith("decimal") and new.startswith("decimal")):
        return (old, new) in (("int", "long"), ("float", "double"))
    (precision, scale), (wide, wide_scale) = (map(int, re.findall(r"\d+", kind)) for kind in (old, new))
    return precision < wide <= 38 and scale == wide_scale


def as_stored(spec: TableSpec, stored: Mapping[str, Known]) -> TableSpec:
    """Return a spec with the wider types that columns have in the table, and with the columns that it lacks."""
    listed = {column.name for column in spec.columns}
    further = [_declared(known) for name, known in stored.items() if name not in listed]
    columns = (*(_wide(column, stored.get(column.name)) for column in spec.columns), *further)
    return spec if columns == spec.columns else spec.model_copy(update={"columns": columns})


def _declared(known: Known) -> Column:
    """Return a column of the table as a spec would declare it."""
    column = Column.model_construct(name=known.name, type=known.dms, mask=known.mask, utc=known.type == "timestamptz")
    same = known.mask or iceberg_type(column.lake_type) == known.type
    return column if same else column.model_copy(update={"lake": spark_type(known.type)})


def _wide(column: Column, known: Known | None) -> Column:
    """Return a column with the table's wider type, if that is one."""
    if known is None or column.mask or known.mask or not promotes(iceberg_type(column.lake_type), known.type):
        return column
    return column.model_copy(update={"lake": spark_type(known.type)})


def steps_between(before: Columns, after: Sequence[Known]) -> tuple[Step, ...]:
    """Return the steps from what is known of a table to columns in their order. New columns have 0 as id."""
    old = {column.id: column for column in before.columns}
    there = [(old[column.id], column) for column in after if column.id in old]
    left = {now.id for _, now in there}
    places = zip(("", *(column.name for column in after)), after, strict=False)
    return (
        *({"step": "rename", "name": was.name, "to": now.name} for was, now in there if was.name != now.name),
        *({"step": "drop", "name": column.name} for column in before.columns if column.id not in left),
        *({"step": "widen", "name": now.name, "to": now.type} for was, now in there if was.type != now.type),
        *({"step": "comment", "name": n.name, "to": n.comment} for was, n in there if was.comment != n.comment),
        *(_addition(column, previous) for previous, column in places if column.id not in old),
    )


def _addition(column: Known, after: str) -> Step:
    comment = {"comment": column.comment} if column.comment else {}
    return {"step": "add", "name": column.name, "to": column.type, "after": after} | comment
