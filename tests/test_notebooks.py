"""The notebooks, run from top to bottom unchanged, against kept reference outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from frazil_old.report.notebook_output import read_record

sys.path.insert(0, str(Path(__file__).parent))
import reference

pytestmark = pytest.mark.notebooks


def papermill(notebook: str, place: Path, *parameters: str) -> subprocess.CompletedProcess:
    source = Path(__file__).parent.parent / "notebooks" / f"{notebook}.ipynb"
    return subprocess.run(
        [sys.executable, "-m", "papermill", str(source), str(place / "out.ipynb"), "-k", "python3", "--no-progress-bar", *parameters],
        capture_output=True, text=True, env={**os.environ, "FRAZIL_PARAMS": str(place / "params")},
    )  # fmt: skip


def test_an_unknown_parameter_is_refused_with_the_nearest_name(tmp_path):
    ran = papermill("02_cdc_merge", reference.workspace(tmp_path), "-p", "max_batch_mbs", "5")
    assert ran.returncode != 0
    assert "unknown parameter 'max_batch_mbs'" in ran.stderr
    assert "did you mean 'max_batch_mb'?" in ran.stderr


def test_an_unknown_table_is_refused_with_the_nearest_name(tmp_path):
    ran = papermill("00_setup", reference.workspace(tmp_path), "-y", "tables: [app.persom]")
    assert ran.returncode != 0
    assert "did you mean 'app.person'?" in ran.stderr


@pytest.mark.slow
def test_a_table_that_fails_fails_the_run_but_not_the_other_tables(tmp_path):
    place = reference.workspace(tmp_path)
    broken = place / "s3" / "app" / "visit" / "LOAD00000001.csv"
    broken.write_text(broken.read_text().replace("2026-02-02 12:00:00.000000", "yesterday"), encoding="utf-8")
    assert papermill("00_setup", place).returncode == 0
    ran = papermill("01_full_load", place)
    assert ran.returncode != 0
    assert "column 'at': 'yesterday' does not fit DATETIME" in ran.stderr
    assert "LOAD00000001.csv row 2" in ran.stderr
    record = read_record(place / "out.ipynb")
    assert record["status"] == "failed"
    assert record["tables"]["app.person"]["status"] == "loaded"
    assert record["tables"]["app.visit"]["status"] == "failed"
