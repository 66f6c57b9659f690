"""Figures: how long it takes until another process sees what was changed, counted from the time at which it should have been.

Files: one table of 5 M rows, a file of 200 changes every 200 ms for 150 s (the shape at which Flink was measured), triggers
back to back. Writer and observer are a process of their own; the observer asks the catalog every 10 ms for its newest metadata
and takes from it the position, which changes in the same swap as the rows.

The whole way: transactions in PostgreSQL, the simulator, Kafka, six tables, maintenance going on; `_pipeline` tells the rest.
"""

from __future__ import annotations

import bisect
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__)
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "lib")]

import yaml  # noqa: E402

from bench import _pipeline  # noqa: E402
from bench._lake import MEMORY, Changes, KafkaWorld, fill, lake, scan_s, stop_spark  # noqa: E402
from frazil_demo.kafka import Kafka  # noqa: E402
from frazil_demo.postgres import EmbeddedPostgres  # noqa: E402
from frazil_demo.process import stop_process  # noqa: E402
from frazil_old import exit_codes  # noqa: E402
from frazil_old.config.settings import Settings  # noqa: E402
from frazil_old.config.spark_session import get_spark  # noqa: E402
from frazil_old.flows.cdc import run as merge  # noqa: E402
from frazil_old.results import raise_if_failed  # noqa: E402

STEP_S, CHANGES = 0.2, 200
TRIGGER_S, CARE_S = 0.5, 60.0


def feed(root: str, rows: int, seconds: float, catalog: str) -> None:
    """Write files by the clock, watch the catalog, and print each file's latency as JSON."""
    seen, stop, made = {}, threading.Event(), Changes(rows, first_file=1000)

    def watch() -> None:
        connection, last = sqlite3.connect(catalog, timeout=5), None
        while not stop.wait(0.01):
            try:
                (at,) = connection.execute(
                    "select metadata_location from iceberg_tables where table_name = 't'"
                ).fetchone()
            except sqlite3.OperationalError:
                continue
            if at != last:
                now, last = time.time(), at
                position = json.loads(
                    json.loads(Path(at.removeprefix("file:")).read_text())["properties"]["frazil.position"]
                )
                seen.setdefault(position["last"] or "", now)

    class Folder:
        """Where files appear whole, under their names, as on S3."""

        def write(self, table: str, name: str, text: str) -> None:
            hidden = Path(root) / "source" / f".{name}"
            hidden.write_text(text)
            os.rename(hidden, Path(root) / "source/public" / table / name)

    threading.Thread(target=watch, daemon=True).start()
    start, due = time.time() + 1, {}
    for k in range(int(seconds / STEP_S)):
        time.sleep(max(0.0, start + k * STEP_S - time.time()))
        due[made.write(Folder(), "t", CHANGES)] = start + k * STEP_S
    until = time.time() + 60
    while max(seen, default="") < max(due) and time.time() < until:
        time.sleep(0.05)
    stop.set()
    marks = sorted(seen)
    places = {name: bisect.bisect_left(marks, name) for name in due}
    print(json.dumps([seen[marks[i]] - due[n] if (i := places[n]) < len(marks) else None for n in due]), flush=True)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _files(quick: bool) -> list[dict]:
    """Let the feed run beside continuous ingestion; return the latency's quantiles and what a scan costs afterwards."""
    rows, files, seconds = (200_000, 4, 10) if quick else (5_000_000, 12, 150)
    with lake() as world:
        fill(world, "t", rows, files)
        clean, warm = scan_s(world, "t"), Changes(rows, seed=9)
        for _ in range(8):
            warm.write(world, "t", CHANGES)
            world.merged(lane="rowdelta")
        catalog = world.catalog_options["uri"].removeprefix("jdbc:sqlite:")
        command = [sys.executable, str(HERE), str(world.root), str(rows), str(seconds), catalog]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "lib")}
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        began, before = time.time(), os.times()
        (done,) = merge(world.book(lane="rowdelta", run_for_s=float(seconds + 8), trigger_s=0.0))
        took, after, feed_cpu = time.time() - began, os.times(), _cpu_s(other.pid)
        assert not done.failed, done.note
        late = json.loads(other.communicate(timeout=90)[0])
        scanned = scan_s(world, "t")
        counted = world.spark.table(world.name("t")).selectExpr("count(*) n", "count(distinct id) k").first()
    assert None not in late and counted.n == counted.k, "changes were not seen, or rows are there twice"
    late.sort()
    share = f"CPU of {took:.0f} s: Python {after.user - before.user:.0f} s, feed and observer {feed_cpu:.0f} s"
    told = (f"{rows:,} rows, a file of {CHANGES} changes every {STEP_S} s for {seconds} s, triggers back to back, "
            f"{done.counts['batches']} commits, p50 {late[len(late) // 2]:.2f} s, max {late[-1]:.2f} s; {share}")  # fmt: skip
    return [
        {"name": "visible_s_p99_1k_flink_shape", "value": round(late[int((len(late) - 1) * 0.99)], 3), "unit": "s", "conditions": told},
        {"name": "scan_after_flink_shape", "value": round(scanned / clean, 2), "unit": "×",
         "conditions": f"full scan after that ({scanned:.2f} s) over one of the freshly made table"},
    ]  # fmt: skip


