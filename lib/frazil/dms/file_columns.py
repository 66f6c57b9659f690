"""Reads the columns of each file of a table, from the file or a declared layout. They show schema changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from frazil.core.field_roles import UNKNOWN, FieldNames, field_roles
from frazil.dms.csv_columns import file_layout, header, require_fit
from frazil.dms.file_layout import CHANGE_PHASE, Layout, field_names, op_is_stated, past_layout
from frazil.dms.listing import DmsObject
from frazil.dms.parquet_columns import footer, lake_kind
from frazil.dms.source_table import SourceTable
from frazil.dms.storage import each_of, is_s3


@dataclass(frozen=True)
class Shape:
    """The columns of a file or message: `carries` by the spec's names (None: not known), and those that are `unknown`.

    Both have the column's type in the file, under Spark's name. It is empty for CSV, where everything is text.
    """

    where: str
    carries: dict[str, str] | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    before: frozenset[str] = frozenset()
    """The columns whose old values are in the file."""
    stated: bool = False
    """Whether this is a past layout of the spec: missing columns were added later, and additional ones were dropped."""
    names: tuple[str, ...] = ()
    """All names in the file."""


def shapes(table: SourceTable, files: Sequence[DmsObject], phase: int) -> list[Shape]:
    """Return the columns of each file, in the given order; only first lines and footers are read."""
    known = field_names(table)
    return each_of(lambda f: _shape(f, table, phase, known), files, any(is_s3(f.path) for f in files))


def first_alike(table: SourceTable, files: Sequence[DmsObject]) -> list[DmsObject]:
    """Return the leading change files that have the same columns, for one batch."""
    found: list[DmsObject] = []
    columns: tuple[str, ...] | None = None
    for file in files:
        own = _columns(file, table)
        if own is not None and columns not in (None, own):
            break
        columns = own or columns
        found.append(file)
    return found


def _columns(file: DmsObject, table: SourceTable) -> tuple[str, ...] | None:
    """Return a change file's column names, or the roles of its declared layout; None if it has neither."""
    if file.is_parquet:
        return tuple(f.name for f in footer(file))
    if not file.size:
        return None
    if table.endpoint.header and not file.is_shared:
        return tuple(header(file, table.endpoint))
    if not table.spec.layouts:
        return None
    return file_layout(table, CHANGE_PHASE, file)[0].roles


def _shape(file: DmsObject, table: SourceTable, phase: int, known: FieldNames) -> Shape:
    spec, endpoint = table.spec, table.endpoint
    where = file.path if file.is_parquet else f"{file.path} line 1"
    if file.is_parquet:
        fields = [(f.name, lake_kind(f.type, f"{file.path}: column {f.name!r}")) for f in footer(file)]
    elif endpoint.header and file.size and not file.is_shared:
        fields = [(n, "") for n in header(file, endpoint)]
    elif spec.layouts and file.size:
        if not file.is_shared:
            require_fit(file, table, phase)
        layout, _ = file_layout(table, phase, file)
        carries = {c: "" for c in spec.names if layout.carries(c)}
        return Shape(where, carries, stated=past_layout(spec, file, phase) is not None)
    else:
        return Shape(where)
    names = tuple(n for n, _ in fields)
    layout = Layout(tuple(field_roles(names, known, op_is_stated(endpoint, phase), where)))
    kinds = layout.at([kind for _, kind in fields])
    named = {
        of: {r.removeprefix(of): k for r, k in kinds.items() if r.startswith(of)}
        for of in ("after:", "before:", UNKNOWN)
    }
    return Shape(where, named["after:"], named[UNKNOWN], frozenset(named["before:"]), names=names)
