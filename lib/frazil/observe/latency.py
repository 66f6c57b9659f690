"""The latency sketch of a batch: measured in the batch's own job, kept in its snapshot's summary.

A sketch is points of a distribution at fixed shares, not a KLL or a t-digest: Spark 3.5 has none of these as SQL functions,
and one of useful size is above the half kilobyte that may ride in every retained summary. `analysis` merges them.
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
    from pyspark.sql import Column, DataFrame

    from frazil.dms.objects import DmsObject

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""The points kept of delays that each change has."""
OF_FILES = (0.0, 0.5, 0.95, 0.99, 1.0)
"""The points kept of delays that each file has."""
AGE = "- unix_millis(commit_ts)"
P50, P99 = QUANTILES.index(0.5), QUANTILES.index(0.99)


def shares(points: Sequence[float]) -> tuple[float, ...]:
    """Return which share of the changes each point stands for: those nearest to it."""
    edges = [0.0, *((a + b) / 2 for a, b in zip(points, points[1:], strict=False)), 1.0]
    return tuple(b - a for a, b in zip(edges, edges[1:], strict=False))


def measures(written_at: str = "") -> list[Column]:
    """Return the aggregates that a batch observes of its changes: quantiles of two delays, in milliseconds, as JSON arrays.

    `age`: source commit → 1970, see `picked_up`; `dms`: source commit → DMS wrote. Null where DMS writes no timestamp column.
    `written_at`: of the changes of a `sample`, with the SQL of when an object was written; but the least and the greatest
    `age` are of all changes.
    """
    from pyspark.sql import functions as F

    age, dms = AGE, f"unix_millis(written_at) {AGE}"
    if written_at:
        age, dms = "age", f"if(age is null, null, unix_millis({written_at}) + age)"
    points = f"array({', '.join(f'{q}D' for q in QUANTILES)})"
    of_age, of_dms = (f"percentile_approx({delay}, {points}, 1000)" for delay in (age, dms))
    if written_at:
        of_age = f"concat(array(min({AGE})), slice({of_age}, 2, {len(QUANTILES) - 2}), array(max({AGE})))"
    return [F.expr(f"to_json({of_age}) as age"), F.expr(f"to_json({of_dms}) as dms")]


def sample(changes: DataFrame, every: int) -> DataFrame:
    """Return changes with the `age` of each `every`th, and without `written_at`.

    Of many changes some are enough, and to work out for each when its file was written takes longer than to order them. For
    these `measures` does it: beside the casts it would make a method of more than 8,000 bytes, which no JVM compiles.
    """
    from pyspark.sql import functions as F

    return changes.withColumn("age", F.expr(f"if(row_no % {every} = 0, {AGE}, null)")).drop("written_at")


def picked_up(observed: dict[str, Any], at: float) -> dict[str, Any]:
    """Return what a batch observed, with `age` as source commit → picked up `at`: its plan does not know when that will be."""
    points = json.loads(observed["age"] or "null")
    return {**observed, "age": points and json.dumps([p + round(at * 1000) for p in points])}


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
