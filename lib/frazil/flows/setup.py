"""Setup: check the environment, create missing tables, and show what is in the source.

A table that another pipeline has fed is taken over at a position that the operator gives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from frazil.config.settings import ParameterError
from frazil.config.spec import TableSpec
from frazil.config.timestamps import instant
from frazil.core.field_roles import ColumnPlaceError
from frazil.dms.applied_files import AppliedFiles
from frazil.dms.aws_json import read_endpoint_document, read_statistics, read_task_settings, stream_settings
from frazil.dms.endpoint import DatePartition
from frazil.dms.file_layout import CHANGE_PHASE
from frazil.dms.file_names import is_change_file
from frazil.dms.listing import folders_beside
from frazil.dms.position import STREAM_LOAD, Position, after_load
from frazil.dms.settings_check import Evidence, evidence, refuse
from frazil.dms.settings_lint import LOSS, Finding, left_out, lint, unknown_settings
from frazil.errors import FrazilError, many, nearest
from frazil.flows import served, stream_check
from frazil.flows.schema_changes import follow, require_first_files
from frazil.flows.source_catalog import follow_source
from frazil.flows.workbook import Workbook
from frazil.lake import commit, commit_retry, jvm, stored_applied_files, tables
from frazil.results import TableResult


def files_by_table(book: Workbook) -> list[dict]:
    """Return one row per table: the objects in its folder, and those that DMS did not write."""
    if book.stream:
        return stream_check.look(book)
    rows = []
    for spec in book.specs.values():
        there = book.objects(spec)
        size = sum(o.size for o in (*there.loads, *there.changes))
        row = {
            "table": spec.source, "target": book.name(spec), "key": ", ".join(spec.key) or f"none: {spec.policy}",
            "columns": len(spec.columns), "load_files": len(there.loads), "change_files": len(there.changes),
            "mb": round(size / 1e6, 2), "ignored": there.ignored,
        }  # fmt: skip
        rows.append(row)
    return rows


def unused_folders(book: Workbook) -> list[dict[str, str]]:
    """Return one row per source folder that no spec uses: DMS's own records, and tables without a spec."""
    if book.stream:
        return []
    taken = {"/".join(name) for name in book.known} | {book.endpoint.cdc_path.split("/")[0]}
    found = folders_beside(book.source, taken)
    return [{"folder": folder, "holds": what} for folder, what in found.items()]


def check_source(book: Workbook) -> list[dict[str, Any]]:
    """Return harmful settings, and what the files show of each setting.

    There is one row per finding, and per setting and kind of evidence. The settings of the task are checked if its
    description is given as `mappings`. A setting that a file contradicts raises EndpointError, which names both and
    the cure.
    """
    if book.stream:
        unknown = stream_settings(book.settings.path("endpoint"))[1]
        more = [*left_out(book.mappings, book.specs.values()), *unknown_settings(unknown)]
        return stream_check.findings(book) + [_row_of(f) for f in more]
    s = book.settings
    task = read_task_settings(s.path("mappings")) if s.mappings else {}
    known = read_statistics(s.path("statistics")) if s.statistics else None
    specs = list(book.specs.values())
    rows = [_row_of(f) for f in lint(read_endpoint_document(s.path("endpoint")), book.mappings, specs, task, known)]
    seen: dict[tuple, dict[str, Any]] = {}
    shown: list[Evidence] = []
    for spec in specs:
        try:
            shown += evidence(book.objects(spec), book.source_table(spec))
        except ColumnPlaceError as e:  # it stops only this table, when its file is read
            rows.append(_row_of(Finding("columns", spec.source, e.problem, e.cure, LOSS)))
    refuse(shown)
    for e in shown:
        verdict = "confirmed" if e.stated == e.proposed or (e.certain and e.agrees) else "proposed"
        new = Finding(e.setting, e.stated, f"{e.proposed!r}: {e.evidence}", "", verdict)
        row = seen.setdefault((e.setting, e.proposed, verdict), {**_row_of(new), "files": 0, "example": e.file})
        row["files"] += 1
    book.endpoint.check_order(book.mappings, specs)
    return rows + sorted(seen.values(), key=lambda r: r["kind"] == "confirmed")


