"""Tags of the states at full hours and days (`hour_…`, `day_…`), which keep them from expiring."""

from __future__ import annotations

import time

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.lake.snapshot_log import KeptSnapshots

HOUR_MS = 3_600_000


def states_to_tag(kept: KeptSnapshots, s: MaintenanceSettings) -> list[tuple[str, int, int]]:
    """Return the last states of full hours and days (UTC) without a tag: tag, snapshot, and how long to keep it, in ms."""
    now_ms, main = time.time() * 1000, {snapshot.id for snapshot in kept.chain(kept.newest)}
    kinds = [
        ("hour_%Y%m%dT%H", HOUR_MS, s.hourly_tags * HOUR_MS),
        ("day_%Y%m%d", 24 * HOUR_MS, s.daily_tags * 24 * HOUR_MS),
    ]
    found: list[tuple[str, int, int]] = []
    for pattern, unit_ms, keep in kinds:
        last: dict[str, int] = {}
        for at, snapshot in kept.log:  # in order of time: the last one of a unit stays
            is_over = at // unit_ms < now_ms // unit_ms
            if is_over and at > now_ms - keep and snapshot in main:
                last[time.strftime(pattern, time.gmtime(at / 1000))] = snapshot
        found += [(tag, snapshot, keep) for tag, snapshot in last.items() if tag not in kept.tags]
    return found
