"""Figures of maintenance beside ingestion: a table with 1,000 commits of updates behind it, 1,000 changes a second going on.

Windows with and without compaction alternate; at the end every row is compared with a replay. The picture of the run is
kept in `runs/bench/maintenance.png`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bench._lake import ROOT, figure, lake, merge
from frazil_old.config.settings import LatencySettings, MaintenanceSettings
from frazil_old.flows import cdc, ledger
from frazil_old.lake import compaction, jvm, jvm_maintenance
from frazil_old.report import lake_charts
from frazil_old.report.chart_style import Chart
from frazil_old.report.latency import Analysis, frame
from frazil_old.results import raise_if_failed
from helpers import World

RATE = 1_000


class Bench:
    """The table, and what its rows must be: `n` by `id`, replayed without Frazil."""

    def __init__(self, world: World, rows: int):
        self.world, self.rows = world, rows
        self.expected, self.dice, self.number = np.zeros(rows, dtype="int64"), np.random.default_rng(1), 0
        world.table("wear", "id INT8", "n INT8", "v WSTRING(40)")
        self.name = world.name("wear")

    def write(self, ids: np.ndarray, due: float) -> None:
        """Place a file of updates in the source folder, whole at once; they were committed at the source within the second before."""
        self.number += 1
        self.expected[ids] = self.number
        moments = due - 1 + np.arange(len(ids)) / len(ids)
        stamps = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e6):06}" for at in moments]
        hidden = self.world.root / "changes.part"
        hidden.write_text("".join(f"U,{at},{i},{self.number},changed\n" for at, i in zip(stamps, ids, strict=True)))
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(due))}{int(due % 1 * 1000):03}.csv"
        hidden.rename(self.world.root / "source/public/wear" / name)

    def prepare(self, files: int, commits: int, per_commit: int) -> None:
        """Load the rows, then let commits of updates follow, each of some rows of one file: a data file and a deletion vector."""
        self.world.load("wear", (-1, 0, "first")).loaded()
        values = f"select id, 0L n, concat('row ', id) v from range(0, {self.rows}, 1, {files})"
        self.world.spark.sql(f"insert into {self.name} {values}")
        each, first = self.rows // files, time.time() - 2 * commits
        for commit in range(commits):
            start = commit % files * each + commit // files * per_commit
            self.write(np.arange(start, start + per_commit), first + commit)
        done, _ = merge(self.world.book(lane="rowdelta", max_batch_files=1))
        assert done.counts["batches"] == commits, done.note

    def feed(self, stop: threading.Event) -> None:
        """Write a change file each second: updates of random rows, committed at the source in the course of that second."""
        due = time.time()
        while not stop.is_set():
            ids = self.dice.choice(self.rows, RATE, replace=False)
            due += 1
            stop.wait(max(0.0, due - time.time()))
            self.write(ids, due)

    @contextmanager
    def ingesting(self, seconds: float) -> Iterator[None]:
        """Let changes come and be applied inside the block, for so many seconds at most; raise what the merge failed on."""
        stop, ended = threading.Event(), []
        book = self.world.book(run_for_s=seconds, trigger_s=0.5, lane="auto")
        both = [threading.Thread(target=self.feed, args=(stop,)), threading.Thread(target=lambda: ended.extend(cdc.run(book)))]  # fmt: skip
        for thread in both:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            book.stop.set()
            for thread in both:
                thread.join()
        raise_if_failed(ended)

    def differing(self) -> int:
        """Return how many rows are not what the replay says, missing and doubled ones among them."""
        import pyarrow as pa
        from pyarrow import parquet

        file = self.world.root / "expected.parquet"
        parquet.write_table(pa.table({"id": np.arange(self.rows), "want": self.expected}), file)
        found = self.world.spark.table(self.name).where("id >= 0").groupBy("id").agg({"n": "max", "*": "count"})
        both = self.world.spark.read.parquet(str(file)).join(found, "id", "full")
        return both.where("not (want <=> `max(n)` and `count(1)` <=> 1)").count()


def _windows(bench: Bench, seconds: float, pairs: int, s: MaintenanceSettings) -> tuple[list[tuple[float, float, bool]], list[dict], set]:  # fmt: skip
    """Alternate windows without and with compaction; return them, what each compaction did, and the files that the plan named."""
    spark, windows, done = bench.world.spark, [], []
    planned = {f for piece in compaction.file_groups(spark, jvm.load_table(spark, bench.name), s) for f in piece.files}
    for number in range(2 * pairs):
        began, busy = time.time(), bool(number % 2)
        if busy:
            done.append(compaction.compact(spark, bench.name, s, f"window {number}", lambda text: None))
        time.sleep(max(0.0, began + seconds - time.time()))
        windows.append((began, time.time(), busy))
    return windows, done, planned


def run(quick: bool = False) -> list[dict]:
    """Measure; quick: 100,000 rows, 30 commits, two pairs of short windows."""
    rows, files, commits, per_commit = (100_000, 5, 30, 20) if quick else (5_000_000, 50, 1_000, 50)
    seconds, pairs, warm = (5.0, 2, 5.0) if quick else (36.0, 5, 25.0)
    compaction.MOST_FILES = 10 if quick else 60
    s = MaintenanceSettings(max_run_s=0.8 * seconds, target_file_mb=64)
    with lake() as world:
        bench = Bench(world, rows)
        bench.prepare(files, commits, per_commit)
        prepared = time.time()
        with bench.ingesting(2 * (warm + seconds * 2 * pairs)):
            time.sleep(warm)  # the first batches warm up, and build the key index
            windows, done, planned = _windows(bench, seconds, pairs, s)
        raise_if_failed(cdc.run(world.book(lane="auto")))
        wrong = bench.differing()
        assert wrong == 0, f"{wrong} rows differ from the replay"
        told = ledger.commits(world.book(LatencySettings)).where(f"committed_ms > {prepared * 1000}")
        picture = lake_charts.timeline(Analysis(told), frame(ledger.actions(world.book(MaintenanceSettings))))
        Chart(picture, ROOT / "runs/bench/maintenance.png")
        table = world.iceberg("wear")
        left = planned & jvm_maintenance.Tasks(world.spark, table, table.currentSnapshot().snapshotId()).by_path.keys()

        def p99(busy: bool) -> tuple[float, int]:
            within = " or ".join(f"committed_ms between {b * 1000} and {e * 1000}" for b, e, x in windows if x is busy)
            a = Analysis(told.where(within))
            return float(a.percentiles().iloc[0]["p99"]), a.count

        (without, n), (beside, m) = p99(False), p99(True)
    groups, carried, given_up = (sum(d[what] for d in done) for what in ("file_groups", "carried_deletes", "given_up"))
    what = f"{rows:,} rows, {commits:,} commits of updates, then {RATE:,} changes/s in files of 1 s, trigger 0.5 s; {pairs} windows of {seconds:g} s each way; no row differs from a replay"
    named = f"of {len(planned):,} files that the plan named; {groups} file groups, {carried:,} deletes carried"
    return [
        figure("ingest_p99_rise", beside / without, "ratio", f"{what}; {m} and {n} batches"),
        figure("ingest_p99_beside_s", beside, "s", "source commit → committed, windows with compaction"),
        figure("ingest_p99_alone_s", without, "s", "source commit → committed, windows without"),
        figure("compacted_share", 1 - len(left) / len(planned), "share", named, 3),
        figure("compaction_attempts", max(d["attempts"] for d in done), "attempts", f"at most, for a file group; {given_up} given up", 0),
    ]  # fmt: skip
