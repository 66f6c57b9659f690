"""Figure: how long a scheduled run takes that finds nothing to do, from the command's start to its end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from frazil.observe import runs
from reference import workspace

ROOT = Path(__file__).parents[2]


def _run(place: Path, notebook: str, expected: int) -> float:
    """Run a notebook by the command, insist on its exit code, return the seconds of the whole process."""
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params"), "PYTHONPATH": str(ROOT / "lib")}
    began = time.perf_counter()
    command = [sys.executable, "-m", "frazil.cli", "run", notebook, "--env", "demo"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == expected, ran.stdout + ran.stderr
    return time.perf_counter() - began


def run(quick: bool = False) -> list[dict]:
    """Set up, load and merge two tables, then let `frazil run 02_cdc_merge` find nothing."""
    with tempfile.TemporaryDirectory(prefix="frazil-idle-") as folder:
        place = workspace(Path(folder))
        shutil.copytree(ROOT / "notebooks", place / "notebooks")
        for notebook in ("00_setup", "01_full_load", "02_cdc_merge"):
            _run(place, notebook, runs.OK)
        timed = [_run(place, "02_cdc_merge", runs.NOTHING) for _ in range(3 if quick else 9)]
    told = f"2 tables, local folder, SQLite catalog; median of {len(timed)}, {max(timed):.2f} s at most"
    return [{"name": "idle_run_s", "value": round(median(timed), 2), "unit": "s", "conditions": told}]
