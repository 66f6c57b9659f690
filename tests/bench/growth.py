"""Figures: what a commit costs after very many commits over what it cost around the hundredth, and the metadata that it writes."""

from __future__ import annotations

from statistics import median

from bench._lake import lake
from bench._room import New, Old, both
from frazil.iceberg import expiry
from frazil_old.flows import maintenance

CHANGES = 200


def run(quick: bool = False) -> list[dict]:
    """Commit back to back, both libraries by turns; medians of 50 commits at the end and of 100 around the hundredth (quick: 5 and 10)."""
    rows, commits, every, window = (20_000, 60, 20, 5) if quick else (200_000, 5_000, 200, 50)
    middle, largest = 2 * window, 0
    with lake() as world:
        new, old = New(world, "new", rows, 4), Old(world, "old", rows, 4)
        care = world.book("maintenance", dry_run=False, keep_hours=0.02, max_small_files=20)
        for number in range(1, commits + 1):
            new.step(CHANGES)
            largest = max(largest, new.room.table.metadata_bytes)
            expiry.wants_expiry(new.room.table, 0.02) and expiry.expire(new.room.table, 0.02)
            old.step(CHANGES)
            if number % every == 0:
                (kept,) = maintenance.run(care)
                assert not kept.failed, kept.note
                print(f"  {number} commits: {median(new.taken[-50:]):.3f} s ({new.profile(50)}); old {median(old.whole[-50:]):.3f} s", flush=True)  # fmt: skip
    times = [(median(s[middle - window : middle + window]), median(s[-window:])) for s in (new.taken, old.whole)]
    (early, late), (old_early, old_late) = times
    told = f"{CHANGES} changes a commit, {rows:,} rows, fold each 16th, expiry above 1 MB; {early:.3f} s around commit {middle}, {late:.3f} s around {commits:,}; old: from file to commit, maintenance each {every}, {old_early:.3f} and {old_late:.3f} s"
    return [
        *both(f"commit_{commits}_vs_{middle}", late / early, old_late / old_early, "×", told, 2),
        *both("growth_metadata_mb", largest / 1e6, None, "MB", told, 2),
    ]
