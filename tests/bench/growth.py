"""Figure: what a commit costs after very many commits over what it cost after the first hundred, maintenance on."""

from __future__ import annotations

from statistics import median

from bench._lake import Changes, figure, fill, lake, merge
from frazil_old.config.settings import MaintenanceSettings
from frazil_old.flows import maintenance


def run(quick: bool = False) -> list[dict]:
    """Commit back to back; the medians of 50 commits at the end and of 100 around the hundredth are compared (quick: 5 and 10)."""
    rows, commits, every, window = (20_000, 40, 20, 5) if quick else (200_000, 10_000, 200, 50)
    timed, changes, middle = [], Changes(rows, seed=3), 2 * window
    with lake() as world:
        fill(world, "t", rows, 4)
        book = world.book(lane="rowdelta")
        care = world.book(MaintenanceSettings, dry_run=False, keep_hours=0.02, max_small_files=20)
        for number in range(1, commits + 1):
            changes.write(world, "t", 50)
            timed.append(merge(book)[1])
            if number % every == 0:
                (kept,) = maintenance.run(care)
                assert not kept.failed, kept.note
                print(f"  {number} commits, the last ones {median(timed[-20:]):.2f} s; {kept.note}", flush=True)
    early, late = median(timed[middle - window : middle + window]), median(timed[-window:])
    told = f"50 changes a commit, {rows:,} rows, maintenance every {every} commits; {early:.3f} s around commit {middle}, {late:.3f} s around commit {commits:,}"
    return [figure(f"commit_{commits}_vs_{middle}", late / early, "×", told)]
