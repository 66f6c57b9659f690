"""Rules of columns: the names and types that they may have, which of them are the same, and the steps to them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence

from frazil.errors import FrazilError
from frazil.iceberg.columns import BESIDE, ICEBERG_NAMES, Columns, Known, Step, iceberg_type
from frazil.settings.column import Column
from frazil.settings.spec import TableSpec

RESERVED = {
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
}  # fmt: skip
"""Names, in any case, of the columns that Iceberg adds to reads: a table with a column of such a name cannot be read."""
_SPARK_NAMES = {iceberg: spark for spark, iceberg in ICEBERG_NAMES.items()}
_SIZES = {"int": ("whole", 4), "long": ("whole", 8), "float": ("real", 4), "double": ("real", 8)}
_SIZES |= {f"decimal({digits}, {scale})": (f"decimal {scale}", digits) for digits in range(39) for scale in range(39)}
"""The types among which Iceberg promotes each type, and its size there: the larger one is the wider."""


class NameImpossibleError(FrazilError, code="name-impossible", decision=True):
    """A table of the lake cannot have a column of that name. Give it another name in the spec, with its own as `renamed_from`."""


class RenameUnclearError(FrazilError, code="rename-unclear", decision=True):
    """Nothing shows which column of the table an earlier name means. Correct `renamed_from`."""


def require_names(names: Iterable[str], spec: TableSpec, where: str) -> None:
    """Raise NameImpossibleError for a name that, in any case of its letters, is another column's or reserved."""
    taken = {name: f"'{name}', which Iceberg reserves" for name in RESERVED}
    for name in names:
        if other := taken.get(name.lower()):
            cure = f"list it in {spec.file} with another name and renamed_from: {name}; or exclude it if it is no key"
            raise NameImpossibleError(f"{where}: no column '{name}' can stand beside {other}", cure)
        taken[name.lower()] = f"'{name}'"


def same_columns(known: Columns, spec: TableSpec) -> dict[str, Known]:
    """Return the table's column by each name of the spec: its own or an earlier one; and those that files added."""
    there = {column.name: column for column in known.columns if column.by != BESIDE}
    same, free = {}, {**there}
    for column in sorted(spec.lake_columns, key=lambda column: column.name in there):  # the others may take their names
        names = [column.name] if column.name in there else column.renamed_from
        if found := next((free.pop(name) for name in names if name in free), None):
            same[column.name] = found
    return same | {name: column for name, column in free.items() if column.by == "files"}


def require_clear_renames(known: Columns, spec: TableSpec, same: Collection[str]) -> None:
    """Raise RenameUnclearError for an earlier name that the table has beside the present one, or that is misspelt."""
    there = {column.name: column for column in known.columns if column.by != BESIDE}
    unlisted = there.keys() - {*spec.lake_names}
    for column in spec.lake_columns:
        own = there.get(column.name)
        for old in column.renamed_from:
            found = difflib.get_close_matches(old, unlisted, n=1, cutoff=0.75) if column.name not in same else []
            if own and old in there and old not in (own.name, *own.former):
                found = [old]
            if found:
                problem = f"{spec.file}: column '{column.name}' was '{old}', and the table has '{found[0]}'"
                cure = f"write renamed_from: {found[0]} if it is that one; by way of a third name if the table has both"
                raise RenameUnclearError(problem, cure)


def spark_type(kind: str) -> str:
    """Return Spark's name of a type that Iceberg names."""
    return _SPARK_NAMES.get(kind, kind.replace(" ", ""))


def wider(one: str, other: str) -> str:
    """Return which of two types Iceberg makes of the other whatever the values are; empty: neither."""
    (kind, size), (other_kind, other_size) = _SIZES.get(one, (one, 0)), _SIZES.get(other, (other, 0))
    larger = one if size >= other_size else other
    return larger if kind == other_kind else ""


def as_stored(spec: TableSpec, stored: Mapping[str, Known]) -> TableSpec:
    """Return a spec with the types that its columns have in the table, and with the columns that it lacks."""
    columns = {column.name: column for column in spec.columns}
    for name, known in stored.items():
        new = Column.model_construct(name=name, type=known.dms, mask=known.mask, utc=known.type == "timestamptz")
        column = columns.setdefault(name, new)
        if not column.mask and iceberg_type(column.lake_type) != known.type:
            columns[name] = column.model_copy(update={"lake": spark_type(known.type)})
    return spec.model_copy(update={"columns": tuple(columns.values())})


def steps_between(before: Columns, after: Sequence[Known]) -> tuple[Step, ...]:
    """Return the steps from what is known of a table to columns in their order. New columns have 0 as id."""
    old, left = {column.id: column for column in before.columns}, {column.id for column in after}
    steps = [{"step": "drop", "name": column.name} for column in before.columns if column.id not in left]
    last = ""
    for now in after:
        was = old.get(now.id)
        if was is None:
            comment = {"comment": now.comment} if now.comment else {}
            steps.append({"step": "add", "name": now.name, "to": now.type, "after": last, **comment})
        else:
            for step, what in (("rename", "name"), ("widen", "type"), ("comment", "comment")):
                if (to := getattr(now, what)) != getattr(was, what):
                    steps.append({"step": step, "name": was.name if step == "rename" else now.name, "to": to})
        last = now.name
    return tuple(steps)
