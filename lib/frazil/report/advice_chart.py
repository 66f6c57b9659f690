"""Advice: the results of other settings by the model of `advice`, the settings worth choosing, and a sentence about them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from frazil.config.settings import LatencySettings
from frazil.report.advice import DAY, Model, Setting, fit, seen
from frazil.report.charts import COLOURS, span, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from frazil.dms.endpoint import Endpoint
    from frazil.report.analysis import Analysis

INTERVALS_S, TRIGGERS_S, SPEEDS = (1, 2, 5, 10, 20, 60, 120, 300), (0, 1, 3, 10, 30, 60, 300, 900), (0.5, 1, 2, 4)

FEWEST = 20
"""With fewer commits there is no advice."""


class Advice:
    """The model fitted to an analysis, and its results for other settings; `model` is None if stages are missing."""

    def __init__(self, a: Analysis, s: LatencySettings, endpoint: Endpoint, parallel: float = 2.0):
        self.settings, self.model = s, None
        now = (
            seen(a, Setting(endpoint.max_batch_interval_s, endpoint.min_file_kb, s.trigger_s or 0.0))
            if a.count >= FEWEST
            else None
        )
        if now is None:
            return
        if s.trigger_s is None:
            now = replace(now, setting=replace(now.setting, trigger_s=round(2 * max(now.wait_s, 0.0), 1)))
        self.now, self.model = now, fit([now], parallel)
        self.rows = [self._row(now.setting, self.model, "now")]
        for interval, trigger, speed in product(INTERVALS_S, TRIGGERS_S, SPEEDS):
            self.rows.append(self._row(Setting(interval, now.setting.min_file_kb, trigger, speed), self.model))
        self.rows = [r for r in self.rows if r["label"] or r["p95_s"] < DAY]  # otherwise its lag would grow for ever
        best = float("inf")
        for row in sorted(self.rows, key=lambda r: (r["usd_a_day"], r["p95_s"])):
            row["front"] = row["p95_s"] < best
            best = min(best, row["p95_s"])

    def _row(self, setting: Setting, model: Model, label: str = "") -> dict[str, Any]:
        p50, p95 = model.latency(setting)
        return {"label": label, "max_batch_interval_s": setting.interval_s, "min_file_kb": setting.min_file_kb, "trigger_s": setting.trigger_s,
                "worker": setting.speed, "p50_s": round(p50, 2), "p95_s": round(p95, 2),
                "usd_a_day": round(model.cost(setting, self.settings), 2)}  # fmt: skip

    @property
    def front(self) -> list[dict[str, Any]]:
        """The settings that no other beats in both latency and cost, cheapest first."""
        return sorted((r for r in self.rows if r["front"]), key=lambda r: r["usd_a_day"]) if self.model else []

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The settings of the front that differ enough: each is at least a fifth quicker than the cheaper one before."""
        kept: list[dict[str, Any]] = []
        for row in self.front:
            if not kept or row["p95_s"] < 0.8 * kept[-1]["p95_s"]:
                kept.append(row)
        return kept

    def shown(self) -> list[dict[str, Any]]:
        """Return the present setting, the effect of single changes, and the front, as rows for a grid."""
        if not self.model:
            return []
        s, rows = self.now.setting, [self.rows[0]]
        for label, other in (
            ("CdcMaxBatchInterval halved", replace(s, interval_s=s.interval_s / 2)),
            ("CdcMinFileSize a tenth", replace(s, min_file_kb=max(s.min_file_kb / 10, 1))),
            ("looked twice as often", replace(s, trigger_s=s.trigger_s / 2)),
            ("worker twice as large (a model)", replace(s, speed=2.0)),
            ("worker half as large (a model)", replace(s, speed=0.5)),
        ):
            rows.append(self._row(other, self.model, label))
        return rows + [{**r, "label": "on the front"} for r in self.steps if not r["label"]]


