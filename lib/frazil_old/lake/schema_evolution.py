"""Schema evolution: the steps from a table's columns to those that its spec declares, by policy, and the resulting spec.

`steps_to` only computes; `evolve` commits. A finished step is not planned again, so a kill between schema and batch is
harmless: the batch finds the columns. Readers meanwhile see a column without values, or one under its new name.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from frazil_old.config.columns import free_name
from frazil_old.config.lake_types import OPERATION_COLUMNS, lake_type
from frazil_old.config.spec import Column, TableSpec
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm, jvm_schema
from frazil_old.lake.jvm_schema import RENAMED, Field
from frazil_old.lake.other_writers import COLUMNS, moved_columns, to_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark.sql import SparkSession

_DMS = {
    "boolean": "BOOLEAN", "int": "INT4", "bigint": "INT8", "float": "REAL4", "double": "REAL8", "string": "WSTRING",
    "binary": "BYTES", "date": "DATE", "timestamp": "DATETIME", "timestamp_ntz": "DATETIME",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


class SchemaError(FrazilError):
    """The source or the spec changed a table's columns in a way that needs a decision."""

    decision = True


def require_source_key(spec: TableSpec, source: Iterable[str], where: str, added: Collection[str] = ()) -> None:
    """Raise SchemaError if the source's primary key is not the spec's, unless a policy keeps the spec's; an empty key is ignored.

    The spec's key may also contain columns that the task adds (`added`).
    """
    own = set(spec.key) - set(added)
    if own and (key := tuple(source)) and set(key) != own and spec.changes.key != "keep":
        raise SchemaError(
            f"{where}: the source's primary key is ({', '.join(key)}), and ({', '.join(spec.key)}) in {spec.file}",
            f"write key: [{', '.join(key)}], drop the table, run 00_setup, and load it again; if the spec's key stays unique, "
            "say so: changes: {key: keep}",
        )


@dataclass(frozen=True)
class SchemaChange:
    """One change of a table's schema: its kind, the column, and the other arguments of `jvm_schema.change`."""

    kind: str
    name: str
    more: tuple[str, ...] = ()

    def __str__(self):
        return {
            "add": "add {n} {0}",
            "rename": "rename {n} to {0}",
            "widen": "widen {n} to {0}",
            "comment": "comment on {n}",
            "drop": "drop {n}",
            "keep": "keep {n}, which the spec no longer lists",
        }[self.kind].format(*self.more, n=self.name)


@dataclass(frozen=True)
class TableColumns:
    """The columns in a table's metadata: now, in the snapshot that a batch starts from, and at any time before.

    `former` has the names that each field id ever had.
    """

    fields: tuple[Field, ...]
    then: tuple[Field, ...] = ()
    first: frozenset[int] = frozenset()
    former: frozenset[tuple[int, str]] = frozenset()
    laid_out_by: frozenset[int] = frozenset()
    masked: frozenset[int] | None = None
    auto_columns: tuple[str, ...] = ()
    events: tuple[tuple[str, ...], ...] = ()


@lru_cache(maxsize=1024)
def columns_in_metadata(spark: SparkSession, name: str, schemas: tuple[str, int, int, str]) -> TableColumns:
    """Read the columns in a table's metadata; `schemas` is that of `TableState`, and identifies what was read before."""
    table = jvm.load_table(spark, name)
    ever = jvm_schema.ever(spark, table)
    now = ever[schemas[1]]
    return TableColumns(
        tuple(now),
        tuple(ever.get(schemas[2], now)),
        frozenset(f.id for f in ever[min(ever)]),
        frozenset((f.id, f.name) for schema in ever.values() for f in schema),
        frozenset(jvm_schema.laid_out_by(spark, table)),
        frozenset(json.loads(masked)) if (masked := table.properties().get(jvm_schema.MASKED)) else None,
        tuple(jvm_schema.auto_columns(table)),
        tuple(tuple(t) for t in jvm_schema.control_events(table)),
    )


def as_column(name: str, kind: str, comment: str = "") -> Column:
    """Return a column, as a spec would declare it, whose values have a Spark SQL type."""
    decimal = _DECIMAL.fullmatch(kind)
    dms = f"NUMERIC({decimal[1]},{decimal[2]})" if decimal else _DMS[kind]
    return Column(name, dms, comment=comment, utc=kind == "timestamp")


