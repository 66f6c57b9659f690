"""The names that a table's columns have in DMS's JSON messages."""

from __future__ import annotations

from frazil.config.spec import TableSpec
from frazil.core.messages import MessageNames
from frazil.dms.mappings import Mappings


def message_names(spec: TableSpec, mappings: Mappings) -> MessageNames:
    """Return the names of a table's columns in its messages."""
    rule = mappings.before_image(spec)
    names = {column: name for column, name in mappings.file_columns(spec).items() if column in spec.names}
    images = {column: name for column, name in rule.names(spec).items() if column in spec.row_identity} if rule else {}
    listed, origin = frozenset(mappings.listed(spec)), dict(mappings.origin(spec))
    return MessageNames(names, images, former_names(spec, mappings), listed, origin)


def known_columns(spec: TableSpec, mappings: Mappings) -> set[str]:
    """Return the names that may occur in a message's data."""
    rule = mappings.before_image(spec)
    former = {n for names in former_names(spec, mappings).values() for n in names}
    return {
        *mappings.file_columns(spec).values(),
        *former,
        *mappings.added(spec),
        *(rule.names(spec).values() if rule else ()),
    }


def former_names(spec: TableSpec, mappings: Mappings) -> dict[str, list[str]]:
    """Return {column: its former names in messages, unless another column has them now}."""
    now = set(mappings.file_columns(spec).values())
    named = {c.name: [mappings.column_name(spec, old) for old in c.renamed_from] for c in spec.file_columns}
    return {c: [n for n in names if n not in now] for c, names in named.items()}
