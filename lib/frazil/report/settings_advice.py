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

δ, ε and a are fitted, c is measured, m is assumed. A worker `speed` times as large is assumed, not measured, to do
m · speed batches at full speed. Each batch then takes:

    a · (FIXED + (1 - FIXED) / speed) + c g B / speed
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from frazil.config.settings import LatencySettings
from frazil.report.latency import LEVELS, shares

if TYPE_CHECKING:
    from frazil.dms.endpoint import Endpoint
    from frazil.report.latency import Analysis

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
class Model:
    """The fitted model: the load that was observed, and δ, ε, a, c, m of the formulas above."""

    observed: Observed
    delta: float
    epsilon: float
    fixed_s: float
    per_change_s: float
    parallel: float

    def at(self, setting: Setting) -> Observed:
        """Return the load under another setting."""
        return replace(self.observed, setting=setting)

    def batch(self, setting: Setting) -> tuple[float, float]:
        """Return R and B: the duration of a batch next to the others, and the time between two batches of a table."""
        load, w = self.at(setting), setting.speed
        apart = max(load.look_s, load.open_s + 1 / self.observed.transactions_s)
        fixed = self.fixed_s * (FIXED + (1 - FIXED) / w)
        busy = self.per_change_s / w * load.changes_s  # seconds of work for the changes of a second
        shared = (load.tables - 1) / (self.parallel * w)  # how much longer a batch takes while all tables have one
        alone = fixed + busy * apart
        r = alone / (1 - alone * shared / apart) if alone * shared < apart else DAY
        if r > apart:  # one batch after the other: each applies what came during the one before
            left = 1 - busy * (1 + shared)
            r = fixed * (1 + shared) / left if left > 0 else DAY
        r = min(r, DAY)  # a day: more arrives than can be processed, and the wait is endless
        return r, max(apart, r)

    def look_window(self, setting: Setting, r: float) -> float:
        """Return the maximum seconds between landing and pickup: T, or R if files arrive during a batch."""
        load = self.at(setting)
        faster = load.open_s + 1 / self.observed.transactions_s < r + load.look_s / 2
        return max(load.look_s, r if faster else 0.0)

    def latency(
        self, setting: Setting, least_wait_s: float = 0.0, window_s: float | None = None
    ) -> tuple[float, float]:
        """Return p50 and p95 of the whole latency, in seconds.

        From landing to pickup a file waits `least_wait_s`, and up to `window_s` more; left out: as T and R make it.
        """
        import numpy as np

        r, d, rate = self.batch(setting)[0], self.at(setting).open_s, self.observed.transactions_s
        even = (np.arange(40) + 0.5) / 40
        first = 1 / (1 + rate * d)
        w1, p1 = np.append(even * d, d), np.append(np.full(40, (1 - first) / 40), first)
        w2 = least_wait_s + even * (self.look_window(setting, r) if window_s is None else window_s)
        # If files come sooner than the settings say, δ is negative; a wait is never below zero.
        w1, w2 = np.maximum(w1 + self.delta, 0), np.maximum(w2 + self.epsilon, 0)
        total = w1[:, None, None] + w2[None, :, None] + (r * np.array(self.observed.spread))[None, None, :]
        weight = p1[:, None, None] * np.full(40, 1 / 40)[None, :, None] * np.array(shares(LEVELS))[None, None, :]
        order = np.argsort(total, axis=None)
        reached = np.cumsum(weight.ravel()[order])
        at = np.searchsorted(reached, [0.5, 0.95])
        return tuple(float(x) for x in total.ravel()[order][at])

    def cost(self, setting: Setting, s: LatencySettings) -> float:
        """Return the cost of a day on AWS at the prices in the settings: the worker, and S3's requests.

        With a trigger of minutes, a scheduled job starts each time (`start_s`) and ends; with a shorter trigger it runs
        all day.
        """
        price = s.price
        r, between = self.batch(setting)
        k = self.observed.tables
        run_s = price("start_s") + k * r / min(k, max(self.parallel, 1.0))
        share = min(1.0, run_s / setting.trigger_s) if setting.trigger_s > 2 * price("start_s") else 1.0
        hour = price("worker_vcpu") * price("vcpu_hour") + price("worker_gb") * price("gb_hour")
        worker = 24 * share * setting.speed * hour
        files = k * DAY / (self.at(setting).open_s + 1 / self.observed.transactions_s)
        looks = k * DAY / max(setting.trigger_s, r, 1.0)
        commits = k * DAY / between
        puts, gets = files + looks + commits * price("puts_commit"), files + commits * price("gets_commit")
        return worker + (puts * price("put_1000") + gets * price("get_1000")) / 1000


def fit(now: Observed, parallel: float) -> Model:
    """Fit the model to one measured setting, on a machine that does `parallel` batches at full speed (m).

    δ and ε are the differences between the measured mean waits and the formulas; a is what gives the measured R.
    """
    apart = now.open_s + 1 / now.transactions_s
    r, k = now.service_s, now.tables
    between = max(now.look_s, apart, r)
    alone = r / (1 + (k - 1) / k * min(k * r / between, k) / parallel)
    fixed_s = max(alone - now.per_change_s * now.changes_s * between, 1e-3)
    first = 1 / (1 + now.transactions_s * now.open_s)
    delta = now.dms_s - now.open_s * (first + (1 - first) / 2)
    model = Model(replace(now, files_s=1 / apart), delta, 0.0, fixed_s, now.per_change_s, parallel)
    look_wait = model.look_window(now.setting, model.batch(now.setting)[0]) / 2
    return replace(model, epsilon=now.wait_s - look_wait)


class Advice:
    """The model fitted to an analysis, and its results for other settings; `model` is None if stages are missing."""

    def __init__(self, a: Analysis, s: LatencySettings, endpoint: Endpoint, parallel: float = 2.0):
        self.settings, self.model = s, None
        setting = Setting(endpoint.max_batch_interval_s, endpoint.min_file_kb, s.trigger_s or 0.0)
        now = observed(a, setting) if a.count >= FEWEST else None
        if now is None:
            return
        if s.trigger_s is None:
            now = replace(now, setting=replace(now.setting, trigger_s=round(2 * max(now.wait_s, 0.0), 1)))
        self.now, self.model = now, fit(now, parallel)
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
        return rows + [{**r, "label": "on the front"} for r in self.steps if not r["label"]]
