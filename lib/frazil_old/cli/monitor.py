"""Monitoring of runs and checks: collects the facts for metrics and for OpenLineage, and reports what could not be sent.

Nothing is read unless somebody wants it, and no failure changes an exit code.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil_old.cli.run_folder import RunFolder
from frazil_old.config.settings import CdcMergeSettings, FullLoadSettings, OperateSettings
from frazil_old.config.spec import TableSpec
from frazil_old.dms.storage import location
from frazil_old.errors import FrazilError, safe
from frazil_old.flows import quarantine_counts
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.report import lineage, metrics, runs
from frazil_old.report.lineage import Place, Written

Look = Callable[[], tuple[list[str], list[dict[str, Any]]]]
"""Gives the breaches and the rows of `lag.per_table`."""


def _tried(what: str, action: Callable[[], Any], quiet: bool = False) -> Any:
    """Return an action's result; None if it fails, after a line about it. Libraries write nothing of their own meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return action()
    except FrazilError as e:
        line = f"{e.problem}; cure: {e.cure}" if e.cure else e.problem
    except Exception as e:  # its text may have an address with a login
        line = f"{type(e).__name__}; cure: correct the variables and settings that name the receiver, or unset them"
    finally:
        logging.disable(before)
    if not quiet:
        print(f"{what}: {safe(' '.join(line.split()))}", file=sys.stderr)
    return None


# --- metrics


def write_metrics(operate: OperateSettings, look: Look) -> None:
    """Write the environment's metrics to its file and send them to the collector, as far as there are any."""
    if not operate.metrics_file and not metrics.collector():
        return
    found = metrics.samples(_facts(operate, look))
    if operate.metrics_file:
        _tried("metrics_file", lambda: metrics.write_file(found, operate.path("metrics_file")))
    if metrics.collector():
        _tried("OpenTelemetry", lambda: metrics.send(found))


def _facts(operate: OperateSettings, look: Look) -> metrics.Facts:
    """Return what can be read of an environment; a line names what cannot."""
    ran = _tried("metrics of runs", lambda: runs.read(Path(operate.root) / operate.runs / operate.env))
    breaches, tables = _tried("metrics of tables", look) or (None, [])
    # If the lake cannot be read, the check says so.
    sizes, waiting = _tried("metrics of tables", lambda: _lake(operate), quiet=True) or ({}, {})
    count = None if breaches is None else len(breaches)
    return metrics.Facts(operate.env, operate.is_stream, tables, sizes, waiting, ran or [], count)


def _lake(operate: OperateSettings) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return the sizes of each table that can be read, and the number of quarantined rows that wait."""
    book = Workbook(operate, lambda text: None)
    catalog, sizes = book.catalog, {}
    for spec in book.specs.values():
        with suppress(FrazilError):  # `frazil check` reports it
            sizes[spec.source] = pyiceberg_catalog.sizes(pyiceberg_catalog.get_table(catalog, spec.target))
    records = pyiceberg_catalog.records(pyiceberg_catalog.ops_table(operate, "quarantine"))
    waiting = dict.fromkeys(book.specs, 0) | quarantine_counts.waiting_of(book, records)
    lost = len(quarantine_counts.unreadable_of(book, records))
    return sizes, waiting | ({quarantine_counts.NO_TABLE: lost} if lost else {})


# --- OpenLineage


@contextmanager
def traced(book: Workbook, run: RunFolder) -> Iterator[None]:
    """Send OpenLineage's events when a run begins and ends, if a variable asks for them."""
    if not lineage.is_wanted():
        yield
        return
    facts = lineage.RunFacts(book.settings.env, run.facts["notebook"])
    sent = _sent(facts, run.facts["began"])
    try:
        yield
    finally:
        # Tables that the run created have specs now.
        datasets = _tried("OpenLineage", lambda: _datasets(Workbook(book.settings, lambda text: None), run.facts))
        read, written = datasets or ([], [])
        cause, outcome = run.facts.get("cause", ""), run.facts["outcome"]
        ended = replace(facts, outcome=outcome, cause=cause, read=read, written=written)
        _sent(ended, datetime.now(UTC).timestamp(), quiet=not sent)


def _sent(facts: lineage.RunFacts, at: float, quiet: bool = False) -> bool:
    def send() -> bool:
        lineage.emit(lineage.event(facts, datetime.fromtimestamp(at, UTC)))
        return True

    return bool(_tried("OpenLineage", send, quiet))


def _datasets(book: Workbook, facts: dict[str, Any]) -> tuple[list[Place], list[Written]]:
    """Return what a run read and wrote: the tables to which it applied rows."""
    if not isinstance(book.settings, CdcMergeSettings | FullLoadSettings):
        return [], []
    results = {n: r for n, r in facts.get("tables", {}).items() if n in book.specs}
    applied = {n: runs.applied(r) for n, r in results.items()}
    specs = [book.specs[n] for n, rows in applied.items() if rows]
    read = [p for spec in specs for p in _read(book, spec)]
    written = []
    for spec in specs:
        table = pyiceberg_catalog.get_table(book.catalog, spec.target)
        columns = [(f.name, str(f.field_type)) for f in table.schema().fields]
        written.append(Written(lineage.place(table.location()), columns, applied[spec.source]))
    return list(dict.fromkeys(read)), written


def _read(book: Workbook, spec: TableSpec) -> list[Place]:
    """Return the folder, topics or streams that a table's rows came from."""
    if book.is_kafka:
        broker, topic = book.stream.brokers.split(",")[0], book.topic(spec)
        return [Place(f"kafka://{broker}", t) for t in ([topic] if topic else book.stream.names)]
    if book.stream:
        return [Place(arn.rpartition(":")[0], arn.rpartition(":")[2]) for arn in book.stream.arns()]
    of_all = book.endpoint.preserve_transactions and isinstance(book.settings, CdcMergeSettings)
    folder = book.endpoint.cdc_path if of_all else "/".join(book.mappings.target_name(spec))
    return [lineage.place(f"{location(book.source)}/{folder}")]
