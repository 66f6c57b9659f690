"""Latency from source commit to committed rows, read from the sketches that ride in the snapshot summaries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


def _file_time(name: str) -> float:
    digits = name.split(".")[0].replace("-", "")
    return datetime.strptime(digits[:17] + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC).timestamp()


def stage_sketch(commit_us: Sequence[int] | None, changes: int, files: Sequence[Any], picked_up: float) -> str:
    """Return the JSON sketch of one batch: quantiles of source commit times, when DMS wrote, when it was picked up.

    All times are milliseconds; those of the source are told as their distance before `picked_up`, so the sketch stays small.
    """
    at = round(picked_up * 1000)
    ages = [at - us // 1000 for us in commit_us] if commit_us else []
    written = [at - round(_file_time(f.name) * 1000) for f in (files[0], files[-1])]
    return json.dumps({"v": 1, "n": changes, "picked_up": at, "age": ages, "written": written}, separators=(",", ":"))
