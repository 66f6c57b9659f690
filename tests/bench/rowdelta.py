"""Figures of a row delta: a small batch into a large table, what it costs more there than in a small one, for format v3 and v2.

The new room is timed from Arrow to commit, as is `commit_by_index` of the old library, whose whole step from file to commit
the conditions tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from bench._lake import Changes, assert_unique, figure, lake, seconds
from bench._room import New, Old, both, drawn, made, merge_into, p99

BATCH = 5_000


def _merges(world, label: str, rows: int, files: int, times: int) -> list[dict]:
    """Time Spark's MERGE INTO of such batches into a table of each mode; the first one is left out."""
    found = []
    for mode in ("merge-on-read", "copy-on-write"):
        name, changes = mode.replace("-", "_"), Changes(rows, seed=2)
        apply = merge_into(world, made(world, name, rows, files, version=2))
        world.session.sql(f"alter table {world.name(name)} set tblproperties('write.merge.mode'='{mode}')")
        batches = [drawn(changes, BATCH) for _ in range(times + 1)]
        timed = [seconds(partial(apply, some)) for some in batches][1:]
        told = f"5,000 changes of the same mix into {rows:,} rows; one MERGE INTO, {mode}; median of {times}"
        found.append(figure(f"baseline_{name}_s_p50_{label}", median(timed), "s", told))
    return found


def run(quick: bool = False) -> list[dict]:
    """Apply 5,000 changes a time to tables of two sizes, by turns: the new library on both format versions, and the old one."""
    small, large, files, warm_up, repeats = (100_000, 400_000, 20, 10, 10) if quick else (1_000_000, 20_000_000, 100, 100, 25)  # fmt: skip
    few, label = ("100k", "400k") if quick else ("1m", "20m")
    kinds: dict[str, Callable] = {"": New, "_v2": partial(New, version=2), "_old": Old}
    with lake() as world:
        ways = {(s, n): kind(world, f"t{s}_{n}", n, files) for s, kind in kinds.items() for n in (small, large)}
        for _ in range(warm_up + repeats):
            for way in ways.values():
                way.step(BATCH)
        print(*(f"  {s or '_v3'}, {n:,} rows: {w.profile(repeats)}" for (s, n), w in ways.items() if s != "_old"), sep="\n")  # fmt: skip
        assert_unique(world, *(f"t{s}_{large}" for s in kinds))
        others = _merges(world, label, large, files, 1 if quick else 3)
    late, whole = {way: of.taken[warm_up:] for way, of in ways.items()}, median(ways["_old", large].whole[warm_up:])
    told = f"5,000 changes (80 % updates, 10 % inserts, 10 % deletes, uniform keys) from Arrow into {large:,} rows in over {files} files, small files folded each 16th commit; {repeats} by turns after {warm_up}; old: commit_by_index, with listing and reading {whole:.3f} s"
    found, p50, old = [], {way: median(taken) for way, taken in late.items()}, late["_old", large]
    for suffix in ("", "_v2"):
        ratios = [p50[of, large] / p50[of, small] for of in (suffix, "_old")]
        found += both(f"rowdelta_commit{suffix}_s_p50_{label}", p50[suffix, large], median(old), "s", told)
        found += both(f"rowdelta_commit{suffix}_s_p99_{label}", p99(late[suffix, large]), p99(old), "s", told)
        found += both(f"rowdelta_growth{suffix}_{few}_{label}", *ratios, "×", f"the same over {small:,} rows: {p50[suffix, small]:.3f} s", 2)  # fmt: skip
    return found + others
