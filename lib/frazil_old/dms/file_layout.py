"""Finds the roles of a file's fields, from the settings or from the names in the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from frazil_old.config.columns import PastLayout
from frazil_old.config.spec import Column, TableSpec
from frazil_old.core.field_roles import ORIGIN, ORIGIN_AS, SEQUENCE_AS, UNKNOWN, FieldNames, field_roles, fields_by_role
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_names import CHANGES, time_of_name
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.mappings import SEQUENCE, is_expression
from frazil_old.dms.source_errors import SourceError
from frazil_old.errors import nearest

LOAD_PHASE, CHANGE_PHASE = 0, 1


Layout = tuple[str, ...]
"""The roles of a file's fields in their order.

A role is `op`, `ts`, `seq`, `seq:<column>`, `after:<column>`, `before:<column>`, `origin:<column>`, `origin
after:<column>` or `skip` (left out).
"""


def carried(layout: Layout, columns: Iterable[str]) -> list[str]:
    """Return which of some columns have their values in a field."""
    roles = fields_by_role(layout, layout)
    return [c for c in columns if f"after:{c}" in roles]


def _added_role(kept: bool, name: str, expression: str, origin: Collection[str]) -> str:
    """Return the role of a column that a rule adds; `kept`: the lake has it; `origin`: columns that name the source table."""
    if name in origin:
        return f"{ORIGIN_AS if kept else ORIGIN}{name}"
    if is_expression(SEQUENCE, expression):
        return f"{SEQUENCE_AS}{name}" if kept else "seq"
    return f"after:{name}" if kept else "skip"


def _column_role(names: Collection[str], name: str) -> str:
    return f"after:{name}" if name in names else "skip"


def as_written(spec: TableSpec, past: PastLayout | None) -> TableSpec:
    """Return a spec with the columns that DMS wrote, in their order, under a past layout; None: the current one.

    Past columns have their current names. Those that the spec no longer knows are left out of the lake.
    """
    if past is None or not past.columns:
        return spec
    now = {old: c for c in spec.file_columns for old in (*c.renamed_from, c.name)}
    now |= {c.name: c for c in spec.columns}
    columns = tuple(now.get(n) or Column(n, "WSTRING") for n in past.columns)
    return replace(spec, columns=tuple(c for c in columns if c.name in spec.names), all_columns=columns)


def past_layout(spec: TableSpec, file: DmsObject | None, phase: int) -> PastLayout | None:
    """Return the past layout that was valid when a file was written; None: the current one."""
    if file is None or phase == LOAD_PHASE:
        return next((past for past in spec.layouts if past.load), None) if file else None

    def covers(until: str) -> bool:
        named = CHANGES.match(until) or until.startswith("CDC_TXN-")
        try:
            return time_of_name(file.name) <= (time_of_name(until) if named else datetime.fromisoformat(until))
        except (ValueError, TypeError):
            raise SourceError(
                f"{spec.file}: layouts: until '{until}' is neither a change file's name nor a time",
                "write 20240101-100000000.csv or 2024-01-01 10:00:00, without a time zone, as in file names",
            ) from None

    return next((past for past in spec.layouts if covers(past.until)), None)


def stated_layout(table: SourceTable, phase: int, file: DmsObject | None = None) -> Layout:
    """Return the layout by settings and spec: Op, timestamp, columns, added columns, before-image.

    With `file`, it is the layout that was valid when the file was written.
    """
    return layout_of(past_layout(table.spec, file, phase), table, phase)


def layout_of(past: PastLayout | None, table: SourceTable, phase: int) -> Layout:
    """Return a past layout, or the current one."""
    spec, mappings = table.spec, table.mappings
    names = set(spec.names)
    written, without = as_written(spec, past), past.without if past else ()
    added, listed, rule = mappings.added(spec), mappings.listed(spec), mappings.before_image(spec)
    images = rule.names(written) if rule else {}
    for name in without:
        if name not in (*added, *images.values()):
            near = nearest(name, [*added, *images.values()])
            raise SourceError(f"{spec.file}: layouts: until '{past.until}': without '{name}', which no rule adds", near)
    roles = ["op"] if op_is_stated(table.endpoint, phase) else []
    roles += ["ts"] if table.endpoint.timestamp_column else []
    roles += [_column_role(names, c) for c in mappings.file_columns(written) if c not in listed]
    kept = {n: e for n, e in added.items() if n not in without}
    origin = mappings.origin(spec)
    roles += [_added_role(n in names, n, e, origin) for n, e in kept.items()]
    roles += [f"before:{c}" for c, name in images.items() if name not in without]
    return tuple(roles)


def field_names(table: SourceTable) -> FieldNames:
    """Return the roles of the names in a table's files, including a column's former names and before-image."""
    spec, endpoint, mappings = table.spec, table.endpoint, table.mappings
    written = {c.name for c in spec.file_columns}
    names, columns = set(spec.names), {c.name: c for c in (*spec.columns, *spec.file_columns)}
    source = {n: f"after:{n}" for n in spec.names if n not in written}
    for c, name in mappings.file_columns(spec).items():
        source[name] = _column_role(names, c)
        for old in columns[c].renamed_from:
            source.setdefault(mappings.column_name(spec, old), _column_role(names, c))
    reused: dict[str, tuple[str, frozenset[str]]] = {}
    for c, name in mappings.file_columns(spec).items():
        later = [name]
        for old in (mappings.column_name(spec, n) for n in columns[c].renamed_from):
            if source[old] != _column_role(names, c):
                reused[old] = _column_role(names, c), frozenset(later)
            later.append(old)
    rules = mappings.added(spec).items()
    origin = mappings.origin(spec)
    added, added_beside = (
        {n: _added_role(kept and n in names, n, e, origin) for n, e in rules} for kept in (True, False)
    )
    before, rare = {}, {}
    if rule := mappings.before_image(spec):
        before = {name: f"before:{c}" for c, name in rule.names(spec).items()}
        for c in spec.file_columns:  # also for columns outside the spec's key: they may be in the source's key now
            for name in (c.name, *c.renamed_from):
                rare.setdefault(f"{rule.prefix}{name}{rule.suffix}", f"before:{c.name}")
    return FieldNames(
        endpoint.op_column, endpoint.timestamp_column, source, added, before, added_beside, rare, spec.file, reused
    )


def op_is_stated(endpoint: Endpoint, phase: int) -> bool:
    """Return whether load files (phase 0) or change files (phase 1) have the operation, by the settings."""
    return endpoint.op_in_changes if phase == CHANGE_PHASE else endpoint.op_in_load


def named_layout(names: Sequence[str], table: SourceTable, phase: int, where: str) -> Layout:
    """Return the layout by a file's own column names; raise SourceError for an unknown or a missing column."""
    spec, endpoint, mappings = table.spec, table.endpoint, table.mappings
    known = field_names(table)
    found = field_roles(names, known, op_is_stated(endpoint, phase), where)
    layout = tuple("skip" if r[:1] == UNKNOWN and r[1:] in spec.ignored else r for r in found)
    for role in layout:
        if role.startswith(UNKNOWN):
            near = nearest(role[1:], [*known.source, *known.added, *known.before])
            raise SourceError(f"{where}: unknown column '{role[1:]}'", f"add it to {spec.file}; {near}")
    in_files = mappings.file_columns(spec)
    needed = [n for n in in_files if n in spec.names and n not in spec.optional]
    there = carried(layout, needed)
    missing = [in_files[n] for n in needed if n not in there]
    if phase == CHANGE_PHASE and endpoint.op_in_changes and "op" not in layout:
        missing.insert(0, endpoint.op_column)
    if missing:
        raise SourceError(f"{where}: no column {', '.join(missing)}", f"correct {spec.file} or the endpoint settings")
    return layout


def shared_layout(own: Layout) -> Layout:
    """Return the layout of a table's rows in files of all tables, from the layout in its own files.

    AWS does not document two assumptions: the timestamp column follows the schema, and Op is always present.
    """
    return ("op", "table", "schema", *[r for r in own if r != "op"])