def _care(world: KafkaWorld, stop: threading.Event, done: list) -> None:
    """Let `frazil run 03_maintenance` care for all tables again and again, as somebody who schedules it beside ingestion would."""
    settings = {"source": world.source, "specs": "specs", "endpoint": "endpoint.json", "query_engines": ["spark"],
                "catalog_options": world.catalog_options, "spark_options": MEMORY}  # fmt: skip
    (world.root / "params").mkdir()
    (world.root / "params/bench.yml").write_text(yaml.safe_dump({"common": settings}))
    (world.root / "notebooks").symlink_to(HERE.parents[2] / "notebooks")
    environment = {
        **os.environ,
        "FRAZIL_PARAMS": str(world.root / "params"),
        "PYTHONPATH": str(HERE.parents[2] / "lib"),
    }
    command = [sys.executable, "-m", "frazil_old.cli", "run", "--env", "bench", "03_maintenance"]
    while not stop.wait(CARE_S):
        began = time.time()
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        done.append(
            (time.time() - began, ran.returncode in (exit_codes.OK, exit_codes.NOTHING), ran.stdout + ran.stderr)
        )


@contextmanager
def _source(folder: Path, rows: int, seconds: int, warm_s: int) -> Iterator[tuple[KafkaWorld, dict[str, int]]]:
    """Give a loaded world of six tables behind PostgreSQL, simulator and Kafka, and the process ids of those."""
    options = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
    with EmbeddedPostgres(folder / "postgres") as postgres, Kafka(folder / "kafka") as broker:
        world = KafkaWorld(broker, folder / "w", "pipeline", options, partitions=2)
        for table in _pipeline.TABLES:
            world.table(table, *_pipeline.COLUMNS)
        with postgres.connect() as connection:
            _pipeline.make_tables(connection, rows)
            database = connection.info.dsn + f" password={postgres.password}"
        target = {
            "Broker": broker.brokers,
            "Topic": world.topic,
            "IncludeNullAndEmpty": True,
            "IncludeTransactionDetails": True,
        }
        rule = {"rule-type": "selection", "rule-id": "1", "rule-name": "all", "rule-action": "include",
                "object-locator": {"schema-name": "public", "table-name": "%"}}  # fmt: skip
        task = {"TableMappings": json.dumps({"rules": [rule]}), "ReplicationTaskSettings": "{}"}
        (folder / "simulator.json").write_text(json.dumps({"KafkaSettings": target}))
        (folder / "task.json").write_text(json.dumps({"ReplicationTasks": [task]}))
        place = {
            "database": database,
            "rows": rows,
            "seconds": seconds,
            "warm_s": warm_s,
            "catalog": f"{folder}/catalog.db",
        }
        (folder / "pipeline.json").write_text(json.dumps(place))
        get_spark(Settings(root=str(folder), catalog_options=options, spark_options=MEMORY))
        simulator = _pipeline.start("simulator", folder)
        try:
            while not (folder / "loaded").exists():
                assert simulator.poll() is None, "the simulator ended"
                time.sleep(0.2)
            world.loaded().merged(lane="rowdelta")
            yield world, {"PostgreSQL": postgres.pid, "simulator": simulator.pid, "Kafka": broker.pid}
        finally:
            stop_process(simulator, 20)