def _row_of(f: Finding) -> dict[str, Any]:
    return {"setting": f.setting, "value": f.value, "kind": f.severity, "files": None, "says": f.effect, "cure": f.cure, "example": ""}  # fmt: skip


def create_tables(book: Workbook) -> list[TableResult]:
    """Create missing tables, bring the columns of others to their specs, remove branches that killed runs left.

    A table without a load is created again if its spec changed. Each spec is first checked against DMS's first files.
    """
    follow_source(book)
    sound = [book.name(s) for s in book.specs.values() if not s.problem]
    commit_retry.steady(lambda: tables.create_namespaces(book.spark, sound))

    def work(spec) -> TableResult:
        if not book.stream:
            require_first_files(book, spec, book.objects(spec))
        anew = tables.drop_unloaded(
            book.spark, book.name(spec), spec, book.format_version, lambda old: served.require_no_stop(book, spec, old)
        )
        created = tables.create_table(book.spark, book.name(spec), spec, book.format_version, anew)
        if anew:
            return TableResult(spec.source, "created", "created again by its spec: it had no load yet")
        if not created:
            follow(book, spec, tables.read_table_state(book.spark, book.name(spec)), [], CHANGE_PHASE)
        left = commit.remove_abandoned_branches(book.spark, book.name(spec))
        notes = [f"removed {len(left)} branch(es) of killed runs"] if left else []
        checks = (tables.unread_partitions, tables.unread_format)
        notes += filter(None, (unread(book.spark, book.name(spec), book.query_engines) for unread in checks))
        return TableResult(spec.source, "created" if created else "exists", "; ".join(notes))

    return book.each_table(work)


ADOPTED = "adopted"
"""Replaces the digest of a load that another pipeline applied."""


class AdoptError(FrazilError):
    """A position at which a table cannot be adopted."""


def adopt(book: Workbook, table: str, position: str) -> str:
    """Take over a table that holds all changes up to `position` and none after it; return what was done.

    `position` is the name of the last change file applied, a UTC time up to which all files were applied, or `load` for
    no change file. For a stream it is any value of `stream_start`, such as the first offsets not applied, as JSON.
    Everything before it counts as applied. The rows are not checked: the position is the operator's word for it. The
    other pipeline must have stopped.
    """
    spec = book.specs[table]
    if book.stream:
        begin = book.stream.start(position)
        stated = Position(
            batch=commit.new_batch(),
            load_digest=STREAM_LOAD,
            stream=begin,
            stream_load=begin,
            stream_ids=book.stream.stream_ids(),
        )
        tables.adopt(book.spark, book.name(spec), spec, stated)
        return f"{book.name(spec)} continues from " + ", ".join(f"{p}: {offset}" for p, offset in begin.items())
    there = book.objects(spec)
    names = [o.name for o in there.changes]
    last = _last(spec, names, position, book.endpoint.date_partition)
    stated = after_load(Position(last=last, recent=(last,) if last else ()), there, commit.new_batch())
    if not there.loads:  # the rows exist already: load files that arrive later are another load
        stated = replace(stated, load_digest=ADOPTED)
    tables.adopt(book.spark, book.name(spec), spec, stated)
    table = jvm.load_table(book.spark, book.name(spec))
    stored_applied_files.Update(table, AppliedFiles(), stated.batch, (*there.loads, *there.changes)).load(
        last, there, {}, False
    ).publish()
    pending = sum(name > last for name in names)
    return f"{book.name(spec)} continues from {last or 'its load'}: {many(pending, 'change file')} pending"


def _last(spec: TableSpec, names: list[str], position: str, named_by: DatePartition) -> str:
    """Return the change file that a given position means; empty: the load."""
    if position == "load":
        return ""
    is_name = is_change_file(position)
    # A file older than all existing ones has been deleted since.
    if position in names or (is_name and position < min(names, default="9")):
        return position
    if is_name:
        raise AdoptError(f"{spec.source}: no change file {position}", nearest(position, names[-20:]))
    try:
        when = instant(position)
    except ParameterError as e:
        raise AdoptError(
            f"{spec.source}: '{position}' is no position", f"name a change file or write load; a time: {e.cure}"
        ) from None
    return max((n for n in names if named_by.written_s(n) * 1000 <= when), default="")
