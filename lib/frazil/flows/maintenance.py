"""Maintenance: look at every table's health, plan from thresholds, then do it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from frazil.config.spec import TableSpec
from frazil.errors import FrazilError
from frazil.flows.workbook import TableResult, Workbook
from frazil.lake import maintenance


def health(book: Workbook) -> list[dict[str, Any]]:
    """Return one row per table: what it is made of. Nothing is changed."""
    return book.plan(lambda spec: asdict(maintenance.health(book.spark, book.name(spec), book.settings)))


def plan(book: Workbook) -> list[dict[str, Any]]:
    """Return one row per table and action: what should be done and why. Nothing is changed."""
    rows = []
    for spec in book.specs.values():
        try:
            found = maintenance.plan(maintenance.health(book.spark, book.name(spec), book.settings), book.settings)
            rows += [{"table": spec.source, "action": a.action, "why": a.why} for a in found]
        except FrazilError as e:
            rows.append({"table": spec.source, "action": f"cannot: {e.problem}", "why": e.cure})
    return rows


def run(book: Workbook) -> list[TableResult]:
    """Plan and do, table by table; with `dry_run` only plan. Tables fail alone."""

    def work(spec: TableSpec) -> TableResult:
        name, s = book.name(spec), book.settings
        actions = maintenance.plan(maintenance.health(book.spark, name, s), s)
        if s.dry_run or not actions:
            return TableResult(spec.source, "planned" if actions else "healthy", "; ".join(a.action for a in actions))
        counts: dict[str, int] = {}
        for action in actions:
            book.progress(f"{spec.source}: {action.action}: {action.why}")
            counts |= maintenance.execute(book.spark, name, action, s)
        return TableResult(spec.source, "maintained", ", ".join(a.action for a in actions), counts=counts)

    return book.each_table(work)
