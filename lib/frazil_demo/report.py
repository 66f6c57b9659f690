"""The demo's HTML report: the proof, the charts, and links to the executed notebooks."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from frazil.observe import runs
from frazil.observe.report import Grid

CHARTS = {
    "timeline": "What was committed, how late it was, and what maintenance did beside it.",
    "heat": "How long changes took from their commit at the source to the lake, and when.",
    "behind": "For how long the longest waiting change had been waiting, and how long the source had been quiet.",
    "ecdf": "How many of all changes were in the lake within so many seconds of their commit at the source.",
    "stages": "Where the seconds went, over time and by table.",
    "anatomy": "The slowest commit, taken apart.",
    "health": "What maintenance changed in its last run.",
    "advice": "What other settings would come to, by a model fitted on these commits.",
}
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .8rem;border-bottom:1px solid #ddd}th{background:#f5f7fa}
img{max-width:100%}h1{margin-bottom:0}.verdict{font-size:1.2rem;padding:.6rem 1rem;border-radius:.4rem;color:#fff}
.good{background:#2f7d4f}.bad{background:#a33}figure{margin:1.5rem 0}figcaption{color:#555}
"""


def _chart(folder: Path, name: str, caption: str) -> str:
    file = folder / "charts" / f"{name}.png"
    if not file.exists():
        return ""
    data = base64.b64encode(file.read_bytes()).decode()
    return f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}"><figcaption>{html.escape(caption)}</figcaption></figure>'


def write_report(folder: Path, summary: dict[str, Any]) -> Path:
    """Write `report.html`, with embedded charts, into the run's folder, from its summary."""
    good = summary["reconciled"]
    changed = sum(r["source_rows"] for r in summary["tables"].values())
    verdict = (
        f"Source and lake are equal: {changed:,} rows, none differs."
        if good
        else "Source and lake differ: see the table."
    )
    links = []
    for label, facts in summary["notebooks"].items():
        page = runs.as_page(folder / "notebooks" / f"{label}.ipynb").relative_to(folder)
        links.append(f'<li><a href="{page}">{label}</a>: {facts["status"]}, {facts["seconds"]} s</li>')
    body = [
        "<h1>Frazil demo</h1><p>An embedded PostgreSQL, a simulator for AWS DMS (it is not DMS), six notebooks, one lake.</p>",
        f'<p class="verdict {"good" if good else "bad"}">{verdict}</p>',
        "<h2>Proof</h2><p>Rows at the source, in the lake as Spark, DuckDB and PyIceberg read it, and rows with a value that differs in any of them.</p>",
        Grid([{"table": n, **r} for n, r in summary["tables"].items()])._repr_html_(),
        "<h2>Latency and maintenance</h2>",
        *[_chart(folder, name, caption) for name, caption in CHARTS.items()],
        "<h2>Transactions of the workload</h2>",
        Grid([{"kind": k, "transactions": n} for k, n in summary["transactions"].items()])._repr_html_(),
        f"<h2>Notebooks</h2><ul>{''.join(links)}</ul>",
    ]
    page = folder / "report.html"
    page.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Frazil demo</title><style>{STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>",
        encoding="utf-8",
    )
    return page
