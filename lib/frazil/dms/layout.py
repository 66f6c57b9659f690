"""What the fields of a file are: told by the settings, or by the names that the file itself carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.config.spec import TableSpec
from frazil.config.sqltext import literal
from frazil.dms.endpoint import Endpoint
from frazil.dms.mappings import SEQUENCE, Mappings, added_kind
from frazil.dms.objects import SourceError
from frazil.errors import nearest

LOAD_PHASE, CHANGE_PHASE = 0, 1


@dataclass(frozen=True)
class Layout:
    """The fields of a file in their order; a role is `op`, `ts`, `seq`, `after:<column>`, `before:<column>` or `skip` (left out)."""

    roles: tuple[str, ...]


def _added_role(expression: str) -> str:
    return "seq" if added_kind(expression) == SEQUENCE else "skip"


def _column_role(spec: TableSpec, name: str) -> str:
    return f"after:{name}" if name in spec.names else "skip"


def stated_layout(spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int) -> Layout:
    """Return the layout that the settings and the spec promise: Op, timestamp, columns, added columns, before-image."""
    roles = ["op"] if (endpoint.op_in_changes if phase == CHANGE_PHASE else endpoint.op_in_load) else []
    roles += ["ts"] if endpoint.timestamp_column else []
    roles += [_column_role(spec, c) for c in mappings.file_columns(spec)]
    roles += [_added_role(e) for e in mappings.added(spec).values()]
    if rule := mappings.before_image(spec):
        roles += [f"before:{c}" for c in rule.names(spec)]
    return Layout(tuple(roles))


def named_layout(
    names: Sequence[str], spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int, where: str
) -> Layout:
    """Return the layout that a file's own column names state; a column nobody told of, or one missing, is an error."""
    known = {name: _column_role(spec, c) for c, name in mappings.file_columns(spec).items()}
    known |= {c: _added_role(e) for c, e in mappings.added(spec).items()}
    if rule := mappings.before_image(spec):
        known |= {name: f"before:{c}" for c, name in rule.names(spec).items()}
    if endpoint.timestamp_column:
        known[endpoint.timestamp_column] = "ts"
    roles = ["op" if n.lower() == endpoint.op_column.lower() else known.get(n, f"?{n}") for n in names]
    for role in roles:
        if role.startswith("?"):
            raise SourceError(
                f"{where}: unknown column '{role[1:]}'", f"add it to {spec.file}; {nearest(role[1:], known)}"
            )
    missing = [name for name, role in known.items() if role.startswith("after:") and role not in roles]
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
