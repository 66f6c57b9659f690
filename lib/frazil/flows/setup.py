"""Setup: check the environment, create the tables that are missing, and show what lies in the source."""

from __future__ import annotations

from frazil.dms.objects import list_table
from frazil.flows.workbook import TableResult, Workbook
from frazil.lake import commit, tables


def look(book: Workbook) -> list[dict]:
    """Return one row per table: the objects that lie in its folder, and those that are not DMS's."""
    rows = []
    for spec in book.specs.values():
        there = list_table(book.source, spec)
        size = sum(o.size for o in (*there.loads, *there.changes))
        rows.append({
            "table": spec.source, "target": book.name(spec), "key": ", ".join(spec.key), "columns": len(spec.columns),
            "load_files": len(there.loads), "change_files": len(there.changes), "mb": round(size / 1e6, 2),
            "ignored": len(there.foreign),
        })  # fmt: skip
    return rows


def create_tables(book: Workbook) -> list[TableResult]:
    """Create missing tables, remove branches that killed runs left behind; what exists is checked against its spec."""

    tables.create_namespaces(book.spark, [book.name(s) for s in book.specs.values()])

    def work(spec) -> TableResult:
        created = tables.create_table(book.spark, book.name(spec), spec, book.format_version)
        left = commit.remove_abandoned_branches(book.spark, book.name(spec))
        note = f"removed {len(left)} branch(es) of killed runs" if left else ""
        return TableResult(spec.source, "created" if created else "exists", note)

    return book.each_table(work)
