"""Tables that a stream brings and no spec names: passed by, a reason to stop, or made as DMS's own control record tells them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frazil.config.spec import TableSpec
from frazil.config.written import file_name, lake_name, spec_text
from frazil.dms.control import Definition
from frazil.dms.messages import routed
from frazil.dms.streams import StreamError
from frazil.errors import FrazilError
from frazil.flows.stream_groups import Group, groups_of
from frazil.flows.stream_read import records_of
from frazil.flows.workbook import TableResult, Workbook
from frazil.lake import tables

WRITE_ONE = "write a spec for it (see `frazil init`), load it by 01_full_load from the start; until then its messages are passed by"
Name = tuple[str, str]


class UnknownTablesError(StreamError):
    """Messages of tables without a spec, where such messages shall stop the run."""

    decision = True


def meet(book: Workbook, groups: Sequence[Group]) -> list[TableResult]:
    """Do with tables that have messages and no spec what `unknown_tables` says, and return what became of each; `ignore`: nothing.

    With `create` a table gets a spec, written to the folder of specs, and a place in the lake; its load is the next one of
    01_full_load. One that cannot be made fails alone. A run that is restricted to some tables passes all others by.
    """
    new: dict[Name, int] = {}
    for g in groups:
        name = (g.schema, g.table)
        if g.readable and g.kind == "data" and name not in book.known and not g.table.lower().startswith("awsdms_"):
            new[name] = new.get(name, 0) + g.count
    new = {n: count for n, count in new.items() if n not in book.met}
    policy = "ignore" if book.settings.tables else book.settings.unknown_tables
    if not new or policy == "ignore":
        return []
    if policy == "stop":
        raise UnknownTablesError(
            f"messages of tables without a spec: {', '.join(f'{s}.{t} ({count})' for (s, t), count in sorted(new.items()))}",
            "write a spec for each, or run with unknown_tables=create or =ignore",
        )
    book.met |= set(new)
    told = _definitions(book, groups, new)
    return [_create(book, name, told.get(name)) for name in sorted(new)]


def _definitions(book: Workbook, groups: Iterable[Group], wanted: Iterable[Name]) -> dict[Name, Definition]:
    """Return the newest definition of each table: in what was just read, else in all that the stream still keeps."""
    found = _newest(book, groups, wanted)
    if not set(wanted) <= found.keys():
        taken = book.stream.take(book.spark, book.stream.earliest())
        if taken.frame is not None:
            found = {**_newest(book, groups_of(routed(taken.frame)), wanted), **found}
        taken.release()
    return found


def _newest(book: Workbook, groups: Iterable[Group], wanted: Iterable[Name]) -> dict[Name, Definition]:
    return {name: one for name in wanted for _, _, one in records_of(book, name, groups) if one}


def _create(book: Workbook, name: Name, told: Definition | None) -> TableResult:
    source = ".".join(name)
    try:
        spec = _spec(book, name, told)
        file = book.settings.path("specs") / file_name(spec)
        tables.create_namespaces(book.spark, [book.name(spec)])
        tables.create_table(book.spark, book.name(spec), spec, book.format_version)
        with file.open("x", encoding="utf-8") as f:
            f.write(spec_text(spec))
    except FileExistsError:
        return TableResult(source, "failed", f"{file} is there already; {WRITE_ONE}", decision=True)
    except FrazilError as e:
        return TableResult(source, "failed", str(e), decision=True)
    book.add(spec)
    note = f"made as the control record at {told.where} tells it, see {file}; it waits for its load: 01_full_load"
    book.progress(f"{source}: {note}")
    return TableResult(source, "created", note)


def _spec(book: Workbook, name: Name, told: Definition | None) -> TableSpec:
    source = ".".join(name)
    if told is None:
        why = "no control record in the stream tells its columns (IncludeControlDetails)"
    elif untold := [n for n, c in told.columns.items() if c is None]:
        why = f"the control record at {told.where} does not tell the type of {', '.join(untold)}"
    elif not told.key:
        why = "it has no primary key, so the spec must say how its changes are applied (without_key)"
    else:
        spec = TableSpec(source, lake_name(*name), told.key, tuple(told.columns.values()))
        if book.mappings.target_name(spec) == name:
            return spec
        why = "the task's rules rename tables, so its name at the source cannot be told"
    raise StreamError(f"{source} cannot be made: {why}", WRITE_ONE)


__all__ = ["UnknownTablesError", "meet"]
