"""The short forms of benchmark groups, from a copy, so that no figure of a long run is written over; `make bench` measures."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[1]
FIGURES = {
    "drain_changes_per_s",
    "fullload_rss_mb",
    "fullload_vs_raw",
    "index_start_s",
    "commit_40_vs_10",
    "ingest_p99_rise",
    "compacted_share",
    "parse_ratio_csv",
    "advice_error_median",
    "visible_s_p99_1k",
    "commit_with_refresh_ratio",
}


@pytest.fixture
def bench(tmp_path):
    """Return a function that runs benchmark groups of a copy, and the file of their figures."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("lib", "params", "notebooks"):
        (tmp_path / folder).symlink_to(ROOT / folder)

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, tmp_path / "tests/bench", *arguments], capture_output=True, text=True)

    return run, tmp_path / "runs/bench/results.json"


def test_every_group_has_a_quick_form_and_one_that_fails_holds_no_other_up(bench):
    run, results = bench
    (results.parents[2] / "tests/bench/broken.py").write_text("def run(quick):\n    raise ValueError('no figure')\n")
    ran = run("--quick")
    assert ran.returncode == 1 and "no figure" in ran.stderr and ran.stdout.endswith("; failed: broken\n"), ran.stderr
    figures = {r["name"]: r for r in json.loads(results.read_text())}
    assert figures.keys() >= FIGURES and all(f["value"] > 0 and f["conditions"] for f in figures.values())


def test_a_group_that_is_not_there_is_named(bench):
    ran = bench[0]("drain", "speed")
    assert ran.returncode == 2 and ran.stderr.startswith("no group speed; there are: bulk, cluster, compaction, drain,")
