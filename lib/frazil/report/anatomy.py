"""The timeline of one commit: what happened to its changes, from the source to the second engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil.report.charts import durations, new_figure, span, styled, times
from frazil.report.latency_charts import STAGE_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def anatomy(commit: dict[str, Any]) -> Figure | None:
    """Draw one commit from the source's commits to the second engine, on one time axis; the commit to the lake is 0."""
    steps = steps_of(commit)
    if not steps:
        return None
    when = times([commit["committed_ms"]])[0]
    title = f"One commit: {commit['table']}, {when:%d %b %H:%M:%S} UTC, {commit['changes']:,} changes"
    figure, axes = new_figure(title, height=1.2 + 0.36 * len(steps))
    low, high = min(s[1] for s in steps), max(s[2] for s in steps)
    least = (high - low) / 250 or 0.01
    for y, (label, begin, end, colour) in enumerate(reversed(steps)):
        axes.barh(y, max(end - begin, least), left=begin, color=colour, height=0.6)
        text = f"{label}  {span(end - begin)}" if end - begin >= 0.001 else label
        right = begin + max(end - begin, least) < low + 0.62 * (high - low)
        axes.annotate(text, (begin + max(end - begin, least), y) if right else (begin, y), textcoords="offset points",
                      xytext=(5, 0) if right else (-5, 0), va="center", ha="left" if right else "right", fontsize=9)  # fmt: skip
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("before and after the commit to the lake")
    durations(axes.xaxis)
    axes.margins(x=0.02)
    return figure


def steps_of(c: dict[str, Any]) -> list[tuple[str, float, float, str]]:
    """Return the known steps of a commit's changes: label, begin and end in seconds from the commit, colour."""
    if not c or c.get("picked_up_ms") is None:
        return []
    picked, colour, steps = (c["picked_up_ms"] - c["committed_ms"]) / 1000, STAGE_COLOURS, []
    if c["age_ms"]:
        steps.append(
            (
                "committed at the source",
                picked - c["age_ms"][-1] / 1000,
                picked - c["age_ms"][0] / 1000,
                colour["source_to_dms"],
            )
        )
    if c["wait_ms"]:
        first, last = picked - c["wait_ms"][-1] / 1000, picked - c["wait_ms"][0] / 1000
        late = c["land_ms"][1] / 1000
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
    return steps