@styled
def chart(advice: Advice) -> Figure | None:
    """Draw p95 against the cost of a day: every setting tried, the front, and the present setting by the model and as measured."""
    if not advice.model:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title("Latency against cost, by the model fitted on these commits")
    shades = dict(zip(SPEEDS, ("#c9d8e8", "#8fb3d9", "#3b6ea5", "#1f3d5c"), strict=True))
    for speed in SPEEDS:
        some = [r for r in advice.rows if r["worker"] == speed and not r["label"]]
        axes.scatter(
            [r["usd_a_day"] for r in some],
            [r["p95_s"] for r in some],
            s=22,
            color=shades[speed],
            label=f"worker × {speed:g}",
            linewidth=0,
            alpha=0.55,
        )
    front = advice.front
    axes.step(
        [r["usd_a_day"] for r in front],
        [r["p95_s"] for r in front],
        where="post",
        color=COLOURS[2],
        linewidth=1.8,
        label="Pareto front",
    )
    steps = advice.steps
    for r in steps[:: max(1, len(steps) // 6)]:
        told = f"batch {r['max_batch_interval_s']:g} s, trigger {r['trigger_s']:g} s, × {r['worker']:g}"
        axes.annotate(told, (r["usd_a_day"], r["p95_s"]), textcoords="offset points", xytext=(-6, -5), ha="right", va="top",
                      fontsize=7.5, color="#2f6b43")  # fmt: skip
    now = advice.rows[0]
    axes.plot(
        now["usd_a_day"],
        now["p95_s"],
        "*",
        color=COLOURS[3],
        markersize=17,
        markeredgecolor="white",
        label="now, by the model",
        linestyle="",
    )
    axes.plot(
        now["usd_a_day"],
        advice.now.p95,
        "x",
        color=COLOURS[3],
        markersize=9,
        markeredgewidth=2,
        label="now, measured",
        linestyle="",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda x, _: f"{x:,g}")
        axis.set_minor_formatter(lambda x, _: "")
    axes.set_xlim(left=front[0]["usd_a_day"] / 8)
    axes.set_xlabel(f"dollars a day (prices of {advice.settings.prices.get('as_of', 'an unknown date')})")
    axes.set_ylabel("p95, source commit → committed, s")
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def sentence(advice: Advice) -> str:
    """Describe the present setting, and a quicker one for the same money or a cheaper one of the same latency."""
    if not advice.model:
        return f"There is no advice: it needs {FEWEST} commits that tell of source commit times and of when their files landed."
    now = advice.rows[0]
    text = (
        f"Now: p95 {span(advice.now.p95)} measured, {span(now['p95_s'])} by the model, about ${now['usd_a_day']:,.2f} a day on AWS "
        f"for {advice.settings.worker_vcpu:g} vCPUs at prices of {advice.settings.prices.get('as_of')}."
    )

    def told(r: dict[str, Any]) -> str:
        return (
            f"CdcMaxBatchInterval {r['max_batch_interval_s']:g} s, a trigger of {r['trigger_s']:g} s and a worker × {r['worker']:g} would come to "
            f"p95 {span(r['p95_s'])} for ${r['usd_a_day']:,.2f}"
        )

    same = [r for r in advice.rows if r["worker"] == 1 and r["usd_a_day"] <= now["usd_a_day"] * 1.02]
    quicker = min(same, key=lambda r: r["p95_s"])
    cheaper = min((r for r in advice.rows if r["p95_s"] <= now["p95_s"] * 1.02), key=lambda r: r["usd_a_day"])
    if quicker["p95_s"] < 0.9 * now["p95_s"]:
        text += f" Quicker for no more money, on the same worker: {told(quicker)}."
    if cheaper["usd_a_day"] < 0.9 * now["usd_a_day"]:
        text += f" As quick and cheaper: {told(cheaper)}; of another worker's size that is a model, not a measurement."
    if text.endswith(f"{advice.settings.prices.get('as_of')}."):
        text += " No setting tried is a tenth better in one without being worse in the other."
    return text
