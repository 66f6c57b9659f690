"""Counts are exact when an executor is lost in the middle of a batch's first job, with and without quarantined rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from executor_loss import FILES, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_count_equals_the_files_when_an_executor_is_killed_after_its_first_task(tmp_path):
    here = Path(__file__).parent
    environment = {**os.environ, "FRAZIL_MASTER": "local-cluster[2,1,1024]", "PYTHONPATH": os.pathsep.join([str(here), str(here.parent / "lib")])}  # fmt: skip
    ran = subprocess.run(
        [sys.executable, str(here / "executor_loss.py"), str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    told, changes = json.loads((tmp_path / "told.json").read_text()), FILES * (ROWS + 1)
    deleted = FILES * ROWS // 10
    bad = {"plain": 0, "aside": FILES * ROWS // 100}
    for table in bad:
        one = told[table]
        assert one["killed"] and one["status"] == "merged", one
        expected = {"changes": changes, "inserts": FILES, "updates": changes - FILES - deleted, "deletes": deleted}
        assert {k: one["counts"][k] for k in expected} == expected
        assert one["counts"].get("quarantined", 0) == one["summary"]["quarantined"] == bad[table]
        assert [one["summary"][k] for k in ("changes", "I", "U", "D")] == list(expected.values())
        assert one["rows"] == FILES * ROWS - deleted + FILES
    assert told["quarantine"] == bad["aside"]
