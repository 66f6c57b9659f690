"""Effects of other settings on latency and cost: a small queueing model, fitted to what the ledger has measured.

For one of K changing tables, with λ transactions and g changes a second of b bytes each:

    D  = min(CdcMaxBatchInterval, CdcMinFileSize / (g b))      time that a file of DMS stays open after its first change
    W1 = δ + (D with probability 1 / (1 + λ D), else U(0, D))  wait in DMS: the change that opens the file waits longest
    B  = max(T, D + 1/λ, R)                                    time between two batches, T = trigger interval
    S  = a + c g B                                             service time of a batch if it were alone
    R  = S (1 + (K - 1) / K · Q / m),  Q = K R / B             service while K tables share a machine that does m
                                                               at full speed (Schweitzer's approximation of a closed queue)
    W2 = ε + U(0, T), or U(0, max(T, R)) if files come faster than batches are done
    latency = W1 + W2 + R · (its measured spread)

With a trigger of minutes, a job starts each time, makes one pass over all tables, and ends:

    C  = max(T, J)                                             time between two jobs
    J  = start + R,  R = S max(1, n / m)                       the n tables with files share the machine
    n  = K min(1, C / (D + 1/λ)),  B = max(C, D + 1/λ)
    W2 = start + ε + U(0, C)

δ, ε and a are fitted, c is measured, m is assumed. A worker `speed` times as large is assumed, not measured, to do
m · speed batches at full speed. Each batch then takes:

    a · (FIXED + (1 - FIXED) / speed) + c g B / speed
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from frazil_old.config.settings import PRICES, LatencySettings
from frazil_old.report.latency import LEVELS, shares

if TYPE_CHECKING:
    from frazil_old.dms.endpoint import Endpoint
    from frazil_old.report.latency import Analysis

FIXED = 0.5
"""Share of a small batch's time that a larger worker does not shorten: planning and committing on the driver."""
DAY, LOOK_S = 86_400.0, 0.2
INTERVALS_S, TRIGGERS_S, SPEEDS = (1, 2, 5, 10, 20, 60, 120, 300), (0, 1, 3, 10, 30, 60, 300, 900), (0.5, 1, 2, 4)

FEWEST = 20
"""With fewer commits there is no advice."""


@dataclass(frozen=True)
class Setting:
    """Settings that can be chosen; `speed` is the worker's size relative to the present one."""

    interval_s: float
    min_file_kb: float
    trigger_s: float
    speed: float = 1.0


@dataclass(frozen=True)
class Observed:
    """Results of one setting: the load per table, means of the stages in seconds, and quantiles of the whole latency."""

    setting: Setting
    tables: int
    changes_s: float
    files_s: float
    bytes_change: float
    dms_s: float
    wait_s: float
    service_s: float
    spread: tuple[float, ...]
    p95: float
    per_change_s: float = 0.0

    @property
    def look_s(self) -> float:
        """T, but at least the loop's own polling interval."""
        return max(self.setting.trigger_s, LOOK_S)

    @property
    def open_s(self) -> float:
        """D: how long a file of DMS stays open."""
        fill = self.setting.min_file_kb * 1024 / max(self.changes_s * self.bytes_change, 1e-9)
        return min(self.setting.interval_s, fill)

    @property
    def transactions_s(self) -> float:
        """λ, from how much rarer files are than one every D seconds."""
        return 1 / max(1 / max(self.files_s, 1e-9) - self.open_s, 0.02)


def observed(a: Analysis, setting: Setting) -> Observed | None:
    """Measure the setting under which a window of commits ran; return None if stages are missing or clocks contradict."""
    stages = a.percentiles("stage").set_index("stage")
    needed = ["source_to_commit", "source_to_dms", "landed_to_pickup", "pickup_to_commit"]
    if not set(needed) <= set(stages.index) or a.clocks_contradict:
        return None
    whole, dms, wait, service = (stages.loc[n] for n in needed)
    slices, tables = a.slices, a.slices["table"].nunique()
    busy = max(slices["slice"].nunique() * a.width_s, 1)  # a quiet night is not load
    landing = stages["mean"].get("dms_to_landed", 0.0)
    changes, files = max(slices["changes"].sum(), 1), slices["files"].sum()
    spread = tuple(service[f"p{100 * q:g}"] / max(service["p50"], 1e-3) for q in LEVELS)
    return Observed(
        setting,
        tables,
        changes / tables / busy,
        files / tables / busy,
        slices["bytes"].sum() / changes,
        dms["mean"] + landing,
        wait["mean"],
        service["p50"],
        spread,
        whole["p95"],
        a.seconds_per_change,
    )


