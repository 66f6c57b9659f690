"""Delays as histograms: counts by duration, in steps of 12 %, which a reader adds up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

STEP = 1.12
"""How much longer the delays of a bucket are than those of the one before. A quantile is right within 6 %."""
SHORTEST_S = 0.001
NEGATIVE = -1
"""The bucket of delays below zero, which show that clocks differ."""


def histogram(seconds: np.ndarray) -> dict[int, int]:
    """Return how many delays, in seconds, are in each bucket; NaN is no delay. Histograms are added by bucket."""
    known = seconds[~np.isnan(seconds)]
    buckets = np.round(np.log(np.maximum(known, SHORTEST_S) / SHORTEST_S) / np.log(STEP))
    counts = np.bincount(np.where(known < 0, NEGATIVE, buckets).astype(int) - NEGATIVE)
    found = np.flatnonzero(counts)
    return dict(zip((found + NEGATIVE).tolist(), counts[found].tolist(), strict=True))


def seconds_of(bucket: int) -> float:
    """Return the delay, in seconds, for which a bucket stands."""
    return 0.0 if bucket == NEGATIVE else SHORTEST_S * STEP**bucket


def quantile(counts: Mapping[int, int], share: float) -> float:
    """Return the delay, in seconds, that a share of changes do not exceed; NaN of none."""
    buckets = sorted(counts)
    upto = np.cumsum([counts[bucket] for bucket in buckets])
    return seconds_of(buckets[int(np.searchsorted(upto, share * upto[-1]))]) if buckets else float("nan")
