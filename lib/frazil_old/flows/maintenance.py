"""Maintenance: measure every table's health, plan from thresholds, then act and record it in the ledger."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.config.spec import TableSpec
from frazil_old.config.timestamps import clock
from frazil_old.errors import FrazilError, many
from frazil_old.flows import ledger
from frazil_old.flows.held_snapshots import held
from frazil_old.flows.preview_stages import Stage, size, stage
from frazil_old.flows.warehouse_refresh import refreshing
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import commit_retry, jvm, maintenance_actions, maintenance_plan, quarantine_table, snapshot_expiry
from frazil_old.lake.clocks import require_table_in_past
from frazil_old.lake.compaction import file_groups
from frazil_old.lake.maintenance_plan import Action, measure
from frazil_old.lake.tables import require_sound
from frazil_old.results import TableResult

PURGE, QUARANTINE_DAYS = "purge quarantine", 30
SHOWN = 8
"""The number of groups and of snapshots that are shown before a run."""


def _settings(book: Workbook, spec: TableSpec, say: bool = False) -> MaintenanceSettings:
    """Return the settings for a table: warehouses that serve old states make it keep snapshots for longer."""
    kept = held(book, spec)
    if kept.keep_hours <= book.settings.keep_hours:
        return book.settings
    if say:
        book.progress(f"{spec.source}: older snapshots are kept: {kept.why}")
    return replace(book.settings, keep_hours=kept.keep_hours)


def health(book: Workbook) -> list[dict[str, Any]]:
    """Return one row per table: what it is made of. Nothing is changed."""
    return book.row_per_table(lambda spec: asdict(measure(book.spark, book.name(spec), book.settings)))


def plan(book: Workbook) -> list[dict[str, Any]]:
    """Return one row per table and action: what should be done, why, and its cost. Nothing is changed."""
    if platform := maintenance_plan.managed_by(book.settings):
        return [{"table": "all", "action": "nothing", "why": f"maintained by {platform}", "cost": ""}]
    rows, ended = [], _ended(book)
    for spec in book.specs.values():
        try:
            book.require_readable(spec)
            for a in _actions(book, spec, ended):
                row = {"table": spec.source, **asdict(a)}
                if a.action == "compact":
                    row["cost"] += f"; {_duration(book, spec)}"
                if a.action == "remove orphan files":
                    orphans = maintenance_actions.orphan_files(book.spark, book.name(spec), book.settings)
                    row["why"] += f": {len(orphans)} now"
                rows.append(row)
        except FrazilError as e:
            rows.append({"table": spec.source, "action": f"cannot: {e.problem}", "why": e.cure, "cost": ""})
    return rows


def _duration(book: Workbook, spec: TableSpec) -> str:
    """Return how long a compaction will take at the rate of the table's last ones."""
    s, rate = book.settings, ledger.compaction_rate(book, book.name(spec))
    if not rate:
        return "the time is not known before its first run"
    groups = file_groups(book.spark, jvm.load_table(book.spark, book.name(spec)), s)
    return f"about {sum(g.bytes for g in groups) / 1e6 / rate:,.0f} s at {rate:,.3g} MB/s, the rate of its last runs"