@dataclass(frozen=True)
class Run:
    """How batches run, in seconds: R, B, the least and the further wait from landing to pickup, and the time between two looks.

    `paid` is the share of the time that a worker is there.
    """

    service_s: float
    between_s: float
    least_wait_s: float
    window_s: float
    look_s: float
    paid: float = 1.0


@dataclass(frozen=True)
class Model:
    """The fitted model: the load that was observed, δ, ε, a, c, m of the formulas above, and how long a job starts."""

    observed: Observed
    delta: float
    epsilon: float
    fixed_s: float
    per_change_s: float
    parallel: float
    start_s: float = float(PRICES["start_s"])

    def at(self, setting: Setting) -> Observed:
        """Return the load under another setting."""
        return replace(self.observed, setting=setting)

    def starts_jobs(self, setting: Setting) -> bool:
        """Return whether a job starts for each pass: the trigger is minutes. Else one job stays."""
        return setting.trigger_s > 2 * self.start_s

    def file_s(self, setting: Setting) -> float:
        """Return D + 1/λ: the seconds between two files of a table."""
        return self.at(setting).open_s + 1 / self.observed.transactions_s

    def alone(self, setting: Setting, between_s: float) -> float:
        """Return S: the duration of a batch if it were alone."""
        fixed = self.fixed_s * (FIXED + (1 - FIXED) / setting.speed)
        return fixed + self.per_change_s / setting.speed * self.observed.changes_s * between_s

    def batch(self, setting: Setting) -> tuple[float, float]:
        """Return R and B: the duration of a batch next to the others, and the time between two batches of a table."""
        load = self.at(setting)
        apart, fixed = max(load.look_s, self.file_s(setting)), self.alone(setting, 0)
        busy = self.alone(setting, 1) - fixed  # seconds of work for the changes of a second
        shared = (load.tables - 1) / (self.parallel * setting.speed)  # how much longer while all tables have a batch
        alone = fixed + busy * apart
        r = alone / (1 - alone * shared / apart) if alone * shared < apart else DAY
        if r > apart:  # one batch after the other: each applies what came during the one before
            left = 1 - busy * (1 + shared)
            r = fixed * (1 + shared) / left if left > 0 else DAY
        r = min(r, DAY)  # a day: more arrives than can be processed, and the wait is endless
        return r, max(apart, r)

    def crowd(self, setting: Setting, cycle_s: float) -> float:
        """Return n / m, or 1: how much longer a batch takes in a job that makes one pass each `cycle_s` seconds."""
        tables = self.observed.tables * min(1.0, cycle_s / self.file_s(setting))
        return max(1.0, tables / max(self.parallel * setting.speed, 1.0))

    def one_pass(self, setting: Setting, least_s: float) -> Run:
        """Return how jobs run that make one pass each, `least_s` seconds apart or more."""
        job = cycle = self.start_s
        for _ in range(1000):  # a longer cycle means larger batches, which take longer
            between = max(cycle, self.file_s(setting))
            job = self.start_s + self.alone(setting, between) * self.crowd(setting, cycle)
            needed = max(job, least_s)
            if abs(needed - cycle) <= cycle / 10_000:
                break
            cycle = (cycle + needed) / 2
        else:
            job = cycle = between = DAY  # more arrives than can be processed
        return Run(job - self.start_s, between, self.start_s, cycle, cycle, min(job / cycle, 1.0))

    def run(self, setting: Setting) -> Run:
        """Return how batches run: in a job for each pass if the trigger is minutes, else in one that stays."""
        if self.starts_jobs(setting):
            return self.one_pass(setting, setting.trigger_s)
        r, between = self.batch(setting)
        look_s = self.at(setting).look_s
        faster = self.file_s(setting) < r + look_s / 2  # files arrive during a batch
        return Run(r, between, 0.0, max(look_s, r if faster else 0.0), max(setting.trigger_s, r, 1.0))

    def latency(self, setting: Setting, run: Run | None = None) -> tuple[float, float]:
        """Return p50 and p95 of the whole latency, in seconds; `run`: where it is not the setting's own."""
        import numpy as np

        run, d, rate = run or self.run(setting), self.at(setting).open_s, self.observed.transactions_s
        even = (np.arange(40) + 0.5) / 40
        first = 1 / (1 + rate * d)
        w1, p1 = np.append(even * d, d), np.append(np.full(40, (1 - first) / 40), first)
        w2 = run.least_wait_s + even * run.window_s
        # If files come sooner than the settings say, δ is negative; a wait is never below zero.
        w1, w2 = np.maximum(w1 + self.delta, 0), np.maximum(w2 + self.epsilon, 0)
        service = run.service_s * np.array(self.observed.spread)
        total = w1[:, None, None] + w2[None, :, None] + service[None, None, :]
        weight = p1[:, None, None] * np.full(40, 1 / 40)[None, :, None] * np.array(shares(LEVELS))[None, None, :]
        order = np.argsort(total, axis=None)
        reached = np.cumsum(weight.ravel()[order])
        at = np.searchsorted(reached, [0.5, 0.95])
        return tuple(float(x) for x in total.ravel()[order][at])

    def cost(self, setting: Setting, s: LatencySettings, run: Run | None = None, active: float = 1.0) -> float:
        """Return the cost of a day on AWS at the prices in the settings: the worker, and S3's requests.

        `run`: where it is not the setting's own. `active`: the share of the day in which workers run at all.
        """
        price, run = s.price, run or self.run(setting)
        hour = price("worker_vcpu") * price("vcpu_hour") + price("worker_gb") * price("gb_hour")
        return 24 * run.paid * active * setting.speed * hour + self._requests(setting, run, s)

    def _requests(self, setting: Setting, run: Run, s: LatencySettings) -> float:
        """Return the cost of a day's requests to S3, as if changes came all day."""
        price, k = s.price, self.observed.tables
        files, looks, commits = (k * DAY / each for each in (self.file_s(setting), run.look_s, run.between_s))
        puts, gets = files + looks + commits * price("puts_commit"), files + commits * price("gets_commit")
        return (puts * price("put_1000") + gets * price("get_1000")) / 1000


