"""The plan and the lateness of tables, by the steps that only read. Nothing changes, and no Spark starts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.iceberg.catalog import CatalogError
from frazil.pipeline.batch import Batch
from frazil.pipeline.look import LoadWaitsError, Look
from frazil.results import Shown

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table


@dataclass(repr=False)
class Plan(Shown):
    """What a run would do to each table: a row per table."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def busiest(self) -> str | None:
        """The table with most to do; the first by name if none has."""
        return min(self.rows, key=lambda r: (-r["mb"], r["table"]))["table"] if self.rows else None

    @property
    def decisions(self) -> list[str]:
        """What a person must decide, by table."""
        return [f"{row['table']}: {row['decision']}" for row in self.rows if row["decision"]]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per table."""
        return pd.DataFrame([{n: v for n, v in row.items() if n != "code"} for row in self.rows])


def plan(lake: Lake) -> Plan:
    """Return what a run would do to each table, and what needs a decision."""
    found = for_each(lake.tables, _row)
    return Plan([row if isinstance(row, dict) else _stopped(table, row) for table, row in found.items()])


def _row(table: Table) -> dict[str, Any]:
    """Return the row of a table. A table that is missing is planned as it would be created."""
    try:
        look = Look(table)
    except CatalogError as error:
        if "run 00_setup" not in error.cure:
            raise
        return _to_create(table)
    try:
        batch = look.next(loads=True)
    except LoadWaitsError as error:
        return _empty(table) | {"action": "waits", "why": error.problem, "code": error.code}
    position = table.stored.position
    quarantined = position.quarantine.rows if position.quarantine else 0
    return _empty(table) | _of_batch(table, look, batch) | {"position": position.last, "quarantined": quarantined}


def _of_batch(table: Table, look: Look, batch: Batch | None) -> dict[str, Any]:
    if batch is None:
        return {"action": "nothing"}
    following = table.columns(batch).plan
    steps = following.steps if following else ()
    changes = [*batch.left] if batch.kind == "load" else [*batch.files.values(), *batch.left]
    if (most := table.lake.settings.max_batches) and batch.kind != "load":
        changes = changes[: most * len(batch.files)]
    loads = [*batch.files.values()] if batch.kind == "load" else []
    return {
        "action": batch.kind,
        "load": len(loads),
        "changes": len(changes),
        "mb": round(sum(f.size for f in (*loads, *changes)) / 1e6, 3),
        "columns": ", ".join(" ".join(step.values()) for step in steps),
    }


def _to_create(table: Table) -> dict[str, Any]:
    from frazil.pipeline.setup import require_first_file

    require_first_file(table)
    there = table.lake.source.look(table.spec, None)
    files = [*there.loads.values(), *there.changes]
    size = round(sum(f.size for f in files) / 1e6, 3)
    return _empty(table) | {"action": "create", "load": len(there.loads), "changes": len(there.changes), "mb": size}


def _empty(table: Table) -> dict[str, Any]:
    none = {"load": 0, "changes": 0, "mb": 0.0, "quarantined": 0, "columns": "", "position": ""}
    return {"table": table.source, "action": "", **none, "why": "", "decision": "", "code": ""}


def _stopped(table: Table, error: FrazilError) -> dict[str, Any]:
    return _empty(table) | {"action": "stops", "decision": str(error), "code": error.code}


def lateness(lake: Lake) -> pd.DataFrame:
    """Return a row per table: how many files are pending, for how many seconds the oldest has waited, and what stops it."""
    found = for_each(lake.tables, _late)
    rows = [row if isinstance(row, dict) else _problem(table, row) for table, row in found.items()]
    return pd.DataFrame(rows, columns=["table", "pending", "lag_s", "limit_s", "quarantined", "problem", "code"])


def _late(table: Table) -> dict[str, Any]:
    row: dict[str, Any] = {"table": table.source, "limit_s": _limit(table), "problem": "", "code": ""}
    look = Look(table)
    position = table.stored.position
    row["quarantined"] = position.quarantine.rows if position.quarantine else 0
    try:
        batch = look.next(loads=True)
    except LoadWaitsError as error:
        return row | {
            "pending": len(look.there.changes),
            "lag_s": _waited(look.there.changes),
            "problem": error.problem,
        }
    files = [*batch.files.values(), *batch.left] if batch else []
    return row | {"pending": len(files), "lag_s": _waited(files)}


def _waited(files: Any) -> float:
    return max((time.time() - file.landed for file in files), default=0.0)


def _limit(table: Table) -> float:
    own = table.spec.max_lag_s
    return table.lake.settings.max_lag_s if own is None else own


def _problem(table: Table, error: FrazilError) -> dict[str, Any]:
    return {"table": table.source, "limit_s": _limit(table), "problem": str(error), "code": error.code}
