"""Maintenance of all tables, and their health. Tables fail alone, and so does each action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pandas as pd

from frazil.engine.work import for_each
from frazil.errors import safe
from frazil.iceberg.upkeep import measure
from frazil.pipeline import ledger, run
from frazil.pipeline.actions import Action, actions
from frazil.pipeline.look import is_by_audit
from frazil.results import Result, Results, Shown

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table


@dataclass
class Health(Shown):
    """What tables are made of, a row per table, and why maintenance would do something."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def compared_to(self, before: Health) -> Health:
        """Return a row for each measure of a table that differs from the one before."""
        then = {(row["table"], name): value for row in before.rows for name, value in row.items()}
        now = {(row["table"], name): value for row in self.rows for name, value in row.items()}
        differs = [at for at in now if now[at] != then.get(at)]
        return Health([{"table": at[0], "measure": at[1], "before": then.get(at), "now": now[at]} for at in differs])

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows."""
        return pd.DataFrame(self.rows)


def health(lake: Lake) -> Health:
    """Measure each table, by its metadata alone. Nothing changes, and no Spark starts."""
    found = for_each(lake, _measured)
    return Health([row if isinstance(row, dict) else {"table": t.source, "why": str(row)} for t, row in found.items()])


def _measured(table: Table) -> dict[str, Any]:
    why = _told(actions(table))
    found = measure(table.stored)
    return {
        "table": table.source, "rows": found.rows, "files": found.files, "mb": round(found.bytes / 1e6, 3),
        "median_file_mb": round(found.median_file_bytes / 1e6, 3), "deleted_rows": found.deleted_rows,
        "delete_files": found.delete_files, "snapshots": found.snapshots,
        "metadata_kb": found.metadata_bytes // 1000, "why": why,
    }  # fmt: skip


def maintain(lake: Lake, dry_run: bool | None = None) -> Results:
    """Do for each table what is due. With `dry_run`, or the setting of that name, only say it: nothing changes."""
    if lake.settings.dry_run if dry_run is None else dry_run:
        return Results(run.each(lake, _planned))
    done = Results(run.each(lake, maintain_table))
    ledger.tidy(lake)
    return done


def _planned(table: Table) -> Result:
    due = [*actions(table)]
    return Result(table.source, "due" if any(action.act for action in due if action.why) else "unchanged", _told(due))


def _told(due: Iterable[Action]) -> str:
    return "; ".join(f"{action.name}: {action.why}" for action in due if action.why)


def maintain_table(table: Table) -> Result:
    """Do what is due for a table. An action that fails stops no other; the first error is raised at the end."""
    done, rows, notes, errors = Counter[str](), [], [], []
    try:
        for action in actions(table):
            if action.act is None:
                notes.append(_told([action]))
            elif not table.lake.stop.is_set():
                row, error = _done(table, action)
                rows += [row] if error or row.facts["counts"] else []
                errors += [error] if error else []
                done.update(row.facts["counts"])
    finally:
        ledger.keep_commits(table)
        ledger.append(table.lake, "maintenance", rows)
    if errors:
        raise errors[0]
    notes = [row.facts["action"] for row in rows] + notes
    if is_by_audit(table.stored.position):
        notes.append(f"stopped by the {table.stored.position.stopped}")
    return Result(table.source, "maintained" if rows else "unchanged", "; ".join(notes), counts=dict(done))


def _done(table: Table, action: Action) -> tuple[ledger.Row, Exception | None]:
    """Do an action; return what the ledger says of it, and its error."""
    began, failed, counts = datetime.now(UTC), None, {}
    try:
        counts = {name: count for name, count in action.act().items() if count} if action.act else {}
    except Exception as error:
        failed = error
    seconds = round((datetime.now(UTC) - began).total_seconds(), 3)
    told = {"action": action.name, "why": action.why, "counts": counts, "seconds": seconds, "error": safe(failed or "")}
    return ledger.Row(uuid4().hex, table.name, began, told), failed
