"""Latency of many commits together, from the sketches of their batches (`engine.latency_sketch`).

`Analysis` lets Spark merge the sketches into one small histogram, from which everything else is computed. Percentiles
over commits are those of the mixture of their sketches: every point of a sketch represents its share of the commit's
changes. They are never means of percentiles. Seconds are rounded to 2 % so that 100,000 commits become some thousand
rows; maxima are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil_old.config.timestamps import clock
from frazil_old.engine.latency_sketch import OF_FILES, P50, P99, QUANTILES

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


TOTAL = "source_to_commit"
STAGES = {
    "source_to_dms": "source commit → DMS wrote",
    "dms_to_landed": "written → landed",
    "landed_to_pickup": "landed → picked up",
    "pickup_to_commit": "picked up → committed",
    "commit_to_visible": "committed → seen by another engine",
}
SERVED_BY = "commit_to_served "
"""What the stage of a warehouse begins with; then its name. Such stages, and `commit_to_visible`, go on at the same time."""
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99)
WIDTHS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)
SLICES = 96
"""Maximum number of slices in a window."""


def stage_name(stage: str) -> str:
    """Return the words for a stage, the same in charts, tables and captions."""
    served_by = f"committed → served by {stage.removeprefix(SERVED_BY)}"
    return {TOTAL: "source commit → committed", **STAGES}.get(stage) or served_by


def after_commit(stages: Iterable[str]) -> list[str]:
    """Return those stages that begin with the lake's commit, in order: another engine, then the warehouses."""
    found = [s for s in stages if s == "commit_to_visible" or s.startswith(SERVED_BY)]
    return sorted(found, key=lambda s: (s != "commit_to_visible", s))


def stage_rows(a: Analysis) -> list[dict[str, Any]]:
    """Return the percentiles of each stage, with its words, in the order in which a change passes them; the total is last."""
    rows = a.percentiles("stage").round(2).set_index("stage").to_dict("index")
    until_commit = [s for s in STAGES if s != "commit_to_visible"]
    order = [s for s in (*until_commit, *after_commit(rows), TOTAL) if s in rows]
    return [{"stage": stage_name(s), **rows[s]} for s in order]


def shares(points: Sequence[float]) -> tuple[float, ...]:
    """Return the share of the changes that each point represents: those nearest to it."""
    edges = [0.0, *((a + b) / 2 for a, b in zip(points, points[1:], strict=False)), 1.0]
    return tuple(b - a for a, b in zip(edges, edges[1:], strict=False))


def _points_sql() -> str:
    """Return the SQL of one commit's points: stage, milliseconds, share of the changes."""

    def sketched(stage: str, column: str, at: tuple[float, ...]) -> str:
        weights = f"array({', '.join(f'{s:.6f}D' for s in shares(at))})"
        return f"""transform(coalesce({column}, cast(array() as array<bigint>)),
            (ms, i) -> named_struct('stage', '{stage}', 'ms', ms, 'share', {weights}[i]))"""

    def single(stage: str, ms: str) -> str:
        return f"array(named_struct('stage', '{stage}', 'ms', {ms}, 'share', 1.0D))"

    return f"""concat({sketched(TOTAL, "latency_ms", QUANTILES)}, {sketched("source_to_dms", "dms_ms", QUANTILES)},
        {sketched("dms_to_landed", "land_ms", OF_FILES)}, {sketched("landed_to_pickup", "wait_ms", OF_FILES)},
        {single("pickup_to_commit", "committed_ms - picked_up_ms")}, {single("commit_to_visible", "visible_ms - committed_ms")},
        transform(coalesce(map_entries(served_ms), cast(array() as array<struct<key: string, value: bigint>>)),
            e -> named_struct('stage', concat('{SERVED_BY}', e.key), 'ms', e.value - committed_ms, 'share', 1.0D)))"""


