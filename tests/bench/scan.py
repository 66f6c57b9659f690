"""Figure: a full scan after an hour's worth of commits, with maintenance, over one of the same table freshly compacted."""

from __future__ import annotations

from bench._lake import fill, lake, many_commits, scan_s


def run(quick: bool = False) -> list[dict]:
    """Make 1,200 commits (an hour at a trigger of 3 s, here back to back), scan, rewrite everything, scan again."""
    rows, commits, every = (200_000, 20, 10) if quick else (5_000_000, 1_200, 60)
    with lake() as world:
        fill(world, "t", rows, 12)
        many_commits(world, "t", rows, commits, 600, every)
        after = scan_s(world, "t")
        world.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")
        fresh = scan_s(world, "t")
    told = f"{rows:,} rows, {commits:,} commits of 600 changes back to back, maintenance every {every}; {after:.2f} s over {fresh:.2f} s"
    return [{"name": "scan_after_hour", "value": round(after / fresh, 2), "unit": "×", "conditions": told}]
