"""Maintenance of all tables, and their health. Tables fail alone, and so does each action."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import obstore
import pandas as pd

from frazil.dms.applied import applied_files
from frazil.dms.position import read_position
from frazil.engine.work import for_each
from frazil.errors import FrazilError, safe
from frazil.iceberg import compaction, upkeep
from frazil.iceberg.side_files import unnamed
from frazil.iceberg.snapshots import POSITION
from frazil.iceberg.soundness import require_sound
from frazil.iceberg.swap import pass_others
from frazil.pipeline import ledger, run
from frazil.pipeline.look import BY_AUDIT, Look, applied_batches, is_by_audit
from frazil.results import Result, Results, Shown

if TYPE_CHECKING:
    from frazil.iceberg.table import LakeTable
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table

Action = tuple[str, Callable[[], int | None], Callable[[], int]]
"""A name; what counts the things that are due (None: unknown); what does them, and counts those that are done."""
BY_PLATFORM, GROUPS_AT_ONCE = ("compact", "remove_orphans"), 2


class Health(Shown):
    """What tables are made of, a row per table, and why maintenance would do something."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def compared_to(self, before: Health) -> Health:
        """Return a row for each measure of a table that differs from the one before."""
        then, names = {row["table"]: row for row in before.rows}, ("table", "measure", "before", "now")
        both = [(row["table"], n, then.get(row["table"], {}).get(n), row[n]) for row in self.rows for n in row]
        return Health([dict(zip(names, one, strict=True)) for one in both if one[2] != one[3]])

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows."""
        return pd.DataFrame(self.rows)


def health(lake: Lake) -> Health:
    """Measure each table, by its metadata alone. Nothing changes, and no Spark starts."""
    found = for_each(lake, lambda t: {"why": maintain_table(t, True).note, **vars(upkeep.measure(t.stored))})
    return Health([{"table": t.source} | (of if isinstance(of, dict) else {"why": str(of)}) for t, of in found.items()])


def maintain(lake: Lake, dry_run: bool | None = None) -> Results:
    """Do for each table what is due. With `dry_run`, or the setting of that name, only say it: nothing changes."""
    is_dry = lake.settings.dry_run if dry_run is None else dry_run
    return Results(run.each(lake, lambda table: maintain_table(table, is_dry)))


def maintain_table(table: Table, dry_run: bool = False) -> Result:
    """Do what is due for a table; an action that fails stops no other. With `dry_run` only say what is due."""
    actions, rows, errors = _actions(table), list[ledger.Row](), list[Exception]()
    if not dry_run:
        ledger.keep_commits(table)
    for name, due, do in actions:
        facts, began = {"action": name, "count": 0, "error": ""}, datetime.now(UTC)
        try:
            found = 0 if table.lake.stop.is_set() and not dry_run else due()
            facts["count"] = int((found if dry_run or found == 0 else do()) or 0)
        except Exception as failed:
            facts["error"] = safe(failed)
            errors.append(failed)
        if facts["count"] or facts["error"]:
            facts["seconds"] = (datetime.now(UTC) - began).total_seconds()
            rows.append(ledger.Row(uuid4().hex, table.name, began, facts))
    if not dry_run:
        ledger.append(table.lake, "maintenance", rows)
    for error in errors:
        if not isinstance(error, compaction.NotCompactedError):
            raise error
    counts = {row.facts["action"]: row.facts["count"] for row in rows if row.facts["count"]}
    notes = [f"{name}: {count}" for name, count in counts.items() if dry_run] + [str(error) for error in errors]
    position, gc = table.stored.position, table.stored.metadata.properties.get("gc.enabled")
    notes += [f"stopped by the {position.stopped}"] if is_by_audit(position) else []
    notes += ["gc.enabled is false: others need the files"] if gc == "false" else []
    status = ("due" if dry_run else "maintained") if counts else "unchanged"
    return Result(table.source, status, "; ".join(notes), counts={} if dry_run else counts)


def _actions(table: Table) -> list[Action]:
    """Return the actions for a sound table, in order. What is committed from now on does not expire."""
    stored, settings, now = table.stored, table.lake.settings, datetime.now(UTC)
    since, days = now.timestamp() - settings.keep_hours * 3600, timedelta(settings.daily_tags)
    orphans = timedelta(settings.orphan_days or 0)
    stored.refresh()
    require_sound(stored)
    target = int(stored.metadata.properties.get("write.target-file-size-bytes", 256 << 20))
    actions: list[Action] = [
        ("audit", lambda: None, lambda: audit_table(table)),
        ("tag", lambda: len([*upkeep.missing_tags(stored, now, days)]), lambda: len(upkeep.keep_states(stored, days))),
        ("compact", lambda: sum(map(len, compaction.plan(stored, target))), lambda: _compact(table, target)),
        ("manifests", lambda: stored.manifests > upkeep.MANY_MANIFESTS, lambda: upkeep.rewrite_manifests(stored)),
        ("pass_others", lambda: len(require_sound(stored)), lambda: bool(pass_others(stored))),
        ("expire", lambda: _old(stored, since), lambda: upkeep.expire(stored, (time.time() - since) / 3600)),
        ("remove_orphans", lambda: None if orphans else 0, lambda: len(upkeep.remove_orphans(stored, orphans))),
        ("side_files", lambda: _side_files(table), lambda: _side_files(table, goes=True)),
    ]
    return [action for action in actions if not settings.managed_by or action[0] not in BY_PLATFORM]


def _compact(table: Table, target: int) -> int:
    """Compact a table, wave by wave until the time is up."""
    until, stop = time.monotonic() + table.lake.settings.max_run_s, table.lake.stop

    def wave(jobs: list[compaction.Job]) -> list[compaction.Group]:
        return [] if stop.is_set() or time.monotonic() > until else compaction.here(jobs)

    return compaction.compact(table.stored, target, GROUPS_AT_ONCE, wave).get("files", 0)


def _old(stored: LakeTable, since: float) -> int:
    """Return how many snapshots may expire: they are old, and no tag or branch names them."""
    named, gc = {*stored.tags.values()}, stored.metadata.properties.get("gc.enabled")
    return sum(s.committed_ms < since * 1000 and s.id not in named and gc != "false" for s in stored.snapshots)


def _side_files(table: Table, goes: bool = False) -> int:
    """Return how many side files, older than a day, no kept snapshot names; with `goes` delete them."""
    kept = (read_position(s.summary[POSITION], table.name) for s in table.stored.snapshots if POSITION in s.summary)
    named = {position.quarantine.path for position in kept if position.quarantine}
    paths = unnamed(table.lake.state, table.name, named, datetime.now(UTC) - timedelta(days=1))
    if goes:
        obstore.delete(table.lake.state, paths)
    return len(paths)


def audit_table(table: Table) -> int:
    """Stop a table whose files are not those that are applied; return 1 if so. A run cannot afford to list all files."""
    table.stored.refresh()
    if not table.stored.position.load or table.stored.position.stopped:
        return 0
    look, applied = Look(table, audits=True), applied_files(applied_batches(table))
    try:
        look.require_in_order(applied)
    except FrazilError as found:
        table.stop(found.problem, BY_AUDIT)
    return bool(table.stored.position.stopped)
