"""Figures of the row-delta lane: a small batch into a large table, what it costs more there than in a small one, the index.

They are drawn beside those of the others in `runs/bench/rowdelta.png`.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from bench import _baselines
from bench._lake import Changes, fill, lake
from frazil_old.flows.cdc import run as merge
from frazil_old.report.chart_style import COLOURS, new_figure, styled

PICTURE = Path(__file__).parents[2] / "runs/bench/rowdelta.png"
WAYS = {
    "rowdelta_commit": "Frazil, lane rowdelta", "baseline_delta_rs": "delta-rs merge", "merge_lane": "Frazil, lane merge",
    "baseline_merge_on_read": "MERGE INTO, merge-on-read", "baseline_copy_on_write": "MERGE INTO, copy-on-write",
    "baseline_delete_then_merge": "delete, then MERGE INTO", "baseline_pyiceberg": "PyIceberg delete and upsert",
}  # fmt: skip
BATCH, FIRST, WARM_UP = 5_000, 5, 100
"""For about a hundred batches the JVM still compiles what they run through; the first ones also open files."""


def _step(book, world, table: str, changes: Changes) -> float:
    """Write one change file, and return the seconds from there until a pass over the table has committed it."""
    changes.write(world, table, BATCH)
    began = time.perf_counter()
    (done,) = merge(book)
    assert done.status == "merged", done.note
    return time.perf_counter() - began


def _lane(book, world, table: str, changes: Changes, steps: int) -> list[float]:
    lane = book.settings.lane
    timed = [_step(book, world, table, changes) for _ in range(steps)]
    assert world.history(table)[0].summary()["frazil.lane"] == lane, world.said
    return timed


def _baseline(world, label: str, rows: int, name: str, told: str, apply, repeats: int) -> dict:
    made = Changes(rows, seed=2)
    files = [
        world.root / "source/public" / name / made.write(world, name, BATCH) for _ in range(repeats + (repeats > 1))
    ]
    timed = _baselines.timed(apply, files)
    print(f"  baseline {name}: {median(timed):.2f} s", flush=True)
    return {"name": f"baseline_{name}_s_p50_{label}", "value": round(median(timed), 2), "unit": "s",
            "conditions": f"5,000 changes of the same mix into {rows:,} rows; baseline: {told}; median of {len(timed)}"}  # fmt: skip


@styled
def draw(figures: list[dict], rows: int) -> None:
    """Draw the seconds of one batch by each way."""
    seconds = {told: f["value"] for way, told in WAYS.items() for f in figures if f["name"].startswith(f"{way}_s_p50")}
    figure, axes = new_figure(f"{BATCH:,} changes into {rows:,} rows, on 2 cores: seconds", height=3.2)
    names = list(reversed(seconds))
    bars = axes.barh(
        names, [seconds[n] for n in names], color=[COLOURS[0] if "Frazil" in n else COLOURS[7] for n in names]
    )
    axes.bar_label(bars, [f" {seconds[n]:.2g} s" if seconds[n] < 10 else f" {seconds[n]:.0f} s" for n in names])
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE)


def run(quick: bool = False) -> list[dict]:
    """Apply 5,000 changes a time to tables of two sizes by the row-delta lane, and by a MERGE to the large one."""
    small, large, files, repeats, warm_up = (
        (100_000, 400_000, 20, 5, 5) if quick else (1_000_000, 20_000_000, 100, 25, WARM_UP)
    )
    label = f"{large // 1_000_000}m" if large >= 1_000_000 else f"{large // 1000}k"
    told = f"5,000 changes (80 % updates, 10 % inserts, 10 % deletes, uniform keys), {large:,} rows in over {files} files with deletes from earlier batches"
    rows, timed = [], {}
    with lake() as world:
        for name, count in (("small", small), ("large", large)):
            fill(world, name, count, files)
            changes = Changes(count)
            began = time.perf_counter()
            book = world.book(lane="rowdelta", tables=[f"public.{name}"])
            timed[name] = _lane(book, world, name, changes, warm_up + repeats)
            print(f"  {name}: {count:,} rows, {time.perf_counter() - began:.0f} s with the index's start", flush=True)
        index = book.lanes.open[world.name("large")].locator.index
        bytes_per_row = index.bytes / index.count()
        merged = _lane(world.book(lane="merge", tables=["public.large"]), world, "large", changes, 2 if quick else 4)[
            1:
        ]
        rows.append({"name": f"merge_lane_s_p50_{label}", "value": round(median(merged), 2), "unit": "s",
                     "conditions": f"{told}; Frazil's merge lane; median of {len(merged)}"})  # fmt: skip
        counted = world.spark.table(world.name("large")).selectExpr("count(*) n", "count(distinct id) k").first()
        assert counted.n == counted.k, counted
        rows += [_baseline(world, label, large, *b) for b in _baselines.all_of(world, large, files)]
    late = {name: steps[warm_up:] for name, steps in timed.items()}
    p50, early = median(late["large"]), median(timed["large"][FIRST : FIRST + repeats])
    spread = f"median of {repeats} after {warm_up} batches, at most {max(late['large']):.2f} s; after {FIRST} batches {early:.2f} s"
    rows += [
        {"name": f"rowdelta_commit_s_p50_{label}", "value": round(p50, 3), "unit": "s", "conditions": f"{told}; whole step; {spread}"},
        {"name": f"rowdelta_growth_{small // 1_000_000 or small // 1000}{'m' if small >= 1_000_000 else 'k'}_{label}",
         "value": round(p50 / median(late["small"]), 2), "unit": "×", "conditions": f"the same over {small:,} rows in {files} files"},
        {"name": "index_bytes_per_row", "value": round(bytes_per_row, 1), "unit": "B",
         "conditions": f"BIGINT key, {large:,} rows, the segments of {repeats + warm_up} batches among them; on disk, mapped"},
    ]  # fmt: skip
    draw(rows, large)
    return rows