class Analysis:
    """The commits of a window (`ledger.commits`), split into `slices` of time; returned frames are small pandas DataFrames.

    A slice has `width_s` seconds. What is called an hour has `hour_s`, which is more in a window of many days.
    """

    def __init__(self, commits: DataFrame):
        from pyspark.sql import functions as F

        self.commits = commits.where("changes > 0 and picked_up_ms is not null").cache()
        count, first, last, changes = self.commits.agg(
            F.count("*"), F.min("committed_ms"), F.max("committed_ms"), F.sum("changes")
        ).first()
        self.count, self.changes, self.first_ms, self.last_ms = count, changes or 0, first or 0, last or 0
        span = (self.last_ms - self.first_ms) / 1000
        self.width_s = next((w for w in WIDTHS_S if span / w <= SLICES), WIDTHS_S[-1])
        self.hour_s = max(self.width_s, 3600)
        self.histogram = self._histogram().cache()

    def _histogram(self) -> DataFrame:
        """Return the weight (in thousandths of a change) of each table, slice, stage and latency rounded to 2 %."""
        width, hour = self.width_s * 1000, self.hour_s * 1000
        exploded = self.commits.selectExpr(
            "table",
            f"committed_ms div {width} * {width} slice",
            f"committed_ms div {hour} * {hour} hour",
            "changes",
            f"inline({_points_sql()})",
        ).where("ms is not null")
        seconds = "signum(ms) * exp(round(ln(greatest(abs(ms), 1)) * 50) / 50) / 1000"
        weighted = exploded.selectExpr(
            "table",
            "slice",
            "hour",
            "stage",
            f"{seconds} seconds",
            "ms / 1000 exact",
            "cast(round(changes * share * 1000) as bigint) weight",
        )
        grouped = weighted.groupBy("table", "slice", "hour", "stage", "seconds")
        return grouped.agg({"weight": "sum", "exact": "max"}).selectExpr(
            "table", "slice", "hour", "stage", "seconds", "`sum(weight)` weight", "`max(exact)` top"
        )

    @cached_property
    def _measured(self) -> pd.DataFrame:
        """All percentiles, computed in one job; `by` names the grouping of each row."""
        grouped = ", ".join(f"if(grouping({n}) = 0, '{n}', null)" for n in ("table", "slice", "hour"))
        levels = ", ".join(f"{q}D" for q in LEVELS)
        rows = self.histogram.sparkSession.sql(
            f"""select concat_ws(' ', {grouped}) by, table, slice, hour, stage, cast(round(sum(weight) / 1000) as bigint) changes,
                       sum(seconds * weight) / sum(weight) mean, percentile(seconds, array({levels}), weight) p, max(top) max
                from {{rows}} group by grouping sets ((stage), (table, stage), (slice, stage), (table, hour, stage))""",
            rows=self.histogram,
        )
        # Rounding must not exceed the maximum.
        points = [f"least(p[{i}], max) p{100 * q:g}" for i, q in enumerate(LEVELS)]
        mean = "least(mean, max) mean"
        return frame(rows.selectExpr("by", "table", "slice", "hour", "stage", "changes", mean, "max", *points))

    @cached_property
    def clocks_contradict(self) -> bool:
        """Whether half of the changes took less than 0 s from source commit to committed: then no latency is known."""
        rows = self._measured
        return bool((rows[(rows["by"] == "") & (rows["stage"] == TOTAL)]["p50"] < 0).any())

    def percentiles(self, *by: str) -> pd.DataFrame:
        """Return changes, mean, max and p10 … p99 (`LEVELS`) in seconds by `table`, `slice`, or `table` and `hour`, and by `stage`.

        Times are epoch milliseconds. Without `stage` the latencies are those from source commit to committed; none if
        `clocks_contradict`.
        """
        rows = self._measured[self._measured["by"] == " ".join(n for n in by if n != "stage")]
        rows = rows if "stage" in by else rows[(rows["stage"] == TOTAL) & (not self.clocks_contradict)]
        kept = [*by, *self._measured.columns[5:]]
        return rows[kept].sort_values(list(by or ["p50"])).reset_index(drop=True)

    def shares(self, *by: str, fineness: int = 50) -> pd.DataFrame:
        """Return the weight of each total latency by these columns, in steps of 1/`fineness` of its logarithm."""
        size = f"exp(round(ln(greatest(abs(seconds), 0.001)) * {fineness}) / {fineness})"
        seconds = f"if(seconds < 0, -1, 1) * {size} seconds"
        rows = self.histogram.where(f"stage = '{TOTAL}'").selectExpr(*by, seconds, "weight")
        return frame(rows.groupBy(*by, "seconds").agg(_expr("sum(weight) weight")))

    @cached_property
    def slices(self) -> pd.DataFrame:
        """One row per table and slice: commits, changes, and the newest and oldest source commit among them (epoch ms)."""
        width = self.width_s * 1000
        rows = self.commits.selectExpr(
            "table",
            f"committed_ms div {width} * {width} slice",
            "changes",
            "files",
            "bytes",
            "committed_ms",
            "picked_up_ms - age_ms[0] newest",
            f"picked_up_ms - age_ms[{len(QUANTILES) - 1}] oldest",
        )
        sums = ["count(*) commits", "sum(changes) changes", "sum(files) files", "sum(bytes) bytes"]
        ends = ["max(newest) newest_ms", "min(oldest) oldest_ms", "max(committed_ms) committed_ms"]
        return frame(rows.groupBy("table", "slice").agg(*map(_expr, sums + ends)).orderBy("slice", "table"))

    @cached_property
    def seconds_per_change(self) -> float:
        """Seconds that each change adds to a batch; 0 if the number of changes explains little of its duration."""
        work = "(committed_ms - picked_up_ms) / 1000, changes"
        slope, explained = self.commits.selectExpr(f"regr_slope({work})", f"regr_r2({work})").first()
        return max(slope, 0.0) if self.count >= 20 and (explained or 0) > 0.3 else 0.0

    def slowest(self) -> dict[str, Any]:
        """Return the commit with the longest p99 of the total latency; empty if no commit has one."""
        rows = self.commits.where("latency_ms is not null").orderBy(_expr(f"latency_ms[{P99}]").desc()).limit(1)
        return next((r.asDict() for r in rows.collect()), {})

    def newest(self, count: int = 10) -> list[dict[str, Any]]:
        """Return the newest commits, one row each, newest first, with seconds of the total latency."""
        at = {"p50": P50, "p95": QUANTILES.index(0.95), "p99": P99, "max": -1}
        return [
            {"committed": clock(r.committed_ms)[:19], "table": r.table, "changes": r.changes, "files": r.files,
             **{n: round(r.latency_ms[i] / 1000, 2) if r.latency_ms else None for n, i in at.items()}}
            for r in self.commits.orderBy("committed_ms", ascending=False).limit(count).collect()
        ]  # fmt: skip

    @cached_property
    def backlog(self) -> pd.DataFrame:
        """One row per slice, at its end: `waiting_s`, the wait of the longest waiting change of any table, and `quiet_s`.

        `quiet_s` is the time since the newest source commit in the lake. If nothing waits, the lake is fresh however
        long the source has been quiet.
        """
        import pandas as pd

        known = self.slices.dropna(subset=["newest_ms", "oldest_ms"])
        if known.empty or self.clocks_contradict:
            return pd.DataFrame(columns=["slice", "waiting_s", "quiet_s"])
        width = self.width_s * 1000
        at = pd.Index(range(int(known["slice"].min()), int(known["slice"].max()) + width, width), name="slice")
        oldest = known.pivot(index="slice", columns="table", values="oldest_ms").reindex(at)
        newest = known.pivot(index="slice", columns="table", values="newest_ms").reindex(at).cummax().ffill()
        to_come = oldest[::-1].cummin().ffill()[::-1].shift(-1)  # the oldest change that a later slice commits
        ends = pd.Series(at + width, index=at)
        waiting = to_come.rsub(ends, axis=0).clip(lower=0).max(axis=1).fillna(0)
        quiet = (ends - newest.max(axis=1)).clip(lower=0)
        return pd.DataFrame({"slice": at, "waiting_s": waiting.to_numpy() / 1000, "quiet_s": quiet.to_numpy() / 1000})

    @cached_property
    def skew(self) -> list[dict[str, Any]]:
        """One row per table and stage with negative durations: the clocks at its two ends contradict each other.

        `at_least_s` is the minimum by which the later clock is slow. File names have milliseconds, and S3 has whole
        seconds. So up to a second before `landed` is no contradiction.
        """
        least = {"source_to_dms": ("dms_ms[0]", 1), "dms_to_landed": ("land_ms[0]", 1000), "landed_to_pickup": ("wait_ms[0]", 50),
                 "pickup_to_commit": ("committed_ms - picked_up_ms", 50), "commit_to_visible": ("visible_ms - committed_ms", 50),
                 TOTAL: ("latency_ms[0]", 1)}  # fmt: skip
        counts = [f"count_if({e} < -{t}) n_{s}" for s, (e, t) in least.items()]
        worst = [f"-min({e}) / 1000 s_{s}" for s, (e, _) in least.items()]
        found = self.commits.groupBy("table").agg(*map(_expr, ["count(*) commits", *counts, *worst])).orderBy("table")
        return [
            {"table": r["table"], "stage": stage, "commits": r[f"n_{stage}"], "of": r.commits, "at_least_s": round(r[f"s_{stage}"], 3)}
            for r in found.collect() for stage in least if r[f"n_{stage}"]
        ]  # fmt: skip


NUMBERS = {"bigint": "int64", "double": "float64"}


def frame(rows: DataFrame) -> pd.DataFrame:
    """Collect a few rows as a pandas DataFrame; numeric columns stay numeric if values or all rows are missing."""
    import pandas as pd

    found = pd.DataFrame([r.asDict() for r in rows.collect()], columns=rows.columns)
    numbers = {c: NUMBERS[kind] for c, kind in rows.dtypes if kind in NUMBERS}
    return found.astype({c: "float64" if found[c].isna().any() else kind for c, kind in numbers.items()})


def _expr(sql: str):
    from pyspark.sql import functions as F

    return F.expr(sql)
