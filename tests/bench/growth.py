"""Figure: what a commit costs after very many commits over what it cost after the first hundred, maintenance on."""

from __future__ import annotations

from statistics import median

from bench._lake import fill, lake, many_commits


def run(quick: bool = False) -> list[dict]:
    """Commit back to back; the medians of 50 commits at the end and of 100 around the hundredth are compared (quick: 5 and 10)."""
    rows, commits, every = (20_000, 40, 20) if quick else (200_000, 10_000, 200)
    with lake() as world:
        fill(world, "t", rows, 4)
        timed = many_commits(world, "t", rows, commits, 50, every)
    window = 5 if quick else 50
    middle = 2 * window
    early, late = median(timed[middle - window : middle + window]), median(timed[-window:])
    told = f"50 changes a commit, {rows:,} rows, maintenance every {every} commits; {early:.3f} s around commit {middle}, {late:.3f} s around commit {commits:,}"
    name = f"commit_{commits}_vs_{middle}"
    return [{"name": name, "value": round(late / early, 2), "unit": "×", "conditions": told}]
