"""The tuning table: DMS's settings, the pipeline on AWS and the worker's size, as latency against dollars a day.

For the measured load, with the fitted model of `advice` (D, 1/λ, R, W1 as there), K tables and m batches at a time:

    F    = (D + 1/λ) / K                         time between two files of any table
    J    = start + K R / min(K, m)               a job that makes one pass
    C    = max(J, F + wait / 2)                  time between two such jobs: the next one starts at once if a file came meanwhile
    W2   = start + U(0, max(J, wait)) if F < J, else start + U(0, wait)    one pass per job
    W2   = U(0, poll), as in `advice`                                      a job that stays
    latency = W1 + W2 + R
    paid    = active · J / C for one pass; active for a job that ends when the source sleeps; 1 for one that stays all day
    dollars a day = 24 · paid · (vCPU · price + GB · price) + S3's requests + transitions

`active` is the share of the window's slices with commits. A worker has 4 GB a vCPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frazil.config.settings import LatencySettings
from frazil.errors import many
from frazil.report.settings_advice import DAY, Model, Setting

if TYPE_CHECKING:
    from frazil.report.latency import Analysis
    from frazil.report.settings_advice import Advice

GB_VCPU, POLL_S, VCPUS = 4, 3.0, (1, 2, 4, 8)
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
    if aim.job == "one pass":
        cycle, paid, latency = _one_pass(model, aim, setting, s.price("start_s"))
    else:
        cycle, paid, latency = model.batch(setting)[1], 1.0, model.latency(setting)
    paid *= 1.0 if aim.job == "stays" else active
    usd = 24 * paid * vcpu * (s.price("vcpu_hour") + GB_VCPU * s.price("gb_hour"))
    usd += _requests(model, s, aim, setting, cycle)
    keeps_up = latency[1] < DAY / 2
    figures = {"p50_s": round(latency[0], 1), "p95_s": round(latency[1], 1), "usd_a_day": round(usd, 2)}
    return {
        "aim": aim.name, "CdcMaxBatchInterval": f"{aim.interval_s:g} s", "CdcMinFileSize": f"{aim.min_file_mb:g} MB", "wait_s": aim.wait_s,
        "job": JOBS[aim.job], "worker": f"{vcpu} vCPU", **(figures if keeps_up else dict.fromkeys(figures)),
    }  # fmt: skip


def files_apart(model: Model, setting: Setting) -> float:
    """Return F: the seconds between two files of any table."""
    load = model.at(setting)
    return (load.open_s + 1 / model.observed.transactions_s) / load.tables


def _one_pass(model: Model, aim: Aim, setting: Setting, start_s: float) -> tuple[float, float, tuple[float, float]]:
    """Return C, J / C, and p50 and p95 of jobs that make one pass each."""
    apart, tables = files_apart(model, setting), model.observed.tables
    job = cycle = start_s
    for _ in range(1000):  # a longer cycle means larger batches, which take longer
        each = model.batch(replace(setting, trigger_s=cycle))[0]
        job = start_s + tables * each / min(tables, max(model.parallel * setting.speed, 1.0))
        needed = max(job, apart + aim.wait_s / 2)
        if abs(needed - cycle) <= cycle / 10_000:
            break
        cycle = (cycle + needed) / 2
    else:
        job = cycle = DAY  # more arrives than can be processed
    window = max(job, aim.wait_s) if apart < job else aim.wait_s
    latency = model.latency(replace(setting, trigger_s=cycle), least_wait_s=start_s, window_s=window)
    return cycle, min(job / cycle, 1.0), latency


def _requests(model: Model, s: LatencySettings, aim: Aim, setting: Setting, cycle_s: float) -> float:
    """Return the dollars a day for S3's requests and the state machine's transitions, as if changes came all day."""
    files, commits = DAY / files_apart(model, setting), model.observed.tables * DAY / cycle_s
    puts, gets = files + commits * s.price("puts_commit"), files + commits * s.price("gets_commit")
    transitions = DAY / aim.wait_s * LOOKS + (DAY / cycle_s * STARTS if aim.job == "one pass" else 0)
    thousands = {"put_1000": puts, "get_1000": gets, "transition_1000": transitions}
    return sum(number * s.price(name) for name, number in thousands.items()) / 1000


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
