"""Charts of latency. Each function takes the frame of `latency.per_commit` (or its points) and returns a figure."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

STAGES = {
    "source_to_dms": "source commit → DMS wrote",
    "dms_to_pickup": "written → picked up",
    "pickup_to_commit": "picked up → committed",
}
COLOURS = ("#3b6ea5", "#e0a030", "#5aa469", "#b0506a", "#7a6aa8", "#4aa3a3", "#8c6d46", "#707070", "#c06030")
_STYLE = {
    "figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "font.size": 10, "axes.titleweight": "bold", "axes.titlesize": 11, "axes.titlelocation": "left", "legend.frameon": False,
}  # fmt: skip


def _styled(draw):
    """Draw in Frazil's own style, whatever the notebook has set."""

    @functools.wraps(draw)
    def inside(*arguments):
        import matplotlib

        with matplotlib.rc_context(_STYLE):
            return draw(*arguments)

    return inside


def _figure(title: str, width: float = 9.0, height: float = 3.6):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _times(frame: pd.DataFrame):
    import pandas as pd

    return pd.to_datetime(frame["committed_ms"], unit="ms", utc=True)


def _clock(axes) -> None:
    import matplotlib.dates as dates

    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel("committed at (UTC)")


def _seconds(axes, values, axis: str = "y") -> None:
    """A logarithmic axis where latencies span more than two orders of magnitude, else one that starts at zero."""
    low, high = max(values.min(), 1e-3), values.max()
    if high / low > 100:
        getattr(axes, f"set_{axis}scale")("log")
    else:
        getattr(axes, f"set_{axis}lim")(0, high * 1.15 or 1)


@_styled
def over_time(frame: pd.DataFrame) -> Figure:
    """Draw each commit as a bar from its p50 to its p99, at the time of the commit, coloured by table."""
    figure, axes = _figure("Latency of each commit: source commit → committed")
    when = _times(frame)
    for colour, (table, rows) in zip(COLOURS * 9, frame.groupby("table"), strict=False):
        at = when[rows.index]
        axes.vlines(at, rows["p50"], rows["p99"], color=colour, alpha=0.45, linewidth=2)
        axes.plot(at, rows["p50"], "o", color=colour, markersize=4, label=table)
    axes.set_ylabel("seconds (dot p50, bar to p99)")
    _seconds(axes, frame["p99"])
    _clock(axes)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


@_styled
def ecdf(points: pd.DataFrame) -> Figure:
    """Draw which share of all changes was committed within how many seconds; p50, p95 and p99 are marked."""
    figure, axes = _figure("How many changes were committed within …", height=3.2)
    ordered = points.sort_values("seconds")
    share = ordered["weight"].cumsum() / ordered["weight"].sum()
    axes.step(ordered["seconds"], share * 100, where="post", color=COLOURS[0], linewidth=2)
    for level, side, offset in ((50, "left", (8, -10)), (95, "right", (-8, 2)), (99, "left", (8, -12))):
        at = ordered["seconds"][(share * 100 >= level).to_numpy()].iloc[0]
        axes.plot([at], [level], "o", color=COLOURS[3])
        axes.annotate(
            f"p{level}: {at:.1f} s", (at, level), textcoords="offset points", xytext=offset, ha=side, fontsize=9
        )
    axes.set_xlabel("seconds from source commit to commit in the lake")
    axes.set_ylabel("% of changes")
    axes.set_ylim(0, 105)
    _seconds(axes, ordered["seconds"], "x")
    return figure


@_styled
def stages(frame: pd.DataFrame) -> Figure:
    """Draw where the median change of each table spends its time, stage by stage, weighted by changes."""
    weighted = frame[list(STAGES)].mul(frame["changes"], axis=0).groupby(frame["table"]).sum()
    mean = weighted.div(frame.groupby("table")["changes"].sum(), axis=0).sort_index(ascending=False)
    figure, axes = _figure("Where the seconds go", height=1.4 + 0.35 * len(mean))
    left = mean.iloc[:, 0] * 0
    for colour, (stage, label) in zip(COLOURS, STAGES.items(), strict=False):
        axes.barh(mean.index, mean[stage], left=left, color=colour, label=label, height=0.6)
        left = left + mean[stage]
    axes.set_xlabel("seconds, for the median change")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


class Chart:
    """A figure that shows itself in a notebook without any backend or magic, and can be kept as a PNG."""

    def __init__(self, figure: Figure, file: Path | None = None):
        self.figure = figure
        if file is not None:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(file, dpi=150)

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.figure.savefig(out, format="png", dpi=110)
        return out.getvalue()
