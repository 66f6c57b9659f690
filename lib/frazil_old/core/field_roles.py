"""The role of each field of a file, by its name and its place.

DMS writes `[Op] [timestamp] <source columns> [added columns] [before-image columns]`. A table's own columns may have
the names that DMS adds. Then the place decides, and a file in which it cannot is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeVar

from frazil_old.errors import FrazilError

UNKNOWN = "?"
"""Prefix of the role of an undeclared field; its name follows."""
SEQUENCE_AS = "seq:"
"""Prefix of the role of the sequence if the spec lists it as a column; its name follows."""
ORIGIN, ORIGIN_AS = "origin:", "origin after:"
"""Prefixes of the role of a column with a row's source table; the second one if the lake also has it as a column."""
TABLE, SCHEMA = "table", "schema"
"""The roles of the fields that name a row's table in files of all tables."""
_SOURCE, _ADDED, _BEFORE = range(3)
"""The kinds of columns after operation and time, in the order in which DMS writes them."""
_Role = tuple[int, str]
T = TypeVar("T")


class ColumnPlaceError(FrazilError):
    """A file has a column twice, or a name that may be one of two columns at its place."""


@dataclass(frozen=True)
class FieldNames:
    """The names that fields may have; `source`, `added` and `before` give each name its role."""

    op: str
    time: str
    """Empty: DMS writes no commit time."""
    source: Mapping[str, str]
    added: Mapping[str, str]
    before: Mapping[str, str]
    added_beside: Mapping[str, str] = field(default_factory=dict)
    """The same as `added`, if the source also has a column of the name, which the lake has then."""
    rare: Mapping[str, str] = field(default_factory=dict)
    """Before-image columns of columns outside the spec's key: DMS writes them if they are in the source's key."""
    spec: str = "the spec"
    reused: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    """By a former name that another column has now: the renamed column's role, and its later names. A file without these is older."""


def fields_by_role(roles: Sequence[str], fields: Sequence[T]) -> dict[str, T]:
    """Return the fields by role. A sequence or an origin that the lake also has as a column has both roles."""
    found = dict(zip(roles, fields, strict=True))
    for begin, also in ((SEQUENCE_AS, "seq"), (ORIGIN_AS, ORIGIN)):
        for role in [r for r in found if r.startswith(begin)]:
            name = role.removeprefix(begin)
            found |= {also + name if also == ORIGIN else also: found[role], f"after:{name}": found[role]}
    return found


def field_roles(names: Sequence[str], known: FieldNames, op_is_stated: bool, where: str) -> list[str]:
    """Return the role of each field of a file that names them.

    `op_is_stated`: the settings say that files have the operation. That decides if the source's first column has its name.
    """
    if older := {n: role for n, (role, later) in known.reused.items() if n in names and later.isdisjoint(names)}:
        known = replace(known, source={**known.source, **older})
    names, roles = list(names), leading_roles(names, known, op_is_stated, where)
    if not roles and (found := _in_any_order(names, known, op_is_stated)):
        return found
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names[len(roles) :], len(roles)):
        places.setdefault(name, []).append(place)
    may_be = {name: _candidates(name, at, known, where) for name, at in places.items()}
    taken = {
        p: r
        for name, at in places.items()
        if len(at) == len(may_be[name])
        for p, r in zip(at, may_be[name], strict=True)
    }
    for name, at in places.items():
        if len(at) < len(may_be[name]):
            found = _by_place(at, may_be[name], taken)
            if found is None:
                raise _ambiguous(name, at[0], known, where)
            taken |= dict(zip(at, found, strict=True))
    for name, at in places.items():
        if len(at) > 1 and taken[at[0]][0] == _SOURCE and taken[at[1]][0] == _ADDED:
            taken[at[1]] = (_ADDED, known.added_beside.get(name, known.added[name]))
    _require_images_last(names, taken, known, where)
    roles += [taken[place][1] for place in range(len(roles), len(names))]
    if known.op.lower() != "op" and "op" not in roles:  # another tool may write its column anywhere
        roles = ["op" if r[:1] == UNKNOWN and r[1:].lower() == known.op.lower() else r for r in roles]
    return roles


