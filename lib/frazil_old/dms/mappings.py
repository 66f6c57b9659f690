"""Reads the table mappings of a DMS task: which tables it selects and renames, and which columns it adds or removes.

So they also give the names that a table's columns have in DMS's JSON messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.config.columns import LOBS, SpecError
from frazil_old.config.spec import TableSpec
from frazil_old.dms.aws_json import read_rules
from frazil_old.dms.source_errors import EndpointError
from frazil_old.errors import nearest

if TYPE_CHECKING:
    from frazil_old.core.messages import MessageNames

SEQUENCE, INDICATOR = r"\$?AR_H_CHANGE_SEQ", r"operation_indicator\s*\(.*\)"
"""Expressions of added columns: SEQUENCE proves the order of changes; INDICATOR is the flag of a soft delete."""


def is_expression(form: str, expression: str) -> bool:
    """Return whether the expression of an add-column rule is SEQUENCE or INDICATOR, which `form` says."""
    return re.fullmatch(form, expression.strip(), re.I | re.S) is not None


def like(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern of an object locator: `%`, `_`, `[ab]`, `[a-d]`, `[_]`; case-sensitive."""
    parts = (p for p in re.split(r"(\[[^\]]+\]|%|_)", pattern) if p)
    form = "".join({"%": ".*", "_": "."}.get(p) or (p if p[0] == "[" and p[-1] == "]" else re.escape(p)) for p in parts)
    return re.fullmatch(form, name, re.S) is not None


def _is_of_column(rule: dict, name: str) -> bool:
    return like(rule.get("object-locator", {}).get("column-name", ""), name)


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


@dataclass(frozen=True)
class BeforeImage:
    """The rule add-before-image-columns: which columns also have their old value in the files, under which names."""

    prefix: str = "BI_"
    suffix: str = ""
    columns: str = "pk-only"
    added: frozenset[str] = frozenset()
    """Columns of the spec that rules add; they have no old value."""

    def names(self, spec: TableSpec) -> dict[str, str]:
        """Return {column: name of its before-image column} in file order."""
        wanted = {
            "pk-only": lambda c: c.name in spec.key,
            "non-lob": lambda c: c.dms_type not in LOBS,
            "all": lambda c: True,
        }[self.columns]
        source = [c for c in spec.file_columns if c.name not in self.added]
        return {c.name: f"{self.prefix}{c.name}{self.suffix}" for c in source if wanted(c)}


