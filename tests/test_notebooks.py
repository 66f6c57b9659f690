"""The notebooks, run from top to bottom unchanged, against kept reference outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from frazil_old.config import jars
from frazil_old.config.settings import Settings
from frazil_old.report.notebook_output import read_record

sys.path.insert(0, str(Path(__file__).parent))
import reference

pytestmark = pytest.mark.notebooks


def run_nbval(folder: Path, *notebooks: str, kept: dict) -> subprocess.CompletedProcess:
    """Run notebooks with nbval in a folder of their own, in order, on one lake."""
    place = reference.workspace(folder)
    for source in reference.NOTEBOOKS:
        if source.stem in notebooks:
            nbformat.write(reference.with_reference(source, kept), place / source.name)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--nbval-lax",
        "--nbval-cell-timeout=300",
        "-q",
    ]
    return subprocess.run(
        [*command, *(f"{n}.ipynb" for n in notebooks)], cwd=place, capture_output=True, text=True,
        env={**os.environ, "FRAZIL_PARAMS": str(place / "params")},
    )  # fmt: skip


@pytest.fixture(scope="module")
def kept() -> dict:
    """What compared cells show; the jars are there, so that none shows that they are fetched."""
    jars.conf("4.1", Settings(), say=print)
    return json.loads(reference.KEPT.read_text(encoding="utf-8"))


def test_every_notebook_shows_what_it_should(tmp_path, kept):
    ran = run_nbval(tmp_path, *(n.stem for n in reference.NOTEBOOKS), kept=kept)
    assert ran.returncode == 0, ran.stdout[-5000:]


def test_every_compared_cell_has_a_reference(kept):
    tagged = [c.id for n in reference.NOTEBOOKS for c in reference.checked(nbformat.read(n, as_version=4))]
    assert sorted(tagged) == sorted(kept)


@pytest.mark.slow
def test_a_cell_whose_result_changes_turns_the_test_red(tmp_path, kept):
    (shown,) = (cell for cell, out in kept.items() if "load_files" in json.dumps(out))
    changed = json.loads(json.dumps(kept).replace("app.visit ", "app.vasit "))
    assert changed[shown] != kept[shown]
    ran = run_nbval(tmp_path, "00_setup", kept=changed)
    assert ran.returncode == 1
    assert "Cell outputs differ" in ran.stdout


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
