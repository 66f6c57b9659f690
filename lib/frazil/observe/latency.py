"""The latency sketch of a batch: measured in the batch's own job, kept in its snapshot's summary.

A sketch is points of a distribution at fixed shares, not a KLL or a t-digest: Spark has none as SQL functions before
4.1, and one of useful size is above the half kilobyte that may ride in every retained summary.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from frazil.dms.newest import moment

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame

    from frazil.dms.objects import DmsObject

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""The points kept of delays that each change has."""
OF_FILES = (0.0, 0.5, 0.95, 0.99, 1.0)
"""The points kept of delays that each file has."""
P50, P95, P99 = QUANTILES.index(0.5), QUANTILES.index(0.95), QUANTILES.index(0.99)


def shares(points: Sequence[float]) -> tuple[float, ...]:
    """Return which share of the changes each point stands for: those nearest to it."""
    edges = [0.0, *((a + b) / 2 for a, b in zip(points, points[1:], strict=False)), 1.0]
    return tuple(b - a for a, b in zip(edges, edges[1:], strict=False))


SHARES = shares(QUANTILES)


def measures(picked_up: float) -> list[Column]:
    """Return the aggregates that a batch observes of its changes: quantiles of two delays, in milliseconds, as JSON arrays.

    `age`: source commit → picked up; `dms`: source commit → DMS wrote. Null where DMS writes no timestamp column.
    """
    from pyspark.sql import functions as F

    age = F.lit(round(picked_up * 1000)) - F.unix_millis("commit_ts")
    dms = F.unix_millis("written_at") - F.unix_millis("commit_ts")
    points = F.array(*[F.lit(q) for q in QUANTILES])
    return [F.to_json(F.percentile_approx(c, points, 1000)).alias(name) for name, c in (("age", age), ("dms", dms))]


def _points(delays: list[tuple[float, int]]) -> list[int]:
    """Return the points of weighted delays in seconds, as milliseconds."""
    if not delays:
        return []
    ordered = sorted(delays)
    reached = list(accumulate(weight for _, weight in ordered))
    return [round(ordered[bisect_left(reached, share * reached[-1])][0] * 1000) for share in OF_FILES]


def sketch(observed: dict[str, Any], picked_up: float, files: Sequence[DmsObject] = ()) -> str:
    """Return the sketch of one batch as JSON, about half a kilobyte: it rides in every retained snapshot's summary.

    To be called as soon as the batch is read and collapsed: `read` is how long that took. `land` (file written → landed) and
    `wait` (landed → picked up) are of its files, weighted by their bytes; files of streams have no such times.
    """
    facts = {"v": 2, "n": observed["changes"], "picked_up": round(picked_up * 1000)}
    facts["read"] = round((time.time() - picked_up) * 1000)
    delays: dict[str, list[int]] = {name: json.loads(observed[name] or "[]") for name in ("age", "dms")}
    timed = [(f.landed - moment(f.name).replace(tzinfo=UTC).timestamp(), f) for f in files if f.landed]
    delays["land"] = _points([(late, max(f.size, 1)) for late, f in timed])
    delays["wait"] = _points([(picked_up - f.landed, max(f.size, 1)) for _, f in timed])
    return json.dumps({**facts, **delays}, separators=(",", ":"))


def lag(observed: dict[str, Any], since_pick_up_s: float) -> dict[str, float]:
    """Return p50 and p99 of source commit → table commit over one batch, in seconds; nothing without a timestamp column."""
    age = json.loads(observed["age"] or "[]")
    return {f"lag_{n}_s": age[i] / 1000 + since_pick_up_s for n, i in (("p50", P50), ("p99", P99)) if age}


def per_commit(commits: DataFrame) -> pd.DataFrame:
    """Return a pandas frame with one row per commit: table, time, changes, p50/p95/p99/max latency and the stages, seconds.

    Stages of the median change: `source_to_dms` (source commit → DMS wrote its file), `dms_to_pickup`, `pickup_to_commit`.
    """
    from pyspark.sql import functions as F

    last = len(QUANTILES) - 1
    second = [
        F.expr(f"latency_ms[{i}] / 1000").alias(n) for n, i in (("p50", P50), ("p95", P95), ("p99", P99), ("max", last))
    ]
    return commits.where("latency_ms is not null").select(
        "table", F.expr("timestamp_millis(committed_ms)").cast("string").alias("committed"), "committed_ms", "changes", *second,
        F.expr(f"dms_ms[{P50}] / 1000").alias("source_to_dms"),
        F.expr(f"greatest(age_ms[{P50}] - dms_ms[{P50}], 0) / 1000").alias("dms_to_pickup"),
        F.expr("(committed_ms - picked_up_ms) / 1000").alias("pickup_to_commit"),
    ).toPandas()  # fmt: skip


def distribution(commits: DataFrame) -> DataFrame:
    """Return the latency of all changes as weighted points: table, seconds, weight (in thousandths of a change).

    Percentiles over many commits are taken of this mixture: never as a mean of percentiles.
    """
    from pyspark.sql import functions as F

    share = F.array(*[F.lit(s) for s in SHARES])
    points = commits.where("latency_ms is not null").select(
        "table", "changes", F.arrays_zip("latency_ms", share.alias("share")).alias("p")
    )
    return points.select("table", "changes", F.explode("p").alias("p")).select(
        "table",
        (F.col("p.latency_ms") / 1000).alias("seconds"),
        F.ceil(F.col("changes") * F.col("p.share") * 1000).alias("weight"),
    )


def percentiles(commits: DataFrame) -> list[dict[str, Any]]:
    """Return one row per table, and one for all: changes, p50, p95, p99 and max latency in seconds."""
    from pyspark.sql import functions as F

    points = distribution(commits)
    measured = [
        F.expr("percentile(seconds, array(0.5, 0.95, 0.99), weight)").alias("p"), F.max("seconds").alias("max"),
        F.round(F.sum("weight") / 1000).cast("long").alias("changes"),
    ]  # fmt: skip
    rows = points.groupBy("table").agg(*measured).orderBy("table").collect()
    if rows:
        rows += points.agg(F.lit("all tables").alias("table"), *measured).collect()
    return [
        {"table": r["table"], "changes": r["changes"], "p50_s": round(r["p"][0], 2), "p95_s": round(r["p"][1], 2),
         "p99_s": round(r["p"][2], 2), "max_s": round(r["max"], 2)}
        for r in rows
    ]  # fmt: skip


def sentence(frame: pd.DataFrame) -> str:
    """Say in one sentence which stage the median change spends most of its time in; computed from `per_commit`."""
    if frame.empty:
        return "No commit in this window carries source commit times: nothing can be said about latency."
    weight = frame["changes"] / frame["changes"].sum()
    stages = {
        "waiting for DMS to write its file": (frame["source_to_dms"] * weight).sum(),
        "lying in the bucket until a run picked it up": (frame["dms_to_pickup"] * weight).sum(),
        "being read, merged and committed": (frame["pickup_to_commit"] * weight).sum(),
    }
    worst, seconds = max(stages.items(), key=lambda item: item[1])
    total = sum(stages.values()) or 1.0
    return f"A typical change spends {seconds / total:.0%} of its way ({seconds:.1f} of {total:.1f} s) {worst}."
