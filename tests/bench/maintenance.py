"""Figures of maintenance beside ingestion: a table with 1,000 commits of updates behind it, 1,000 changes a second going on.

Windows with and without compaction alternate; at the end every row is compared with a replay. The picture of the run is
kept in `runs/bench/maintenance.png`.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadataUtil

from frazil_old.config.settings import (
    CdcMergeSettings,
    FullLoadSettings,
    LatencySettings,
    MaintenanceSettings,
    SetupSettings,
)
from frazil_old.flows import cdc, full_load, ledger, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import compaction, jvm, jvm_data_files, jvm_maintenance
from frazil_old.lake.carried_deletes import new_deletes
from frazil_old.lake.data_file_writer import DataFileWriter
from frazil_old.report import lake_charts
from frazil_old.report.chart_style import Chart
from frazil_old.report.latency import Analysis, frame
from frazil_old.results import raise_if_failed

RATE = 1_000
SPEC = {
    "source": "shop.wear", "target": "bench.wear", "key": ["id"],
    "columns": [{"name": "id", "type": "INT8"}, {"name": "n", "type": "INT8"}, {"name": "v", "type": "WSTRING(40)"}],
}  # fmt: skip


def _written(spark, table, batches) -> list:
    """Write each batch of rows as a new data file of the table that is in no snapshot yet, and return them."""
    metadata = TableMetadataUtil.parse_raw(jvm.metadata_json(spark, table))
    io, entries = load_file_io(jvm_data_files.storage_properties(table), metadata.location), []
    for batch in batches:
        writer = DataFileWriter(metadata, io)
        writer.write(batch)
        entries += writer.close()
    return list(jvm_data_files.from_json(spark, table, entries))


class Bench:
    """The table, its source folder, and what its rows must be: `n` by `id`, replayed without Frazil."""

    def __init__(self, place: Path, rows: int):
        import numpy as np

        self.place, self.rows, self.expected, self.dice = (
            place,
            rows,
            np.zeros(rows, dtype="int64"),
            np.random.default_rng(1),
        )
        for folder in ("specs", "s3/shop/wear"):
            (place / folder).mkdir(parents=True)
        (place / "specs/wear.yml").write_text(yaml.safe_dump(SPEC))
        (place / "endpoint.json").write_text(
            json.dumps({"S3Settings": {"CsvNullValue": "", "TimestampColumnName": "ts"}})
        )
        self.number = 0

    def book(self, kind, **more) -> Workbook:
        lake = {"type": "jdbc", "uri": "jdbc:sqlite:lake/catalog.db", "warehouse": "lake/warehouse"}
        given = {
            "env": "bench",
            "root": str(self.place),
            "source": "s3",
            "specs": "specs",
            "endpoint": "endpoint.json",
            "catalog": "bench",
            "query_engines": ["spark"],
        }
        return Workbook(kind(**given, catalog_options=lake, **more), lambda text: None)

    def write(self, name: str, lines: list[str]) -> None:
        """Place a file in the source folder, whole at once."""
        hidden = self.place / f"{name}.part"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(self.place / "s3/shop/wear" / name)

    def prepare(self, files: int, commits: int, per_commit: int) -> None:
        """Load the rows, then let commits of updates follow, each of some rows of one file: a data file and a deletion vector."""
        self.write("LOAD00000001.csv", ["2024-01-01 00:00:00.000000,-1,0,first"])
        setup.create_tables(self.book(SetupSettings))
        raise_if_failed(full_load.run(self.book(FullLoadSettings)))
        spark, name = self.book(SetupSettings).spark, "bench.bench.wear"
        each = self.rows // files
        spark.sql(f"insert into {name} select id, 0 n, concat('row ', id) v from range(0, {self.rows}, 1, {files})")
        table = jvm.load_table(spark, name)
        there = jvm_maintenance.Tasks(spark, table, table.currentSnapshot().snapshotId())
        firsts = {
            r.f: r.low for r in spark.sql(f"select _file f, min(id) low from {name} where id >= 0 group by 1").collect()
        }
        paths = sorted(firsts, key=firsts.get)
        by_commit = _written(spark, table, (self._updates(commit, files, per_commit) for commit in range(commits)))
        assert (len(by_commit), len(paths)) == (commits, files), (len(by_commit), len(paths))
        vectors: dict[str, list] = {}
        positions: dict[str, list[int]] = {path: [] for path in paths}
        for number, file in enumerate(by_commit):
            path, turn = paths[number % files], number // files
            first = number % files * each + turn * per_commit
            self.expected[first : first + per_commit] = number + 1
            positions[path] += range(turn * per_commit, (turn + 1) * per_commit)
            added = new_deletes(spark, table, there.by_path[path]["data-file"], {path: positions[path]})
            delta = table.newRowDelta().validateFromSnapshot(table.currentSnapshot().snapshotId()).addRows(file)
            for delete in added:
                delta.addDeletes(delete)
            for gone in vectors.get(path, []):
                delta.removeDeletes(gone)
            vectors[path] = added
            delta.commit()

    def _updates(self, commit: int, files: int, count: int):
        """Return the new versions of the rows of one commit."""
        import numpy as np
        import pyarrow as pa

        first = commit % files * (self.rows // files) + commit // files * count
        texts = [f"update {commit * count + n}" for n in range(count)]
        ids = np.arange(first, first + count)
        return pa.RecordBatch.from_pydict({"id": ids, "n": np.full(count, commit + 1), "v": texts})

    def feed(self, stop: threading.Event) -> None:
        """Write a change file each second: updates of random rows, committed at the source in the course of that second."""
        due = time.time()
        while not stop.is_set():
            self.number += 1
            ids = self.dice.choice(self.rows, RATE, replace=False)
            self.expected[ids] = 1_000_000 + self.number
            due += 1
            stop.wait(max(0.0, due - time.time()))
            now = due - 1
            stamps = [
                time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e6):06}"
                for at in (now + i / RATE for i in range(RATE))
            ]
            lines = [f"U,{at},{i},{1_000_000 + self.number},changed" for at, i in zip(stamps, ids, strict=True)]
            self.write(f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(due))}{int(due % 1 * 1000):03}.csv", lines)

    @contextmanager
    def ingesting(self, seconds: float) -> Iterator[None]:
        """Let changes come and be applied inside the block, for so many seconds at most; raise what the merge failed on."""
        stop, ended = threading.Event(), []
        book = self.book(CdcMergeSettings, run_for_s=seconds, trigger_s=0.5, lane="auto")
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
        import numpy as np
        import pyarrow as pa
        from pyarrow import parquet

        file = self.place / "expected.parquet"
        parquet.write_table(pa.table({"id": np.arange(self.rows), "want": self.expected}), file)
        spark = self.book(SetupSettings).spark
        found = spark.table("bench.bench.wear").where("id >= 0").groupBy("id").agg({"n": "max", "*": "count"})
        both = spark.read.parquet(str(file)).join(found, "id", "full")
        return both.where("not (want <=> `max(n)` and `count(1)` <=> 1)").count()


def _windows(
    bench: Bench, seconds: float, pairs: int, s: MaintenanceSettings
) -> tuple[list[tuple[float, float, bool]], list[dict], set]:
    """Alternate windows without and with compaction; return them, what each compaction did, and the files that the plan named."""
    spark, name, done = bench.book(SetupSettings).spark, "bench.bench.wear", []
    planned = {f for piece in compaction.file_groups(spark, jvm.load_table(spark, name), s) for f in piece.files}
    windows = []
    for number in range(2 * pairs):
        began, busy = time.time(), bool(number % 2)
        if busy:
            done.append(compaction.compact(spark, name, s, f"window {number}", lambda text: None))
        time.sleep(max(0.0, began + seconds - time.time()))
        windows.append((began, time.time(), busy))
    return windows, done, planned


def run(quick: bool = False) -> list[dict]:
    """Measure; quick: 100,000 rows, 30 commits, two pairs of short windows."""
    rows, files, commits, per_commit = (100_000, 5, 30, 20) if quick else (5_000_000, 50, 1_000, 50)
    seconds, pairs, warm = (5.0, 2, 5.0) if quick else (36.0, 5, 25.0)
    compaction.MOST_FILES = 10 if quick else 60
    s = MaintenanceSettings(max_run_s=0.8 * seconds, target_file_mb=64)
    with tempfile.TemporaryDirectory(prefix="frazil-maintenance-") as folder:
        bench, began = Bench(Path(folder), rows), time.time()
        bench.prepare(files, commits, per_commit)
        print(
            f"  {rows:,} rows with {commits:,} commits of updates behind them after {time.time() - began:.0f} s",
            flush=True,
        )
        with bench.ingesting(2 * (warm + seconds * 2 * pairs)):
            time.sleep(warm)  # the first batches warm up, and build the key index
            windows, done, planned = _windows(bench, seconds, pairs, s)
        raise_if_failed(cdc.run(bench.book(CdcMergeSettings, lane="auto")))
        wrong = bench.differing()
        assert wrong == 0, f"{wrong} rows differ from the replay"
        told = ledger.commits(bench.book(LatencySettings))
        book = bench.book(MaintenanceSettings)
        picture = lake_charts.timeline(Analysis(told), frame(ledger.actions(book)))
        Chart(picture, Path(__file__).parents[2] / "runs/bench/maintenance.png")
        spark = bench.book(SetupSettings).spark
        table = jvm.load_table(spark, "bench.bench.wear")
        left = planned & jvm_maintenance.Tasks(spark, table, table.currentSnapshot().snapshotId()).by_path.keys()

        def p99(busy: bool) -> tuple[float, int]:
            within = " or ".join(f"committed_ms between {b * 1000} and {e * 1000}" for b, e, x in windows if x is busy)
            a = Analysis(told.where(within))
            return float(a.percentiles().iloc[0]["p99"]), a.count

        (without, n), (beside, m) = p99(False), p99(True)
    attempts, groups = max((d["attempts"] for d in done), default=0), sum(d["file_groups"] for d in done)
    what = f"{rows:,} rows, {commits:,} commits of updates, then {RATE:,} changes/s in files of 1 s, trigger 0.5 s; {pairs} windows of {seconds:g} s each way; no row differs from a replay"
    return [
        {"name": "ingest_p99_rise", "value": round(beside / without, 2), "unit": "ratio", "conditions": f"{what}; {m} and {n} batches"},
        {"name": "ingest_p99_beside_s", "value": round(beside, 2), "unit": "s", "conditions": "source commit → committed, windows with compaction"},
        {"name": "ingest_p99_alone_s", "value": round(without, 2), "unit": "s", "conditions": "source commit → committed, windows without"},
        {"name": "compacted_share", "value": round(1 - len(left) / len(planned), 3), "unit": "share",
         "conditions": f"of {len(planned):,} files that the plan named; {groups} file groups, {sum(d['carried_deletes'] for d in done):,} deletes carried"},
        {"name": "compaction_attempts", "value": attempts, "unit": "attempts", "conditions": f"at most, for a file group; {sum(d['given_up'] for d in done)} given up"},
    ]  # fmt: skip
