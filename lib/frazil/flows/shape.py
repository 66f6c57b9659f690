"""What a batch's files carry, held against the lake's columns: the schema follows before the batch, or the table stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from frazil.changes.types import lake_type
from frazil.config.spec import Column, TableSpec
from frazil.dms.layout import LOAD_PHASE
from frazil.dms.objects import DmsObject
from frazil.dms.position import Position
from frazil.dms.shapes import Shape, shapes
from frazil.flows.workbook import Workbook
from frazil.lake import evolution, jvm, jvm_schema
from frazil.lake.commit import ATTEMPTS
from frazil.lake.evolution import SchemaError, Step, Table
from frazil.lake.tables import Base, read_base


@dataclass(frozen=True)
class Shaped:
    """How a batch is read and written (`spec`), the steps of the lake's schema before it, and what the position keeps.

    `lacks` are columns of the spec that the newest file does not carry, `skips` its columns that are passed by.
    """

    spec: TableSpec
    steps: list[Step]
    learnt: tuple[Column, ...] = ()
    lacks: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()

    def on(self, base: Base) -> Base:
        """Return the base of a batch whose position will tell what the newest file lacks and what of it is passed by."""
        return replace(base, position=replace(base.position, lacks=self.lacks, skips=self.skips))


def follow(book: Workbook, spec: TableSpec, base: Base, files: Sequence[DmsObject], phase: int) -> Shaped:
    """Bring the lake's schema to what the files and the spec need, and return how to read them.

    Raises SchemaError for what no policy allows, before anything is changed. Where another run is faster, what is left to do
    is seen anew.
    """
    name = book.name(spec)
    for attempt in range(1, ATTEMPTS + 1):
        shaped = shape(book, spec, base, files, phase)
        steps = [s for s in shaped.steps if s.kind != "keep"]
        if not steps:
            break
        try:
            evolution.evolve(book.spark, name, steps, shaped.learnt)
            book.progress(f"{spec.source}: schema: {', '.join(map(str, steps))}")
            break
        except Exception as error:
            if attempt == ATTEMPTS or not jvm.is_known_failure(error):
                raise
            base = replace(base, schemas=read_base(book.spark, name).schemas)
    return shaped


def shape(book: Workbook, spec: TableSpec, base: Base | None, files: Sequence[DmsObject], phase: int) -> Shaped:
    """Return what `follow` would do; nothing is changed. `base`: None where the table does not exist yet."""
    promotes = cache(lambda old, new: jvm_schema.promotes(book.spark, old, new))
    table = evolution.look(book.spark, book.name(spec), base.schemas) if base else None
    steps, whole = evolution.steps_to(table, spec, promotes) if table else ([], spec)
    found = shapes(whole, book.endpoint, book.mappings, files, phase)
    seen = _Seen(book, whole, base.position if base else Position(), phase, table, steps)
    for one in found:
        seen.take(one)
    wider = _widened(whole, spec, found, promotes)
    if table and (seen.learnt or wider != spec):
        steps, whole = evolution.steps_to(table, wider, promotes, tuple(seen.learnt.values()))
    elif seen.learnt:
        more = (*whole.columns, *seen.learnt.values())
        whole = replace(whole, columns=more, all_columns=spec.file_columns)
    return Shaped(
        _narrowed(book, whole, found, tuple(seen.ever_skipped)), steps, tuple(seen.learnt.values()), *seen.at_the_end()
    )


def every_column(book: Workbook, spec: TableSpec, base: Base) -> TableSpec:
    """Return the spec with every column that the lake has, or will have once `follow` has brought it to the spec."""
    promotes = cache(lambda old, new: jvm_schema.promotes(book.spark, old, new))
    return evolution.steps_to(evolution.look(book.spark, book.name(spec), base.schemas), spec, promotes)[1]


class _Seen:
    """The files' columns one after the other: which went, which came, and what the policies say to it."""

    def __init__(
        self, book: Workbook, spec: TableSpec, position: Position, phase: int, table: Table | None, steps: list[Step]
    ):
        self.spec, self.position, self.last = spec, position, None
        self.declared = [c for c in book.mappings.file_columns(spec) if c in spec.names]
        self.learnt: dict[str, Column] = {}
        self.ever_skipped: set[str] = set()
        if table is None:
            self.carried, self.skipping = set(self.declared), set()
            return
        new_name = {s.name: s.more[0] for s in steps if s.kind == "rename"}
        now = {f.id: new_name.get(f.name, f.name) for f in table.fields}
        if phase == LOAD_PHASE:
            self.carried = {n for i, n in now.items() if i in table.first}
            self.skipping = set(table.earlier)
        else:
            self.carried = {now[f.id] for f in table.then if f.id in now} - set(position.lacks)
            self.skipping = {*position.skips, *(f.name for f in table.then if f.id not in now)}

    def take(self, one: Shape) -> None:
        """Look at the next file; raises SchemaError where it lacks or brings a column and no policy says what then."""
        if one.carries is None:
            return
        self.last, where = one, one.file.path + ("" if one.file.name.endswith(".parquet") else " line 1")
        gone = [c for c in self.declared if c in self.carried and c not in one.carries]
        new = [n for n in one.unknown if n not in self.skipping and n not in self.learnt]
        policy, spec = self.spec.changes, self.spec
        if gone and new:
            raise SchemaError(
                f"{where}: unknown column '{new[0]}', and no column {', '.join(gone)}: renamed, or another one?",
                f"say so in {spec.file}: a column with the new name, with renamed_from: {gone[0]} if it is the same one",
            )
        if gone and (policy.gone not in ("keep", "drop") or {*gone} & {*spec.key}):
            raise SchemaError(
                f"{where}: no column {', '.join(gone)}",
                f"correct {spec.file}; if the source dropped it, keep what the lake has of it: changes: {{gone: keep}}",
            )
        if new and policy.new not in ("add", "ignore"):
            raise SchemaError(
                f"{where}: unknown column '{new[0]}'",
                f"add it to {spec.file}, with its type; or let files say: changes: {{new: add}} or {{new: ignore}}",
            )
        if policy.new == "add":
            self.learnt |= {n: evolution.as_column(n, one.unknown[n] or "string") for n in new}
        self.carried = (self.carried | set(one.carries)) - set(gone)
        self.skipping = set(one.unknown) - set(self.learnt)
        self.ever_skipped |= self.skipping

    def at_the_end(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what the newest file lacks and what of it is passed by; where no file tells, as it was."""
        if self.last is None:
            return self.position.lacks, self.position.skips
        return tuple(c for c in self.declared if c not in self.last.carries), tuple(sorted(self.skipping))


def _widened(whole: TableSpec, spec: TableSpec, found: Sequence[Shape], promotes) -> TableSpec:
    """Return the spec with the types that Parquet files state, where a promotion leads there from the lake's."""
    kinds = {c.name: lake_type(c) for c in whole.columns}
    for one in found:
        for name, kind in (one.carries or {}).items():
            if kind and kind != kinds[name] and promotes(kinds[name], kind):
                kinds[name] = kind

    def wide(c: Column) -> Column:
        known = not c.mask and not c.lake and kinds.get(c.name, lake_type(c)) != lake_type(c)
        return replace(c, lake=kinds[c.name]) if known else c

    columns = tuple(wide(c) for c in spec.columns)
    return spec if columns == spec.columns else replace(spec, columns=columns, all_columns=spec.file_columns)


def _narrowed(book: Workbook, whole: TableSpec, found: Sequence[Shape], ignored: tuple[str, ...]) -> TableSpec:
    """Return the spec with the columns that some file carries; those that not all carry are optional."""
    written = set(book.mappings.file_columns(whole))
    declared = {c.name for c in whole.file_columns}
    if (
        not found
    ):  # a stream does not tell columns that it lacks from nulls: those that nobody declares any more stay as they are
        columns = tuple(c for c in whole.columns if c.name in declared)
        return replace(whole, columns=columns, narrow=len(columns) < len(whole.columns))
    carried = [written if one.carries is None else {*one.carries, *one.unknown} for one in found]
    some, every = set.union(*carried), set.intersection(*carried)
    always = {*whole.key, *(declared - written)}  # what a rule of the task leaves out is null, as before
    columns = tuple(c for c in whole.columns if c.name in some | always)
    optional = tuple(c.name for c in columns if c.name in some - every - always)
    narrow = len(columns) < len(whole.columns)
    if whole.policy == "multiset" and (optional or narrow):
        raise SchemaError(
            f"{whole.source}: files lack columns of a table without key", "its rows are compared whole: load it again"
        )
    return replace(
        whole, columns=columns, all_columns=whole.file_columns, optional=optional, narrow=narrow, ignored=ignored
    )
