"""Compare the columns of a batch's files with the lake's: the schema follows before the batch, or the table stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from frazil_old.config.lake_types import lake_type
from frazil_old.config.spec import Column, TableSpec, rename_cure, unusable_name
from frazil_old.dms.control_records import Definition
from frazil_old.dms.file_columns import Shape, first_and_last, shapes
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.position import POSITION, Position
from frazil_old.flows.control_record_changes import Difference, Event, events, is_whole, names_in_messages, shape_of
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm_schema, schema_evolution, tables
from frazil_old.lake.commit_retry import may_try_again, until_committed
from frazil_old.lake.other_writers import record_columns, recorded
from frazil_old.lake.schema_evolution import SchemaChange, SchemaError, TableColumns
from frazil_old.lake.tables import TableState, read_table_state


@dataclass(frozen=True)
class SchemaPlan:
    """How a batch is read and written (`spec`), the schema steps before it, and what the position keeps.

    `missing_columns` are columns of the spec that the newest file does not carry, `ignored_columns` its columns that are
    ignored. `auto_columns` and `events` are kept with the table: columns that a policy added, and what control records
    changed of others.
    """

    spec: TableSpec
    steps: list[SchemaChange]
    auto_columns: tuple[Column, ...] = ()
    events: tuple[Event, ...] = ()
    missing_columns: tuple[str, ...] = ()
    ignored_columns: tuple[str, ...] = ()

    @property
    def changes(self) -> list[SchemaChange]:
        """The steps that change the table."""
        return [s for s in self.steps if s.kind != "keep"]

    def on(self, base: TableState) -> TableState:
        """Return the base of a batch whose position will record what the newest file lacks and what of it is ignored."""
        return replace(
            base,
            position=replace(base.position, missing_columns=self.missing_columns, ignored_columns=self.ignored_columns),
        )


@dataclass(frozen=True)
class FromStream:
    """What messages say about a table's columns: the names in a batch's data, and the control record that comes next."""

    names: frozenset[str] = frozenset()
    definition: Definition | None = None


def follow(
    book: Workbook, spec: TableSpec, base: TableState, files: Sequence[DmsObject] | FromStream, phase: int
) -> SchemaPlan:
    """Bring the lake's schema to what the files or messages and the spec need, and return how to read them.

    Raises SchemaError, before any change, for what no policy allows. If another run is faster, the remaining steps are
    planned again.
    """
    now = base

    def attempt() -> SchemaPlan:
        plan = shape(book, spec, now, files, phase)
        if plan.changes or plan.events:
            masked = [c.name for c in spec.columns if c.mask]
            schema_evolution.evolve(book.spark, book.name(spec), plan.changes, plan.auto_columns, plan.events, masked)
            done = [*map(str, plan.changes)] or [f"noted: {' '.join(event)}" for event in plan.events]
            book.progress(f"{spec.source}: schema: {', '.join(done)}")
        return plan

    def failed(error: Exception) -> None:
        nonlocal now
        if may_try_again(error):
            now = replace(base, schemas=read_table_state(book.spark, book.name(spec)).schemas)

    plan = until_committed(attempt, failed=failed)
    _record_columns(book, spec, now, plan.changes)
    return plan


def _record_columns(book: Workbook, spec: TableSpec, base: TableState, steps: list[SchemaChange]) -> None:
    """Record the field ids of columns by an older version or another writer; `evolve` records its own."""
    name, known = book.name(spec), recorded(base.columns)
    there = {f.name for f in schema_evolution.columns_in_metadata(book.spark, name, base.schemas).fields}
    if not steps and (known is None or not {c.name for c in spec.columns} & there <= known.keys()):
        record_columns(book.spark, name, spec.names)


def shape(
    book: Workbook, spec: TableSpec, base: TableState | None, files: Sequence[DmsObject] | FromStream, phase: int
) -> SchemaPlan:
    """Return what `follow` would do; nothing is changed. `base`: None if the table does not exist yet."""
    promotes = cache(lambda old, new: jvm_schema.promotes(book.spark, old, new))
    schema_evolution.require_no_swap(spec)
    table, position = None, base.position if base else Position()
    if base:
        table = schema_evolution.columns_in_metadata(book.spark, book.name(spec), base.schemas)
        spec = schema_evolution.with_control_records(spec, table.events)
    definition = files.definition if isinstance(files, FromStream) else None
    if definition and not is_whole(definition, spec, book.mappings):
        book.progress(f"{definition.where}: {definition.operation} without the key of {spec.source} defines no table")
        definition = None
    new = _events(book, spec, table, position, definition, promotes) if definition and table else ()
    spec = schema_evolution.with_control_records(spec, new)
    steps, whole = _steps_to(table, spec, promotes, position) if table else ([], spec)
    if isinstance(files, FromStream):
        found = [shape_of(definition, whole, book.mappings, position.missing_columns)] if definition else []
    else:
        found = shapes(book.source_table(whole), files, phase)
    seen = _ColumnTracker(book, whole, position, phase, table, steps)
    for one in found:
        seen.take(one)
    wider = _widened(whole, spec, found, promotes)
    if table and (seen.auto_columns or wider != spec):
        steps, whole = schema_evolution.steps_to(table, wider, promotes, tuple(seen.auto_columns.values()))
    elif seen.auto_columns:
        more = (*whole.columns, *seen.auto_columns.values())
        whole = replace(whole, columns=more, all_columns=spec.file_columns)
    _require_names(whole, found)
    missing_columns, ignored_columns = seen.at_the_end()
    if isinstance(files, FromStream):
        read = _read_of_messages(book, whole, missing_columns, files.names, (*seen.skipping, *ignored_columns))
    else:
        read = _read_of_files(book, whole, found, tuple(seen.ever_skipped))
    return SchemaPlan(read, steps, tuple(seen.auto_columns.values()), new, missing_columns, ignored_columns)


def _steps_to(
    table: TableColumns, spec: TableSpec, promotes, position: Position
) -> tuple[list[SchemaChange], TableSpec]:
    try:
        return schema_evolution.steps_to(table, spec, promotes)
    except SchemaError as e:
        if position.loaded and not position.awaits_load:
            raise
        raise SchemaError(e.problem, "run 00_setup: the table has no load yet, so it is created again") from None


def require_first_files(book: Workbook, spec: TableSpec, there: TableObjects) -> None:
    """Raise SchemaError if the first files of a table without a load carry other columns or types than its spec."""
    stored = tables.load(book.spark, book.name(spec)).properties().get(POSITION) if book.exists(spec) else None
    position = Position.from_json(stored)[0] if stored else Position()
    if position.loaded and not position.awaits_load:
        return
    files, phase = (list(there.loads), LOAD_PHASE) if there.loads else (list(there.changes[:1]), CHANGE_PHASE)
    files = first_and_last(files)
    book.check_files(spec, there if there.loads else replace(there, changes=tuple(files)))
    shape(book, spec, None, files, phase)


def _require_names(whole: TableSpec, found: Sequence[Shape]) -> None:
    """Raise SchemaError if a file or a control record brings a column that the lake cannot have under its name."""
    if bad := unusable_name([c.name for c in whole.columns]):
        name, why = bad
        where = next((one.where for one in found if name in one.unknown or name in (one.carries or ())), whole.file)
        raise SchemaError(f"{where}: column '{name}' {why}", f"list it in {whole.file} and {rename_cure(name, whole)}")


def every_column(book: Workbook, spec: TableSpec, base: TableState) -> TableSpec:
    """Return the spec with every column that the lake has now, or has after `follow`."""
    promotes = cache(lambda old, new: jvm_schema.promotes(book.spark, old, new))
    table = schema_evolution.columns_in_metadata(book.spark, book.name(spec), base.schemas)
    return schema_evolution.steps_to(table, schema_evolution.with_control_records(spec, table.events), promotes)[1]


def _events(
    book: Workbook, spec: TableSpec, table: TableColumns, position: Position, definition: Definition, promotes
) -> tuple[Event, ...]:
    """Return what to keep of a control record, given the table and the spec before it."""
    steps, whole = schema_evolution.steps_to(table, spec, promotes)
    one = shape_of(definition, whole, book.mappings, position.missing_columns)
    difference = Difference(one, *_ColumnTracker(book, whole, position, CHANGE_PHASE, table, steps).gone_and_new(one))
    return events(definition, whole, book.mappings, difference, promotes)


def as_carried(book: Workbook, spec: TableSpec, base: TableState, files: Sequence[DmsObject], phase: int) -> TableSpec:
    """Return the spec for reading a batch's files again, whatever the policies say now."""
    whole = every_column(book, spec, base)
    found = shapes(book.source_table(whole), files, phase)
    return _read_of_files(book, whole, found, tuple(sorted({n for one in found for n in one.unknown})))