def with_control_records(spec: TableSpec, events: Iterable[Sequence[str]]) -> TableSpec:
    """Apply column changes from control records (`events`) to a spec, except those that the spec itself contains by now."""
    events, own = [e for e in events if e[0] != RENAMED], {c.name for c in spec.file_columns}
    for at, (kind, name, *more) in enumerate(events):
        names = {c.name for c in spec.file_columns}
        if (kind == "add" and names & {name, _name_at_last(name, events[at + 1 :])}) or (
            kind == "rename" and (name not in names or more[0] in names)
        ):
            continue
        if kind == "rename" and name in own:
            own = own - {name} | {more[0]}
        if kind == "drop":  # only what they added; the spec's own is dropped once no longer listed
            keep = own | (names - {name})
            columns, every = (tuple(c for c in part if c.name in keep) for part in (spec.columns, spec.all_columns))
            spec = replace(spec, columns=columns, all_columns=every)
            continue

        def after(c: Column, kind=kind, name=name, more=more) -> Column:
            if kind == "type":
                return replace(c, type=more[1], lake="") if (c.name, c.type) == (name, more[0]) else c
            if kind == "rename" and c.name == name:
                return replace(c, name=more[0], renamed_from=(name, *c.renamed_from))
            return replace(c, renamed_from=tuple(n for n in c.renamed_from if n != name))  # another column's since

        new = (Column(name, more[0]),) if kind == "add" else ()
        key = tuple(more[0] if kind == "rename" and k == name else k for k in spec.key)
        columns, every = (tuple(after(c) for c in part) for part in (spec.columns, spec.all_columns))
        spec = replace(spec, key=key, columns=(*columns, *new), all_columns=every and (*every, *new))
    return spec


def _name_at_last(name: str, later: Iterable[Sequence[str]]) -> str:
    for kind, old, *new in later:
        name = new[0] if kind == "rename" and old == name else name
    return name


def steps_to(
    table: TableColumns, spec: TableSpec, promotes: Callable[[str, str], bool], auto_columns: tuple[Column, ...] = ()
) -> tuple[list[SchemaChange], TableSpec]:
    """Return the steps from a table's columns to its spec's, and the spec by which rows are read and written after them.

    The latter also has the lake's columns that the spec does not list, and the lake's types where they are wider.
    `auto_columns` are columns that files carry and the policy adds. Raise SchemaError for changes that no policy allows.
    """
    have = {f.name: f for f in table.fields if not (spec.policy == "append" and f.name in OPERATION_COLUMNS)}
    operations = {*OPERATION_COLUMNS} - {c.name for c in spec.columns}
    if (spec.policy == "append") != (bool(operations) and operations <= {f.name for f in table.fields}):
        says, has = ("append", "no") if spec.policy == "append" else ("no longer append", "the")
        raise SchemaError(
            f"{spec.source}: {spec.file} says without_key: {says}, and the lake's table has {has} columns {', '.join(OPERATION_COLUMNS)}",
            "write without_key as it was when the table was made, or drop it and load it again",
        )
    steps, columns, taken = [], [], {}
    wanted = {c.name for c in spec.columns}
    _require_renames_done(table, spec, have)
    renamed = _pending_renames(spec, have)
    for c in (*spec.columns, *(n for n in auto_columns if n.name not in wanted)):
        f = have.get(renamed.get(c.name) or (c.name if c.name not in renamed.values() else ""))
        after = columns[-1].name if columns else ""
        if f is None:
            _require_no_near_miss(c, have, spec)
            steps.append(SchemaChange("add", c.name, (lake_type(c), c.comment, after)))
            columns.append(c)
            continue
        taken[f.name] = c
        if f.name != c.name:
            steps.append(SchemaChange("rename", f.name, (c.name,)))
        kind, kept = _retyped(f, c, spec, promotes, table.masked)
        if kind == "beside":
            steps += [
                SchemaChange("rename", f.name, (free_name(_name_of_old_column(c.name, f.type), {*have, *wanted}),)),
                SchemaChange("add", c.name, (lake_type(c), c.comment, after)),
            ]
        elif kind == "widen":
            steps.append(SchemaChange("widen", c.name, (lake_type(c),)))
        if c.comment and c.comment != f.comment and kind != "beside":
            steps.append(SchemaChange("comment", c.name, (c.comment,)))
        columns.append(kept)
    _require_same_key(table, spec, {n: c.name for n, c in taken.items()})
    _require_whole_rows(spec, steps)
    for name, f in have.items():
        if name not in taken:
            step = _gone(f, table, spec)
            steps.append(step)
            columns += [as_column(name, f.type, f.comment)] if step.kind == "keep" else []
    same = tuple(columns) == spec.columns
    return steps, spec if same else replace(spec, columns=tuple(columns), all_columns=spec.file_columns)