@dataclass(frozen=True)
class Mappings:
    """The rules of a task's table mappings, in DMS's form."""

    rules: tuple[dict, ...] = ()
    origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source table {added column: its value in the table's rows}, if several tables share a target name (`with_origins`)."""

    def _of(self, spec: TableSpec, kind: str = "transformation") -> list[dict]:
        def applies(rule: dict) -> bool:
            at = rule.get("object-locator", {})
            pairs = ((at.get("schema-name", "%"), spec.schema_name), (at.get("table-name", "%"), spec.table_name))
            return rule.get("rule-type") == kind and all(like(pattern, name) for pattern, name in pairs)

        return [r for r in self.rules if applies(r)]

    def _with_action(self, spec: TableSpec, action: str) -> list[dict]:
        return [r for r in self._of(spec) if r.get("rule-action") == action]

    def _renamed(self, spec: TableSpec, target: str, name: str, also: Callable[[dict], bool] = lambda r: True) -> str:
        """Return a name after the renaming rules for its kind of object; several must agree, as DMS applies one per object."""
        results = {}
        for rule in self._of(spec):
            action = rule.get("rule-action")
            if rule.get("rule-target") == target and action in _RENAMES and also(rule):
                results[_RENAMES[action](name, rule.get("value") or "", rule.get("old-value") or "")] = rule
        if len(results) > 1:
            named = ", ".join(f"'{r.get('rule-name', r.get('rule-id', '?'))}' → {n}" for n, r in results.items())
            raise EndpointError(
                f"table mappings: several rules rename the {target} '{name}' of {spec.source}: {named}",
                "DMS applies one rule per object: remove the rules that it does not apply from the copy of the mappings",
            )
        return next(iter(results), name)

    def target_name(self, spec: TableSpec) -> tuple[str, str]:
        """Return the folders that DMS writes a table to: schema and table after the renaming rules."""
        return self._renamed(spec, "schema", spec.schema_name), self._renamed(spec, "table", spec.table_name)

    def file_columns(self, spec: TableSpec) -> dict[str, str]:
        """Return {column of the spec: its name in the files}, in file order, without those that DMS leaves out.

        A spec may list a removed column (it stays null) and may use a column's name before or after a `rename`.
        """

        removing, including = self._with_action(spec, "remove-column"), self._with_action(spec, "include-column")
        added = self.listed(spec)

        def is_written(name: str) -> bool:
            is_removed = any(_is_of_column(r, name) for r in removing)
            return not is_removed and (not including or any(_is_of_column(r, name) for r in including))

        names = [c.name for c in spec.file_columns if c.name in added or is_written(c.name)]
        return {n: n if n in added else self.column_name(spec, n) for n in names}

    def column_name(self, spec: TableSpec, name: str) -> str:
        """Return a column's name in the files, after the renaming rules."""
        return self._renamed(spec, "column", name, lambda r: _is_of_column(r, name))

    def before_image(self, spec: TableSpec) -> BeforeImage | None:
        """Return the before-image rule of a table, or None."""
        for rule in self._with_action(spec, "add-before-image-columns"):
            d = rule.get("before-image-def", {})
            prefix, suffix = d.get("column-prefix", ""), d.get("column-suffix", "")
            columns, known = d.get("column-filter", "pk-only"), ("pk-only", "non-lob", "all")
            if columns not in known:
                raise EndpointError(f"table mappings: column-filter = {columns!r}", nearest(str(columns), known))
            return BeforeImage(prefix if prefix or suffix else "BI_", suffix, columns, frozenset(self.listed(spec)))
        return None

    def added(self, spec: TableSpec) -> dict[str, str]:
        """Return {added column: its expression} for a table, in rule order: {"seq": "$AR_H_CHANGE_SEQ"}."""
        return {r["value"]: r.get("expression", "") for r in self._with_action(spec, "add-column")}

    def origin(self, spec: TableSpec) -> Mapping[str, str]:
        """Return {added column: value} that distinguishes a table's rows from those of others in the same files; empty if not needed."""
        return self.origins.get(spec.source, {})

    def stated_values(self, spec: TableSpec) -> dict[str, str]:
        """Return {added column: its value} for rules whose value is the source's table, its schema, or a fixed text."""
        names = {"AR_M_SOURCE_TABLE_NAME": spec.table_name, "AR_M_SOURCE_SCHEMA": spec.schema_name}
        found = {}
        for column, expression in self.added(spec).items():
            text = expression.strip()
            if text.lstrip("$").upper() in names:
                found[column] = names[text.lstrip("$").upper()]
            elif quoted := re.fullmatch(r"'((?:[^']|'')+)'", text):
                found[column] = quoted[1].replace("''", "'")
        return found

    def listed(self, spec: TableSpec) -> list[str]:
        """Return the added columns that a spec lists, in its order: the lake has them unless the spec excludes them."""
        added = self.added(spec)
        return [c.name for c in spec.file_columns if c.name in added]

    def topic(self, spec: TableSpec) -> str:
        """Return the Kafka topic of a table's mapping rules; empty if there is none, or if they differ."""
        topics = {r.get("kafka-target-topic") or "" for r in self._of(spec, "object-mapping")}
        return topics.pop() if len(topics) == 1 else ""

    def sequence_column(self, spec: TableSpec) -> str:
        """Return the added column that proves the order of changes (`$AR_H_CHANGE_SEQ`); empty if there is none."""
        return next((c for c, e in self.added(spec).items() if is_expression(SEQUENCE, e)), "")

    def selects(self, spec: TableSpec) -> bool:
        """Return whether the task selects a table: a selection rule includes it and none excludes it, or no such rules exist."""
        if not any(r.get("rule-type") == "selection" for r in self.rules):
            return True
        actions = {r.get("rule-action") for r in self._of(spec, "selection")}
        return bool(actions & {"include", "explicit"}) and "exclude" not in actions


def _sharing(specs: Iterable[TableSpec], mappings: Mappings) -> dict[tuple[str, str], list[TableSpec]]:
    """Return the specs of source tables that rules rename to the same name, by that name."""
    by_name: dict[tuple[str, str], list[TableSpec]] = {}
    for spec in specs:
        by_name.setdefault(mappings.target_name(spec), []).append(spec)
    return {name: sharing for name, sharing in by_name.items() if len(sharing) > 1}


def with_origins(specs: Iterable[TableSpec], mappings: Mappings) -> Mappings:
    """Return mappings with the added columns that distinguish the rows of tables with the same target name."""
    found = {}
    for sharing in _sharing(specs, mappings).values():
        stated = {s.source: mappings.stated_values(s) for s in sharing}
        common = set.intersection(*[set(values) for values in stated.values()])
        common_values = {source: {c: v for c, v in values.items() if c in common} for source, values in stated.items()}
        if len({tuple(sorted(values.items())) for values in common_values.values()}) == len(sharing):
            found |= common_values
    return replace(mappings, origins=found)


def same_place(specs: Iterable[TableSpec], mappings: Mappings) -> dict[str, SpecError]:
    """Return {source table: error} for tables whose rows cannot be distinguished: rules rename several to one name."""
    found = {}
    for name, sharing in _sharing(specs, mappings).items():
        for spec in sharing if not mappings.origin(sharing[0]) else ():
            others = [s for s in sharing if s is not spec]
            found[spec.source] = SpecError(
                f"{spec.file} and {', '.join(s.file for s in others)} read the same rows: the task's rules rename "
                f"{', '.join(s.source for s in sharing)} to {'.'.join(name)}",
                "keep one spec, whose table then has the rows of all, which loses nothing; or change the rules so that each "
                "table has its own name, or a column with its name (add-column with $AR_M_SOURCE_TABLE_NAME), and load again",
            )
    return found


def read_mappings(path: Path | None) -> Mappings:
    """Read a task's table mappings from a JSON file; no file: no rules.

    Accepts `{"rules": [...]}`, or the output of `aws dms describe-replication-tasks`, where the rules are a string.
    """
    return Mappings(tuple(read_rules(path))) if path else Mappings()


def message_names(spec: TableSpec, mappings: Mappings) -> MessageNames:
    """Return the names of a table's columns in its messages."""
    from frazil_old.core.messages import MessageNames

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
