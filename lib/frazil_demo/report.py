"""The demo's HTML report: the proof, the charts, and links to the executed notebooks."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from frazil.report import runs
from frazil.report.notebook_output import Grid
from frazil.report.render import render

CHARTS = {
    "timeline": "What was committed, how late it was, and what maintenance did beside it.",
    "heat": "How long changes took from their commit at the source to the lake, and when.",
    "behind": "For how long the longest waiting change had been waiting, and how long the source had been quiet.",
    "ecdf": "How many of all changes were in the lake within so many seconds of their commit at the source.",
    "stages": "Where the seconds went, over time and by table.",
    "served": "How soon after the lake's commits a DuckDB file served them.",
    "slowest_commit": "The slowest commit, taken apart.",
    "health": "What maintenance changed in its last run.",
    "advice": "What other settings would come to, by a model fitted on these commits.",
}


def write_report(folder: Path, summary: dict[str, Any]) -> Path:
    """Write `report.html`, with embedded charts, into the run's folder, from its summary."""
    notebooks = []
    for label, facts in summary["notebooks"].items():
        page = runs.as_page(folder / "notebooks" / f"{label}.ipynb").relative_to(folder)
        notebooks.append((label, page, facts["status"], facts["seconds"]))
    files = [(caption, folder / "charts" / f"{name}.png") for name, caption in CHARTS.items()]
    page = folder / "report.html"
    text = render(
        "report.html.j2",
        package=__package__,
        reconciled=summary["reconciled"],
        source_rows=sum(r["source_rows"] for r in summary["tables"].values()),
        tables=Grid([{"table": n, **r} for n, r in summary["tables"].items()]).shown(),
        charts=[(caption, base64.b64encode(f.read_bytes()).decode()) for caption, f in files if f.exists()],
        transactions=Grid([{"kind": k, "transactions": n} for k, n in summary["transactions"].items()]).shown(),
        notebooks=notebooks,
    )
    page.write_text(text, encoding="utf-8")
    return page
