"""Figures: how long a scheduled run takes that finds nothing to do, by the command and by papermill alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from bench._lake import stop_spark, tiny, tiny_lake
from frazil_old import exit_codes
from frazil_old.config.settings import CdcMergeSettings
from frazil_old.dms.applied_files import AppliedFile
from frazil_old.lake import jvm
from frazil_old.lake.batch_branches import new_batch
from frazil_old.lake.stored_applied_files import Update
from frazil_old.lake.tables import read_table_state

ROOT = Path(__file__).parents[2]


def _timed(place: Path, arguments: list[str], expected: int) -> float:
    """Run a module of Python's in a workspace, insist on its exit code, return the seconds of the whole process."""
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params"), "PYTHONPATH": str(ROOT / "lib")}
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, "-m", *arguments], env=environment, capture_output=True, text=True)
    assert ran.returncode == expected, ran.stdout + ran.stderr
    return time.perf_counter() - began


def _many_applied(place: Path, count: int) -> None:
    """Give one of the tables older change files, as if it had applied them: they are in the folder and in its record."""
    folder = place / "s3/app/person"
    for i in range(count):
        (folder / f"{datetime(2025, 10, 1) + timedelta(minutes=i):%Y%m%d-%H%M%S}000.csv").write_text("I,1\n")
    book = tiny(CdcMergeSettings, place)
    base = read_table_state(book.spark, book.name(book.specs["app.person"]))
    files = [f for f in book.objects(book.specs["app.person"]).changes if f.name < base.position.last]
    table = jvm.load_table(book.spark, book.name(book.specs["app.person"]))
    update = Update(table, base.record, new_batch(), files)
    update.keep([AppliedFile(f.name, f.size, f.etag, "sha256:" + f"{hash(f.name):x}"[-16:], "a_batch") for f in files])
    update.publish()


def run(quick: bool = False) -> list[dict]:
    """Set up, load and merge two tables, then let `frazil run 02_cdc_merge` find nothing, and the notebook under papermill.

    Then again with many applied files.

    Quick: once each.
    """
    with tempfile.TemporaryDirectory(prefix="frazil-idle-") as folder:
        place, times = tiny_lake(Path(folder), query_engines=["spark", "duckdb", "pyiceberg"]), 1 if quick else 9
        stop_spark()
        shutil.copytree(ROOT / "notebooks", place / "notebooks")
        command = ["frazil_old.cli", "run", "--env", "demo"]
        notebook = str(place / "notebooks/02_cdc_merge.ipynb")
        papermill = ["papermill", notebook, str(place / "out.ipynb"), "-k", "python3", "-p", "env", "demo"]
        timed = {
            "idle_run_s": [_timed(place, [*command, "02_cdc_merge"], exit_codes.NOTHING) for _ in range(times)],
            "idle_papermill_s": [_timed(place, papermill, 0) for _ in range(times)],
        }
        many = 10_000 if quick else 100_000
        _many_applied(place, many)
        stop_spark()
        timed["idle_run_many_s"] = [_timed(place, [*command, "02_cdc_merge"], exit_codes.NOTHING) for _ in range(times)]
    return [
        {"name": name, "value": round(median(seconds), 2), "unit": "s",
         "conditions": f"2 tables{f', {many:,} applied files' if 'many' in name else ''}, local folder, SQLite catalog; median of {len(seconds)}, {max(seconds):.2f} s at most"}
        for name, seconds in timed.items()
    ]  # fmt: skip
