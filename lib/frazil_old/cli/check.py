"""`frazil check`: one line per breached limit of the environment's section `operate`; none if all is well."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from frazil_old import exit_codes
from frazil_old.cli import monitor
from frazil_old.cli.hooks import call_hooks, end_trouble
from frazil_old.config.settings import OperateSettings, ParameterError, resolve
from frazil_old.errors import FrazilError, many, nearest
from frazil_old.flows import folders_without_spec, lag, quarantine_counts, warehouse_lateness
from frazil_old.flows.workbook import Workbook
from frazil_old.report import runs
from frazil_old.report.chart_style import span


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--quiet", action="store_true", help="print nothing if no limit is breached")
    parser.add_argument("--json", action="store_true", help="print the breaches as JSON, on standard output")


def main(options: argparse.Namespace) -> int:
    """Print the breaches and call the hooks; return `exit_codes.BREACH` if there are any."""
    operate: OperateSettings = resolve("operate", {"env": options.env}).settings
    try:
        found, tables = look(operate)
    except Exception as e:  # on a schedule nobody may see this command's output
        outcome = exit_codes.outcome_of(None, type(e).__name__)
        call_hooks(operate, {"notebook": "check", "env": options.env, "outcome": outcome, "cause": str(e)})
        breach = [str(e)]
        monitor.write_metrics(operate, lambda: (breach, []))
        raise
    paused = {r["table"]: r["paused"] for r in tables if r.get("paused")}
    if options.json:
        print(json.dumps({"env": options.env, "breaches": found, "paused": paused}))
    for line in [] if options.json else found:
        print(line, file=sys.stderr)
    if found:
        call_hooks(operate, {"env": options.env, "outcome": "breach", "breaches": found})
    else:
        end_trouble(operate)
        if not options.quiet and not options.json:
            print(f"{options.env}: all is well")
    if not options.quiet and not options.json:
        for table, why in paused.items():
            print(f"{table}: paused {why}")
    monitor.write_metrics(operate, lambda: (found, tables))
    return exit_codes.BREACH if found else exit_codes.OK


def look(operate: OperateSettings) -> tuple[list[str], list[dict[str, Any]]]:
    """Return one line per breached limit, and the rows of `lag.per_table` that they are of; no rows if the lake cannot be read."""
    book = Workbook(operate, lambda text: None)
    limits, rows, unread = _limits(book, operate), [], []
    try:
        rows = lag.per_table(book)
    except FrazilError as e:
        unread = [_line("lake", e.problem, e.cure)]
    found = [
        *unread,
        *_late(book, rows, limits),
        *(
            _line(table, *folders_without_spec.NO_SPEC.split(": ", 1))
            for table in folders_without_spec.without_spec(book)
        ),
        *_not_served(book),
        *_quarantined(book),
        *_stale(book, operate),
        *_unusable(book),
    ]
    return found, rows


def _limits(book: Workbook, operate: OperateSettings) -> dict[str, float]:
    """Return the limit of each table's lag."""
    limits = dict.fromkeys(book.specs, operate.max_lag_s)
    for name, seconds in operate.table_max_lag_s.items():
        if name not in book.specs:
            raise ParameterError(f"table_max_lag_s names no table: '{name}'", nearest(name, book.specs))
        try:
            limits[name] = float(seconds)
        except ValueError:
            raise ParameterError(f"table_max_lag_s: {name}: '{seconds}'", "write a number of seconds") from None
    return limits


def _late(book: Workbook, rows: list[dict[str, Any]], limits: dict[str, float]) -> list[str]:
    lines = [_line(r["table"], r["problem"], r["cure"]) for r in rows if r["problem"]]
    what = "message" if book.stream else "file"
    for r in rows:
        limit = limits[r["table"]]
        if not r["problem"] and (r["lag_s"] or 0) > limit:
            lines.append(
                f"{r['table']}: {many(r['pending'], what)} pending, the oldest for {span(r['lag_s'])}, limit {span(limit)}"
            )
    return lines


def _not_served(book: Workbook) -> list[str]:
    try:
        return [_line(*found) for found in warehouse_lateness.late(book)]
    except FrazilError as e:
        return [_line("warehouses", e.problem, e.cure)]


def _line(name: str, problem: str, cure: str) -> str:
    """Return a problem and its cure in one line that begins with the name of its subject."""
    line = " ".join(f"{problem.removeprefix(f'{name}: ')}{cure and f'; cure: {cure}'}".split())
    return f"{name}: {line}"


def _quarantined(book: Workbook) -> list[str]:
    records = quarantine_counts.known_records(book.settings) or []  # without a catalog, the tables' line says so
    waiting, lost = quarantine_counts.waiting_of(book, records), quarantine_counts.unreadable_of(book, records)
    rows, allowed = sum(waiting.values()) + len(lost), book.settings.max_quarantined
    parts = [f"{count:,} of {table}" for table, count in sorted(waiting.items())]
    parts += [quarantine_counts.many_unreadable(lost)] if lost else []
    if rows <= allowed:
        return []
    return [f"quarantine: {many(rows, 'waiting row')} ({', '.join(parts)}), limit {allowed:,}"]


def _unusable(book: Workbook) -> list[str]:
    trouble = runs.unusable(book.folder)
    return [_line("runs", trouble, "free some, or name another folder in parameter 'runs'")] if trouble else []


def _stale(book: Workbook, operate: OperateSettings) -> list[str]:
    try:
        found = runs.read(book.folder)
    except OSError as e:
        return [_line("runs", f"{e.filename} cannot be read: {e.strerror}", "let this user read and write it")]
    of_changes, of_maintenance = (
        [r for r in found if r["notebook"].endswith(name) and r["outcome"] != "skipped"]
        for name in ("cdc_merge", "maintenance")
    )
    ended, kept = ([r for r in some if r["outcome"] != "running"] for some in (of_changes, of_maintenance))
    last = [r for r in (*ended[:1], *kept[:1]) if exit_codes.is_bad(r["outcome"])]
    lines = [f"last run: {r['outcome']}: {r['folder']}" for r in last]
    if of_changes[:1] != ended[:1] and _lasts(of_changes[0], operate):
        return lines
    good = [r for r in ended if r["outcome"] in ("ok", "nothing to do")]
    age = time.time() - good[0]["began"] - good[0].get("seconds", 0) if good else None
    if age is None:
        lines.append("runs: 02_cdc_merge has not succeeded yet")
    elif age > operate.max_run_age_s:
        lines.append(f"runs: 02_cdc_merge last succeeded {span(age)} ago, limit {span(operate.max_run_age_s)}")
    return lines


def _lasts(running: dict[str, Any], operate: OperateSettings) -> bool:
    """Return whether a run in progress polls, and has not gone on for longer than `run_for_s` and the age of a success."""
    stated = resolve("cdc_merge", {"env": operate.env}).settings.run_for_s
    run_for_s = float(running.get("parameters", {}).get("run_for_s", stated))
    return run_for_s > 0 and time.time() - running["began"] < run_for_s + operate.max_run_age_s
