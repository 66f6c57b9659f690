"""Which column of the table each column of its spec is: by its name, or by an earlier one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from frazil.iceberg.columns import Columns, Known
from frazil.pipeline.column_rules import SchemaError
from frazil.settings.spec import TableSpec

_THIRD = "rename by way of a third name, with a run after each edit; or leave out of renamed_from what the table's names follow already"


class RenameUnclearError(SchemaError, code="rename-unclear", decision=True):
    """Nothing shows which column of the table an earlier name means. Correct `renamed_from`."""


def same_columns(known: Columns, spec: TableSpec) -> dict[str, Known]:
    """Return the table's column that each of the spec's is, by name, or by an earlier one that the table still has."""
    there = {column.name: column for column in known.columns if not column.file_name}
    earlier: dict[str, str] = {}
    for column in spec.lake_columns:
        names = [name for name in column.renamed_from if name in there and name not in earlier.values()]
        if names and column.name not in there:
            earlier[column.name] = names[0]
    own = {name: name for name in spec.lake_names if name in there and name not in earlier.values()}
    return {name: there[old] for name, old in {**own, **earlier}.items()}


def require_clear_renames(known: Columns, spec: TableSpec, same: Mapping[str, Known]) -> None:
    """Raise RenameUnclearError for names that columns take from each other, that the table has both, or that are misspelt."""
    there, listed = {k.name: k for k in known.columns if not k.file_name}, {*spec.lake_names}
    try:
        TopologicalSorter({c.name: {*c.renamed_from} & listed - {c.name} for c in spec.lake_columns}).prepare()
    except CycleError as cycle:
        names = " and ".join(f"'{name}'" for name in dict.fromkeys(cycle.args[1]))
        raise RenameUnclearError(f"{spec.file}: the columns {names} take each other's names", _THIRD) from None
    for column in spec.lake_columns:
        own = there.get(column.name)
        for old in (name for name in column.renamed_from if name != column.name):
            told = f"{spec.file}: column '{column.name}' was '{old}', and the table has"
            if own and old in there and old not in own.former:
                raise RenameUnclearError(f"{told} both", _THIRD)
            close = difflib.get_close_matches(old, there.keys() - listed, n=1, cutoff=0.75)
            if column.name not in same and close:
                cure = f"write renamed_from: {close[0]} if it is that column; else leave '{old}' out"
                raise RenameUnclearError(f"{told} '{close[0]}', and no column '{old}'", cure)
