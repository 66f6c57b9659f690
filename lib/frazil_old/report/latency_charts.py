"""The charts of the latency notebook. Each takes an `Analysis` and returns a figure, or None without data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from frazil_old.report.chart_style import (
    COLOURS,
    clock,
    durations,
    label,
    new_figure,
    seconds_axis,
    span,
    styled,
    times,
)
from frazil_old.report.latency import SERVED_BY, STAGES, after_commit, stage_name
from frazil_old.report.settings_advice import SPEEDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from frazil_old.report.latency import Analysis
    from frazil_old.report.settings_advice import Advice

STAGE_COLOURS = dict(zip(STAGES, ("#3b6ea5", "#8fb3d9", "#e0a030", "#5aa469", "#7a6aa8"), strict=True))
SERVED_COLOURS = ("#4aa3a3", "#8c6d46", "#c06030", "#b0506a")
RED, GREY = COLOURS[3], COLOURS[7]
SLOWEST, SLOW_COLOURS = 3, ("#d55e00", "#0072b2", "#009e73")


def _colours(stages: Iterable[str]) -> dict[str, str]:
    """Return a colour for each stage; the warehouses' colours repeat after a few."""
    served = [s for s in stages if s.startswith(SERVED_BY)]
    return STAGE_COLOURS | {s: SERVED_COLOURS[i % len(SERVED_COLOURS)] for i, s in enumerate(sorted(served))}


@styled
def backlog(a: Analysis) -> Figure | None:
    """Draw how long changes waited to be applied, and how long the source was quiet: only the first is lag."""
    import pandas as pd

    rows = a.backlog
    if rows.empty:
        return None
    figure, axes = new_figure("How long did changes wait?", height=3.2)
    begin = rows.iloc[:1].assign(slice=rows["slice"] - a.width_s * 1000)  # else a single slice has no width
    rows = pd.concat([begin, rows])
    at = times(rows["slice"] + a.width_s * 1000)
    axes.fill_between(at, rows["quiet_s"], color=GREY, alpha=0.18, step="pre", linewidth=0)
    axes.step(
        at, rows["quiet_s"], where="pre", color=GREY, linewidth=1, label="since the newest source commit in the lake"
    )
    axes.step(
        at, rows["waiting_s"], where="pre", color=RED, linewidth=1.8, label="longest waiting change of any table (lag)"
    )
    seconds_axis(axes, rows[["waiting_s", "quiet_s"]].max(axis=1))
    clock(axes, "UTC")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


@styled
def heat(a: Analysis) -> Figure | None:
    """Draw for each slice of time the distribution of the changes' latency; lines: p50 and p95."""
    import numpy as np

    shares, lines = a.shares("slice", fineness=6), a.percentiles("slice")
    if lines.empty:
        return None
    grid = shares.pivot(index="seconds", columns="slice", values="weight").fillna(0)
    width = a.width_s * 1000
    every = np.arange(grid.columns.min(), grid.columns.max() + width, width)
    grid = (grid / grid.sum()).reindex(columns=every)
    grid = grid[grid.index > 0]  # less than 0 s is no latency: the sentence above says so
    bands = np.log(grid.index.to_numpy())
    grid = grid.reindex(
        np.exp(np.arange(round(bands.min() * 6), round(bands.max() * 6) + 1) / 6), method="nearest", tolerance=1e-6
    )
    figure, axes = new_figure("How long did changes take, and when?", height=3.8)
    edges = np.exp((np.arange(round(bands.min() * 6), round(bands.max() * 6) + 2) - 0.5) / 6)
    columns = times(np.append(every, every[-1] + width))
    shown = np.ma.masked_less_equal(np.nan_to_num(grid.to_numpy()), 0)
    mesh = axes.pcolormesh(columns, edges, shown, cmap="Blues", vmin=0, vmax=max(0.3, float(shown.max()) * 0.8))
    lines = lines.set_index("slice").reindex(every)  # no line where nothing was committed
    lines = lines.where(lines > 0)
    middle = times(every + width // 2)
    for name, colour, style in (("p95", RED, "-"), ("p50", "black", "--")):
        marker = "." if lines[name].count() < 30 else ""
        axes.plot(middle, lines[name], color=colour, linestyle=style, linewidth=1.5, label=name, marker=marker)
    axes.set_yscale("log")
    durations(axes.yaxis)
    axes.set_ylabel("source commit → committed")
    axes.grid(False)
    clock(axes)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=9, frameon=False, borderaxespad=0.2)
    bar = figure.colorbar(mesh, ax=axes, pad=0.03, aspect=25, format=lambda x, _: f"{x:.0%}")
    bar.set_label(f"share of the changes of each {span(a.width_s)}")
    bar.outline.set_visible(False)
    return figure


