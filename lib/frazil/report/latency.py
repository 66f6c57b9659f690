"""The latency sketch of a batch: measured in the batch's own job, stored in its snapshot's summary.

A sketch has points of a distribution at fixed shares. It is not a KLL or a t-digest: Spark 3.5 has no SQL functions for
these. One of useful size would also exceed the half kilobyte that each kept summary can afford. `analysis` merges
sketches.
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
"""The quantiles kept of delays per change."""
OF_FILES = (0.0, 0.5, 0.95, 0.99, 1.0)
"""The quantiles kept of delays per file."""
AGE = "- unix_millis(commit_ts)"
P50, P99 = QUANTILES.index(0.5), QUANTILES.index(0.99)


def shares(points: Sequence[float]) -> tuple[float, ...]:
    """Return the share of the changes that each point represents: those nearest to it."""
    edges = [0.0, *((a + b) / 2 for a, b in zip(points, points[1:], strict=False)), 1.0]
    return tuple(b - a for a, b in zip(edges, edges[1:], strict=False))


def measures(written_at: str = "") -> list[Column]:
    """Return the aggregates that a batch observes of its changes: quantiles of two delays in milliseconds, as JSON arrays.

    `age`: source commit → 1970, see `picked_up`. `dms`: source commit → DMS wrote. Both are null if DMS writes no
    timestamp column. `written_at`: the SQL of an object's write time, for the changes of a `sample`; the least and the
    greatest `age` still cover all changes.
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
    """Return changes with the `age` of each `every`th one, and without `written_at`.

    A sample is enough for many changes, and finding each file's write time takes longer than ordering the changes.
    `measures` finds it for the sample. Next to the casts it would make a method of more than 8,000 bytes, which no JVM
    compiles.
    """
    from pyspark.sql import functions as F

    return changes.withColumn("age", F.expr(f"if(row_no % {every} = 0, {AGE}, null)")).drop("written_at")


def picked_up(observed: dict[str, Any], at: float) -> dict[str, Any]:
    """Return a batch's observations with `age` as source commit → picked up `at`; its plan cannot know that time."""
    points = json.loads(observed["age"] or "null")
    return {**observed, "age": points and json.dumps([p + round(at * 1000) for p in points])}


def _points(delays: list[tuple[float, int]]) -> list[int]:
    """Return the quantiles of weighted delays (given in seconds), in milliseconds."""
    if not delays:
        return []
    ordered = sorted(delays)
    reached = list(accumulate(weight for _, weight in ordered))
    return [round(ordered[bisect_left(reached, share * reached[-1])][0] * 1000) for share in OF_FILES]


def sketch(observed: dict[str, Any], picked_up: float, files: Sequence[DmsObject] = ()) -> str:
    """Return the sketch of one batch as JSON, about half a kilobyte: every kept snapshot's summary contains one.

    Call it as soon as the batch is read and collapsed: `read` is the time since pickup. `land` (file written → landed)
    and `wait` (landed → picked up) are weighted by the files' bytes. Files of streams have no such times.
    """
    facts = {"v": 2, "n": observed["changes"], "picked_up": round(picked_up * 1000)}
    facts["read"] = round((time.time() - picked_up) * 1000)
    delays: dict[str, list[int]] = {name: json.loads(observed[name] or "[]") for name in ("age", "dms")}
    timed = [(f.landed - moment(f.name).replace(tzinfo=UTC).timestamp(), f) for f in files if f.landed]
    delays["land"] = _points([(late, max(f.size, 1)) for late, f in timed])
    delays["wait"] = _points([(picked_up - f.landed, max(f.size, 1)) for _, f in timed])
    return json.dumps({**facts, **delays}, separators=(",", ":"))


def lag(observed: dict[str, Any], since_pick_up_s: float) -> dict[str, float]:
    """Return p50 and p99 of source commit → table commit over one batch, in seconds; empty without a timestamp column."""
    age = json.loads(observed["age"] or "[]")
    return {f"lag_{n}_s": age[i] / 1000 + since_pick_up_s for n, i in (("p50", P50), ("p99", P99)) if age}
