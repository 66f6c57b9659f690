"""Figures: how long a scheduled run takes that finds nothing to do, by the command and by papermill alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench._lake import stop_spark, tiny_lake
from frazil.observe import runs

ROOT = Path(__file__).parents[2]


def _timed(place: Path, arguments: list[str], expected: int) -> float:
    """Run a module of Python's in a workspace, insist on its exit code, return the seconds of the whole process."""
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params"), "PYTHONPATH": str(ROOT / "lib")}
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, "-m", *arguments], env=environment, capture_output=True, text=True)
    assert ran.returncode == expected, ran.stdout + ran.stderr
    return time.perf_counter() - began


def run(quick: bool = False) -> list[dict]:
    """Set up, load and merge two tables, then let `frazil run 02_cdc_merge` find nothing, and the notebook under papermill.

    Quick: once each.
    """
    with tempfile.TemporaryDirectory(prefix="frazil-idle-") as folder:
        place, times = tiny_lake(Path(folder), readers=["spark", "duckdb", "pyiceberg"]), 1 if quick else 9
        stop_spark()
        shutil.copytree(ROOT / "notebooks", place / "notebooks")
        command = ["frazil.cli", "run", "--env", "demo"]
        notebook = str(place / "notebooks/02_cdc_merge.ipynb")
        papermill = ["papermill", notebook, str(place / "out.ipynb"), "-k", "python3", "-p", "env", "demo"]
        timed = {
            "idle_run_s": [_timed(place, [*command, "02_cdc_merge"], runs.NOTHING) for _ in range(times)],
            "idle_papermill_s": [_timed(place, papermill, 0) for _ in range(times)],
        }
    return [
        {"name": name, "value": round(median(seconds), 2), "unit": "s",
         "conditions": f"2 tables, local folder, SQLite catalog; median of {len(seconds)}, {max(seconds):.2f} s at most"}
        for name, seconds in timed.items()
    ]  # fmt: skip
