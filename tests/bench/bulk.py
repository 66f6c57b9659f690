"""Figures of a large batch into a large table: the row delta after a scan of the keys, beside Spark's MERGE INTO of the same changes."""

from __future__ import annotations

from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from bench._baselines import upsert
from bench._lake import NAMES, Changes, fill, lake, merge
from bench._room import both, drawn, made, opened, spent
from bench._room import parts as parts_of
from frazil.core.latest import Latest
from frazil_old.lake import lane_choice


def _as_file(batch: Latest, place: str) -> None:
    """Write changes as MERGE takes them."""
    rows = batch.rows.append_column("op", pa.repeat("U", len(batch.rows)))
    gone = batch.keys.filter(pa.array(batch.deleted))
    gone = gone.append_column("op", pa.repeat("D", len(gone)))
    pq.write_table(pa.concat_tables([rows, gone], promote_options="default"), place)


def run(quick: bool = False) -> list[dict]:
    """Apply the same changes by turns: the new library without segments, MERGE INTO, and the old library's scan of a CSV file."""
    rows, count, repeats = (1_000_000, 50_000, 1) if quick else (20_000_000, 1_000_000, 3)
    lane_choice.MOST_MB = 1
    with lake() as world:
        room, merged = (
            opened(world, made(world, "new", rows, 20), segments=False),
            f"lake.{made(world, 'merged', rows, 20)}",
        )
        fill(world, "old", rows, 20)
        book = world.book(lane="auto", tables=["public.old"], max_batch_mb=1024)
        changes, same, place = Changes(rows, seed=7), Changes(rows, seed=7), str(world.root / "changes.parquet")

        def by_merge() -> None:
            world.session.read.parquet(place).createOrReplaceTempView("changes")
            world.session.sql(upsert(merged, "changes"))

        ways = {"new": lambda: room.commit(latest), "merge": by_merge, "old": lambda: merge(book)}
        timed: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(repeats + 1):
            latest = drawn(changes, count)
            _as_file(latest, place)
            same.write(world, "old", count)
            with parts_of() as parts:
                for way, apply in ways.items():
                    timed[way].append(spent(apply))
            told = ", ".join(f"{n} {t[-1][0]:.1f} s, CPU {t[-1][1]:.1f} s" for n, t in timed.items())
            print(f"  by turns: {told}; new: " + ", ".join(f"{p} {s:.1f}" for p, s in parts.items()), flush=True)
        assert world.history("old")[0].summary()["frazil.lane"] == "scan", world.said
        sums = [world.session.table(world.name(t)).where("id > 0").selectExpr("count(*)", f"bit_xor(xxhash64({', '.join(NAMES)}))").first() for t in ("new", "merged", "old")]  # fmt: skip
        assert len({*sums}) == 1, sums
    (new, cpu), (by_spark, cpu_spark), (old, cpu_old) = ([median(each) for each in zip(*t[1:], strict=True)] for t in timed.values())  # fmt: skip
    told = f"{count:,} changes into {rows:,} rows, from Arrow by a scan; MERGE INTO from Parquet {by_spark:.1f} s; old: whole step, from CSV; median of {repeats} by turns after one"
    return [
        *both("bulk_batch_s", new, old, "s", told, 2),
        *both("bulk_vs_merge", new / by_spark, old / by_spark, "×", told),
        *both("bulk_cpu_vs_merge", cpu / cpu_spark, cpu_old / cpu_spark, "×", told),
    ]
