"""The plan and the lateness of tables, by the steps that only read. Nothing changes, and no Spark starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from frazil.dms.storage import DmsFile
from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.iceberg.catalog import CatalogError
from frazil.pipeline.look import LoadWaitsError, Look
from frazil.pipeline.setup import require_first_file
from frazil.results import Shown

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table


@dataclass(repr=False)
class Plan(Shown):
    """What a run would do to each table: a row per table."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def busiest(self) -> str:
        """The table with most pending; the first by name if nothing is."""
        return min(self.rows, key=lambda row: (-row["mb"], row["table"]))["table"]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per table."""
        return pd.DataFrame([{n: v for n, v in row.items() if n != "code"} for row in self.rows])


def plan(lake: Lake) -> Plan:
    """Return what a run would do to each table, and what needs a decision."""
    found = for_each(lake.tables, _row)
    return Plan([row if isinstance(row, dict) else _stopped(table, row) for table, row in found.items()])


def lateness(lake: Lake) -> pd.DataFrame:
    """Return a row per table: how many files are pending, for how many seconds the oldest has waited, and what stops it."""
    rows = [{"lag_s": row["waited_s"], "problem": row["decision"] or row["why"], **row} for row in plan(lake).rows]
    return pd.DataFrame(rows, columns=["table", "pending", "lag_s", "limit_s", "quarantined", "problem", "code"])


def _row(table: Table) -> dict[str, Any]:
    """Return the row of a table. A table that is missing is planned as it would be created."""
    try:
        look = Look(table)
    except CatalogError as error:
        if "run 00_setup" not in error.cure:
            raise
        require_first_file(table)
        there = table.lake.source.look(table.spec, None)
        return _of_files(table, "create", [*there.loads.values()], there.changes)
    position = table.stored.position
    known = {"position": position.last, "quarantined": position.quarantine.rows if position.quarantine else 0}
    try:
        batch = look.next(loads=True)
    except LoadWaitsError as error:
        return _of_files(table, "waits", [], look.there.changes) | {"why": error.problem, "code": error.code}
    if batch is None:
        return _of_files(table, "nothing", [], []) | known
    loads = [*batch.files.values()] if batch.kind == "load" else []
    changes = batch.left if loads or batch.kind == "load" else (*batch.files.values(), *batch.left)
    following = table.columns(batch).plan
    steps = [" ".join(step.values()) for step in (following.steps if following else ())]
    row = _of_files(table, batch.kind, loads, changes) | known | {"columns": ", ".join(steps)}
    most = table.lake.settings.max_batches * len(batch.files)
    return row | ({"changes": min(row["changes"], most)} if most and batch.kind == "changes" else {})


def _of_files(table: Table, action: str, loads: Sequence[DmsFile], changes: Sequence[DmsFile]) -> dict[str, Any]:
    """Return the row of a table of which these files are pending."""
    files, limit = [*loads, *changes], table.spec.max_lag_s
    return {
        "table": table.source,
        "action": action,
        "load": len(loads),
        "changes": len(changes),
        "pending": len(files),
        "mb": round(sum(f.size for f in files) / 1e6, 3),
        "waited_s": max((time.time() - f.landed for f in files), default=0.0),
        "limit_s": table.lake.settings.max_lag_s if limit is None else limit,
        "quarantined": 0,
        **dict.fromkeys(("columns", "position", "why", "decision", "code"), ""),
    }


def _stopped(table: Table, error: FrazilError) -> dict[str, Any]:
    return _of_files(table, "stops", [], []) | {"decision": str(error), "code": error.code}