def _pending_renames(spec: TableSpec, have: Collection[str]) -> dict[str, str]:
    """Return the columns that the table has under an earlier name, with that name: another column may have it from now on."""
    earlier = {c.name: [n for n in c.renamed_from if n in have] for c in spec.columns if c.name not in have}
    return {name: names[0] for name, names in earlier.items() if names}


def _require_renames_done(table: TableColumns, spec: TableSpec, have: dict[str, Field]) -> None:
    """Raise SchemaError if the lake has a column both under its name and an earlier one, and was neither created so nor renamed."""
    for c in spec.columns:
        for old in {*c.renamed_from} & have.keys() - {c.name} if c.name in have else ():
            if (have[c.name].id, old) not in table.former and (RENAMED, old, c.name) not in table.events:
                raise SchemaError(
                    f"{spec.source}: column '{c.name}' was '{old}' by {spec.file}, and the lake has both: nothing shows which one it is",
                    f"if another '{c.name}' was dropped, undo the edit, apply all files from before, and rename by way of a third name, with 00_setup "
                    f"after each edit; if the lake's names are right already, remove '{old}' from renamed_from",
                )


def require_no_swap(spec: TableSpec) -> None:
    """Raise SchemaError for columns that take each other's names: nothing shows whether the lake's have done so, too."""
    taken = {c.name: {*c.renamed_from} - {c.name} for c in spec.columns}
    while ends := [name for name, others in taken.items() if not others & taken.keys()]:
        taken = {name: others for name, others in taken.items() if name not in ends}
    if taken:
        raise SchemaError(
            f"{spec.source}: columns {', '.join(taken)} take each other's names in {spec.file}, and neither the lake nor files show whether "
            "they have done so yet",
            "apply all files from before; then rename by way of a third name, with 00_setup after each of these edits; where the "
            "lake's names are right already, remove those of the other columns from renamed_from",
        )


def _require_no_near_miss(added: Column, have: Collection[str], spec: TableSpec) -> None:
    """Raise SchemaError if the lake lacks each earlier name of a new column, and has an unlisted column of nearly that name."""
    unlisted = sorted({*have} - {c.name for c in spec.columns})
    for name in added.renamed_from:
        if close := difflib.get_close_matches(name, unlisted, n=1, cutoff=0.75):
            raise SchemaError(
                f"{spec.source}: column '{added.name}' has renamed_from: {name} in {spec.file}, and the lake has no column '{name}'",
                f"write renamed_from: {close[0]} if that is the column, else leave {name} out",
            )


def _retyped(
    f: Field, c: Column, spec: TableSpec, promotes: Callable[[str, str], bool], masked: frozenset[int] | None
) -> tuple[str, Column]:
    """Return the step that a column's type needs (none, `widen`, `beside`), and the column as it is read after it.

    `masked` are the ids of the columns that hold hashes; None: not known.
    """
    kind = lake_type(c)
    masks_differ = masked is not None and f.type == kind and bool(c.mask) != (f.id in masked)
    if f.type == kind and not masks_differ:
        return "", c
    if not masks_differ and promotes(f.type, kind):
        return "widen", c
    if not masks_differ and not c.mask and promotes(kind, f.type):  # the lake's type is already wider, and stays
        return "", replace(c, lake=f.type)
    if spec.changes.type == "beside" and c.name not in spec.key:
        return "beside", c
    beside = "" if c.name in spec.key else ", or keep it and add a new column: changes: {type: beside}"
    if masks_differ:
        here, there = ("", "not ") if c.mask else ("not ", "")
        raise SchemaError(
            f"{spec.source}: column '{c.name}' is {here}masked in {spec.file}, and the lake's rows are {there}masked",
            f"correct the mask, or drop the table and load it again{beside}",
        )
    raise SchemaError(
        f"{spec.source}: column '{c.name}' is {f.type} in the lake and {c.type} ({kind}) in {spec.file}: no promotion leads there",
        f"correct the type, or drop the table and load it again{beside}",
    )


def _name_of_old_column(name: str, kind: str) -> str:
    return f"{name}_{re.sub(r'[^a-z0-9]+', '_', kind).strip('_')}"