def fit(now: Observed, parallel: float, start_s: float = float(PRICES["start_s"])) -> Model:
    """Fit the model to one measured setting, on a machine that does `parallel` batches at full speed (m).

    δ and ε are the differences between the measured mean waits and the formulas; a is what gives the measured R.
    """
    setting, r, k = now.setting, now.service_s, now.tables
    first = 1 / (1 + now.transactions_s * now.open_s)
    delta = now.dms_s - now.open_s * (first + (1 - first) / 2)
    load = replace(now, files_s=1 / (now.open_s + 1 / now.transactions_s))
    model = Model(load, delta, 0.0, 0.0, now.per_change_s, parallel, start_s)
    if model.starts_jobs(setting):
        cycle = max(setting.trigger_s, start_s + r)
        between, crowd = max(cycle, model.file_s(setting)), model.crowd(setting, cycle)
    else:
        between = max(now.look_s, model.file_s(setting), r)
        crowd = 1 + (k - 1) / k * min(k * r / between, k) / parallel
    model = replace(model, fixed_s=max(r / crowd - now.per_change_s * now.changes_s * between, 1e-3))
    run = model.run(setting)
    return replace(model, epsilon=now.wait_s - run.least_wait_s - run.window_s / 2)


class Advice:
    """The model fitted to an analysis, and its results for other settings; `model` is None if stages are missing."""

    def __init__(self, a: Analysis, s: LatencySettings, endpoint: Endpoint, parallel: float = 2.0):
        self.settings, self.model = s, None
        setting = Setting(endpoint.max_batch_interval_s, endpoint.min_file_kb, s.trigger_s or 0.0)
        now = observed(a, setting) if a.count >= FEWEST else None
        if now is None:
            return
        start_s, waited = s.price("start_s"), max(now.wait_s, 0.0)
        if s.trigger_s is None:  # of a job for each pass, the wait has the start too
            trigger = 2 * (waited - start_s) if waited > 2 * start_s else min(2 * waited, 2 * start_s)
            now = replace(now, setting=replace(now.setting, trigger_s=round(trigger, 1)))
        self.now, self.model = now, fit(now, parallel, start_s)
        self.rows = [self._row(now.setting, self.model, "now")]
        for interval, trigger, speed in product(INTERVALS_S, TRIGGERS_S, SPEEDS):
            self.rows.append(self._row(Setting(interval, now.setting.min_file_kb, trigger, speed), self.model))
        self.rows = [r for r in self.rows if r["label"] or r["p95_s"] < DAY]  # otherwise the lag would grow without end
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
            ("polled twice as often", replace(s, trigger_s=s.trigger_s / 2)),
            ("worker twice as large (a model)", replace(s, speed=2.0)),
            ("worker half as large (a model)", replace(s, speed=0.5)),
        ):
            rows.append(self._row(other, self.model, label))
        return rows + [{**r, "label": "on the Pareto front"} for r in self.steps if not r["label"]]
