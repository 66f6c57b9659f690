"""Maintenance of all tables, and their health. Tables fail alone, and so does each action."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import obstore

from frazil.dms.applied import applied_files
from frazil.dms.position import read_position
from frazil.dms.quarantine_files import unnamed
from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.iceberg import compaction, expiry
from frazil.iceberg.commits import pass_others
from frazil.iceberg.snapshot_summary import POSITION
from frazil.iceberg.soundness import require_sound
from frazil.pipeline import decisions, ops_tables, run
from frazil.pipeline.next_batch import BY_AUDIT, Look, applied_batches, is_by_audit
from frazil.results import Result, Results

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table
    from frazil.report.health import Health

Action = tuple[str, Callable[[], int], Callable[[], int]]
"""A name; what counts the things that are due; what does them, and counts those that are done."""
BY_PLATFORM, GROUPS_AT_ONCE = ("compact", "remove_orphans"), 2


def health(lake: Lake) -> Health:
    """Measure each table, by its metadata alone. Nothing changes, and no Spark starts."""
    from frazil.report.health import Health, measure

    found = for_each(lake, lambda t: {"why": maintain_table(t, True).note, **measure(t.stored)})
    return Health([{"table": t.source} | (of if isinstance(of, dict) else {"why": str(of)}) for t, of in found.items()])


def maintain(lake: Lake, dry_run: bool | None = None) -> Results:
    """Do for each table what is due. With `dry_run`, or the setting of that name, only say it: nothing changes."""
    is_dry, began = lake.settings.dry_run if dry_run is None else dry_run, time.time()
    done = Results(run.each(lake, partial(maintain_table, dry_run=is_dry)))
    if not is_dry:
        facts = {lake[r.table]: {**r.counts, "seconds": r.seconds} for r in done if r.counts}
        ops_tables.append(lake, "maintenance", [ops_tables.row(f"{t.name} {began}", t, began, facts[t]) for t in facts])
        ops_tables.keep_small(lake)
    return done


def maintain_table(table: Table, dry_run: bool = False) -> Result:
    """Do what is due for a table; an action that fails stops no other. With `dry_run` only say what is due."""
    require_sound(table.refresh())
    counts, errors = dict[str, int](), list[Exception]()
    if not dry_run:
        ops_tables.keep_facts(table)
    for name, due, do in _actions(table):
        try:
            if count := 0 if table.lake.stop.is_set() else (due if dry_run else do)():
                counts[name] = count
        except Exception as failed:
            errors.append(failed)
    for error in errors:
        if not isinstance(error, compaction.NotCompactedError):
            raise error
    notes = [f"{name}: {count}" for name, count in counts.items() if dry_run] + [str(error) for error in errors]
    position = table.stored.position
    notes += [f"stopped by the {position.stopped}"] if is_by_audit(position) else []
    notes += ["gc.enabled is false: others need the files"] if table.stored.others_need_files else []
    status = ("due" if dry_run else "maintained") if counts else "unchanged"
    return Result(table.source, status, "; ".join(notes), counts={} if dry_run else counts)


def _actions(table: Table) -> list[Action]:
    """Return the actions for a table, in their order. What is committed from now on does not expire."""
    stored, settings, now = table.stored, table.lake.settings, datetime.now(UTC)
    days, orphans = timedelta(settings.daily_tags), settings.orphan_days
    target = int(stored.metadata.properties.get("write.target-file-size-bytes", 256 << 20))

    def hours() -> float:
        return settings.keep_hours + (time.time() - now.timestamp()) / 3600

    actions: list[Action] = [
        ("audit", lambda: 0, lambda: audit_table(table)),
        ("tag", lambda: len([*expiry.missing_tags(stored, now, days)]), lambda: len(expiry.keep_states(stored, days))),
        ("compact", lambda: sum(map(len, compaction.plan(stored, target))), lambda: _compact(table, target)),
        ("manifests", lambda: stored.manifests > expiry.MANY_MANIFESTS, lambda: expiry.rewrite_manifests(stored)),
        (
            "pass_others",
            lambda: len(require_sound(stored)),
            lambda: bool(require_sound(stored) and pass_others(stored)),
        ),
        ("expire", lambda: expiry.expirable(stored, hours()), lambda: expiry.expire(stored, hours())),
        ("remove_orphans", lambda: 0, lambda: len(expiry.remove_orphans(stored, orphans)) if orphans else 0),
        ("side_files", lambda: _side_files(table), lambda: _side_files(table, remove=True)),
    ]
    return [action for action in actions if not settings.managed_by or action[0] not in BY_PLATFORM]


def _compact(table: Table, target: int) -> int:
    """Compact a table, wave by wave until the time is up."""
    until, stop, tasks = time.monotonic() + table.lake.settings.max_run_s, table.lake.stop, table.lake.tasks

    def wave(jobs: list[compaction.Job]) -> list[compaction.Group]:
        return [] if stop.is_set() or time.monotonic() > until else tasks.rewrite(jobs)

    return compaction.compact(table.stored, target, max(GROUPS_AT_ONCE, tasks.cores), wave).get("files", 0)


def _side_files(table: Table, remove: bool = False) -> int:
    """Return how many side files, older than a day, no kept snapshot names; with `remove` they are gone."""
    kept = (read_position(s.summary[POSITION], table.name) for s in table.stored.snapshots if POSITION in s.summary)
    named = {position.quarantine.path for position in kept if position.quarantine}
    paths = unnamed(table.lake.state, table.name, named, datetime.now(UTC) - timedelta(days=1))
    if remove:
        obstore.delete(table.lake.state, paths)
    return len(paths)


def audit_table(table: Table) -> int:
    """Compare all files of a table with what is applied, which a run cannot afford; stop it by what is found, and return 1.

    The stop ends by itself once the finding is gone.
    """
    position = table.refresh().position
    if not position.load or position.stopped:
        return 0
    look, applied = Look(table, audits=True), applied_files(applied_batches(table))
    try:
        look.require_in_order(position, applied, is_accepted=False)
    except FrazilError as found:
        decisions.halt(table, BY_AUDIT, found.problem)
        return 1
    return 0
