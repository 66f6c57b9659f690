"""Figures of a row delta: a small batch into a large table, what it costs more there than in a small one, for format v3 and v2.

The new room is timed from Arrow to commit, as is `commit_by_index` of the old library, whose whole step from file to commit
the conditions tell. All are drawn beside what others do in `runs/bench/rowdelta.png`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from statistics import median
from unittest.mock import patch

from bench import _baselines
from bench._lake import ROOT, Changes, assert_unique, figure, fill, lake, merge, seconds
from bench._room import both, cpu_s, drawn, made, opened, p99, parts, timed
from frazil_old.lake.row_delta import RowDelta
from frazil_old.report.chart_style import COLOURS, new_figure, styled

PICTURE = ROOT / "runs/bench/rowdelta.png"
WAYS = {
    "rowdelta_commit": "Frazil", "rowdelta_commit_old": "Frazil, old library", "baseline_delta_rs": "delta-rs merge",
    "baseline_merge_on_read": "MERGE INTO, merge-on-read", "baseline_copy_on_write": "MERGE INTO, copy-on-write",
    "baseline_delete_then_merge": "delete, then MERGE INTO", "baseline_pyiceberg": "PyIceberg delete and upsert",
}  # fmt: skip
BATCH = 5_000


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
    taken = {t: f["value"] for w, t in WAYS.items() for f in figures if f["name"].replace("_s_p50_20m", "") == w}
    picture, axes = new_figure(f"{BATCH:,} changes into {rows:,} rows, on 2 cores: seconds", height=3.2)
    names = list(reversed(taken))
    colours = [COLOURS[0 if "Frazil" in n else 7] for n in names]
    bars = axes.barh(names, [taken[n] for n in names], color=colours)
    axes.bar_label(bars, [f" {taken[n]:.2g} s" if taken[n] < 10 else f" {taken[n]:.0f} s" for n in names])
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(PICTURE)


class _New:
    """A table of the new library: seconds of each step, and of its parts."""

    def __init__(self, world, rows: int, files: int, version: int):
        self.room = opened(world, made(world, f"new{version}_{rows}", rows, files, version))
        self.changes, self.steps, self.parts = Changes(rows), [], []

    def step(self) -> None:
        latest, before = drawn(self.changes, BATCH), cpu_s()
        with parts() as taken:
            self.steps.append(seconds(lambda: self.room.commit(latest)))
        self.parts.append(taken | {"CPU": cpu_s() - before})
        self.room.care()

    def profile(self, late: int) -> str:
        ms = {label: 1000 * median(p[label] for p in self.parts[-late:]) for label in self.parts[0]}
        return (
            ", ".join(f"{label} {m:.1f}" for label, m in ms.items()) + f" ms; {len(self.room.table.live_files)} files"
        )


class _Old:
    """A table of the old library: seconds of `commit_by_index` in each step, and of the whole step from file to commit."""

    def __init__(self, world, rows: int, files: int, _: int):
        fill(world, f"old_{rows}", rows, files)
        self.world, self.name, self.book = world, f"old_{rows}", world.book(lane="rowdelta", tables=[f"public.old_{rows}"])  # fmt: skip
        self.changes, self.steps, self.whole = Changes(rows), [], []

    def step(self) -> None:
        self.changes.write(self.world, self.name, BATCH)
        taken: Counter = Counter()
        with patch.object(RowDelta, "commit_by_index", timed(RowDelta.commit_by_index, taken, "commit")):
            self.whole.append(merge(self.book)[1])
        self.steps.append(taken["commit"])


def run(quick: bool = False) -> list[dict]:
    """Apply 5,000 changes a time to tables of two sizes, by turns: the new library on both format versions, and the old one."""
    small, large, files, warm_up, repeats = (100_000, 400_000, 20, 10, 10) if quick else (1_000_000, 20_000_000, 100, 100, 50)  # fmt: skip
    few, label = ("100k", "400k") if quick else ("1m", "20m")
    with lake() as world:
        kinds = {"": partial(_New, version=3), "_v2": partial(_New, version=2), "_old": partial(_Old, _=0)}
        ways = {(s, rows): kind(world, rows, files) for s, kind in kinds.items() for rows in (small, large)}
        for _ in range(warm_up + repeats):
            for way in ways.values():
                way.step()
        assert_unique(world, *(f"{n}_{large}" for n in ("new3", "new2", "old")))
        for (suffix, rows), way in ways.items():
            if suffix != "_old":
                print(f"  v{2 if suffix else 3}, {rows:,} rows: {way.profile(repeats)}")
        others = [] if quick else _baselines_of(world, label, large, files)
    late = {way: of.steps[warm_up:] for way, of in ways.items()}
    whole = median(ways["_old", large].whole[warm_up:])
    told = f"5,000 changes (80 % updates, 10 % inserts, 10 % deletes, uniform keys) from Arrow into {large:,} rows in over {files} files, small files folded each 16th commit; {repeats} by turns after {warm_up}; old: commit_by_index, with listing and reading {whole:.3f} s"  # fmt: skip
    found = []
    for suffix in ("", "_v2"):
        old = {rows: late["_old", rows] for rows in (small, large)}
        p50 = {key: median(steps) for key, steps in late.items()}
        ratios = p50[suffix, large] / p50[suffix, small], p50["_old", large] / p50["_old", small]
        new = late[suffix, large]
        found += both(f"rowdelta_commit{suffix}_s_p50_{label}", median(new), median(old[large]), "s", told)
        found += both(f"rowdelta_commit{suffix}_s_p99_{label}", p99(new), p99(old[large]), "s", told)
        found += both(f"rowdelta_growth{suffix}_{few}_{label}", *ratios, "×", f"the same over {small:,} rows: {p50[suffix, small]:.3f} s", 2)  # fmt: skip
    draw([*others, *found], large)
    return found + others
