"""What the fields of a file are: told by the settings, or by the names that the file itself carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from frazil.config.spec import Column, PastLayout, TableSpec
from frazil.config.sql import literal
from frazil.dms.endpoint import Endpoint
from frazil.dms.mappings import SEQUENCE, Mappings, added_kind
from frazil.dms.newest import CHANGES, moment
from frazil.dms.objects import DmsObject, SourceError
from frazil.errors import nearest

LOAD_PHASE, CHANGE_PHASE = 0, 1
COMMIT_TIME = "<timestamp>"
"""What a commit time goes by where columns are named."""


@dataclass(frozen=True)
class Layout:
    """The fields of a file in their order; a role is `op`, `ts`, `seq`, `after:<column>`, `before:<column>` or `skip` (left out)."""

    roles: tuple[str, ...]


def _added_role(expression: str) -> str:
    return "seq" if added_kind(expression) == SEQUENCE else "skip"


def _column_role(spec: TableSpec, name: str) -> str:
    return f"after:{name}" if name in spec.names else "skip"


def as_written(spec: TableSpec, file: DmsObject | None, phase: int) -> TableSpec:
    """Return a spec with the columns that DMS wrote, and in their order, when it wrote a headerless file.

    Columns of the past go by the names that they have now; those that the spec does not know any more are left out of
    the lake.
    """
    layout = past_layout(spec, file, phase)
    if layout is None:
        return spec
    now = {old: c for c in spec.file_columns for old in (*c.renamed_from, c.name)}
    now |= {c.name: c for c in spec.columns}
    columns = tuple(now.get(n) or Column(n, "WSTRING") for n in layout.columns)
    return replace(spec, columns=tuple(c for c in columns if c.name in spec.names), all_columns=columns)


def past_layout(spec: TableSpec, file: DmsObject | None, phase: int) -> PastLayout | None:
    """Return the layout of the past that held when a file was written; None: the present one."""
    if file is None or phase == LOAD_PHASE:
        return next((past for past in spec.layouts if past.load), None) if file else None

    def holds(until: str) -> bool:
        named = CHANGES.match(until) or until.startswith("CDC_TXN-")
        try:
            return moment(file.name) <= (moment(until) if named else datetime.fromisoformat(until))
        except (ValueError, TypeError):
            raise SourceError(
                f"{spec.file}: layouts: until '{until}' is neither a change file's name nor a time",
                "write 20240101-100000000.csv or 2024-01-01 10:00:00, without a zone, as files are named",
            ) from None

    return next((past for past in spec.layouts if holds(past.until)), None)


def stated_layout(
    spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int, file: DmsObject | None = None
) -> Layout:
    """Return the layout that the settings and the spec promise: Op, timestamp, columns, added columns, before-image.

    With `file` it is the one that held when that was written.
    """
    written = as_written(spec, file, phase)
    roles = ["op"] if (endpoint.op_in_changes if phase == CHANGE_PHASE else endpoint.op_in_load) else []
    roles += ["ts"] if endpoint.timestamp_column else []
    roles += [_column_role(spec, c) for c in mappings.file_columns(written)]
    roles += [_added_role(e) for e in mappings.added(spec).values()]
    if rule := mappings.before_image(spec):
        roles += [f"before:{c}" for c in rule.names(written)]
    return Layout(tuple(roles))


def known_names(spec: TableSpec, endpoint: Endpoint, mappings: Mappings) -> dict[str, str]:
    """Return {name in files: role} of all columns that were told of; a column's former names and before-image count."""
    written = {c.name for c in spec.file_columns}
    known = {n: f"after:{n}" for n in spec.names if n not in written}
    for c, name in mappings.file_columns(spec).items():
        known[name] = _column_role(spec, c)
        for old in spec.column(c).renamed_from:
            known.setdefault(mappings.column_name(spec, old), _column_role(spec, c))
    known |= {c: _added_role(e) for c, e in mappings.added(spec).items()}
    if rule := mappings.before_image(spec):
        known |= {name: f"before:{c}" for c, name in rule.names(spec).items()}
        for c in spec.file_columns:  # also those that the spec does not call the key: at the source they may be it now
            for name in (c.name, *c.renamed_from):
                known.setdefault(f"{rule.prefix}{name}{rule.suffix}", f"before:{c.name}")
    if endpoint.timestamp_column:
        known[endpoint.timestamp_column] = "ts"
    return known


def named_layout(
    names: Sequence[str], spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int, where: str
) -> Layout:
    """Return the layout that a file's own column names state; a column nobody told of, or one missing, is an error."""
    known = known_names(spec, endpoint, mappings) | dict.fromkeys(spec.ignored, "skip")
    roles = ["op" if n.lower() == endpoint.op_column.lower() else known.get(n, f"?{n}") for n in names]
    for role in roles:
        if role.startswith("?"):
            raise SourceError(
                f"{where}: unknown column '{role[1:]}'", f"add it to {spec.file}; {nearest(role[1:], known)}"
            )
    needed = [n for n in mappings.file_columns(spec) if n in spec.names and n not in spec.optional]
    missing = [mappings.file_columns(spec)[n] for n in needed if f"after:{n}" not in roles]
    if phase == CHANGE_PHASE and endpoint.op_in_changes and "op" not in roles:
        missing.insert(0, endpoint.op_column)
    if missing:
        raise SourceError(f"{where}: no column {', '.join(missing)}", f"correct {spec.file} or the endpoint settings")
    return Layout(tuple(roles))


def operation_sql(text: str, endpoint: Endpoint) -> str:
    """Return the SQL that turns the operation column's text into I, U or D; another text stays, and is refused later."""
    if all(k == v for k, v in endpoint.op_values.items()):
        return text
    told = " ".join(f"when {literal(k)} then '{v}'" for k, v in endpoint.op_values.items())
    return f"case {text} {told} else {text} end"