@stage
def rewrites(book: Workbook, planned: Sequence[dict[str, Any]], table: str = "") -> Stage:
    """Return the groups of data files that a compaction rewrites: of the first table with one in the plan, or of `table`."""
    spec = _planned_for(book, planned, "compact", table)
    if not spec:
        return Stage("no table's data files are to be rewritten")
    s, name = book.settings, book.name(spec)
    groups = file_groups(book.spark, jvm.load_table(book.spark, name), s)
    rows = [
        {"group": n, "files": len(g.files), "size": size(g.bytes), "live rows": g.rows,
         "becomes": many(-(-g.bytes // (s.target_file_mb << 20)), "file") if g.rows else "nothing: all rows are deleted"}
        for n, g in enumerate(groups[:SHOWN], 1)
    ]  # fmt: skip
    files, total = sum(len(g.files) for g in groups), sum(g.bytes for g in groups)
    return Stage(
        f"{spec.source}: {many(files, 'file')}, {size(total)}, in {many(groups, 'group')}, each with a commit of its own",
        rows,
    )


@stage
def expiring(book: Workbook, planned: Sequence[dict[str, Any]], table: str = "") -> Stage:
    """Return the oldest snapshots that expire: of the first table with some in the plan, or of `table`."""
    spec = _planned_for(book, planned, "expire snapshots", table)
    if not spec:
        return Stage("no snapshot expires")
    s, there = _settings(book, spec), jvm.load_table(book.spark, book.name(spec))
    gone = snapshot_expiry.expirable(there, s.keep_hours)
    rows = [
        {"snapshot": str(x.snapshotId()), "committed": clock(x.timestampMillis()), "by": x.summary().get("frazil.kind") or x.operation()}
        for x in gone[:SHOWN]
    ]  # fmt: skip
    kept = there.snapshots().size() - len(gone)
    return Stage(
        f"{spec.source}: {many(gone, 'snapshot')} older than {s.keep_hours:g} h; {kept:,} stay, for their age, a tag or a branch",
        rows,
    )


def _planned_for(book: Workbook, planned: Sequence[dict[str, Any]], action: str, table: str) -> TableSpec | None:
    found = (r["table"] for r in planned if r["action"] == action and r["table"] == (table or r["table"]))
    return book.specs.get(next(found, ""))


def _ended(book: Workbook) -> dict[str, str]:
    """Return, by source table, why quarantined rows will be removed."""
    name, days = book.ops("quarantine"), _quarantine_days(book)
    if not book.spark.catalog.tableExists(name):
        return {}
    ours = " or ".join(map(quarantine_table.of_table, book.specs.values())) or "false"
    found = quarantine_table.ended(book.spark, name, days).where(ours).groupBy("table_name").count().collect()
    return {s: f"{n} rows ended more than {days:g} days ago" for s, n in found}


def _quarantine_days(book: Workbook) -> int:
    """Return the days for which ended rows stay: at least as long as a tag that a table may be rolled back to."""
    return max(QUARANTINE_DAYS, book.settings.daily_tags)


@refreshing
def run(book: Workbook) -> list[TableResult]:
    """Plan and act, table by table; only plan where the settings say so (`only_plans`).

    Tables fail independently. Every action is recorded in the ledger.
    """
    platform = maintenance_plan.managed_by(book.settings)
    if platform:
        return [TableResult(spec.source, "managed", f"by {platform}") for spec in book.specs.values()]
    started = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}_{uuid.uuid4().hex[:6]}"
    ended = commit_retry.steady(lambda: _ended(book))
    for own in map(book.ops, ("commits", "maintenance", "quarantine")):
        if book.spark.catalog.tableExists(own):
            require_table_in_past(jvm.load_table(book.spark, own), own)
    if book.settings.only_plans:
        return book.each_table(lambda spec: _planned(spec, _actions(book, spec, ended)))
    commit_retry.steady(lambda: ledger.record(book))  # before any snapshot expires
    done = book.each_table(lambda spec: _act(book, spec, _actions(book, spec, ended), started))
    commit_retry.steady(lambda: ledger.record(book))  # the commits of compaction
    commit_retry.steady(lambda: ledger.tidy(book))
    return done


def _actions(book: Workbook, spec: TableSpec, ended: dict[str, str]) -> list[Action]:
    """Return what to do with a table now; `ended` says why quarantined rows will be removed."""
    name, s = book.name(spec), _settings(book, spec, say=True)
    require_sound(book.spark, name)
    actions = maintenance_plan.plan(measure(book.spark, name, s), s)
    if any(a.action == "compact" for a in actions) and not file_groups(book.spark, jvm.load_table(book.spark, name), s):
        actions = [a for a in actions if a.action != "compact"]  # each small file is alone in its partition
    if spec.source in ended:
        actions.append(Action(PURGE, ended[spec.source], f"rewrites files of {book.ops('quarantine')}"))
    return actions


def _planned(spec: TableSpec, actions: list[Action]) -> TableResult:
    note = "; ".join(a.action for a in actions) + ("; set dry_run = False to do it" if actions else "")
    return TableResult(spec.source, "planned" if actions else "healthy", note)


def _act(book: Workbook, spec: TableSpec, actions: list[Action], run: str) -> TableResult:
    """Do the actions one by one; each has a row in the ledger."""
    if not actions:
        return _planned(spec, actions)
    counts: dict[str, float] = {}
    for number, a in enumerate(actions, 1):
        book.progress(f"{spec.source}: {a.action}: {a.why}")
        mark = f"{run}/{spec.target}/{number}"
        with ledger.action(book, mark, book.name(spec), a.action, a.why) as facts:
            facts |= _done(book, spec, a.action, mark)
        counts |= facts
    return TableResult(spec.source, "maintained", ", ".join(a.action for a in actions), counts=counts)


def _done(book: Workbook, spec: TableSpec, action: str, mark: str) -> dict[str, float]:
    """Do an action and return what it changed."""
    if action == PURGE:
        return {"purged": quarantine_table.purge(book.spark, book.ops("quarantine"), spec, _quarantine_days(book))}
    if action == "remove orphan files" and (metadata := served_orphans(book, spec)):
        book.progress(f"{spec.source}: orphan files stay: a warehouse serves {', '.join(metadata)}")
        return {"orphan_files": 0}
    s = _settings(book, spec)
    return maintenance_actions.execute(book.spark, book.name(spec), action, s, mark, book.progress)


def served_orphans(book: Workbook, spec: TableSpec) -> list[str]:
    """Return the metadata files that orphan removal would delete and a warehouse serves."""
    names = {m.rpartition("/")[2] for m in held(book, spec).metadata}
    if not names:
        return []
    orphans = maintenance_actions.orphan_files(book.spark, book.name(spec), book.settings)
    return [o for o in orphans if o.rpartition("/")[2] in names]
