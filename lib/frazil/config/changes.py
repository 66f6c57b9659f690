"""A spec's entries about changed columns: the policies, and earlier layouts of headerless files."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.config.columns import SpecError, require_known
from frazil.errors import nearest

POLICIES = {
    "new": ("refuse", "add", "ignore"), "gone": ("refuse", "keep", "drop"), "type": ("refuse", "beside"), "key": ("refuse", "keep"),
}  # fmt: skip
"""The allowed values of each policy, the default first; see `Changes`."""


@dataclass(frozen=True)
class Changes:
    """What to do when a table's columns change in a way that the spec alone does not settle. Empty: not stated.

    `new`: files carry a column that is not in the spec.

    `gone`: the spec no longer lists a column (`keep` it with its values, or `drop` it). If only the files no longer
    carry it, it is kept.

    `type`: the column's type in the lake cannot be promoted to the spec's. `beside` renames the old column to
    `<name>_<type>` and adds a new one.

    `key`: the source's primary key is known and differs from the spec's. `keep` uses the spec's, which must then stay
    unique.
    """

    new: str = ""
    gone: str = ""
    type: str = ""
    key: str = ""

    def over(self, default: Changes) -> Changes:
        """Fill empty policies from `default`, then with the first value of each policy."""
        return Changes(*(getattr(self, n) or getattr(default, n) or known[0] for n, known in POLICIES.items()))


@dataclass(frozen=True)
class PastLayout:
    """The fields of headerless files written up to and including `until`: a file's name, or a time as in file names."""

    until: str
    columns: tuple[str, ...] = ()
    """The source's columns at that time; empty: the same as now."""
    load: bool = False
    """Whether the load files also have this layout; otherwise they have the present one."""
    without: tuple[str, ...] = ()
    """Columns that rules of the task add now and did not add then, including before-image columns."""


def parse_changes(raw, where: str) -> Changes:
    """Check the policies in `changes`, of a spec or of the settings."""
    if not isinstance(raw or {}, dict):
        raise SpecError(f"{where}: changes = {raw!r}", "write changes: {new: add, gone: keep, type: beside}")
    for name, value in (raw or {}).items():
        if name not in POLICIES:
            raise SpecError(f"{where}: changes: unknown entry '{name}'", nearest(name, POLICIES))
        if value not in POLICIES[name]:
            raise SpecError(f"{where}: changes: {name} = {value!r}", f"write {', '.join(POLICIES[name])}")
    return Changes(**(raw or {}))


def parse_layouts(entries, where: str) -> tuple[PastLayout, ...]:
    """Return the earlier layouts, oldest first."""
    found = []
    for entry in entries or ():
        parts = [entry.get(n) for n in ("columns", "without")] if isinstance(entry, dict) and entry.get("until") else []
        if not any(parts) or not all(isinstance(p or [], list) for p in parts):
            raise SpecError(
                f"{where}: layouts: {entry!r}",
                "write {until: 20240101-100000000.csv, columns: [id, name]}, oldest first; without: [src] names columns "
                "that a rule of the task adds only later",
            )
        require_known(entry, ("until", "columns", "load", "without"), f"{where}: layouts")
        columns, without = (tuple(str(c) for c in p or ()) for p in parts)
        found.append(PastLayout(str(entry["until"]), columns, bool(entry.get("load")), without))
    return tuple(found)
