"""Executors without Python: what Frazil sends to them is made in the JVM, and where Python is needed the message says so."""

import re

import pytest

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.engine import load_files, small_batch
from frazil_old.flows import ledger, maintenance
from helpers import FILE1, D, I, U
from lake_reader import lake_rows

pytestmark = pytest.mark.spark


@pytest.fixture
def without_python(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    return spark


def test_loads_changes_maintenance_and_latency_need_no_python_on_executors(without_python, world, catalog_options):
    """With the key index, and where it would not fit and rows are found by a scan."""
    lanes = {"indexed": {"lane": "rowdelta"}, "scanned": {"lane": "rowdelta", "index_limit_mb": 0}}
    for name in lanes:
        world.table(name).load(name, *[(n, "loaded") for n in range(9)])
        world.changes(name, U(1, "y"), D(2), I(99, "new"), name=FILE1)
    world.loaded()
    for name, given in lanes.items():
        world.merged(tables=[f"public.{name}"], **given)
    kept = world.book(
        MaintenanceSettings, tables=["public.scanned"], dry_run=False, max_small_files=0, max_deleted_share=0.0
    )
    assert {r.status for r in maintenance.run(kept)} == {"maintained"}
    expected = [(0, "loaded"), (1, "y"), *[(n, "loaded") for n in range(3, 9)], (99, "new")]
    for name in lanes:
        assert lake_rows(catalog_options, f"{world.space}.{name}") == sorted(expected, key=repr)
    assert ledger.commits(world.book()).count() == 2 and ledger.actions(world.book()).count() > 0


def test_a_large_load_and_a_large_batch_are_read_by_this_process(without_python, world, catalog_options, monkeypatch):
    monkeypatch.setattr(load_files, "IN_PROCESS", -1)
    monkeypatch.setattr(small_batch, "MOST_MB", -1)
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    world.changes("t", U(1, "c"), D(2), I(3, "d")).merged(lane="merge")
    assert lake_rows(catalog_options, f"{world.space}.t") == [(1, "c"), (3, "d")]
    assert any("this process reads its rows" in line and "/no/such/python" in line for line in world.said)


def _attempted(world, work):
    """Return what a run says of a table whose work ends like this."""
    world.table("t")
    book = world.book()
    return book.attempt(book.specs["public.t"], work)


def test_a_missing_python_is_named_and_no_file_is_blamed(without_python, world):
    numbers = without_python.sparkContext.parallelize([1, 2]).map(lambda n: n + 1)
    done = _attempted(world, lambda spec: numbers.collect())
    assert done.failed and re.search("cannot run Python.*/no/such/python", done.note)


@pytest.mark.parametrize("way", ["rows", "arrow"])
def test_a_module_that_executors_lack_is_named_and_no_file_is_blamed(spark, world, way):
    def ask(n):
        import not_on_this_machine

        return not_on_this_machine.about(n)

    rows = spark.sparkContext.parallelize([1, 2]).map(ask)
    arrow = spark.range(2).mapInArrow(lambda batches: map(ask, batches), "id long")
    done = _attempted(world, lambda spec: (rows if way == "rows" else arrow).collect())
    assert done.failed and "cannot run Python: ModuleNotFoundError: No module named 'not_on_this_machine'" in done.note


def test_another_failure_of_a_stage_is_told_as_it_is(spark, world):
    failing = spark.range(3).selectExpr("raise_error('nothing wrong with a file')")
    done = _attempted(world, lambda spec: failing.collect())
    assert done.failed and "nothing wrong with a file" in done.note and "cannot" not in done.note
