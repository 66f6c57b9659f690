"""The tuning table: DMS's settings, the pipeline on AWS and the worker's size, as latency against dollars a day.

For the measured load, with the fitted model of `settings_advice` (D, 1/λ, J, R, W1 as there) and K tables:

    F    = (D + 1/λ) / K                         time between two files of any table
    C    = max(J, F + wait / 2)                  time between two jobs of one pass: the next one starts at once if a file came meanwhile
    W2   = start + U(0, max(J, wait)) if F < J, else start + U(0, wait)    one pass per job
    W2   = U(0, poll)                                                      a job that stays
    latency = W1 + W2 + R
    paid    = active · J / C for one pass; active for a job that ends when the source sleeps; 1 for one that stays all day
    dollars a day = 24 · paid · (vCPU · price + GB · price) + S3's requests + transitions

`active` is the share of the window's slices with commits. A worker has as many GB a vCPU as the present one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frazil_old.config.settings import LatencySettings
from frazil_old.errors import many
from frazil_old.report.settings_advice import DAY, Model, Run, Setting

if TYPE_CHECKING:
    from frazil_old.report.latency import Analysis
    from frazil_old.report.settings_advice import Advice

POLL_S, VCPUS = 3.0, (1, 2, 4, 8)
LOOKS, STARTS = 3, 6
"""State transitions for each poll of the queue, and for each job."""


@dataclass(frozen=True)
class Aim:
    """What to optimise, by which settings of DMS's endpoint and of the pipeline."""

    name: str
    interval_s: float
    min_file_mb: float
    wait_s: int
    job: str
    """`one pass`, `ends when idle` or `stays`."""


AIMS = (
    Aim("cheapest", 900, 128, 60, "one pass"),
    Aim("minutes", 60, 32, 30, "one pass"),
    Aim("minutes, warm", 60, 32, 30, "ends when idle"),
    Aim("seconds", 2, 1, 30, "stays"),
)
JOBS = {
    "one pass": "run_for_s 0",
    "ends when idle": "run_for_s 36000, idle_s 300",
    "stays": "run_for_s 36000, idle_s 0",
}


def tuning_table(advice: Advice, a: Analysis) -> list[dict[str, Any]]:
    """Return a row for each aim and size of worker; none without a fitted model."""
    if not advice.model:
        return []
    active = active_share(a)
    return [row(advice.model, advice.settings, aim, vcpu, active) for aim in AIMS for vcpu in VCPUS]


def active_share(a: Analysis) -> float:
    """Return the share of the window's slices, from the first to the last with commits, that have some."""
    at = a.slices["slice"]
    return at.nunique() / ((at.max() - at.min()) / (a.width_s * 1000) + 1)


def row(model: Model, s: LatencySettings, aim: Aim, vcpu: int, active: float) -> dict[str, Any]:
    """Return latency and dollars a day of an aim on a worker of this size; None where the worker does not keep up."""
    setting = Setting(aim.interval_s, aim.min_file_mb * 1024, POLL_S, vcpu / s.price("worker_vcpu"))
    run = _one_pass(model, aim, setting) if aim.job == "one pass" else model.run(setting)
    latency, active = model.latency(setting, run), 1.0 if aim.job == "stays" else active
    transitions = DAY / aim.wait_s * LOOKS + (DAY / run.look_s * STARTS if aim.job == "one pass" else 0)
    usd = model.cost(setting, s, run, active) + transitions * s.price("transition_1000") / 1000
    keeps_up = latency[1] < DAY / 2
    figures = {"p50_s": round(latency[0], 1), "p95_s": round(latency[1], 1), "usd_a_day": round(usd, 2)}
    return {
        "aim": aim.name, "CdcMaxBatchInterval": f"{aim.interval_s:g} s", "CdcMinFileSize": f"{aim.min_file_mb:g} MB", "wait_s": aim.wait_s,
        "job": JOBS[aim.job], "worker": f"{vcpu} vCPU", **(figures if keeps_up else dict.fromkeys(figures)),
    }  # fmt: skip


def _one_pass(model: Model, aim: Aim, setting: Setting) -> Run:
    """Return how jobs run that make one pass each, started by the queue: a file waits for the next look, or for the job before."""
    apart = model.file_s(setting) / model.observed.tables
    run = model.one_pass(setting, apart + aim.wait_s / 2)
    job = model.start_s + run.service_s
    return replace(run, window_s=max(job, aim.wait_s) if apart < job else aim.wait_s)


def caption(rows: list[dict[str, Any]], s: LatencySettings) -> str:
    """Describe the cheapest and the quickest row, and the date of the prices."""
    known = [r for r in rows if r["p95_s"] is not None]
    if not known:
        return "There is no table: too few commits, or no worker keeps up with this load."
    cheapest, quickest = min(known, key=lambda r: r["usd_a_day"]), min(known, key=lambda r: r["p95_s"])
    named = [
        f"{word}: {r['aim']} on {r['worker']}, p95 {r['p95_s']:,.0f} s for ${r['usd_a_day']:,.2f} a day"
        for word, r in (("Cheapest", cheapest), ("Quickest", quickest))
    ]
    late = len(rows) - len(known)
    more = f" {many(late, 'row')} without figures: the worker would not keep up." if late else ""
    return f"{named[0]}. {named[1]}. EMR Serverless, prices of {s.prices_of}; of other sizes of worker it is a model.{more}"