class _ColumnTracker:
    """Compares the files' columns one by one: which disappeared or appeared, and what the policies say."""

    def __init__(
        self,
        book: Workbook,
        spec: TableSpec,
        position: Position,
        phase: int,
        table: TableColumns | None,
        steps: list[SchemaChange],
    ):
        self.spec, self.position, self.last = spec, position, None
        rule = book.mappings.before_image(spec)
        self.tells_key = rule is not None and rule.columns == "pk-only"
        self.written = {c: n for c, n in book.mappings.file_columns(spec).items() if c in spec.names}
        self.declared, self.added = list(self.written), book.mappings.listed(spec)
        self.auto_columns: dict[str, Column] = {}
        self.ever_skipped: set[str] = set()
        if table is None:
            self.carried, self.skipping = set(self.declared), set()
            return
        new_name = {s.name: s.more[0] for s in steps if s.kind == "rename"}
        now = {f.id: new_name.get(f.name, f.name) for f in table.fields}
        if phase == LOAD_PHASE:
            self.carried = {n for i, n in now.items() if i in table.first}
            self.skipping = {n for _, n in table.former}
        else:
            self.carried = {now[f.id] for f in table.then if f.id in now} - set(position.missing_columns)
            self.skipping = {*position.ignored_columns, *(f.name for f in table.then if f.id not in now)}

    def gone_and_new(self, one: Shape) -> tuple[list[str], list[str]]:
        """Return the columns that are missing only in the next file, and those that no record announced."""
        missing = self.spec.key if one.stated else self.declared
        gone = [c for c in missing if c in self.carried and c not in one.carries]
        return gone, [n for n in one.unknown if n not in self.skipping and n not in self.auto_columns]

    def take(self, one: Shape) -> None:
        """Check the next file; raise SchemaError if it lacks or adds a column for which no policy is set."""
        if one.carries is None:
            return
        self.last, where = one, one.where
        gone, new = self.gone_and_new(one)
        policy, spec = self.spec.changes, self.spec
        if self.tells_key:
            key = [c.name for c in spec.file_columns if c.name in one.before]
            schema_evolution.require_source_key(spec, key, where, self.added)
        if gone and new:
            raise SchemaError(
                f"{where}: unknown column '{new[0]}', and no column {', '.join(gone)}: renamed, or another one?",
                f"declare it in {spec.file}: a column with the new name, with renamed_from: {gone[0]} if it is the same one",
            )
        if gone and (policy.gone not in ("keep", "drop") or {*gone} & {*spec.key}):
            raise self._gone(one, gone)
        if new and policy.new not in ("add", "ignore"):
            old = next((k for k in spec.key if new[0].endswith(f"_{k}") or new[0].startswith(f"{k}_")), "")
            rule = (
                f"print the task's table mappings again if a rule adds it, as old values of {old}; else " if old else ""
            )
            raise SchemaError(
                f"{where}: unknown column '{new[0]}'",
                f"{rule}add it to {spec.file}, with its type, or let files decide: changes: {{new: add}}; {{new: ignore}} leaves its "
                "values out of the lake",
            )
        if policy.new == "add":
            self.auto_columns |= {n: schema_evolution.as_column(n, one.unknown[n] or "string") for n in new}
        self.carried = (self.carried | set(one.carries)) - set(gone)
        self.skipping = set(one.unknown) - set(self.auto_columns)
        self.ever_skipped |= self.skipping

    def _gone(self, one: Shape, gone: list[str]) -> SchemaError:
        """Return the error for columns of the lake that a file lacks."""
        spec, problem = self.spec, f"{one.where}: no column {', '.join(gone)}"
        alike = {n.lower() for n in one.names}
        if taken := [self.written[c] for c in gone if self.written.get(c, c).lower() in alike]:
            return SchemaError(
                f"{problem}: by its place '{taken[0]}' there is another column than the source's",
                f"have DMS write the file again with both; correct {spec.file} if the source has no such column",
            )
        return SchemaError(
            problem,
            f"if the file should have it: correct its name in {spec.file} (renamed_from: what it was), or have DMS write the file "
            "again; if the source dropped it, or added it later: changes: {gone: keep} keeps what the lake has of it, "
            "and new rows have null there",
        )

    def at_the_end(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what the newest file lacks and what of it is ignored; unchanged if no file says."""
        if self.last is None:
            return self.position.missing_columns, self.position.ignored_columns
        return tuple(c for c in self.declared if c not in self.last.carries), tuple(sorted(self.skipping))


def _widened(whole: TableSpec, spec: TableSpec, found: Sequence[Shape], promotes) -> TableSpec:
    """Return the spec with the types that Parquet files state, where a promotion leads from the lake's type to them."""
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


def _read_of_files(book: Workbook, whole: TableSpec, found: Sequence[Shape], ignored: tuple[str, ...]) -> TableSpec:
    """Return the spec with the columns that any file carries; those that some files lack are optional."""
    written = set(book.mappings.file_columns(whole))
    declared = {c.name for c in whole.file_columns}
    if not found:
        columns = tuple(c for c in whole.columns if c.name in declared)
        return replace(whole, columns=columns, has_missing_columns=len(columns) < len(whole.columns))
    carried = [written if one.carries is None else {*one.carries, *one.unknown} for one in found]
    any_file, every = set.union(*carried), set.intersection(*carried)
    always = {*whole.key, *(declared - written)}  # a column that a rule of the task leaves out is null, as before
    columns = tuple(c for c in whole.columns if c.name in any_file | always)
    optional = tuple(c.name for c in columns if c.name in any_file - every - always)
    return _read(whole, columns, whole.file_columns, ignored, optional)


def _read(
    whole: TableSpec, columns: tuple[Column, ...], every: tuple[Column, ...], ignored: Sequence[str], optional=()
) -> TableSpec:
    """Return the spec for reading a batch that has only these columns, some of them only in some files."""
    has_missing_columns = len(columns) < len(whole.columns)
    if whole.policy == "multiset" and (optional or has_missing_columns):
        raise SchemaError(
            f"{whole.source}: rows lack columns of a table without key", "they are compared whole: load it again"
        )
    return replace(
        whole,
        columns=columns,
        all_columns=every,
        optional=optional,
        has_missing_columns=has_missing_columns,
        ignored=tuple(ignored),
    )


def _read_of_messages(
    book: Workbook, whole: TableSpec, missing_columns: Sequence[str], names: frozenset[str], ignored: Sequence[str]
) -> TableSpec:
    """Return the spec with the columns that messages have, as far as that is known.

    Messages may leave out a null column. Columns that nobody declares any more stay unchanged. So do those that a
    control record dropped, unless the messages have them.
    """
    lake = {c.name: c for c in whole.columns}
    every = tuple(lake.get(c.name, c) for c in whole.file_columns)  # with the lake's types
    there = {c for n, c in names_in_messages(whole, book.mappings).items() if n in names}
    columns = tuple(c for c in every if c.name in lake and (c.name not in missing_columns or c.name in there))
    return _read(whole, columns, every, ignored)
