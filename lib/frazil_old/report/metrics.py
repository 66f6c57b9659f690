"""The metrics of an environment: what each is, their samples, and who takes them: a file for Prometheus, OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from frazil_old import exit_codes
from frazil_old.config.settings import NOTEBOOKS
from frazil_old.errors import FrazilError
from frazil_old.report import runs

TIMEOUT_S = 5.0
"""How long a collector of OpenTelemetry may take, unless its standard variables name another time."""
ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The standard variables that name a collector."""
_INSTALL = "pip install 'frazil[metrics]'"
_APPLIES = ("full_load", "cdc_merge")

METRICS = {
    "frazil_table_lag_seconds": ("s", "How long the oldest pending change file or message has waited."),
    "frazil_table_pending_files": ("{file}", "Change files that are not applied yet."),
    "frazil_table_pending_messages": ("{message}", "Messages of any table after the table's position in its stream."),
    "frazil_table_unknown": ("1", "1 if the table's state cannot be read or its load files changed, else 0."),
    "frazil_table_data_files": ("{file}", "Data files of the current snapshot."),
    "frazil_table_delete_files": ("{file}", "Delete files, or deletion vectors, of the current snapshot."),
    "frazil_table_records": ("{row}", "Rows in the data files, including those that delete files remove."),
    "frazil_table_snapshots": ("{snapshot}", "Snapshots that the table keeps."),
    "frazil_batch_lag_p50_seconds": ("s", "Median time from source commit to table commit, in the newest batch."),
    "frazil_batch_lag_p99_seconds": ("s", "99th percentile of that time, in the newest batch."),
    "frazil_batch_commit_seconds": ("s", "Time that the newest batch took after it was read, until its commit."),
    "frazil_quarantine_waiting_rows": ("{row}", "Rows that wait in the quarantine."),
    "frazil_last_run_applied_rows": ("{row}", "Changes, or rows of a load, that the last run applied."),
    "frazil_last_run_bad_rows": ("{row}", "Rows that the last run quarantined."),
    "frazil_last_run_exit_code": ("1", "Exit code of the last run."),
    "frazil_last_run_duration_seconds": ("s", "Duration of the last run."),
    "frazil_last_run_end_timestamp_seconds": ("s", "When the last run ended, as a Unix time."),
    "frazil_last_success_timestamp_seconds": ("s", "When the last run that succeeded ended, as a Unix time."),
    "frazil_breached_limits": ("1", "Lines that `frazil check` reports."),
}
"""The unit and the meaning of each metric."""


class MonitoringError(FrazilError):
    """Metrics or lineage could not be written or sent."""


class Sample(NamedTuple):
    """One value of a metric."""

    name: str
    unit: str
    help: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Facts:
    """The state of an environment: `tables` by `flows.lag`, runs as `runs.read` returns them, newest first.

    `sizes` has the numbers of files, records and snapshots of each table, and `waiting` those of quarantined rows.
    """

    env: str
    stream: bool = False
    tables: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    breaches: int | None = None


_Found = Iterator[tuple[str, dict[str, str], float | None]]


def samples(facts: Facts) -> list[Sample]:
    """Return the samples of these facts; a value that is not there has none."""
    ended = [r for r in facts.runs if r["outcome"] not in ("running", "skipped")]
    found = [*_of_tables(facts), *_of_batches(ended), *_of_runs(ended), ("frazil_breached_limits", {}, facts.breaches)]
    return [
        Sample(name, *METRICS[name], {"env": facts.env, **labels}, float(value))
        for name, labels, value in found
        if value is not None
    ]


def _of_tables(facts: Facts) -> _Found:
    pending = f"frazil_table_pending_{'messages' if facts.stream else 'files'}"
    for row in facts.tables:
        of = {"table": row["table"]}
        yield "frazil_table_lag_seconds", of, row["lag_s"]
        yield pending, of, row["pending"]
        yield "frazil_table_unknown", of, bool(row["problem"])
    for table, sizes in facts.sizes.items():
        for what, count in sizes.items():
            yield f"frazil_table_{what}", {"table": table}, count
    for table, count in facts.waiting.items():
        yield "frazil_quarantine_waiting_rows", {"table": table}, count


