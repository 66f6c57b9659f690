"""Figures of a large batch into a large table: the row delta after a scan of the keys, beside a MERGE of the same files."""

from __future__ import annotations

from statistics import median

import psutil

from bench._lake import Changes, checksum, figure, fill, lake, link_files, merge
from frazil_old.lake import lane_choice


def _cpu_s() -> float:
    """Return the CPU seconds so far of this process, the JVM, and the Python processes of Spark's tasks."""
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (me, *me.children(recursive=True)))


def run(quick: bool = False) -> list[dict]:
    """Apply the same files by turns with `lane: auto`, which scans, and with `lane: merge`, each to a table of its own."""
    rows, files, per_file, repeats = (1_000_000, 10, 10_000, 1) if quick else (20_000_000, 10, 100_000, 3)
    lane_choice.MOST_MB = 1
    timed: dict[str, list[tuple[float, float]]] = {"scan": [], "merge": []}
    with lake() as world:
        fill(world, "files", 1, 1)
        for lane in timed:
            fill(world, lane, rows, 20)
        asked = {"scan": "auto", "merge": "merge"}
        books = {t: world.book(lane=asked[t], tables=[f"public.{t}"], max_batch_mb=1024) for t in timed}
        changes = Changes(rows, seed=7)
        for _ in range(repeats + 1):
            for _ in range(files):
                changes.write(world, "files", per_file)
            for lane, book in books.items():
                link_files(world, lane, "files")
                before = _cpu_s()
                done, took = merge(book)
                timed[lane].append((took, _cpu_s() - before))
                assert done.counts["batches"] == 1, done
                assert world.history(lane)[0].summary()["frazil.lane"] == lane, world.said
            print("  by turns: " + ", ".join(f"{n} {t[-1][0]:.1f} s, CPU {t[-1][1]:.1f} s" for n, t in timed.items()), flush=True)  # fmt: skip
        assert checksum(world, "scan") == checksum(world, "merge")
    told = f"{files * per_file:,} changes in {files} CSV files into {rows:,} rows; median of {repeats} by turns after one to warm up"
    (wall, cpu), (wall_merge, cpu_merge) = ([median(each) for each in zip(*t[1:], strict=True)] for t in timed.values())
    return [
        figure("bulk_batch_s", wall, "s", told, 1),
        figure("bulk_vs_merge", wall / wall_merge, "×", told),
        figure("bulk_cpu_vs_merge", cpu / cpu_merge, "×", told),
    ]
