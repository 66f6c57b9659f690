"""The chart of how soon warehouses served the lake's commits, and the sentence below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil_old.report.chart_style import clock, colour_of, new_figure, seconds_axis, span, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def lateness(rows: list[dict[str, Any]]) -> Figure | None:
    """Draw the time from the lake's commit to each look (`warehouses.history`): a dot if it was served, else a cross."""
    if not rows:
        return None
    import pandas as pd

    frame = pd.DataFrame(rows)
    frame["late_s"] = frame["late_s"].clip(lower=0.01)
    figure, axes = new_figure("From the lake's commit to the warehouse", height=3.2)
    for name, colour in colour_of(frame["warehouse"]).items():
        of = frame[frame["warehouse"] == name]
        for ok, marker, what in ((True, "o", "served"), (False, "x", "not served yet")):
            some = of[of["served"] == ok]
            if len(some):
                look = {"s": 26, "color": colour if ok else "#b3261e", "marker": marker, "alpha": 0.75}
                axes.scatter(some["seen_at"], some["late_s"], label=f"{name}: {what}", **look)
    axes.set_ylabel("after the commit")
    seconds_axis(axes, frame["late_s"])
    clock(axes, "seen at (UTC)")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure


def caption(rows: list[dict[str, Any]]) -> str:
    """Say for each warehouse how soon it served the commits, as far as it was looked at."""
    import pandas as pd

    texts = []
    for name in sorted({r["warehouse"] for r in rows}):
        late = pd.Series([r["late_s"] for r in rows if r["warehouse"] == name and r["served"]])
        if late.empty:
            texts.append(f"{name} was never seen to serve the newest state.")
        else:
            texts.append(
                f"{name} was seen to serve {len(late):,} states, half of them within {span(late.median())} of the lake's commit, "
                f"95 % within {span(late.quantile(0.95))}."
            )
    return " ".join(texts) or "No warehouse was looked at."
