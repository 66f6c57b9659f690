"""The charts of the tables' state, and of ingestion and maintenance over the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil_old.errors import many
from frazil_old.lake.maintenance_plan import MAX_MANIFESTS
from frazil_old.report.chart_style import COLOURS, clock, label, new_figure, seconds_axis, styled, times

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from frazil_old.config.settings import MaintenanceSettings
    from frazil_old.report.latency import Analysis

ACTIONS = {
    "compact": "#b0506a", "rewrite manifests": "#e0a030", "expire snapshots": "#3b6ea5", "tag states": "#7a6aa8",
    "statistics": "#4aa3a3", "remove orphan files": "#8c6d46",
}  # fmt: skip


@styled
def timeline(a: Analysis, actions: pd.DataFrame) -> Figure | None:
    """Draw changes per second and latency over time, and below them the maintenance of that time (`ledger.actions`)."""
    from matplotlib.figure import Figure

    lines, done = a.percentiles("slice"), actions.dropna(subset=["ended_ms"])
    done = done[(done["ended_ms"] >= a.first_ms) & (done["began_ms"] <= a.last_ms)]
    if lines.empty:
        return None
    kinds = [k for k in ACTIONS if k in set(done["action"])]
    lanes = max(len(kinds), 1)
    figure = Figure(figsize=(9, 3.9 + 0.27 * lanes), layout="constrained")
    figure.get_layout_engine().set(hspace=0.02)
    rate, latency, below = figure.subplots(3, sharex=True, height_ratios=[1, 1.5, 0.27 * lanes + 0.1])
    width = a.width_s * 1000
    per_slice = a.slices.groupby("slice")["changes"].sum()
    first, last = int(per_slice.index.min()), int(per_slice.index.max())
    every = range(first, last + 2 * width, width)  # the last one has an end too
    per_slice = per_slice.reindex(every, fill_value=0) / a.width_s
    rate.fill_between(times(list(every)), per_slice, step="post", color=COLOURS[0], alpha=0.75, linewidth=0)
    rate.set_ylim(0, per_slice.max() * 1.12 or 1)
    rate.set_ylabel("changes/s")
    rate.set_title("Ingestion, and maintenance at the same time")
    lines = lines.set_index("slice").reindex(list(every))  # no line where nothing was committed
    lines = lines.where(lines > 0)  # less than 0 s is no latency
    middle = times([at + width // 2 for at in every])
    latency.fill_between(
        middle, lines["p50"], lines["p99"], color=COLOURS[0], alpha=0.15, linewidth=0, label="p50 to p99"
    )
    for name, colour, style in (("p95", COLOURS[3], "-"), ("p50", "black", "-")):
        marker = "." if lines[name].count() < 40 else ""
        latency.plot(middle, lines[name], color=colour, linestyle=style, linewidth=1.4, marker=marker, label=name)
    latency.set_ylabel("latency")
    seconds_axis(latency, lines["p99"])
    latency.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize=8, borderaxespad=0.2)
    least = (a.last_ms - a.first_ms) / 400 or 500
    for lane, kind in enumerate(reversed(kinds)):
        rows = done[done["action"] == kind]
        longer = (rows["ended_ms"] - rows["began_ms"]).clip(lower=least)
        days = longer / 86_400_000
        begins = times(rows["began_ms"].astype("int64"))
        below.barh([lane] * len(rows), days, left=begins, color=ACTIONS[kind], height=0.62)
        if kind == "compact" and len(rows) <= 300:
            for begin, much in zip(rows["began_ms"], longer, strict=True):
                for axes in (rate, latency):
                    axes.axvspan(*times([int(begin), int(begin + much)]), color=ACTIONS[kind], alpha=0.08, linewidth=0)
    below.set_yticks(range(lanes), list(reversed(kinds)) or ["no maintenance"])
    below.set_ylim(-0.6, lanes - 0.4)
    below.tick_params(axis="y", length=0)
    below.grid(axis="y", visible=False)
    clock(below, "UTC")
    return figure


@styled
def health(before: list[dict[str, Any]], after: list[dict[str, Any]], s: MaintenanceSettings) -> Figure | None:
    """Draw the state of tables before (hollow) and after (full) maintenance, and the thresholds for actions."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    now = {r["table"]: r for r in after if r.get("data_files") is not None}
    was = {r["table"]: r for r in before if r["table"] in now and r.get("data_files") is not None}
    tables = sorted(now, key=lambda t: (was.get(t, now[t])["small_files"], t))[-30:]
    if not tables:
        return None
    figure = Figure(figsize=(9.6, 1.5 + 0.3 * len(tables)), layout="constrained")
    panels = figure.subplots(1, 4, sharey=True)
    fields = [("small_files", "small data files", s.max_small_files, 1), ("deleted_share", "deleted rows, %", s.max_deleted_share, 100),
              ("snapshots", "snapshots", None, 1), ("manifests", "manifests", MAX_MANIFESTS, 1)]  # fmt: skip
    for axes, (field, title, limit, factor) in zip(panels, fields, strict=True):
        for y, table in enumerate(tables):
            old, new = was.get(table, now[table])[field] * factor, now[table][field] * factor
            axes.plot([old, new], [y, y], color="#bbbbbb", linewidth=2, zorder=1)
            hollow = {"markerfacecolor": "white", "markeredgecolor": COLOURS[3], "markersize": 7}
            axes.plot(old, y, "o", label="before" if not y else None, **hollow)
            axes.plot(new, y, "o", color=COLOURS[0], markersize=6, label="after" if not y else None)
        high = max(max(was.get(t, now[t])[field], now[t][field]) for t in tables) * factor
        if limit is not None:
            axes.axvline(limit * factor, color="black", linestyle=":", linewidth=1.2, label="allowed")
            high = max(high, limit * factor)
        axes.set_xlim(-0.06 * (high or 1), high * 1.12 or 1)
        axes.set_title(title, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    panels[0].set_yticks(range(len(tables)), tables, fontsize=9)
    panels[0].set_ylim(-0.6, len(tables) - 0.4)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


@styled
def file_sizes(rows: list[dict[str, Any]], s: MaintenanceSettings) -> Figure | None:
    """Draw the sizes of each table's data files: a bar from p10 to p90, a dot at the median. Lines mark the small and the target size."""
    known = sorted((r for r in rows if r.get("data_files")), key=lambda r: (r["file_mb_p50"], r["table"]))[-30:]
    if not known:
        return None
    figure, axes = new_figure("Sizes of data files (p10, median, p90)", height=1.3 + 0.28 * len(known))
    axes.set_xlabel("MB")
    for y, r in enumerate(known):
        bar = {"linewidth": 5, "alpha": 0.4, "solid_capstyle": "butt"}
        axes.plot([r["file_mb_p10"], r["file_mb_p90"]], [y, y], color=COLOURS[0], **bar)
        axes.plot(r["file_mb_p50"], y, "o", color=COLOURS[0])
        text = f"{many(r['data_files'], 'file')}, {r['mb']:,.1f} MB"
        label(axes, text, (r["file_mb_p90"], y), (8, 0), va="center", fontsize=8)
    for at, text in ((s.small_file_mb, "small below"), (s.target_file_mb, "target")):
        axes.axvline(at * 1.048576, color="black", linestyle=":", linewidth=1.2)
        label(axes, text, (at * 1.048576, 1), (3, -9), xycoords=("data", "axes fraction"), fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.set_yticks(range(len(known)), [r["table"] for r in known], fontsize=9)
    axes.set_ylim(-0.6, len(known) + 0.1)
    return figure