def _in_any_order(names: list[str], known: FieldNames, op_is_stated: bool) -> list[str] | None:
    """Return the roles in a file of another tool: operation and time have other places, and no name can be two columns.

    None: the file is in DMS's order, or does not show that it is not.
    """
    if not known.time:
        return None
    control = {known.time.lower(): "ts"} | ({known.op.lower(): "op"} if op_is_stated else {})
    lower = [n.lower() for n in names]
    source = {n.lower() for n in known.source if n not in known.added}
    theirs = {n.lower() for n in (*known.added, *known.before)} | control.keys()
    if len({*lower}) < len(lower) or source & theirs or not control.keys() <= {*lower}:
        return None
    by_name = {**known.rare, **known.source, **known.added, **known.before}
    return [control.get(low) or by_name.get(n, UNKNOWN + n) for n, low in zip(names, lower, strict=True)]


def leading_roles(names: Sequence[str], known: FieldNames, op_is_stated: bool, where: str) -> list[str]:
    """Return the roles of the first fields that are DMS's own: operation and commit time, if a file has them."""
    names, roles = list(names), []
    alike = [i for i, n in enumerate(names) if n.lower() == known.op.lower()]
    if alike[:1] == [0]:
        apart = len(alike) > 1 or names[0] not in known.source or (known.time and names[1:2] == [known.time])
        if not apart and op_is_stated:
            raise _ambiguous(names[0], 0, known, where)
        roles += ["op"] if apart else []
    if known.time and names[len(roles) : len(roles) + 1] == [known.time]:
        if known.time in known.source and names.count(known.time) == 1:
            raise _ambiguous(known.time, len(roles), known, where)
        roles.append("ts")
    return roles


def _candidates(name: str, at: list[int], known: FieldNames, where: str) -> list[_Role]:
    """Return the possible roles of a name, in DMS's order; there are at least as many as places."""
    kinds = ((_SOURCE, known.source), (_ADDED, known.added), (_BEFORE, known.before))
    found = [(kind, roles[name]) for kind, roles in kinds if name in roles]
    if len(found) < len(at) or not found:
        found += [(_BEFORE, known.rare[name])] if name in known.rare and name not in known.before else []
        found = found if name in known.source else [(_SOURCE, UNKNOWN + name), *found]
    if len(found) < len(at):
        listed = ", ".join(str(p + 1) for p in at)
        raise ColumnPlaceError(
            f"{where}: column '{name}' occurs {len(at)} times, at places {listed}, and nothing shows which one is meant",
            "have DMS write the file again with each name once, or rename one of the columns by a rule of the task",
        )
    return found


def _by_place(at: list[int], may_be: list[_Role], taken: Mapping[int, _Role]) -> tuple[_Role, ...] | None:
    """Return the role of each place if candidates outnumber places, by the fields around it; None: unclear."""
    sure = {place: kind for place, (kind, role) in taken.items() if not role.startswith(UNKNOWN)}

    def fits(place: int, kind: int) -> bool:
        return all((other <= kind) if p < place else (other >= kind) for p, other in sure.items())

    options = [o for o in combinations(may_be, len(at)) if all(fits(p, r[0]) for p, r in zip(at, o, strict=True))]
    kinds, role = {kind for kind, _ in may_be}, may_be[0][1]
    if _ADDED in kinds or role.startswith(UNKNOWN):
        # A spec that lists an added column means that one, and what has a before-image's name is one where it can be.
        options = [o for o in options if o[0][0] != _SOURCE] or options
    return options[0] if len(options) == 1 else None


def _require_images_last(names: Sequence[str], taken: Mapping[int, _Role], known: FieldNames, where: str) -> None:
    """Raise ColumnPlaceError for a before-image column with a source column after it: DMS writes these last."""
    listed = [p for p, (kind, role) in taken.items() if kind == _SOURCE and not role.startswith(UNKNOWN)]
    for place, (kind, _) in sorted(taken.items()):
        if kind == _BEFORE and place < max(listed, default=-1):
            raise ColumnPlaceError(
                f"{where}: column '{names[place]}' at place {place + 1} has the name of a before-image column, which DMS "
                f"writes after all columns of the source, and '{names[max(listed)]}' comes later",
                f"list it in {known.spec} if the source has it (exclude leaves it out of the lake)",
            )


def _ambiguous(name: str, place: int, known: FieldNames, where: str) -> ColumnPlaceError:
    return ColumnPlaceError(
        f"{where}: column '{name}' at place {place + 1} may be the source's own or the one of that name that DMS adds",
        "have DMS write the file again with both, or give its column another name (the endpoint's TimestampColumnName, the task's "
        f"rules); if the source has none, take it out of {known.spec}",
    )
