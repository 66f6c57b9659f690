"""What a control record says of a table's columns, held against those that are known: a shape, renames, other types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from frazil.changes.types import value_type
from frazil.config.spec import Column, TableSpec
from frazil.dms.control import MAY_DROP, MAY_RETYPE, RENAME, Definition
from frazil.dms.mappings import Mappings
from frazil.dms.messages import former_names
from frazil.dms.shapes import Shape
from frazil.lake.evolution import SchemaError

Event = tuple[str, ...]


def names_in_messages(spec: TableSpec, mappings: Mappings) -> dict[str, str]:
    """Return {name in messages: column}; former names, and columns that were learnt, count."""
    now = {n: c for c, n in mappings.file_columns(spec).items()}
    former = {n: c for c, names in former_names(spec, mappings).items() for n in names}
    return {**former, **{n: n for n in spec.names if n not in now.values()}, **now}


def _column(spec: TableSpec, name: str) -> Column:
    return next(c for c in (*spec.columns, *spec.file_columns) if c.name == name)


def is_whole(told: Definition, spec: TableSpec, mappings: Mappings) -> bool:
    """Tell whether it is a definition of the table: one that knows its key, unless a column of that was renamed."""
    known = names_in_messages(spec, mappings)
    return told.operation == RENAME or set(spec.key) <= {known.get(n) for n in told.columns}


def shape_of(told: Definition, spec: TableSpec, mappings: Mappings) -> Shape:
    """Return the columns that a table has after a control record.

    Only an operation that may drop columns tells that one is gone: another column that is not there yet may be one that the
    spec declares ahead.
    """
    known = names_in_messages(spec, mappings)
    current = {c: n for n, c in known.items()}  # of a column's names the present one comes last
    known = {n: c for n, c in known.items() if n == current[c] or current[c] not in told.columns}
    typed = {n: _kind(c, spec, known.get(n)) for n, c in told.columns.items()}
    unknown = {n: kind for n, kind in typed.items() if n not in known and n not in mappings.added(spec)}
    here = {known[n]: kind if told.operation in MAY_RETYPE else "" for n, kind in typed.items() if n in known}
    if not (told.operation in MAY_DROP or (told.operation == RENAME and unknown)):
        here = dict.fromkeys(spec.names, "") | here
    return Shape(told.where, {c: kind for c, kind in here.items() if c in spec.names}, unknown, untyped="")


def _kind(told: Column | None, spec: TableSpec, name: str | None) -> str:
    """Return the Spark SQL type of a column that was told of; a moment's zone is what the spec says."""
    if told is None:
        return ""
    return value_type(replace(told, utc=name is not None and _column(spec, name).utc))


def require_one_meaning(spec: TableSpec, names: list[set[str]]) -> None:
    """Raise SchemaError for a name that goes and comes again in what a table's columns were, one after the other."""
    for name in sorted(set.union(*names)):
        if "0" in "".join("01"[name in some] for some in names).strip("0"):
            raise SchemaError(
                f"{spec.source}: column '{name}' went and came again, and rows lie in other partitions than the records of it: "
                "nothing tells which of the two they mean",
                "load the table again",
            )


def renamed(
    told: Definition, spec: TableSpec, mappings: Mappings, gone: list[str], new: list[str]
) -> tuple[Event, ...]:
    """Return the rename that a control record tells: it says that it is one, and one column went and one came.

    `gone` are columns of the lake; one that is left out of it may be renamed as well, and stays out.
    """
    known = names_in_messages(spec, mappings)
    here = {known.get(n) for n in told.columns}
    gone = [*gone, *(c for c in mappings.file_columns(spec) if c not in spec.names and c not in here)]
    one = told.operation == RENAME and len(gone) == len(new) == 1
    return (("rename", gone[0], new[0]),) if one else ()


def retyped(
    told: Definition, one: Shape, spec: TableSpec, mappings: Mappings, promotes: Callable[[str, str], bool]
) -> tuple[Event, ...]:
    """Return the columns whose new type no promotion leads to, if they shall stand beside the old ones; else raise SchemaError."""
    found: list[Event] = []
    names = {c: n for n, c in names_in_messages(spec, mappings).items()}
    for name, kind in (one.carries or {}).items():
        column = _column(spec, name)
        was = value_type(replace(column, lake=""))
        as_text = column.dms_type == "BOOLEAN" and kind == "string"  # what PostgreSQL's are to DMS, by its settings
        if not kind or as_text or promotes(was, kind) or promotes(kind, was):
            continue
        new = told.columns[names[name]].type
        if spec.changes.type != "beside" or name in spec.key:
            raise SchemaError(
                f"{told.where}: column '{name}' is {column.type} in {spec.file} and {new} from here on: no promotion leads there",
                "load the table again with the new type"
                + (
                    ""
                    if name in spec.key
                    else ", or let a column of it stand beside the old one: changes: {type: beside}"
                ),
            )
        found.append(("type", name, column.type, new))
    return tuple(found)
