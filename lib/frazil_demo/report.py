"""The demo's HTML report: the proof, the charts, and links to the executed notebooks."""

from __future__ import annotations

import base64
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from frazil_old.report import runs
from frazil_old.report.chart_style import span
from frazil_old.report.notebook_output import Grid
from frazil_old.report.render import render

PACKAGES = ("frazil", "pyspark", "pyiceberg", "duckdb")

CHARTS = {
    "timeline": "What was committed, how late it was, and what maintenance did beside it.",
    "heat": "How long changes took from their commit at the source to the lake, and when.",
    "backlog": "For how long the longest waiting change had been waiting, and how long the source had been quiet.",
    "ecdf": "How many of all changes were in the lake within so many seconds of their commit at the source.",
    "stages": "Where the seconds went, over time and by table.",
    "served": "How soon after the lake's commits a DuckDB file served them.",
    "slowest_commit": "The slowest commit, taken apart.",
    "health": "What maintenance changed in its last run.",
    "advice": "What other settings would come to, by a model fitted on these commits.",
}


def write_report(folder: Path, summary: dict[str, Any], picture: Path | None = None) -> Path:
    """Write `report.html`, with embedded charts and picture, into the run's folder, from its summary."""
    notebooks = []
    for label, facts in summary["notebooks"].items():
        page = runs.as_page(folder / "notebooks" / f"{label}.ipynb").relative_to(folder)
        notebooks.append((label, page, facts["status"], facts["seconds"]))
    files = [(caption, folder / "charts" / f"{name}.png") for name, caption in CHARTS.items()]
    page = folder / "report.html"
    text = render(
        "report.html.j2",
        package=__package__,
        when=f"{datetime.now(UTC):%d %B %Y %H:%M}",
        seconds=span(summary.get("seconds", 0)),
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        versions=", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES),
        reconciled=summary["reconciled"],
        source_rows=sum(r["source_rows"] for r in summary["tables"].values()),
        figures=_figures(summary.get("latency")),
        tables=Grid([{"table": n, **r} for n, r in summary["tables"].items()]).shown(),
        charts=[(caption, _sentence(f), _embedded(f)) for caption, f in files if f.exists()],
        transactions=Grid([{"kind": k, "transactions": n} for k, n in summary["transactions"].items()]).shown(),
        notebooks=notebooks,
        picture=_embedded(picture) if picture and picture.exists() else "",
    )
    page.write_text(text, encoding="utf-8")
    return page


def _sentence(chart: Path) -> str:
    file = chart.with_suffix(".txt")
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _embedded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _figures(latency: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the figures that stand first: how long changes took from the source's commit to the lake's."""
    if not latency:
        return []
    shares = {"p50": "half of the changes", "p95": "95 % of them", "p99": "99 % of them"}
    times = [(span(latency[name]), f"{words} took at most") for name, words in shares.items()]
    return [*times, (f"{latency['changes']:,.0f}", "changes while the source was in use")]
