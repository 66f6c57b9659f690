"""Compare a control record's columns with the known ones: new columns, renames, other types."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from frazil_old.config.lake_types import value_type
from frazil_old.config.spec import Column, TableSpec
from frazil_old.dms.control_records import MAY_DROP, MAY_RETYPE, RENAME, Definition
from frazil_old.dms.file_columns import Shape
from frazil_old.dms.mappings import Mappings, former_names
from frazil_old.lake.schema_evolution import SchemaError, require_source_key

Event = tuple[str, ...]


def names_in_messages(spec: TableSpec, mappings: Mappings) -> dict[str, str]:
    """Return {name in messages: column}, including former names."""
    now = {n: c for c, n in mappings.file_columns(spec).items()}
    former = {n: c for c, names in former_names(spec, mappings).items() for n in names}
    return {**former, **now}


def is_whole(definition: Definition, spec: TableSpec, mappings: Mappings) -> bool:
    """Return whether it is a definition of the table: one with its key, unless a key column was renamed."""
    known = names_in_messages(spec, mappings)
    return definition.operation == RENAME or set(spec.key) <= {known.get(n) for n in definition.columns}


def shape_of(definition: Definition, spec: TableSpec, mappings: Mappings, missing_columns: Collection[str]) -> Shape:
    """Return a table's columns after a control record; before it, the table had none of those in `missing_columns`.

    Only an operation that may drop columns shows that one was dropped: any other missing column may be one that the
    spec declares ahead.
    """
    known = _known(definition, spec, mappings)
    typed = {n: _kind(c, spec, known.get(n)) for n, c in definition.columns.items()}
    unknown = {n: kind for n, kind in typed.items() if n not in known and n not in mappings.added(spec)}
    here = {known[n]: kind if definition.operation in MAY_RETYPE else "" for n, kind in typed.items() if n in known}
    if not (definition.operation in MAY_DROP or (definition.operation == RENAME and unknown)):
        here = {n: "" for n in spec.names if n not in missing_columns} | here
    here |= dict.fromkeys(mappings.listed(spec), "")  # the task adds them, whatever the source's table has
    return Shape(definition.where, {c: kind for c, kind in here.items() if c in spec.names}, unknown)


def _known(definition: Definition, spec: TableSpec, mappings: Mappings) -> dict[str, str]:
    """Return {name in messages: column}; a former name counts only if the present one is absent."""
    known = names_in_messages(spec, mappings)
    present = {c: n for n, c in known.items()}  # it comes last
    return {n: c for n, c in known.items() if n == present[c] or present[c] not in definition.columns}


def _kind(definition: Column | None, spec: TableSpec, name: str | None) -> str:
    """Return the Spark SQL type of an announced column; for a timestamp the spec says whether it has a zone."""
    if definition is None:
        return ""
    return value_type(replace(definition, utc=name is not None and spec.column(name).utc))


def require_one_meaning(spec: TableSpec, names: list[set[str]]) -> None:
    """Raise SchemaError for a name that disappears and returns in the sequence of a table's columns."""
    for name in sorted(set.union(*names)):
        if "0" in "".join("01"[name in some] for some in names).strip("0"):
            raise SchemaError(
                f"{spec.source}: column '{name}' was dropped and added again, and its rows are in other partitions than its control records: "
                "nothing shows which of the two columns they mean",
                "load the table again",
            )


@dataclass(frozen=True)
class Difference:
    """How a control record's columns differ from the known ones: its shape, the columns that disappeared, those that appeared."""

    shape: Shape
    gone: list[str]
    new: list[str]


def events(
    definition: Definition,
    spec: TableSpec,
    mappings: Mappings,
    difference: Difference,
    promotes: Callable[[str, str], bool],
) -> tuple[Event, ...]:
    """Return what to keep of a control record.

    This is a rename, columns that a policy adds or drops, or types that no promotion leads to. It is a rename if the
    record says so, one column disappeared and one appeared. A column that is left out of the lake may be renamed as
    well, and stays out. Raises SchemaError for what no policy allows.
    """
    gone, new = difference.gone, difference.new
    added = mappings.listed(spec)
    here = {*added, *(_known(definition, spec, mappings).get(n) for n in definition.columns)}
    lost = [*gone, *(c for c in mappings.file_columns(spec) if c not in spec.names and c not in here)]
    if definition.operation == RENAME and len(lost) == len(new) == 1:
        return (("rename", lost[0], new[0]),)
    if definition.operation != RENAME:
        known = _known(definition, spec, mappings)
        require_source_key(spec, (known.get(k, k) for k in definition.key), definition.where, added)
    if gone and new:
        return ()  # a choice that must be declared; the check of gone and new columns says so
    dropped = [("drop", n) for n in gone if spec.changes.gone == "drop" and n not in spec.key]
    return (*_added(definition, spec, new), *dropped, *_retyped(definition, difference.shape, spec, mappings, promotes))


def _added(definition: Definition, spec: TableSpec, new: list[str]) -> list[Event]:
    if spec.changes.new != "add":
        return []
    if unknown := [n for n in new if definition.columns[n] is None]:
        raise SchemaError(
            f"{definition.where}: unknown column '{unknown[0]}', whose type DMS did not send", f"add it to {spec.file}"
        )
    return [("add", n, definition.columns[n].type) for n in new]


def _retyped(
    definition: Definition, one: Shape, spec: TableSpec, mappings: Mappings, promotes: Callable[[str, str], bool]
) -> list[Event]:
    found: list[Event] = []
    known = _known(definition, spec, mappings)
    for new in (c for n, c in definition.columns.items() if c and n in known):
        name = known[new.name]
        kind, column = (one.carries or {}).get(name), spec.column(name)
        was = value_type(replace(column, lake=""))
        as_text = column.dms_type == "BOOLEAN" and kind == "string"  # how DMS's settings may write PostgreSQL's BOOLEAN
        if not kind or as_text or promotes(was, kind) or promotes(kind, was):
            continue
        if spec.changes.type != "beside" or name in spec.key:
            other = ", or keep the old column and add one of the new type: changes: {type: beside}"
            raise SchemaError(
                f"{definition.where}: column '{name}' is {column.type} in {spec.file} and {new.type} from here on: no promotion "
                "leads there",
                "load the table again with the new type" + ("" if name in spec.key else other),
            )
        found.append(("type", name, column.type, new.type))
    return found
