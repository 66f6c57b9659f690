"""The table mappings of a DMS task, resolved for each table once: under which names DMS writes it, with which columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from frazil.settings.column import Column
from frazil.settings.spec import TableSpec

SEQUENCE = re.compile(r"\s*\$?AR_H_CHANGE_SEQ\s*", re.IGNORECASE)
"""The expression of an added column that is the witness of order."""
RENAMED = "renamed "
"""Before a present name among those that a file carries: the file has the column under an earlier name."""
_IMAGES: dict[str, Callable[[Column, TableSpec], bool]] = {
    "pk-only": lambda column, spec: column.name in spec.key,
    "non-lob": lambda column, spec: column.dms_type not in ("CLOB", "NCLOB", "BLOB"),
    "all": lambda column, spec: True,
}
"""Which columns have a before-image, by the rule's filter."""
_RENAMES: dict[str, Callable[[str, str, str], str]] = {
    "rename": lambda name, value, old: value,
    "convert-lowercase": lambda name, value, old: name.lower(),
    "convert-uppercase": lambda name, value, old: name.upper(),
    "add-prefix": lambda name, value, old: value + name,
    "add-suffix": lambda name, value, old: name + value,
    "remove-prefix": lambda name, value, old: name.removeprefix(value),
    "remove-suffix": lambda name, value, old: name.removesuffix(value),
    "replace-prefix": lambda name, value, old: value + name[len(old) :] if name.startswith(old) else name,
    "replace-suffix": lambda name, value, old: name[: len(name) - len(old)] + value if name.endswith(old) else name,
}
"""What actions make of a name, with the rule's `value` and `old-value`."""


@dataclass(frozen=True)
class Written:
    """How DMS writes a table: `schema` and `table` name its folders, and stand in messages.

    `names` has by column of the spec its names in files, the present one first: in file order, added columns last. Columns
    that DMS leaves out are absent. `added` has the expression of each added column in the order of the rules, `images` the
    column of each before-image. `former_images` are names that before-images had earlier, or would have if the source's
    key had further columns.
    """

    schema: str
    table: str
    names: dict[str, tuple[str, ...]]
    added: dict[str, str]
    images: dict[str, str]
    former_images: dict[str, str]

    @property
    def sequence(self) -> str:
        """The name of the added column that is the witness of order; empty if there is none."""
        return next((name for name, expression in self.added.items() if SEQUENCE.fullmatch(expression)), "")

    @property
    def of_source(self) -> tuple[str, ...]:
        """The present names of the source's columns in files, without those that rules add."""
        return tuple(names[0] for column, names in self.names.items() if column not in self.added)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The column of the spec by each present name in files."""
        return {names[0]: column for column, names in self.names.items()}

    def columns_in(self, names: Collection[str], carried: Collection[str] = ()) -> dict[str, str]:
        """Return the column of the spec by those names in a file that are one; of a column's names the newest counts.

        So a file that has an earlier name alone does not have the column that took that name since, unless the file before
        `carried` the later name.
        """
        found: dict[str, str] = {}
        for column, known in sorted(self.names.items(), key=lambda entry: entry[1][0] in names):
            own = known[:1] if known[0] in carried and RENAMED + known[0] not in carried else known
            if newest := next((name for name in own if name in names and name not in found), ""):
                found[newest] = column
        return found


def resolve(rules: Sequence[dict], spec: TableSpec) -> Written:
    """Return how DMS writes a table by the rules of the task's mappings."""
    schema, table = spec.source.split(".")
    own = _Rules([r for r in rules if _is_about(r, {"schema-name": schema, "table-name": table})])
    added = {rule["value"]: rule.get("expression", "") for rule in own.acting("add-column")}
    columns = [column for column in spec.columns if column.name not in added and own.leaves(column.name)]
    listed = {column.name: (column.name, *column.renamed_from) for column in spec.columns}
    names = {c.name: tuple(dict.fromkeys(own.renamed("column", name) for name in listed[c.name])) for c in columns}
    names |= {name: listed[name] for name in added if name in listed}
    places = own.renamed("schema", schema), own.renamed("table", table)
    return Written(*places, names, added, *own.images(spec, columns, names))


@dataclass(frozen=True)
class _Rules:
    """The rules about a table."""

    rules: Sequence[dict]

    def acting(self, action: str) -> list[dict]:
        return [rule for rule in self.rules if rule.get("rule-action") == action]

    def leaves(self, column: str) -> bool:
        """Return whether the rules let DMS write a column."""
        removes, includes = (
            [_is_about(rule, {"column-name": column}) for rule in self.acting(action)]
            for action in ("remove-column", "include-column")
        )
        return not any(removes) and (any(includes) or not includes)

    def renamed(self, target: str, name: str) -> str:
        """Return the name of a schema, table or column after the rules; DMS applies one rule to an object."""
        for rule in self.rules:
            action = rule.get("rule-action", "")
            if rule.get("rule-target") == target and action in _RENAMES and _is_about(rule, {f"{target}-name": name}):
                return _RENAMES[action](name, rule.get("value") or "", rule.get("old-value") or "")
        return name

    def images(
        self, spec: TableSpec, columns: Sequence[Column], names: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the columns by the names of their before-images, and by further names that these may have."""
        rules = self.acting("add-before-image-columns")
        if not rules:
            return {}, {}
        stated = rules[0].get("before-image-def", {})
        has_image = _IMAGES.get(stated.get("column-filter", "pk-only"), _IMAGES["all"])
        prefix, suffix = stated.get("column-prefix", ""), stated.get("column-suffix", "")
        prefix = prefix if prefix or suffix else "BI_"
        own = {f"{prefix}{c.name}{suffix}": c.name for c in columns if has_image(c, spec)}
        known = [(name, c.name) for c in columns for name in (*c.renamed_from, *names[c.name][::-1], c.name)]
        return own, {f"{prefix}{name}{suffix}": c for name, c in known if f"{prefix}{name}{suffix}" not in own}


def _is_about(rule: dict, names: Mapping[str, str]) -> bool:
    """Return whether a rule's locator has some names; what it leaves out may be anything."""
    return all(_is_like(name, rule.get("object-locator", {}).get(part, "%")) for part, name in names.items())


def _is_like(name: str, pattern: str) -> bool:
    """Return whether a name is one of a locator's pattern: `%` any text, `_` any sign, `[ab]` one of some; in the same case."""
    forms = {"%": ".*", "_": "."}
    parts = re.findall(r"\[[^\]]+\]|.", pattern, re.DOTALL)
    signs = (forms.get(part) or (part.replace("\\", r"\\") if len(part) > 1 else re.escape(part)) for part in parts)
    return re.fullmatch("".join(signs), name, re.DOTALL) is not None
