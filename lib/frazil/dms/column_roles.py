"""The role of each column of a file, by its name and its place.

DMS writes `[Op] [time] <source columns> [added columns] [before-images]`. The source may have columns of the same names,
or columns that the spec lacks: then the place decides, and a file in which it does not is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from frazil.core.changes import AFTER, BEFORE, COMMITTED, OP, OPERATIONS, SEQUENCE
from frazil.core.exact import arrow_type, typed
from frazil.dms.mappings import Written
from frazil.dms.source_file import OP_NAME, SourceFile, SourceTable
from frazil.errors import FrazilError

UNKNOWN = "unknown "
"""The role of a column that nothing names, before its name."""
_VALUE = re.compile(r"[+-]?[0-9][0-9.eE+: -]*")
"""A number, a day or a moment."""


class UnclearColumnError(FrazilError, code="column-unclear"):
    """A file has a column twice, or one that may be the source's or DMS's. Give one of them another name, and have DMS write the file again."""


def roles_by_name(
    names: Sequence[str], table: SourceTable, file: SourceFile, carried: Collection[str] = ()
) -> list[str]:
    """Return the role of each column of a file; `carried` are names that the file before has.

    A role is as in `core.changes.Reading`, of any column of the spec, or `unknown <name>`. Raises UnclearColumnError.
    """
    written = table.written
    source = written.columns_in(names, carried)
    rules = _roles_of_rules(written, source)
    roles = _own_columns(names, source, table, file)
    behind = _places_of_rules(names, roles, rules, source)
    between = [place for place in range(len(names)) if place not in {*roles, *behind.values()}]
    of_source = [names[place] for place in between]
    for name, place in behind.items():
        is_source = name in source and name not in of_source
        if is_source and name not in written.added:
            raise _unclear(name, place, table, file)
        roles[place] = AFTER + source[name] if is_source else rules[name]
    for place, name in zip(between, of_source, strict=True):
        if of_source.count(name) > 1:
            shown = " and ".join(str(n + 1) for n in between if names[n] == name)
            cure = "rename one of them by a rule of the task, and have DMS write the file again"
            raise UnclearColumnError(f"{file.where}: the column '{name}' stands at the places {shown}", cure)
        is_rules = name in rules and name not in {*source, *behind}
        if is_rules and rules[name].startswith(BEFORE):
            raise _unclear(name, place, table, file)
        roles[place] = AFTER + source[name] if name in source else rules[name] if is_rules else UNKNOWN + name
    return [roles[place] for place in range(len(names))]


def _roles_of_rules(written: Written, source: Collection[str]) -> dict[str, str]:
    """Return the roles of before-images and added columns by their names."""
    former = {name: column for name, column in written.former_images.items() if name not in source}
    images = {name: BEFORE + column for name, column in (former | written.images).items()}
    return images | {name: SEQUENCE if name == written.sequence else "" for name in written.added}


def _own_columns(
    names: Sequence[str], source: Mapping[str, str], table: SourceTable, file: SourceFile
) -> dict[int, str]:
    """Return the places of operation and time. Of a name that the source has too, the first is DMS's if it stands twice."""
    roles, has_op = dict[int, str](), table.has_op(file)
    ops = [place for place, name in enumerate(names) if name.lower() == OP_NAME.lower() and (has_op or place == 0)]
    times = [place for place, name in enumerate(names) if name == table.target.timestamp_column_name]
    for role, places, is_stated in ((OP, ops, has_op), (COMMITTED, times, True)):
        if places and (len(places) > 1 or names[places[0]] not in source):
            roles[places[0]] = role
        elif places and is_stated and places[0] == len(roles):
            raise _unclear(names[places[0]], places[0], table, file)
    return roles


def _places_of_rules(
    names: Sequence[str], own: Collection[int], rules: Collection[str], source: Collection[str]
) -> dict[str, int]:
    """Return the places of the columns that rules add: behind all of the source's, if DMS's own stand in front."""
    found: dict[str, int] = {}
    for place in reversed(range(len(names))):
        name = names[place]
        if place not in own and name in rules and name not in found:
            found[name] = place
        elif place not in own and name in source and [*own] == [*range(len(own))]:
            break
    return found


def _unclear(name: str, place: int, table: SourceTable, file: SourceFile) -> UnclearColumnError:
    problem = f"{file.where}: the column '{name}' at place {place + 1} may be the source's or DMS's"
    cure = "rename DMS's by TimestampColumnName or a rule, and have it write the file again"
    if name not in table.written.columns:
        cure = f"if the source has a column of that name, list it in {table.spec.file}; else {cure}"
    return UnclearColumnError(problem, cure)


def has_header(row: Sequence[str], table: SourceTable, file: SourceFile) -> bool:
    """Return whether the first row of a CSV file has names; the setting decides if the row itself does not tell."""
    written, has_op = table.written, table.has_op(file)
    known = {*sum(written.names.values(), ()), *written.added, *written.images, *written.former_images}
    named, has_values = known.intersection(row), any(map(_VALUE.fullmatch, {*row} - known))
    if has_op and row[0] in OPERATIONS:
        return False
    begins = has_op and row[0].lower() == OP_NAME.lower()
    begins = begins or (row[0] == table.target.timestamp_column_name != "" and not known.isdisjoint(row[1:2]))
    if begins or (len(written.columns) > 1 and {*row} >= {*written.columns}):
        return True
    if not has_values and all(row) and _has_no_value(named, table):
        return True
    return table.target.add_column_name and bool(named)


def _has_no_value(names: set[str], table: SourceTable) -> bool:
    """Return whether some names have all columns of the key, and one of them cannot be a value of its column."""
    types = {column.name: arrow_type(column.value_type) for column in table.spec.columns}
    kinds = [(name, types[column]) for column, own in table.written.names.items() for name in names.intersection(own)]
    has_key = all(names.intersection(table.written.names.get(column, ())) for column in table.spec.key)
    return has_key and any(typed(pa.array([name]), kind)[1] is not None for name, kind in kinds)
