"""Spark's tasks do what this process does, on this machine and on a cluster: loads, scans and rewrites."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dms_writer import FILE1, FILE2, D, I, U
from new_house import opened
from standalone import cluster

pytestmark = pytest.mark.spark
BORDERS = ("engine.tasks.LARGE", "engine.tasks.MANY_ROWS")
"""With these borders at 1, all work is large."""
RUN = """
import frazil
from frazil.engine import tasks
tasks.LARGE = tasks.MANY_ROWS = 1
lake = frazil.open("02_cdc_merge", "w", keep_hours=0.0)
for done in (lake.load(), lake.merge(), lake.maintain(dry_run=False)):
    print(*[(r.table, r.status, r.counts) for r in done])
print(lake.spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("frazil").__file__).collect())
"""


@pytest.fixture
def waiting_load(open_world):
    """A world with a load of three files, of which one is empty, and changes in two files; one row of the load is bad."""
    w = open_world(on_bad_rows="quarantine")
    w.table("t", "id INT8", "v STRING(9)", "n INT4", partition=["v"]).table("h", key=(), without_key="append")
    for table in ("t", "h"):
        w.source.load(table, *((n, "ab"[n % 2], n)[: 3 if table == "t" else 2] for n in range(40)))
        w.source.load(table, name="LOAD00000002.csv")
    w.source.load("t", (40, "c", 1), (41, "c", "x"), name="LOAD00000003.csv")
    w.source.load("h", (40, "c"), name="LOAD00000003.csv")
    w.source.changes("t", U(1, "B", 1), D(2), I(50, "c", 5), name=FILE1)
    w.source.changes("t", U(50, "d", 6), U(40, "e", 7), name=FILE2)
    return w


def check(w) -> None:
    rows = {n: (n, "ab"[n % 2], n) for n in range(40)} | {1: (1, "B", 1), 50: (50, "d", 6), 40: (40, "e", 7)}
    assert w.rows("t") == sorted((row for n, row in rows.items() if n != 2), key=repr)
    assert [(r["file"], r["row"]) for r in w.quarantine("t")] == [("LOAD00000003.csv", 2)]
    assert sorted(row[:2] for row in w.rows("h")) == [*((n, "ab"[n % 2]) for n in range(40)), (40, "c")]


def test_a_table_that_tasks_loaded_and_compacted_is_as_one_of_this_process(waiting_load, monkeypatch):
    w = waiting_load
    for border in BORDERS:
        monkeypatch.setattr(f"frazil.{border}", 1)
    w.setup()
    loaded = w.load()["t"]
    assert (loaded.status, loaded.counts["rows"], loaded.counts["quarantined"]) == ("loaded", 41, 1)
    w.merge()
    assert w.maintain()["t"].counts["compact"] > 0
    assert all(file.rows for file in opened(w, {})["public.t"].refresh().live_files.values())
    check(w)


def test_an_error_in_a_task_names_its_file(open_world, monkeypatch):
    w = open_world().table("cut").table("twice")
    for border in BORDERS:
        monkeypatch.setattr(f"frazil.{border}", 1)
    for table, value in (("cut", b'"a'), ("twice", b"b")):
        first = w.source.load(table, (1, "a")).read_bytes()
        w.source.write(table, "LOAD00000002.csv", first.replace(b"a", value))
    w.setup()
    done = w.load()
    assert done["cut"].code == "row-borders" and "LOAD00000002.csv row 1" in done["cut"].note
    assert done["twice"].code == "load-duplicate-key" and "LOAD00000002.csv row 1" in done["twice"].note


def test_a_cluster_does_the_same_and_its_executors_get_the_package(waiting_load, tmp_path):
    w = waiting_load
    w.setup()  # so the tasks of the load are the first that needs the session
    with cluster(tmp_path) as (master, _):
        env = {**os.environ, "FRAZIL_MASTER": master, "FRAZIL_PARAMS": str(w.root / "params"), "SPARK_LOCAL_IP": "127.0.0.1"}  # fmt: skip
        done = subprocess.run([sys.executable, "-c", RUN], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "frazil.zip" in done.stdout, done.stdout + done.stderr
    check(w)
