"""Figures: what a commit costs after very many commits over what it cost around the hundredth, and the metadata that it writes."""

from __future__ import annotations

from statistics import median

from bench._lake import Changes, fill, lake, merge, seconds
from bench._room import both, drawn, made, opened, parts
from frazil.iceberg import upkeep
from frazil_old.config.settings import MaintenanceSettings
from frazil_old.flows import maintenance

CHANGES = 200


def run(quick: bool = False) -> list[dict]:
    """Commit back to back, both libraries by turns; medians of 50 commits at the end and of 100 around the hundredth (quick: 5 and 10)."""
    rows, commits, every, window = (20_000, 60, 20, 5) if quick else (200_000, 5_000, 200, 50)
    changes, old_changes, middle = Changes(rows), Changes(rows, seed=3), 2 * window
    new, old, taken, largest = [], [], [], 0
    with lake() as world:
        room = opened(world, made(world, "new", rows, 4))
        fill(world, "t", rows, 4)
        book = world.book(lane="rowdelta", tables=["public.t"])
        care = world.book(MaintenanceSettings, dry_run=False, keep_hours=0.02, max_small_files=20)
        for number in range(1, commits + 1):
            latest = drawn(changes, CHANGES)
            with parts() as some:
                new.append(seconds(lambda: room.commit(latest)))  # noqa: B023
            taken.append(some)
            largest = max(largest, room.table.metadata_bytes)
            room.care()
            upkeep.expire_if_large(room.table, 0.02)
            old_changes.write(world, "t", CHANGES)
            old.append(merge(book)[1])
            if number % every == 0:
                (kept,) = maintenance.run(care)
                assert not kept.failed, kept.note
                ms = ", ".join(f"{part} {1000 * median(t[part] for t in taken[-50:]):.0f}" for part in taken[-1])
                print(f"  {number} commits: {median(new[-50:]):.3f} s ({ms} ms), {room.table.snapshots} snapshots in {room.table.metadata_bytes >> 10} kB, {len(room.table.live_files)} files; old {median(old[-50:]):.3f} s", flush=True)  # fmt: skip
    early, late, old_early, old_late = (f(s) for s in (new, old) for f in (lambda s: median(s[middle - window : middle + window]), lambda s: median(s[-window:])))  # fmt: skip
    told = f"{CHANGES} changes a commit, {rows:,} rows, fold each 16th, expiry above 2 MB; {early:.3f} s around commit {middle}, {late:.3f} s around {commits:,}; old: from file to commit, maintenance each {every}, {old_early:.3f} and {old_late:.3f} s"  # fmt: skip
    return [
        *both(f"commit_{commits}_vs_{middle}", late / early, old_late / old_early, "×", told, 2),
        *both("growth_metadata_mb", largest / 1e6, None, "MB", told, 2),
    ]
