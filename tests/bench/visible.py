"""Figures: how long it takes until another process sees what was changed, counted from the time at which it should have been.

Files: one table of 5 M rows, a file of 200 changes every 200 ms for 150 s (the shape at which Flink was measured), triggers
back to back.

The whole way: transactions in PostgreSQL, the simulator, Kafka, six tables, maintenance going on; `_pipeline` tells the rest.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import _lake, _pipeline
from bench._lake import Changes, assert_unique, figure, fill, lake, of_topic, python, seconds
from frazil_demo.kafka import Kafka
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.process import stop_process
from frazil_old import exit_codes
from frazil_old.flows import cdc
from frazil_old.results import raise_if_failed
from world import house, house_name

TRIGGER_S, CARE_S = 0.5, 60.0


def _latencies(observer: subprocess.Popen) -> tuple[float, str]:
    """Return the latency that 99 % stay below, and the others in words, when the observer has ended."""
    late = json.loads(observer.communicate(timeout=120)[0])
    assert late and None not in late, "changes were not seen"
    late.sort()
    return late[int((len(late) - 1) * 0.99)], f"p50 {late[len(late) // 2]:.2f} s, max {late[-1]:.2f} s"


def _catalog(world: _lake.World) -> str:
    return world.lake["uri"].removeprefix("jdbc:sqlite:")


def _files(quick: bool) -> list[dict]:
    """Let files come beside continuous ingestion; return the latency and what a scan costs afterwards."""
    rows, files, lasts = (200_000, 4, 10) if quick else (5_000_000, 12, 150)
    with lake() as world:
        fill(world, "t", rows, files)
        warm = Changes(rows, seed=9)
        for _ in range(8):
            warm.write(world.source, "t", _pipeline.CHANGES)
            world.merged()
        place = {"root": str(world.root), "rows": rows, "seconds": lasts, "catalog": _catalog(world), "tables": ["t"]}
        observer = _pipeline.start("files", world.root, **place)
        done = world.merge(run_for_s=float(lasts + 8), trigger_s=0.0)["t"]
        assert not done.failed, done.note
        p99, others = _latencies(observer)
        assert_unique(world, "t")
    told = f"{rows:,} rows, a file of {_pipeline.CHANGES} changes every {_pipeline.FILE_S} s for {lasts} s, triggers back to back, {done.counts['batches']} commits, {others}"
    return [figure("visible_s_p99_1k_flink_shape", p99, "s", told, 3)]


@contextmanager
def _caring(world: _lake.World) -> Iterator[list[float]]:
    """Let `frazil run 03_maintenance` care for all tables again and again, as somebody who schedules it beside ingestion would."""
    stop, took, failed = threading.Event(), [], []
    world.settings["spark_options"] = _lake.MEMORY
    house().command_line(world, ())

    def care() -> None:
        command = ("-m", "frazil_old.cli", "run", "--env", "w", "03_maintenance")
        while not stop.wait(CARE_S):
            try:
                took.append(seconds(lambda: python(world, *command, codes=(exit_codes.OK, exit_codes.NOTHING))))
            except AssertionError as error:
                failed.append(error)

    thread = threading.Thread(target=care)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def _whole_way(quick: bool) -> dict:
    rows, lasts, warm_s = (2_000, 10, 8) if quick else (50_000, 600, 60)
    with (
        tempfile.TemporaryDirectory(prefix="frazil-visible-") as name,
        EmbeddedPostgres((folder := Path(name)) / "postgres") as postgres,
        Kafka(folder / "kafka") as broker,
        lake() as beside,
    ):
        world = of_topic(broker, beside)
        for table in _pipeline.TABLES:
            world.table(table, *_pipeline.COLUMNS)
        with postgres.connect() as connection:
            _pipeline.make_tables(connection, rows)
            database = connection.info.dsn + f" password={postgres.password}"
        target = {"Broker": broker.brokers, "Topic": "bench", "IncludeNullAndEmpty": True, "IncludeTransactionDetails": True}  # fmt: skip
        rule = {"rule-type": "selection", "rule-id": "1", "rule-name": "all", "rule-action": "include",
                "object-locator": {"schema-name": "public", "table-name": "%"}}  # fmt: skip
        task = {"TableMappings": json.dumps({"rules": [rule]}), "ReplicationTaskSettings": "{}"}
        (folder / "simulator.json").write_text(json.dumps({"KafkaSettings": target}))
        (folder / "task.json").write_text(json.dumps({"ReplicationTasks": [task]}))
        place = {"database": database, "rows": rows, "seconds": lasts, "warm_s": warm_s, "catalog": _catalog(world), "tables": _pipeline.TABLES}  # fmt: skip
        simulator = _pipeline.start("simulator", folder, **place)
        try:
            while not (folder / "loaded").exists():
                assert simulator.poll() is None, "the simulator ended"
                time.sleep(0.2)
            world.loaded().merged(lane="rowdelta")
            with _caring(world) as cared:
                source = _pipeline.start("source", folder, **place)
                ended = cdc.run(world.book(lane="auto", run_for_s=float(warm_s + lasts + 20), trigger_s=TRIGGER_S))
            p99, others = _latencies(source)
            raise_if_failed(ended)
            world.merged()
        finally:
            stop_process(simulator, 20)
        assert_unique(world, *_pipeline.TABLES)
    conditions = (
        f"transactions of 10 changes, one each {_pipeline.STEP_S:g} s for {lasts} s after {warm_s} s that do not count, over {len(_pipeline.TABLES)} tables of {rows:,} rows; "
        f"simulator polls each {_pipeline.POLL_S:g} s, trigger {TRIGGER_S:g} s, lane auto, {sum(r.counts['batches'] for r in ended)} commits, "
        f"{len(cared)} runs of 03_maintenance over all tables ({sum(cared) / max(1, len(cared)):.0f} s each); {others}"
    )
    return figure("visible_s_p99_1k", p99, "s", conditions)


def run(quick: bool = False) -> list[dict]:
    return [*_files(quick), *([_whole_way(quick)] if house_name() == "old" else [])]
