"""The short forms of the torture suites; `make torture` runs the long ones."""

import importlib.util
import sys
from pathlib import Path

import pytest


def suite(name: str):
    """Import a suite by path: it is a script as well, and no package."""
    found = importlib.util.spec_from_file_location(f"torture_{name}", Path(__file__).parent / f"torture/{name}.py")
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_mutated_files_are_read_right_or_refused_by_name():
    counts = suite("files").read(200)
    assert sum(counts.values()) == 200
    assert min(counts[outcome] for outcome in ("right rows", "with bad rows", "refused: damaged")) > 5


@pytest.mark.spark
def test_bad_rows_of_mutated_files_are_set_aside_and_none_is_good_when_read_again(spark, catalog_options):
    counts = suite("files").apply(25, 1, spark, catalog_options)
    assert min(counts.values()) > 5 and len(counts) == 2


@pytest.mark.spark
def test_faults_in_the_middle_of_commits_leave_a_replay(spark, catalog_options):
    counts = suite("commit").run(5, seed=17, spark=spark, catalog_options=catalog_options)
    assert sum(counts.values()) == 5


def test_mutated_messages_are_read_right_or_are_bad_rows():
    counts = suite("streams").run(400)
    assert sum(counts.values()) >= 400
    assert min(counts.values()) > 20 and len(counts) == 4