def _whole_way(quick: bool) -> list[dict]:
    rows, seconds, warm_s = (2_000, 10, 8) if quick else (50_000, 600, 60)
    with (
        tempfile.TemporaryDirectory(prefix="frazil-visible-") as name,
        _source(Path(name), rows, seconds, warm_s) as (world, pids),
    ):
        source, stop, cared = _pipeline.start("source", Path(name)), threading.Event(), []
        pids |= {
            "source and observer": source.pid,
            "Frazil's Python": os.getpid(),
            "Spark": world.spark.sparkContext._gateway.proc.pid,
        }

        def spent() -> dict[str, float]:
            return {n: _pipeline.cpu_s(p, n == "PostgreSQL") for n, p in pids.items()}

        care = threading.Thread(target=_care, args=(world, stop, cared))
        care.start()
        began, before = time.time(), spent()
        ended = merge(world.book(lane="auto", run_for_s=float(warm_s + seconds + 20), trigger_s=TRIGGER_S))
        wall, after = time.time() - began, spent()
        stop.set()
        care.join()
        told = json.loads(source.communicate(timeout=120)[0])
        raise_if_failed(ended)
        world.merged()
        counted = [
            world.spark.table(world.name(t)).selectExpr("count(*) n", "count(distinct id) k").first()
            for t in _pipeline.TABLES
        ]
    assert all(well for _, well, _ in cared), [text for _, well, text in cared if not well]
    late, each_s = told["took"], sum(seconds for seconds, *_ in cared) / max(1, len(cared))
    assert None not in late and all(c.n == c.k for c in counted), "changes were not seen, or rows are there twice"
    late.sort()
    batches = sum(r.counts["batches"] for r in ended)
    share = ", ".join(f"{n} {(after[n] - before[n]) / wall:.0%}" for n in pids)
    conditions = (
        f"{len(late):,} transactions of 10 changes, one each {_pipeline.STEP_S:g} s for {seconds} s after {warm_s} s that do not count, over {len(_pipeline.TABLES)} tables of {rows:,} rows; "
        f"simulator polls each {_pipeline.POLL_S:g} s, trigger {TRIGGER_S:g} s, lane auto, {batches} commits, {len(cared)} runs of 03_maintenance "
        f"over all tables ({each_s:.0f} s each, in this session); p50 {late[len(late) // 2]:.2f} s, max {late[-1]:.2f} s, the last transaction {told['late_s']:.2f} s behind its time; CPU of a core: {share}"
    )
    return [
        {
            "name": "visible_s_p99_1k",
            "value": round(late[int((len(late) - 1) * 0.99)], 2),
            "unit": "s",
            "conditions": conditions,
        }
    ]


def run(quick: bool = False) -> list[dict]:
    """Measure the whole way, then files, each with a Spark session of its own: their catalogs lie elsewhere."""
    found = _whole_way(quick)
    print(f"  {found[0]['name']} {found[0]['value']} s: {found[0]['conditions']}", flush=True)
    stop_spark()
    return found + _files(quick)


if __name__ == "__main__":
    feed(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