def _gone(f: Field, table: TableColumns, spec: TableSpec) -> SchemaChange:
    """Return the step for a column of the lake that the spec does not list."""
    olds = "|".join(re.escape(_name_of_old_column(c.name, f.type)) for c in spec.columns)
    renamed = re.fullmatch(rf"({olds})(_\d+)?", f.name)
    if spec.changes.gone != "drop" and f.type not in _DMS and not _DECIMAL.fullmatch(f.type):
        raise SchemaError(
            f"{spec.source}: another writer added the column '{f.name}' of type {f.type}, which Frazil cannot write again",
            "copy it with the key to another table, which loses nothing, and drop it here by ALTER TABLE … DROP COLUMN",
        )
    if renamed or f.name in table.auto_columns or spec.changes.gone == "keep":
        return SchemaChange("keep", f.name)
    if spec.changes.gone != "drop":
        raise SchemaError(
            f"{spec.source}: the lake has a column '{f.name}' that {spec.file} does not list",
            f"list it again in {spec.file}, or write renamed_from at its new name if it was renamed; if the source has it no longer, "
            "changes: {gone: keep} keeps its values, and changes: {gone: drop} loses them",
        )
    if f.id in table.laid_out_by:
        raise SchemaError(
            f"{spec.source}: column '{f.name}' is gone, and the table is partitioned or sorted by it",
            "keep it (changes: {gone: keep}), or drop the table and load it again",
        )
    return SchemaChange("drop", f.name)


def _require_same_key(table: TableColumns, spec: TableSpec, now: dict[str, str]) -> None:
    """Raise SchemaError for another key: the old one identified the lake's rows. Only key columns are NOT NULL."""
    old = {now.get(f.name, f.name) for f in table.fields if f.required}
    if old != set(spec.key):
        raise SchemaError(
            f"{spec.source}: the key is ({', '.join(spec.key) or 'none'}) in {spec.file}, and the lake's rows are identified "
            f"by ({', '.join(sorted(old)) or 'none'})",
            "correct the key, or drop the table, run 00_setup, and load it again: only the source knows which rows are the same row",
        )


def _require_whole_rows(spec: TableSpec, steps: list[SchemaChange]) -> None:
    if spec.policy == "multiset" and any(s.kind not in ("comment", "widen", "rename") for s in steps):
        raise SchemaError(
            f"{spec.source}: columns of a table without key changed ({', '.join(map(str, steps))})",
            "its rows are compared whole: drop the table and load it again",
        )


def evolve(
    spark: SparkSession,
    name: str,
    steps: list[SchemaChange],
    auto_columns: tuple[Column, ...] = (),
    events: tuple[tuple[str, ...], ...] = (),
    masked: Collection[str] = (),
) -> None:
    """Commit the steps: first the renames alone, as another column may take the old name; then all others in one commit.

    The columns from control records (`events`) are stored with the first commit: without them the spec's columns would
    not be recognised later.
    """
    new = {c.name for c in auto_columns}
    for part in ([s for s in steps if s.kind == "rename"], [s for s in steps if s.kind not in ("rename", "keep")]):
        table = jvm.load_table(spark, name)
        notes = {jvm_schema.CONTROL_EVENTS: json.dumps([*jvm_schema.control_events(table), *events])} if events else {}
        if added := [s.name for s in part if s.kind == "add" and s.name in new]:
            notes[jvm_schema.AUTO_COLUMNS] = json.dumps(list(dict.fromkeys([*jvm_schema.auto_columns(table), *added])))
        if part or events:
            known = table.properties().get(COLUMNS)
            if moved_columns(known, jvm_schema.ids(spark, table)):  # by another writer: the recorded ids stay
                noted = partial(lambda notes, now: notes, notes)
            else:
                marks = table.properties().get(jvm_schema.MASKED)
                noted = partial(_noted, notes, (known, marks), [s.name for s in part if s.kind == "add"], masked)
            jvm_schema.change(spark, table, [(s.kind, s.name, *s.more) for s in part], noted)
            events = ()
    spark.sql(f"REFRESH TABLE {name}")


def _noted(
    notes: dict[str, str], known: tuple[str | None, ...], added: list[str], masked: Collection[str], now: dict[str, int]
) -> dict[str, str]:
    """Return a schema change's properties, with the present field ids of the columns, and of those that are masked."""
    columns, marks = known
    new = [now[n] for n in added if n in masked]
    marked = {jvm_schema.MASKED: json.dumps([*json.loads(marks), *new])} if marks and new else {}
    return {**notes, COLUMNS: to_record(columns, now, added), **marked}
