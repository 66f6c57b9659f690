"""The plan and the lateness of tables, by the steps that only read. Nothing changes, and no Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.iceberg.catalog import CatalogError
from frazil.pipeline.next_batch import LoadWaitsError, Look
from frazil.pipeline.setup import require_first_file

if TYPE_CHECKING:
    import pandas as pd

    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table
    from frazil.report.plan_table import Plan


def plan(lake: Lake) -> Plan:
    """Return what a run would do to each table, and what needs a decision."""
    from frazil.report.plan_table import Plan, row

    rows = []
    for table, found in for_each(lake.tables, _row).items():
        if isinstance(found, FrazilError):
            found = row(table, "stops", decision=str(found), code=found.code)
        rows.append(found)
    return Plan(rows)


def lateness(lake: Lake) -> pd.DataFrame:
    """Return a row per table: how many files are pending, for how many seconds the oldest has waited, and what stops it."""
    return plan(lake).lateness()


def _row(table: Table) -> dict[str, Any]:
    """Return the row of a table. A table that is missing is planned as it would be created."""
    from frazil.report.plan_table import row

    try:
        look = Look(table)
    except CatalogError as error:
        if "run 00_setup" not in error.cure:
            raise
        there = require_first_file(table)
        return row(table, "create", there.loads.values(), there.changes)
    try:
        batch = look.next(loads=True)
    except LoadWaitsError as error:
        return row(table, "waits", (), look.there.changes, why=error.problem, code=error.code)
    position = table.stored.position
    waits = position.quarantine.rows if position.quarantine else 0
    facts: dict[str, Any] = {"position": position.last, "quarantined": waits}
    if batch is None:
        return row(table, "nothing", **facts)
    _ = table.stored.manifests  # what a run could not read stops the plan too
    columns = table.columns(batch).plan
    facts["columns"] = ", ".join(" ".join(step.values()) for step in (columns.steps if columns else ()))
    if batch.kind == "load":
        return row(table, "load", batch.files.values(), batch.left, **facts)
    files = [*batch.files.values(), *batch.left]
    if batch.kind == "changes" and table.lake.settings.max_batches:
        facts["changes"] = min(len(files), table.lake.settings.max_batches * len(batch.files))
    return row(table, batch.kind, (), files, **facts)