@styled
def ecdf(a: Analysis) -> Figure | None:
    """Draw the share of the changes that were in the lake within each number of seconds: all tables thick, each table thin, the slowest in colour."""
    rows = a.shares("table")
    if rows.empty or a.clocks_contradict:
        return None
    figure, axes = new_figure("How many changes were in the lake within …", height=3.6)

    def curve(of):
        ordered = of.groupby("seconds")["weight"].sum().sort_index()
        reached = ordered.cumsum() / ordered.sum() * 100
        return [ordered.index[0], *ordered.index], [0, *reached]  # it rises from 0, also if there is one latency alone

    slowest = a.percentiles("table").nlargest(SLOWEST, "p95")["table"].tolist()
    for table, of in rows.groupby("table") if rows["table"].nunique() <= 12 else ():
        colour = dict(zip(slowest, SLOW_COLOURS, strict=False)).get(table, "#b8bec5")
        order = {"label": table, "zorder": 3} if table in slowest else {"zorder": 2}
        axes.step(*curve(of), where="post", color=colour, linewidth=1.2, **order)
    axes.step(*curve(rows), where="post", color="black", linewidth=2.4, label="all tables", zorder=4)
    whole = a.percentiles().iloc[0]
    for level in (50, 95, 99):
        at = whole[f"p{level}"]
        axes.plot([at], [level], "o", color=RED, zorder=5)
        box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1}
        label(axes, f"p{level}  {span(at)}", (at, level), (9, 6 if level == 99 else -11), color=RED, bbox=box)
    axes.set_xlabel("from source commit to commit in the lake")
    axes.set_ylabel("% of changes")
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 20))
    seconds_axis(axes, rows["seconds"], "x")
    figure.legend(
        loc="outside right upper", fontsize=8, title=f"slowest of {rows['table'].nunique()} tables", title_fontsize=8
    )
    return figure