def _of_batches(ended: list[dict[str, Any]]) -> _Found:
    """Yield the values of each table's newest batch; runs without a batch have none."""
    newest: dict[str, dict[str, float]] = {}
    for run in ended:
        for table, result in run.get("tables", {}).items():
            if live := result.get("live"):
                newest.setdefault(table, live)
    for table, live in newest.items():
        for what in ("lag_p50", "lag_p99", "commit"):
            yield f"frazil_batch_{what}_seconds", {"table": table}, live.get(f"{what}_s")


def _of_runs(ended: list[dict[str, Any]]) -> _Found:
    """Yield what the last run of each notebook did, and when the last good one ended; a notebook that does not exist has none."""
    last, good = {}, {}
    for run in (r for r in ended if r["notebook"].lstrip("0123456789_") in NOTEBOOKS):
        last.setdefault(run["notebook"], run)
        if run["outcome"] in ("ok", "nothing to do"):
            good.setdefault(run["notebook"], run)
    for notebook, run in last.items():
        of, seconds = {"notebook": notebook}, run.get("seconds")
        yield "frazil_last_run_exit_code", of, exit_codes.EXIT_CODES[run["outcome"]]
        yield "frazil_last_run_duration_seconds", of, seconds
        yield "frazil_last_run_end_timestamp_seconds", of, run["began"] + (seconds or 0)
        for table, result in run.get("tables", {}).items() if notebook.endswith(_APPLIES) else ():
            yield "frazil_last_run_applied_rows", {**of, "table": table}, runs.applied(result)
            yield "frazil_last_run_bad_rows", {**of, "table": table}, result.get("quarantined", 0)
    for notebook, run in good.items():
        yield "frazil_last_success_timestamp_seconds", {"notebook": notebook}, run["began"] + run.get("seconds", 0)


def write_file(found: list[Sample], file: Path) -> None:
    """Replace the file by these samples. Unlike Frazil's other files it is for other users too: they run the collector."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
    except ImportError:
        raise MonitoringError("prometheus-client is not installed", _INSTALL) from None
    registry, gauges = CollectorRegistry(), {}
    for s in found:
        if s.name not in gauges:
            gauges[s.name] = Gauge(s.name, s.help, list(s.labels), registry=registry)
        gauges[s.name].labels(**s.labels).set(s.value)
    before = os.umask(0o022)
    try:
        write_to_textfile(str(file), registry)
    except OSError as e:
        cure = "make its folder one that exists and that this user may write into, or correct metrics_file"
        raise MonitoringError(f"{file} cannot be written: {e.strerror or e}", cure) from None
    finally:
        os.umask(before)


def collector() -> str:
    """Return the variable that names a collector of OpenTelemetry; empty if none does."""
    return next((name for name in ENDPOINTS if os.environ.get(name)), "")


def send(found: list[Sample]) -> None:
    """Send the samples as gauges to the collector that the standard variables name, by OTLP over HTTP."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
        from opentelemetry.sdk.resources import Resource
    except ImportError:
        raise MonitoringError("opentelemetry-exporter-otlp-proto-http is not installed", _INSTALL) from None
    named = any(f"OTEL_EXPORTER_OTLP_{of}TIMEOUT" in os.environ for of in ("METRICS_", ""))
    own = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "frazil"}
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], Resource.create(own), shutdown_on_exit=False)
    meter, gauges = provider.get_meter("frazil"), {}
    for s in found:
        if s.name not in gauges:
            gauges[s.name] = meter.create_gauge(s.name, s.unit, s.help)
        gauges[s.name].set(s.value, s.labels)
    data = reader.get_metrics_data()  # None: switched off by OTEL_SDK_DISABLED
    exporter = OTLPMetricExporter(timeout=None if named else TIMEOUT_S)
    if data and exporter.export(data) is not MetricExportResult.SUCCESS:
        raise MonitoringError(
            f"the collector that {collector()} names took nothing", "start it, or correct the variable"
        )
