"""Figures of latency: the notebook over 100,000 commits, a plan over 10,000 snapshots, and how well advice predicts."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

from bench._lake import tiny, tiny_lake
from frazil_demo import shop
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.simulator import DmsSimulator
from frazil_demo.workload import Workload
from frazil_old.config.settings import (
    CdcMergeSettings,
    FullLoadSettings,
    LatencySettings,
    MaintenanceSettings,
    SetupSettings,
)
from frazil_old.engine.latency_sketch import OF_FILES, QUANTILES
from frazil_old.flows import cdc, full_load, ledger, maintenance, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm
from frazil_old.lake.tables import create_namespaces
from frazil_old.report.latency import Analysis
from frazil_old.report.settings_advice import Model, Observed, Setting, fit, observed
from frazil_old.results import raise_if_failed

ROOT = Path(__file__).parents[2]
RATE = 6.0
FITTED = (Setting(1, 32_000, 3), Setting(4, 32_000, 1), Setting(8, 32_000, 6))
QUICK = (Setting(1, 32_000, 2), Setting(2, 32_000, 1), Setting(3, 32_000, 2))
PREDICTED = (
    Setting(2, 32_000, 2),
    Setting(1, 32_000, 8),
    Setting(8, 32_000, 2),
    Setting(4, 32_000, 4),
    Setting(2, 32_000, 6),
    Setting(10, 1, 3),
)


def fill(book: Workbook, count: int, hours: float = 24.0) -> None:
    """Write `count` made-up commits of the last hours into the ledger: a bad hour, a slow table, a quiet stretch, sketches as real ones."""
    names = [book.name(s) for s in book.specs.values()]
    spark, list_of = book.spark, f"array({', '.join(repr(n) for n in names)})"

    def points(at: tuple, base: str, spread: str) -> str:
        values = ", ".join(f"cast({base} + {spread} * {q / (1.12 - q)}D as bigint)" for q in at)
        return f"concat('[', concat_ws(',', {values}), ']')"

    began = time.time() - hours * 3600
    spark.range(count).selectExpr(
        "id", f"{list_of}[cast(id % {len(names)} as int)] name", f"{began} + id * {hours * 3600 / count} + rand(1) * 2 at",
        f"id * {hours}D / {count} hour", f"if(id % {len(names)} = 0, 2.5D, 1D) slow", "rand(2) r",
    ).where("not (hour > 3 and hour < 5)").selectExpr(
        "*", "cast(900 * slow * (0.7 + r) * if(hour > 14 and hour < 15.5, 9, 1) as bigint) work", "cast(20 + r * 400 as bigint) n",
        "cast(3000 * r * if(hour > 14 and hour < 15.5, 5, 1) as bigint) wait",
    ).selectExpr(
        "name", "id + 1000000 snapshot_id", "id + 999999 parent_id", "timestamp_millis(cast(at * 1000 as bigint)) committed_at",
        "'overwrite' operation",
        f"""map('frazil.kind', 'changes', 'frazil.counts', concat('{{"changes":', n, ',"I":1,"U":2,"D":0,"keys":', n, ',"files":2,"bytes":9000}}'),
            'frazil.latency', concat('{{"v":2,"n":', n, ',"picked_up":', cast(at * 1000 - work as bigint), ',"read":', work div 2,
            ',"age":', {points(QUANTILES, "500 + wait", "1500")}, ',"dms":', {points(QUANTILES, "200", "1500")},
            ',"land":', {points(OF_FILES, "120", "30")}, ',"wait":', {points(OF_FILES, "wait", "200")}, '}}')) summary""",
    ).createOrReplaceTempView("made_up")  # fmt: skip
    create_namespaces(spark, [book.ops("commits")])
    spark.sql(f"CREATE TABLE IF NOT EXISTS {book.ops('commits')} ({ledger._COMMITS}) USING iceberg")
    spark.sql(f"INSERT INTO {book.ops('commits')} SELECT * FROM made_up")


def _notebook(place: Path, commits: int) -> float:
    """Return the seconds of the latency notebook, Spark's start included, over so many commits."""
    fill(tiny(LatencySettings, place), commits)
    command = [
        sys.executable,
        "-m",
        "papermill",
        ROOT / "notebooks/04_latency.ipynb",
        place / "out.ipynb",
        "-k",
        "python3",
        "--no-progress-bar",
    ]
    environment = {
        **os.environ,
        "FRAZIL_PARAMS": str(place / "params"),
        "FRAZIL_MASTER": "local[2]",
        "PYTHONPATH": str(ROOT / "lib"),
    }
    began = time.perf_counter()
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return time.perf_counter() - began