@styled
def tables_by_hour(a: Analysis) -> Figure | None:
    """Draw the p95 of each table in each hour (`hour_s`) as a coloured square with its number; None below two hours."""
    import numpy as np
    from matplotlib.colors import LogNorm

    rows = a.percentiles("table", "hour")
    if rows["hour"].nunique() < 2:
        return None
    worst = rows.groupby("table")["p95"].max().sort_values(ascending=False).index[:25]
    grid = rows.pivot(index="table", columns="hour", values="p95").reindex(worst)
    step = a.hour_s * 1000
    grid = grid.reindex(columns=range(int(grid.columns.min()), int(grid.columns.max()) + step, step))
    figure, axes = new_figure(f"p95 of each table, every {span(a.hour_s)} (seconds)", height=1.2 + 0.34 * len(grid))
    low, high = np.nanmin(grid.to_numpy()), np.nanmax(grid.to_numpy())
    heat = axes.imshow(grid, aspect="auto", cmap="YlOrRd", norm=LogNorm(max(low, 1e-3) * 0.7, max(high * 1.5, 2e-3)))
    for (y, x), value in np.ndenumerate(grid.to_numpy()) if grid.shape[1] <= 26 else ():
        if not np.isnan(value):
            colour = "white" if heat.norm(value) > 0.7 else "black"
            axes.text(x, y, f"{value:.3g}", ha="center", va="center", fontsize=8, color=colour)
    axes.set_yticks(range(len(grid)), grid.index)
    every = max(1, grid.shape[1] // 12)
    labels = times(grid.columns.to_numpy())[::every]
    texts = [
        f"{t:%H:%M}\n{t:%d %b}" if not i or t.date() != labels[i - 1].date() else f"{t:%H:%M}"
        for i, t in enumerate(labels)
    ]
    axes.set_xticks(range(0, grid.shape[1], every), texts, fontsize=8)
    axes.grid(False)
    return figure


@styled
def stages(a: Analysis) -> Figure | None:
    """Draw the seconds spent in each stage, over time and by table. Means are used, since only they add up."""
    over_time, by_table = a.percentiles("slice", "stage"), a.percentiles("table", "stage")
    if over_time.empty:
        return None
    import pandas as pd
    from matplotlib.figure import Figure

    slices = over_time.pivot(index="slice", columns="stage", values="mean")
    tables = by_table.pivot(index="table", columns="stage", values="mean")
    last, colours = after_commit(tables), _colours(tables)
    until_commit = [s for s in STAGES if s in tables and s not in last]
    tables = tables.reindex(index=tables[until_commit].sum(axis=1).sort_values().index)
    row = 0.3 if len(tables) <= 40 else 0.16
    figure = Figure(figsize=(9, 3.6 + row * len(tables)), layout="constrained")
    top, bottom = figure.subplots(2, height_ratios=[2.6, 0.6 + row * len(tables)])
    for axes, frame in ((top, slices), (bottom, tables)):
        ends = dict.fromkeys((1, -1), pd.Series(0.0, index=frame.index))
        for stage in [s for s in (*until_commit, *last) if s in frame]:
            value = frame[stage].fillna(0)
            # The last stages go on at the same time: their bars share the width.
            share, place = (len(last), last.index(stage)) if stage in last else (1, 0)
            for sign in (1, -1):  # a negative stage is drawn to the other side, not hidden
                part = value.where(value * sign > 0, 0)
                look = {"color": colours[stage], "label": stage_name(stage) if axes is top and sign == 1 else None}
                if sign == -1:
                    look |= {"hatch": "////", "edgecolor": RED, "linewidth": 0}
                if axes is top:
                    width = a.width_s / 86_400 / share
                    begins = times(frame.index + round(place * a.width_s * 1000 / share))
                    axes.bar(begins, part, width=width, align="edge", bottom=ends[sign], **look)
                else:
                    at = [y - 0.325 + 0.65 / share * (place + 0.5) for y in range(len(frame))]
                    axes.barh(at, part, left=ends[sign], height=0.65 / share, **look)
                ends[sign] = ends[sign] + (0 if stage in last else part)
    bottom.set_yticks(range(len(tables)), tables.index)
    of_all = slices[[s for s in until_commit if s in slices]], slices[[s for s in last if s in slices]]
    heights = of_all[0].clip(lower=0).sum(axis=1) + of_all[1].clip(lower=0).max(axis=1).fillna(0)
    if heights.max() > 8 * heights.median():  # a few bars would flatten all others: they are cut and labelled
        limit = 4 * heights.median()
        top.set_ylim(top.get_ylim()[0] if (slices[[*until_commit, *last]] < 0).any().any() else 0, limit)
        for at, height in heights[heights > limit].nlargest(5).items():
            when = times([at + a.width_s * 500])[0]
            box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1}
            label(top, f"↑ {span(height)}", (when, limit), (0, -2), ha="center", va="top", fontsize=8, bbox=box)
    top.set_title("Where do the seconds go? (mean of each stage)")
    durations(top.yaxis)
    clock(top)
    durations(bottom.xaxis)
    bottom.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


@styled
def slowest_commit(commit: dict[str, Any]) -> Figure | None:
    """Draw one commit from the source's commits to the second engine, on one time axis; the commit to the lake is 0."""
    steps = commit_steps(commit)
    if not steps:
        return None
    when = times([commit["committed_ms"]])[0]
    title = f"One commit: {commit['table']}, {when:%d %b %H:%M:%S} UTC, {commit['changes']:,} changes"
    figure, axes = new_figure(title, height=1.2 + 0.36 * len(steps))
    low, high = min(s[1] for s in steps), max(s[2] for s in steps)
    least = (high - low) / 250 or 0.01
    for y, (step, begin, end, colour) in enumerate(reversed(steps)):
        length = max(end - begin, least)
        axes.barh(y, length, left=begin, color=colour, height=0.6)
        text = f"{step}  {span(end - begin)}" if end - begin >= 0.001 else step
        if begin + length < low + 0.62 * (high - low):
            label(axes, text, (begin + length, y), (5, 0), va="center", ha="left")
        else:
            label(axes, text, (begin, y), (-5, 0), va="center", ha="right")
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time before and after the commit to the lake (0)")
    durations(axes.xaxis)
    axes.margins(x=0.02)
    return figure


