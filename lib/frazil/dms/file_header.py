"""The role of each column of a file, by its name and its place.

DMS writes `[Op] [time] <source columns> [added columns] [before-images]`. The source may have columns of the same names,
or columns that the spec lacks: then the place decides, and a file in which it does not is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.core.changes import AFTER, BEFORE, COMMITTED, OP, OPERATIONS, SEQUENCE
from frazil.core.exact import arrow_type, typed
from frazil.dms.mappings import Written
from frazil.dms.source_file import SourceFile
from frazil.errors import FrazilError
from frazil.settings.spec import TableSpec

if TYPE_CHECKING:
    from frazil.dms.endpoint import S3Target

OP_NAME, UNKNOWN = "Op", "unknown "
"""DMS's name of the operation, in any case; and the role of a column that nothing names, before its name."""
_VALUE = re.compile(r"[+-]?[0-9][0-9.eE+: -]*")
"""A number, a day or a moment."""


class UnclearColumnError(FrazilError, code="column-unclear"):
    """A file has a column twice, or one that may be the source's or DMS's. Give one of them another name, and have DMS write the file again."""


@dataclass(frozen=True)
class SourceTable:
    """A table's spec, how DMS writes the table, and the target's settings."""

    spec: TableSpec
    written: Written
    target: S3Target

    def has_op(self, file: SourceFile) -> bool:
        """Return whether a file has the operation by the settings. Files of all tables always have it."""
        return file.of_all_tables or (self.target.op_in_load if file.of_load else self.target.op_in_changes)


def roles_by_name(names: Sequence[str], table: SourceTable, has_op: bool, where: str) -> list[str]:
    """Return the role of each column of a file; `has_op` says whether the settings state an operation.

    A role is as in `core.changes.Reading`, of any column of the spec, or `unknown <name>`.
    """
    source = table.written.columns_in(names)
    roles = _own_columns(names, table, source, has_op, where)
    rules = _roles_of_rules(table.written, source)
    of_rules = _places_of_rules(names, roles, rules, source)
    places = [place for place in range(len(names)) if place not in {*roles, *of_rules.values()}]
    by_name = {names[place]: place for place in places}
    for place in places:
        name = names[place]
        if by_name[name] != place:
            cure = "rename one of the two by a rule of the task, and have DMS write the file again"
            problem = f"{where}: the column '{name}' stands at the places {place + 1} and {by_name[name] + 1}"
            raise UnclearColumnError(problem, cure)
        role = AFTER + source[name] if name in source else UNKNOWN + name
        roles[place] = role if name in {*source, *of_rules} else rules.get(name, role)
        if roles[place].startswith(BEFORE):
            raise _unclear(name, place, table, where)
    for name, place in of_rules.items():
        is_listed = name in source and name not in by_name
        if is_listed and name not in table.written.added:
            raise _unclear(name, place, table, where)
        roles[place] = AFTER + source[name] if is_listed else rules[name]
    return [roles[place] for place in range(len(names))]


def _roles_of_rules(written: Written, source: Collection[str]) -> dict[str, str]:
    """Return the roles of before-images and added columns by their names."""
    further = {name: BEFORE + column for name, column in written.further_images.items() if name not in source}
    images = {name: BEFORE + column for name, column in written.images.items()}
    return further | images | {name: SEQUENCE if name == written.sequence else "" for name in written.added}


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


def _own_columns(
    names: Sequence[str], table: SourceTable, source: Collection[str], has_op: bool, where: str
) -> dict[int, str]:
    """Return the places of operation and time. Of a name that the source has too, the first is DMS's if it stands twice."""
    roles, time = {}, table.target.timestamp_column_name
    alike = [place for place, name in enumerate(names) if name.lower() == OP_NAME.lower()]
    if alike and (has_op or alike[0] == 0):
        if len(alike) > 1 or names[alike[0]] not in source:
            roles[alike[0]] = OP
        elif has_op:
            raise _unclear(names[alike[0]], alike[0], table, where)
    times = [place for place, name in enumerate(names) if name == time]
    if times and (len(times) > 1 or time not in source):
        roles[times[0]] = COMMITTED
    elif times and times[0] == len(roles):
        raise _unclear(time, times[0], table, where)
    return roles


def _unclear(name: str, place: int, table: SourceTable, where: str) -> UnclearColumnError:
    problem = f"{where}: the column '{name}' at place {place + 1} may be the source's or DMS's"
    if name in table.written.columns:
        cure = f"rename DMS's by TimestampColumnName or a rule of the task, and have it write the file again; if the source has none, take it out of {table.spec.file}"
    else:
        cure = (
            f"if the source has a column of that name, list it in {table.spec.file}; exclude leaves it out of the lake"
        )
    return UnclearColumnError(problem, cure)


def has_header(row: Sequence[str], table: SourceTable, has_op: bool) -> bool:
    """Return whether the first row of a CSV file has names; the setting decides if the row itself does not tell."""
    written, time = table.written, table.target.timestamp_column_name
    known = {*written.columns, *written.former, *written.added, *written.images, *written.further_images}
    if has_op and row[0] in OPERATIONS:
        return False
    begins = row[0].lower() == OP_NAME.lower() or (row[0] == time != "")
    if begins and not {*row[1:2]}.isdisjoint({*known, time}):
        return True
    if len(written.columns) > 1 and {*row} >= {*written.columns}:
        return True
    named, values = known.intersection(row), [text for text in row if text not in known and _VALUE.fullmatch(text)]
    if not values and all(row) and _has_no_value(named, table):
        return True
    return table.target.add_column_name and bool(named or not values)


def _has_no_value(names: Collection[str], table: SourceTable) -> bool:
    """Return whether one of some names cannot be a value of its column."""
    of_name, columns = table.written.former | table.written.columns, {c.name: c for c in table.spec.columns}
    kinds = ((name, arrow_type(columns[of_name[name]].value_type)) for name in names if name in of_name)
    return any(typed(pa.array([name]), kind)[1] is not None for name, kind in kinds)
