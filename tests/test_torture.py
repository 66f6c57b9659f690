"""The short forms of the torture suites; `make torture` runs the long ones."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def suite(name: str):
    """Import a suite by path: it is a script as well, and no package."""
    found = importlib.util.spec_from_file_location(f"torture_{name}", Path(__file__).parent / f"torture/{name}.py")
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_mutated_files_are_read_right_or_refused_by_name(spark):
    counts = suite("files").run(200, spark=spark)
    assert sum(counts.values()) == 200
    assert min(counts["right rows"], counts["rows set aside"], counts["named error"]) > 5


def test_faults_in_the_middle_of_commits_leave_a_replay(spark, catalog_options):
    counts = suite("commit").run(5, seed=17, spark=spark, catalog_options=catalog_options)
    assert sum(counts.values()) == 5


def test_mutated_messages_are_read_right_set_aside_or_named(spark):
    counts = suite("streams").run(200, spark=spark)
    assert sum(counts.values()) >= 200
    assert min(counts.values()) > 5 and len(counts) == 6
