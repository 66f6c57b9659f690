"""Setup: check the environment, create missing tables, and show what is in the source."""

from __future__ import annotations

from typing import Any

from frazil_old.core.field_roles import ColumnPlaceError
from frazil_old.dms.aws_json import read_endpoint_document, read_statistics, read_task_settings, stream_settings
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.files_against_settings import Evidence, evidence, refuse
from frazil_old.dms.listing import folders_beside
from frazil_old.dms.settings_lint import LOSS, Finding, left_out, lint, unknown_settings
from frazil_old.errors import FrazilError
from frazil_old.flows import stream_position, warehouse_refresh
from frazil_old.flows.follow_source import follow_source
from frazil_old.flows.schema_changes import follow, require_first_files
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, commit_retry, jvm, tables
from frazil_old.lake.pyiceberg_catalog import CatalogError
from frazil_old.results import TableResult


def files_by_table(book: Workbook) -> list[dict]:
    """Return one row per table: the objects in its folder, and those that DMS did not write."""
    if book.stream:
        return stream_position.look(book)
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
        return stream_position.findings(book) + [_row_of(f) for f in more]
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
    try:
        commit_retry.steady(lambda: tables.create_namespaces(book.spark, sound))
    except FrazilError:
        raise
    except Exception as e:
        raise CatalogError(
            f"no namespace can be created in the catalog '{book.settings.catalog}': {jvm.cause(e)}",
            "correct catalog_options, start the catalog, or get the right to create namespaces in it",
        ) from e

    def work(spec) -> TableResult:
        if not book.stream:
            require_first_files(book, spec, book.objects(spec))
        anew = tables.drop_unloaded(
            book.spark,
            book.name(spec),
            spec,
            book.format_version,
            lambda old: warehouse_refresh.require_no_stop(book, spec, old),
        )
        created = tables.create_table(book.spark, book.name(spec), spec, book.format_version, anew)
        if anew:
            return TableResult(spec.source, "created", "created again by its spec: it had no load yet")
        if not created:
            follow(book, spec, tables.read_table_state(book.spark, book.name(spec)), [], CHANGE_PHASE)
        left = batch_branches.remove_abandoned_branches(book.spark, book.name(spec))
        notes = [f"removed {len(left)} branch(es) of killed runs"] if left else []
        checks = (tables.unread_partitions, tables.unread_format)
        notes += filter(None, (unread(book.spark, book.name(spec), book.query_engines) for unread in checks))
        return TableResult(spec.source, "created" if created else "exists", "; ".join(notes))

    return book.each_table(work)
