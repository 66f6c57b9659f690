"""Figures of the row-delta lane: a small batch into a large table, what it costs more there than in a small one, the index.

They are drawn beside those of the others in `runs/bench/rowdelta.png`.
"""

from __future__ import annotations

from statistics import median

from bench import _baselines
from bench._lake import ROOT, Changes, assert_unique, figure, fill, lake, merge, seconds
from frazil_old.report.chart_style import COLOURS, new_figure, styled

PICTURE = ROOT / "runs/bench/rowdelta.png"
WAYS = {
    "rowdelta_commit": "Frazil, lane rowdelta", "baseline_delta_rs": "delta-rs merge", "merge_lane": "Frazil, lane merge",
    "baseline_merge_on_read": "MERGE INTO, merge-on-read", "baseline_copy_on_write": "MERGE INTO, copy-on-write",
    "baseline_delete_then_merge": "delete, then MERGE INTO", "baseline_pyiceberg": "PyIceberg delete and upsert",
}  # fmt: skip
BATCH, FIRST, WARM_UP = 5_000, 5, 100
"""For about a hundred batches the JVM still compiles what they run through; the first ones also open files."""


def _steps(world, book, table: str, changes: Changes, steps: int) -> list[float]:
    """Write change files one by one, and return the seconds from each until a pass over the table has committed it."""
    timed = []
    for _ in range(steps):
        changes.write(world, table, BATCH)
        timed.append(merge(book)[1])
    assert world.history(table)[0].summary()["frazil.lane"] == book.settings.lane, world.said
    return timed


def _baselines_of(world, label: str, rows: int, files: int) -> list[dict]:
    """Time what others do; the first file is left out where there are more."""
    found = []
    for name, told, apply, repeats in _baselines.all_of(world, rows, files):
        made, folder = Changes(rows, seed=2), world.root / "source/public" / name
        paths = [folder / made.write(world, name, BATCH) for _ in range(repeats + (repeats > 1))]
        timed = [seconds(lambda: apply(path)) for path in paths][-repeats:]  # noqa: B023
        conditions = f"5,000 changes of the same mix into {rows:,} rows; baseline: {told}; median of {repeats}"
        found.append(figure(f"baseline_{name}_s_p50_{label}", median(timed), "s", conditions))
    return found


@styled
def draw(figures: list[dict], rows: int) -> None:
    """Draw the seconds of one batch by each way."""
    taken = {told: f["value"] for way, told in WAYS.items() for f in figures if f["name"].startswith(f"{way}_s_p50")}
    picture, axes = new_figure(f"{BATCH:,} changes into {rows:,} rows, on 2 cores: seconds", height=3.2)
    names = list(reversed(taken))
    colours = [COLOURS[0 if "Frazil" in n else 7] for n in names]
    bars = axes.barh(names, [taken[n] for n in names], color=colours)
    axes.bar_label(bars, [f" {taken[n]:.2g} s" if taken[n] < 10 else f" {taken[n]:.0f} s" for n in names])
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(PICTURE)


def run(quick: bool = False) -> list[dict]:
    """Apply 5,000 changes a time to tables of two sizes by the row-delta lane, and by a MERGE to the large one."""
    small, large, files, repeats, warm_up = (100_000, 400_000, 20, 5, 5) if quick else (1_000_000, 20_000_000, 100, 25, WARM_UP)  # fmt: skip
    few, label = ("100k", "400k") if quick else ("1m", "20m")
    told = f"5,000 changes (80 % updates, 10 % inserts, 10 % deletes, uniform keys), {large:,} rows in over {files} files with deletes from earlier batches"
    timed = {}
    with lake() as world:
        for name, count in (("small", small), ("large", large)):
            fill(world, name, count, files)
            changes, book = Changes(count), world.book(lane="rowdelta", tables=[f"public.{name}"])
            timed[name] = _steps(world, book, name, changes, warm_up + repeats)
        index = book.lanes.open[world.name("large")].locator.index
        bytes_per_row = index.bytes / index.count()
        merged = _steps(world, world.book(lane="merge", tables=["public.large"]), "large", changes, 2 if quick else 4)[1:]  # fmt: skip
        assert_unique(world, "large")
        others = _baselines_of(world, label, large, files)
    late = {name: steps[warm_up:] for name, steps in timed.items()}
    p50, early = median(late["large"]), median(timed["large"][FIRST : FIRST + repeats])
    spread = f"median of {repeats} after {warm_up} batches, at most {max(late['large']):.2f} s; after {FIRST} batches {early:.2f} s"
    index_told = f"BIGINT key, {large:,} rows, the segments of {repeats + warm_up} batches among them; on disk, mapped"
    rows = [
        figure(f"merge_lane_s_p50_{label}", median(merged), "s", f"{told}; Frazil's merge lane; median of {len(merged)}"),
        *others,
        figure(f"rowdelta_commit_s_p50_{label}", p50, "s", f"{told}; whole step; {spread}", 3),
        figure(f"rowdelta_growth_{few}_{label}", p50 / median(late["small"]), "×", f"the same over {small:,} rows in {files} files"),
        figure("index_bytes_per_row", bytes_per_row, "B", index_told, 1),
    ]  # fmt: skip
    draw(rows, large)
    return rows