def _plan(place: Path, snapshots: int) -> list[float]:
    """Give a table so many snapshots, in one change of its metadata, and return the seconds of some maintenance plans."""
    book = tiny(MaintenanceSettings, place, tables=["app.visit"])
    name = book.name(book.specs["app.visit"])
    operations = jvm.load_table(book.spark, name).operations()
    base, ice = operations.current(), book.spark._jvm.org.apache.iceberg
    newest = json.loads(ice.SnapshotParser.toJson(base.currentSnapshot()))
    builder, at = ice.TableMetadata.buildFrom(base), int(time.time() * 1000)
    newest["summary"]["frazil.latency"] = json.dumps({"v": 2, "picked_up": at - 900, "n": 5, "age": list(range(15))})
    for i in range(snapshots):
        newest |= {"parent-snapshot-id": newest["snapshot-id"], "snapshot-id": 10_000 + i, "timestamp-ms": at + i,
                   "sequence-number": newest["sequence-number"] + 1}  # fmt: skip
        builder.setBranchSnapshot(ice.SnapshotParser.fromJson(json.dumps(newest)), "main")
    operations.commit(base, builder.build())
    timed = []
    for _ in range(3):
        began = time.perf_counter()
        (row, *_) = maintenance.plan(book)
        timed.append(time.perf_counter() - began)
        assert not row["action"].startswith("cannot"), row
    return timed


# --- advice


@contextmanager
def _shop(scale: float, tables: list[str]) -> Iterator[tuple]:
    """Give a loaded shop: its database, its folder, and how to open a workbook on it."""
    with (
        tempfile.TemporaryDirectory(prefix="frazil-advice-") as named,
        EmbeddedPostgres(Path(named) / "postgres") as postgres,
    ):
        place = Path(named)
        shutil.copytree(ROOT / "params", place / "params")
        lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{place}/lake/catalog.db", "warehouse": f"{place}/lake/warehouse"}
        with postgres.connect() as connection:
            shop.make(connection, scale=scale)

        def book(kind, **more):
            return Workbook(kind(root=str(place), source="s3", specs="params/shop", endpoint="params/shop.endpoint.json", tables=tables,
                                 mappings="params/shop.mappings.json", catalog="advice", catalog_options=lake, query_engines=["spark"], **more),
                            lambda text: None)  # fmt: skip

        with DmsSimulator(
            postgres.connect, place / "params/shop.endpoint.json", place / "params/shop.mappings.json", place / "s3"
        ) as simulator:
            simulator.full_load()
        setup.create_tables(book(SetupSettings))
        raise_if_failed(full_load.run(book(FullLoadSettings)))
        yield postgres, place, book


def _measure(world: tuple, setting: Setting, seconds: float, seed: int) -> tuple[Observed, float]:
    """Let workload, simulator and continuous merge run under a setting; return what the ledger says of it, and the p50."""
    postgres, place, book = world
    file = place / "params/shop.endpoint.json"
    document = json.loads(file.read_text())
    document["S3Settings"] |= {
        "CdcMaxBatchInterval": int(setting.interval_s),
        "CdcMinFileSize": int(setting.min_file_kb),
    }
    file.write_text(json.dumps(document))
    stop, warm = threading.Event(), max(3.0, setting.interval_s + setting.trigger_s)
    with (
        DmsSimulator(postgres.connect, file, place / "params/shop.mappings.json", place / "s3") as simulator,
        postgres.connect() as connection,
    ):
        both = [threading.Thread(target=simulator.run, args=(stop,)),
                threading.Thread(target=Workload(connection, seed).run, args=(int((seconds + warm) * RATE), RATE))]  # fmt: skip
        for thread in both:
            thread.start()
        began = time.time()
        done = cdc.run(book(CdcMergeSettings, run_for_s=seconds + warm, trigger_s=setting.trigger_s, parallel_tables=3))
        until = time.time()
        both[1].join()
        stop.set()
        both[0].join()
    raise_if_failed(done)
    raise_if_failed(cdc.run(book(CdcMergeSettings)))  # what is left must not weigh on the next setting
    rows = ledger.commits(book(LatencySettings)).where(
        f"committed_ms between {(began + warm) * 1000} and {until * 1000}"
    )
    analysis = Analysis(rows)
    found = observed(analysis, setting)
    assert found is not None, setting
    return found, analysis.percentiles().iloc[0]["p50"]


