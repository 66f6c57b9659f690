"""Figures of a large batch into a large table: the row delta after a scan of the keys, beside Spark's MERGE INTO of the same changes."""

from __future__ import annotations

from statistics import median

from bench._lake import NAMES, Changes, fill, lake, lane_of, merge
from bench._room import PARTS, both, drawn, made, merge_into, opened, spent, timed
from frazil_old.lake import lane_choice


def run(quick: bool = False) -> list[dict]:
    """Apply the same changes by turns: the new library without segments, MERGE INTO, and the old library's scan of a CSV file."""
    rows, count, repeats = (1_000_000, 50_000, 1) if quick else (20_000_000, 1_000_000, 3)
    lane_choice.MOST_MB = 1
    with lake() as world:
        room, by_merge = (
            opened(world, made(world, "new", rows, 20), segments=False),
            merge_into(world, made(world, "merged", rows, 20)),
        )
        fill(world, "old", rows, 20)
        book = world.book(lane="auto", tables=["public.old"], max_batch_mb=1024)
        changes, same = Changes(rows, seed=7), Changes(rows, seed=7)

        ways = {"new": lambda: room.commit(latest), "merge": lambda: by_merge(latest), "old": lambda: merge(book)}
        used: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(repeats + 1):
            latest = drawn(changes, count)
            same.write(world.source, "old", count)
            with timed(**PARTS) as parts:
                for way, apply in ways.items():
                    used[way].append(spent(apply))
            print("  by turns:", {way: [round(s, 1) for s in t[-1]] for way, t in used.items()}, "s and CPU s; new:", {p: round(s, 1) for p, s in parts.items()}, flush=True)  # fmt: skip
        assert lane_of(world, "old") == "scan", world.said
        sums = [world.session.table(world.name(t)).where("id > 0").selectExpr("count(*)", f"bit_xor(xxhash64({', '.join(NAMES)}))").first() for t in ("new", "merged", "old")]  # fmt: skip
        assert len({*sums}) == 1, sums
    (new, cpu), (by_spark, cpu_spark), (old, cpu_old) = ([median(each) for each in zip(*t[1:], strict=True)] for t in used.values())  # fmt: skip
    told = f"{count:,} changes into {rows:,} rows, from Arrow by a scan; MERGE INTO from Parquet {by_spark:.1f} s; old: whole step, from CSV; median of {repeats} by turns after one"
    return [
        *both("bulk_batch_s", new, old, "s", told, 2),
        *both("bulk_vs_merge", new / by_spark, old / by_spark, "×", told),
        *both("bulk_cpu_vs_merge", cpu / cpu_spark, cpu_old / cpu_spark, "×", told),
    ]