def commit_steps(c: dict[str, Any]) -> list[tuple[str, float, float, str]]:
    """Return the known steps of a commit's changes: label, begin and end in seconds from the commit, colour."""
    if not c or c.get("picked_up_ms") is None:
        return []
    picked, colour, steps = (c["picked_up_ms"] - c["committed_ms"]) / 1000, STAGE_COLOURS, []
    newest = 0.0
    if c["age_ms"]:
        oldest, newest = picked - c["age_ms"][-1] / 1000, picked - c["age_ms"][0] / 1000
        steps.append(("committed at the source", oldest, newest, colour["source_to_dms"]))
    if c["wait_ms"]:
        first, last = picked - c["wait_ms"][-1] / 1000, picked - c["wait_ms"][0] / 1000
        late = c["land_ms"][1] / 1000
        if newest < first - late:
            steps.append(("held by DMS", newest, first - late, colour["source_to_dms"]))
        steps.append(("files written by DMS", first - late, last - late, colour["dms_to_landed"]))
        steps.append(("files landed and waited", first, picked, colour["landed_to_pickup"]))
    read = picked + (c["read_ms"] or 0) / 1000
    steps += [
        ("read and collapsed", picked, read, colour["pickup_to_commit"]),
        ("written and committed", read, 0.0, "#3f7f50"),
    ]
    if c["visible_ms"] is not None:
        end = (c["visible_ms"] - c["committed_ms"]) / 1000
        steps.append(("seen by another engine", 0.0, end, colour["commit_to_visible"]))
    served = {SERVED_BY + name: ms for name, ms in (c.get("served_ms") or {}).items()}
    for stage, ms in sorted(served.items()):
        end, name = (ms - c["committed_ms"]) / 1000, stage.removeprefix(SERVED_BY)
        steps.append((f"served by {name}", 0.0, end, _colours(served)[stage]))
    return steps


def _costs_and_p95(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [r["usd_a_day"] for r in rows], [r["p95_s"] for r in rows]


@styled
def advice(found: Advice) -> Figure | None:
    """Draw p95 against the cost of a day: every setting tried, the front, and the present setting by the model and as measured."""
    if not found.model:
        return None
    figure, axes = new_figure("Latency against cost, by the model fitted on these commits", height=4.4)
    shades = dict(zip(SPEEDS, ("#c9d8e8", "#8fb3d9", "#3b6ea5", "#1f3d5c"), strict=True))
    for speed in SPEEDS:
        some = [r for r in found.rows if r["worker"] == speed and not r["label"]]
        look = {"s": 22, "color": shades[speed], "linewidth": 0, "alpha": 0.55}
        axes.scatter(*_costs_and_p95(some), label=f"worker × {speed:g}", **look)
    front = found.front
    axes.step(*_costs_and_p95(front), where="post", color=COLOURS[2], linewidth=1.8, label="Pareto front")
    steps = found.steps
    for r in steps[:: max(1, len(steps) // 6)]:
        text = (
            f"a file every {r['max_batch_interval_s']:g} s, a run every {r['trigger_s']:g} s, worker × {r['worker']:g}"
        )
        look = {"ha": "right", "va": "top", "fontsize": 7.5, "color": "#2f6b43"}
        label(axes, text, (r["usd_a_day"], r["p95_s"]), (-6, -5), **look)
    now, point = found.rows[0], {"color": RED, "linestyle": ""}
    by_model, measured = {"markersize": 17, "markeredgecolor": "white"}, {"markersize": 9, "markeredgewidth": 2}
    axes.plot(now["usd_a_day"], now["p95_s"], "*", label="now, by the model", **point, **by_model)
    axes.plot(now["usd_a_day"], found.now.p95, "x", label="now, measured", **point, **measured)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda x, _: f"{x:,g}")
        axis.set_minor_formatter(lambda x, _: "")
    axes.set_xlim(left=front[0]["usd_a_day"] / 50)  # room for the text of the first step
    axes.set_xlabel(f"dollars a day (prices of {found.settings.prices_of})")
    axes.set_ylabel("p95, source commit → committed, s")
    figure.legend(loc="outside right upper", fontsize=8)
    return figure