def _model_of(measured: list[Observed]) -> Model:
    """Return the model of several settings: the m by which their models agree best on how long each one's batches take."""

    def of(parallel: float) -> tuple[float, Model]:
        models = [fit(x, parallel) for x in measured]
        middle = sorted(models, key=lambda x: x.observed.setting.interval_s)[len(models) // 2]
        means = {
            name: mean(getattr(x, name) for x in models) for name in ("delta", "epsilon", "fixed_s", "per_change_s")
        }
        model = replace(middle, **means)
        return sum(math.log(model.batch(x.setting)[0] / x.service_s) ** 2 for x in measured), model

    return min((of(0.5 * 1.1**i) for i in range(32)), key=lambda found: found[0])[1]


def _advice(quick: bool) -> list[dict]:
    """Fit the model on three measured settings and hold its predictions of others against measurements."""
    seconds, fitted, predicted = (5.0, QUICK, PREDICTED[:1]) if quick else (18.0, FITTED, PREDICTED)
    tables = ["shop.orders"] if quick else ["shop.customers", "shop.events", "shop.orders", "shop.payments"]
    with _shop(0.02 if quick else 0.2, tables) as world:
        _measure(world, fitted[0], 3.0 if quick else 10.0, 99)  # warms the JVM up
        measured = {x: _measure(world, x, seconds, seed) for seed, x in enumerate((*fitted, *predicted))}
    (ROOT / "runs/bench").mkdir(parents=True, exist_ok=True)
    (ROOT / "runs/bench/advice.txt").write_text("\n".join(repr(found) for found, _ in measured.values()) + "\n")
    model, errors = _model_of([measured[x][0] for x in fitted]), []
    for x in (*fitted, *predicted):
        p50, p95 = model.latency(x)
        real, real_p50 = measured[x]
        off = (p50 / real_p50 - 1, p95 / real.p95 - 1)
        errors += [] if x in fitted else [abs(o) for o in off]
        print(f"  {'fitted   ' if x in fitted else 'predicted'} interval {x.interval_s:4g} s, min file {x.min_file_kb:6g} KB, trigger {x.trigger_s:4g} s: "
              f"p50 {real_p50:5.2f} s measured, {p50:5.2f} model ({off[0]:+.0%}); p95 {real.p95:5.2f}, {p95:5.2f} ({off[1]:+.0%})", flush=True)  # fmt: skip
    told = f"{len(predicted)} settings predicted from {len(fitted)} measured, {len(tables)} tables, {RATE:g} transactions/s, {seconds:g} s each; p50 and p95; worst {max(errors):.2f}"
    return [{"name": "advice_error_median", "value": round(median(errors), 3), "unit": "share", "conditions": told}]


def run(quick: bool = False) -> list[dict]:
    """Measure all three; quick: 2,000 commits, 300 snapshots, one table and one prediction."""
    commits, snapshots = (2_000, 300) if quick else (100_000, 10_000)
    with tempfile.TemporaryDirectory(prefix="frazil-latency-") as folder:
        place = tiny_lake(Path(folder), query_engines=["trino"])
        notebook = _notebook(place, commits)
        print(f"  the notebook took {notebook:.1f} s", flush=True)
        plans = _plan(place, snapshots)
        print(f"  plans took {', '.join(f'{p:.2f}' for p in plans)} s", flush=True)
    return [
        {"name": "latency_notebook_100k_s", "value": round(notebook, 1), "unit": "s",
         "conditions": f"{commits:,} commits of 2 tables over 24 h in the ledger, by papermill, Spark's start included, local[2]"},
        {"name": "plan_10000_snapshots_s", "value": round(median(plans), 2), "unit": "s",
         "conditions": f"a table of {snapshots:,} snapshots; median of {len(plans)}, {max(plans):.2f} s at most (the first)"},
        *_advice(quick),
    ]  # fmt: skip
