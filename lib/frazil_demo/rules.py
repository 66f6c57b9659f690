"""A task's table mappings: which tables are selected, their names at the target, and which columns are added."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from frazil_demo.settings import SimulatorError, read_json
from frazil_old.config.columns import LOBS
from frazil_old.config.spec import Column, TableSpec
from frazil_old.dms.aws_json import read_rules as task_rules

ADDED = {
    "$AR_H_CHANGE_SEQ": "STRING", "$AR_H_STREAM_POSITION": "STRING", "$AR_H_OPERATION": "STRING",
    "$AR_H_COMMIT_TIMESTAMP": "DATETIME", "$AR_M_SOURCE_SCHEMA": "STRING", "$AR_M_SOURCE_TABLE_NAME": "STRING",
}  # fmt: skip
"""The expressions of add-column rules that the simulator supports, with the DMS type of their values."""

PARTITION_KEYS = ("schema-table", "primary-key")
_WANTED = {
    "pk-only": lambda spec, column: column.name in spec.key,
    "non-lob": lambda spec, column: column.dms_type not in LOBS,
    "all": lambda spec, column: True,
}
_RENAMES = {
    "rename": lambda name, rule: rule["value"],
    "convert-lowercase": lambda name, rule: name.lower(),
    "convert-uppercase": lambda name, rule: name.upper(),
    "add-prefix": lambda name, rule: rule["value"] + name,
    "add-suffix": lambda name, rule: name + rule["value"],
    "remove-prefix": lambda name, rule: name.removeprefix(rule["value"]),
    "remove-suffix": lambda name, rule: name.removesuffix(rule["value"]),
}


@dataclass(frozen=True)
class BeforeImage:
    """The columns whose old values are written too, with their names; `whole` means more than the key's."""

    names: dict[str, str] = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True)
class TableRules:
    """The results of the rules for one table."""

    schema: str
    table: str
    added: tuple[tuple[Column, str], ...] = ()
    """Added columns with their expressions, in rule order."""
    before: BeforeImage = BeforeImage()
    partition_key: str = ""
    """For a stream: the partition-key-type that object mapping states; empty if none."""
    topic: str = ""

    @property
    def folder(self) -> str:
        """The table's folder: `schema/table`, by their names at the target."""
        return f"{self.schema}/{self.table}"


def _matches(rule: dict, schema: str, table: str | None = None) -> bool:
    """Return whether a rule's locator matches a schema, or a table in it; `%` matches any characters."""
    at = rule.get("object-locator", {})
    pairs = [(schema, at.get("schema-name", "%"))] + ([(table, at.get("table-name", "%"))] if table is not None else [])
    return all(re.fullmatch(re.escape(p).replace("%", ".*"), name, re.DOTALL) for name, p in pairs)


class Rules:
    """The table mappings of a replication task."""

    def __init__(self, rules: Iterable[dict], where: str = "table mappings"):
        """Take rules in their JSON form; raise SimulatorError for those that the simulator does not apply."""
        self.rules, self._known = tuple(rules), {}
        for rule in self.rules:
            _check(rule, f"{where}: rule '{rule.get('rule-name', rule.get('rule-id', '?'))}'")
        if not any(r.get("rule-type") == "selection" for r in self.rules):
            raise SimulatorError(f"{where}: no selection rule", "say which tables to include")

    def selected(self, names: Iterable[str]) -> list[str]:
        """Return the tables (`schema.table`) that the selection rules include and none excludes."""
        rules = [r for r in self.rules if r.get("rule-type") == "selection"]
        taken = [r for r in rules if r["rule-action"] != "exclude"]
        dropped = [r for r in rules if r["rule-action"] == "exclude"]

        def by(rules: list[dict], name: str) -> bool:
            return any(_matches(r, *name.split(".", 1)) for r in rules)

        return [n for n in names if by(taken, n) and not by(dropped, n)]

    def of(self, spec: TableSpec) -> TableRules:
        """Return the results of the transformation rules for a table."""
        known = self._known.get(spec.source)
        if known is None or known[0] is not spec:
            known = self._known[spec.source] = (spec, self._made(spec))
        return known[1]

    def _made(self, spec: TableSpec) -> TableRules:
        names = {"schema": spec.schema_name, "table": spec.table_name}
        added, before, mapped = [], BeforeImage(), {}
        for rule in (r for r in self.rules if r.get("rule-type") == "object-mapping"):
            if _matches(rule, spec.schema_name, spec.table_name):
                key = rule.get("mapping-parameters", {}).get("partition-key-type", "")
                mapped = {"partition_key": key, "topic": rule.get("kafka-target-topic", "")}
        for rule in (r for r in self.rules if r.get("rule-type") == "transformation"):
            action, on = rule["rule-action"], rule.get("rule-target", "column")
            if not _matches(rule, spec.schema_name, None if on == "schema" else spec.table_name):
                continue
            if action in _RENAMES:
                names[on] = _RENAMES[action](names[on], rule)
            elif action == "add-column":
                stated = rule.get("data-type", {}).get("type", ADDED[rule["expression"]])
                added.append((Column(rule["value"], stated.upper()), rule["expression"]))
            elif not before.names:
                before = _before_image(rule, spec)
        return TableRules(names["schema"], names["table"], tuple(added), before, **mapped)


def read_rules(file: Path) -> Rules:
    """Read the table mappings (`{"rules": [...]}`) from the JSON file that a replication task takes."""
    raw = read_json(file, "table mappings")
    return Rules(raw.get("rules", ()) if "ReplicationTasks" not in raw else task_rules(file), str(file))


def _before_image(rule: dict, spec: TableSpec) -> BeforeImage:
    stated = rule.get("before-image-def", {})
    prefix, suffix = stated.get("column-prefix", ""), stated.get("column-suffix", "")
    prefix = prefix if prefix or suffix else "BI_"
    wanted = stated.get("column-filter", "pk-only")
    names = {c.name: f"{prefix}{c.name}{suffix}" for c in spec.columns if _WANTED[wanted](spec, c)}
    return BeforeImage(names, wanted != "pk-only")


def _check(rule: dict, where: str) -> None:
    """Raise SimulatorError for a rule that the simulator does not apply."""
    kind, action, on = rule.get("rule-type"), rule.get("rule-action"), rule.get("rule-target")
    if kind == "selection" and action in ("include", "exclude", "explicit") and not rule.get("filters"):
        return
    partition_key = rule.get("mapping-parameters", {}).get("partition-key-type", "schema-table")
    if kind == "object-mapping" and action == "map-record-to-record" and partition_key in PARTITION_KEYS:
        return
    if kind == "transformation" and action == "add-column":
        if rule.get("expression") in ADDED:
            return
        raise SimulatorError(
            f"{where}: expression {rule.get('expression')!r}", "the simulator knows " + ", ".join(ADDED)
        )
    if kind == "transformation" and action == "add-before-image-columns":
        wanted = rule.get("before-image-def", {}).get("column-filter", "pk-only")
        if wanted in _WANTED:
            return
        raise SimulatorError(f"{where}: column-filter '{wanted}'", "the simulator knows " + ", ".join(_WANTED))
    if kind == "transformation" and action in _RENAMES and on in ("schema", "table"):
        if "value" in rule or action.startswith("convert"):
            return
        raise SimulatorError(f"{where}: {action} without a value", "say which")
    filtered = " with filters" if rule.get("filters") else ""
    on = f" on {on}" if on and kind == "transformation" else ""
    raise SimulatorError(
        f"{where}: the simulator does not support {kind} / {action}{on}{filtered}",
        "it knows selection rules without filters, names of schemas and tables, add-column, add-before-image-columns",
    )
