"""Figure: what a commit costs while a warehouse that takes 2 s to refresh follows, over what it costs without one."""

from __future__ import annotations

from statistics import median

from bench._lake import Changes, figure, fill, lake, merge
from fake_driver import SERVERS, SNOW, FakeServer

REFRESH_S, BATCH, WARM_UP = 2.0, 50, 20


def _gaps(world, changes: Changes, commits: int, warehouses: dict) -> list[float]:
    """Apply change files one by one in one run; return the seconds between its commits."""
    for _ in range(commits):
        changes.write(world.source, "t", BATCH)
    world.settings["warehouses"] = warehouses
    done, _ = merge(world.book(lane="rowdelta", max_batch_files=1))
    assert done.counts["batches"] == commits, done.note
    # The last commits of the history, newest first; those of other kinds are none of a run like this.
    times = [s.timestamp_ms / 1000 for s in world.history("t")[:commits]]
    return [newer - older for newer, older in zip(times, times[1:], strict=False)]


def run(quick: bool = False) -> list[dict]:
    """Take turns: runs with a warehouse and runs without one, 1,000 commits each; compare the medians of the time between commits."""
    rows, commits, turns = (20_000, 20, 2) if quick else (200_000, 100, 10)
    gaps: dict[str, list[float]] = {"without": [], "with": []}
    declared = {"without": {}, "with": {"snow": {**SNOW, "credential": "glue_reader", "refresh_wait_s": 0}}}
    server = SERVERS["fake"] = FakeServer(answers=[("REFRESH$", REFRESH_S)])
    with lake() as world:
        fill(world, "t", rows, 4)
        changes = Changes(rows)
        _gaps(world, changes, WARM_UP, {})
        for _ in range(turns):
            for name, found in gaps.items():
                found += _gaps(world, changes, commits, declared[name])
    refreshes = sum(s.endswith("REFRESH") for s in server.sent)
    assert refreshes and server.most_in_flight == 1
    without, beside = (median(found) for found in gaps.values())
    told = (
        f"{BATCH} changes a commit into {rows:,} rows; a driver that answers a refresh after {REFRESH_S:g} s; "
        f"{without:.3f} s without, {beside:.3f} s with it; medians of {len(gaps['with'])}; {refreshes} refreshes, one at a time, "
        f"for {commits * turns:,} commits, {len(gaps['with']) / sum(gaps['with']):.1f} a second"
    )
    return [figure("commit_with_refresh_ratio", beside / without, "×", told, 3)]
