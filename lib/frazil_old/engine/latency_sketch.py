"""The sketch of a batch's delays: points of their distribution, measured while it is read, for its snapshot's summary.

The points are at fixed shares. It is not a KLL or a t-digest: Spark 3.5 has no SQL functions for these. One of useful
size would also exceed the half kilobyte that each kept summary can afford.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from frazil_old.dms.endpoint import DatePartition
    from frazil_old.dms.listing import DmsObject


QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""The quantiles kept of delays per change."""
OF_FILES = (0.0, 0.5, 0.95, 0.99, 1.0)
"""The quantiles kept of delays per file."""
P50, P99 = QUANTILES.index(0.5), QUANTILES.index(0.99)
SAMPLED = 250_000
"""About this many changes count for the quantiles of delays; of n times as many, every n-th."""
BYTES_A_CHANGE = 64


class Ages:
    """Two delays of changes in milliseconds.

    `age` is the negative commit time; `with_age_at_pickup` adds the time of the pickup to it. `dms` is source commit → DMS
    wrote the file or built the message. Every `every`-th change counts; but the minimum and the maximum of `age` cover
    all.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.age: list[np.ndarray] = []
        self.dms: list[np.ndarray] = []
        self.ends: list[int] = []

    def add(self, block: pa.RecordBatch, written_at_s: float | np.ndarray) -> None:
        """Add changes, which DMS wrote at one time or each at its own; NaN is an unknown time."""
        import numpy as np
        import pyarrow as pa

        times = block["commit_ts"]
        known = times.is_valid().to_numpy(zero_copy_only=False)
        if not known.any():
            return
        committed_ms = np.floor_divide(times.drop_null().cast(pa.int64()).to_numpy(), 1000)
        self.ends += [-int(committed_ms.max()), -int(committed_ms.min())]
        written_ms = np.round(np.broadcast_to(written_at_s, len(known))[known] * 1000)[:: self.every]
        committed_ms = committed_ms[:: self.every]
        self.age.append(-committed_ms)
        known_time = ~np.isnan(written_ms)
        self.dms.append(written_ms[known_time].astype("int64") - committed_ms[known_time])

    def add_part(self, part: Ages) -> None:
        """Add the delays of a part of the batch."""
        self.age += part.age
        self.dms += part.dms
        self.ends += part.ends

    def points(self) -> dict[str, str | None]:
        """Return the points of both as JSON arrays; None if no change has a commit time."""
        age = _points(self.age)
        if age:
            age[0], age[-1] = min(self.ends), max(self.ends)
        dms = _points(self.dms)
        return {"age": json.dumps(age) if age else None, "dms": json.dumps(dms) if dms else None}


def _points(delays: list[np.ndarray]) -> list[int]:
    import numpy as np

    ordered = np.sort(np.concatenate(delays)) if delays else np.array([])
    if not len(ordered):
        return []
    places = [max(math.ceil(q * len(ordered)), 1) - 1 for q in QUANTILES]
    return [int(ordered[p]) for p in places]


def every_of(size: int) -> int:
    """Return that every n-th change in files of this size counts for the delays."""
    return max(1, size // BYTES_A_CHANGE // SAMPLED)


def with_age_at_pickup(observed: dict[str, Any], at: float) -> dict[str, Any]:
    """Return a batch's observations with `age` as source commit → picked up `at`."""
    points = json.loads(observed["age"] or "null")
    return {**observed, "age": points and json.dumps([p + round(at * 1000) for p in points])}


def _quantiles(delays: list[tuple[float, int]]) -> list[int]:
    """Return the quantiles of weighted delays (given in seconds), in milliseconds."""
    if not delays:
        return []
    ordered = sorted(delays)
    reached = list(accumulate(weight for _, weight in ordered))
    return [round(ordered[bisect_left(reached, share * reached[-1])][0] * 1000) for share in OF_FILES]


def sketch(observed: dict[str, Any], picked_up: float, files: Sequence[DmsObject], named_by: DatePartition) -> str:
    """Return the sketch of one batch as JSON, about half a kilobyte: every kept snapshot's summary contains one.

    Call it as soon as the batch is read and collapsed: `read` is the time since pickup. `land` (file written → landed)
    and `wait` (landed → picked up) are weighted by the files' bytes. Files of streams have no such times. The settings
    `named_by` say in which time zone files are named.
    """
    facts = {"picked_up": round(picked_up * 1000), "read": round((time.time() - picked_up) * 1000)}
    delays: dict[str, list[int]] = {name: json.loads(observed[name] or "[]") for name in ("age", "dms")}
    timed = [(f.landed - named_by.written_s(f.name), f) for f in files if f.landed]
    delays["land"] = _quantiles([(late, max(f.size, 1)) for late, f in timed])
    delays["wait"] = _quantiles([(picked_up - f.landed, max(f.size, 1)) for _, f in timed])
    return json.dumps({**facts, **delays}, separators=(",", ":"))


def source_to_commit(observed: dict[str, Any], since_pick_up_s: float) -> dict[str, float]:
    """Return p50 and p99 of source commit → table commit over one batch, in seconds; empty without a timestamp column."""
    age = json.loads(observed["age"] or "[]")
    return {f"lag_{n}_s": age[i] / 1000 + since_pick_up_s for n, i in (("p50", P50), ("p99", P99)) if age}
