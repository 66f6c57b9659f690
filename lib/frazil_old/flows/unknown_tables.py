"""Tables in a stream without a spec: they are ignored, stop the run, or are created from DMS's control records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from frazil_old.config.spec import TableSpec, file_name, lake_name, parse_spec, require_own_place, spec_text
from frazil_old.dms.control_records import Definition
from frazil_old.dms.stream_source import StreamError
from frazil_old.errors import FrazilError, log
from frazil_old.flows.stream_read import Group, read_messages, records_of
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, tables
from frazil_old.lake.jvm_process import require_alive
from frazil_old.results import TableResult

WRITE_ONE = "write a spec for it (see `frazil init`), load it by 01_full_load from the start; until then its messages are ignored"
Name = tuple[str, str]


class UnknownTablesError(StreamError):
    """Messages of tables without a spec, where such messages stop the run."""

    decision = True


def handle_new_tables(book: Workbook, groups: Sequence[Group]) -> list[TableResult]:
    """Handle tables with messages but no spec as `unknown_tables` says; return a result for each.

    With `ignore` there is none. With `create` a table gets a spec, written to the folder of specs, and a table in the
    lake. The next 01_full_load loads it. A table that cannot be created waits alone. A run restricted to some tables
    ignores all others.
    """
    new: dict[Name, int] = {}
    for g in groups:
        name = (g.schema, g.table)
        if g.readable and g.kind == "data" and name not in book.known and not g.table.lower().startswith("awsdms_"):
            new[name] = new.get(name, 0) + g.count
    new = {n: count for n, count in new.items() if n not in book.new_tables}
    policy = "ignore" if book.settings.tables else book.settings.unknown_tables
    if not new or policy == "ignore":
        return []
    if policy == "stop":
        raise UnknownTablesError(
            f"messages of tables without a spec: {', '.join(f'{s}.{t} ({count})' for (s, t), count in sorted(new.items()))}",
            "write a spec for each, or run with unknown_tables=create or =ignore",
        )
    book.new_tables |= set(new)
    definitions = _definitions(book, groups, new)
    return [_create(book, name, definitions.get(name)) for name in sorted(new)]


def _definitions(book: Workbook, groups: Iterable[Group], wanted: Iterable[Name]) -> dict[Name, Definition]:
    """Return the newest definition of each table: from what was just read, else from all that the stream still keeps."""
    found = _newest(book, groups, wanted)
    if not set(wanted) <= found.keys():
        taken = book.stream.take(book.spark, book.stream.earliest())
        read = read_messages(book, [taken])
        read.release()
        taken.release()
        found = {**_newest(book, read.groups, wanted), **found}
    return found


def _newest(book: Workbook, groups: Iterable[Group], wanted: Iterable[Name]) -> dict[Name, Definition]:
    return {name: one for name in wanted for _, _, one in records_of(book, name, groups) if one}


def _create(book: Workbook, name: Name, definition: Definition | None) -> TableResult:
    """Create a table and then its spec, which other runs read immediately.

    It is complete, and valid together with all others.
    """
    source = ".".join(name)
    try:
        spec = _spec(book, name, definition)
        tables.create_namespaces(book.spark, [book.name(spec)])
        tables.create_table(book.spark, book.name(spec), spec, book.format_version)
        _write(Path(spec.file), spec_text(spec))
    except FrazilError as e:
        return TableResult(source, "waiting", str(e))
    except Exception as e:  # a name that Spark, the catalog or the file system refuses
        log.error("%s cannot be created", source, exc_info=True)
        require_alive(book.folder, e)
        at = f" of the control record at {definition.where}" if definition else ""
        return TableResult(source, "waiting", f"{source}{at} cannot be created: {jvm.cause(e)}\n  cure: {WRITE_ONE}")
    book.add(spec)
    note = (
        f"created from the control record at {definition.where}, see {spec.file}; it waits for its load: 01_full_load"
    )
    book.progress(f"{source}: {note}")
    return TableResult(source, "created", note)


def _write(file: Path, text: str) -> None:
    """Write a new file atomically, so that nobody reads a part of it; raises FileExistsError if it exists."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{os.getpid()}.new")
    try:
        part.write_text(text, encoding="utf-8")
        os.link(part, file)
    finally:
        part.unlink(missing_ok=True)


def _spec(book: Workbook, name: Name, definition: Definition | None) -> TableSpec:
    """Return the spec of a new table as its file will read; raise StreamError if it cannot be valid."""
    source = ".".join(name)
    if definition is None:
        raise StreamError(
            f"{source} cannot be created: no control record in the stream names its columns (IncludeControlDetails)",
            WRITE_ONE,
        )
    without_key = "refuse" if definition.key else book.settings.without_key
    if unknown := [n for n, c in definition.columns.items() if c is None]:
        why, cure = f"it does not have the type of {', '.join(unknown)}", WRITE_ONE
    elif any("." in part or not part for part in name):
        why = "`source` of a spec is schema.table, so neither name may be empty or have a dot"
        cure = (
            "rename the table on its way: a rule `rename` of the task's mappings; until then its messages are ignored"
        )
    elif not definition.key and without_key == "refuse":
        why = "it has no primary key, so no change can find its row"
        cure = f"set `without_key` in params/{book.settings.env}.yml to append (every change becomes a row) or multiset, or {WRITE_ONE}"
    elif book.mappings.target_name(spec := _declared(book, definition, name, without_key)) != name:
        why, cure = "the task's rules rename tables, so its name at the source is not known", WRITE_ONE
    else:
        why, cure = _conflict(book, spec)
    if why:
        raise StreamError(f"{source} cannot be created from the control record at {definition.where}: {why}", cure)
    return spec


def _declared(book: Workbook, definition: Definition, name: Name, without_key: str) -> TableSpec:
    spec = TableSpec(
        ".".join(name), lake_name(*name), definition.key, tuple(definition.columns.values()), without_key=without_key
    )
    return replace(spec, file=str(book.settings.path("specs") / file_name(spec)))


def _conflict(book: Workbook, spec: TableSpec) -> tuple[str, str]:
    """Return why a new spec would not be valid, alone or together with all others, and what helps; empty: it is valid."""
    another = f"{WRITE_ONE}; give it another `target`"
    if Path(spec.file).exists():
        return f"{spec.file} exists already", WRITE_ONE
    if spec.target.split(".")[0] == book.settings.ops_namespace:
        return f"its `target` {spec.target} would be among Frazil's own tables", another
    try:
        as_read = parse_spec(yaml.safe_load(spec_text(spec)), spec.file)
        as_read.require_sound()
    except FrazilError as e:
        return e.problem, WRITE_ONE
    try:
        require_own_place(as_read, book.every.values())
    except FrazilError as e:
        return e.problem, another
    return "", ""
