"""Figures: how long a scheduled run takes that finds nothing to do, by the command and by papermill alone."""

from __future__ import annotations

from statistics import median

from bench._lake import figure, lake, python, seconds, stop_spark, workspace
from frazil_old import exit_codes


def run(quick: bool = False) -> list[dict]:
    """Load and merge two tables, then let `frazil run 02_cdc_merge` find nothing, and the notebook under papermill (quick: once each)."""
    found = []
    with lake() as world:
        for table in ("t", "u"):
            world.table(table).source.load(table, (1, "a"))
        world.loaded().source.write("t", "20260101-000000000.csv", "U,2026-01-01 00:00:00.000000,1,b\n")
        world.merged()
        workspace(world)
        stop_spark()
        command = ["frazil_old.cli", "run", "--env", "w", "02_cdc_merge"]
        notebook = [f"{world.root}/{name}.ipynb" for name in ("notebooks/02_cdc_merge", "out")]
        papermill = ["papermill", *notebook, "-k", "python3", "-p", "env", "w"]
        for name, words, code in (("idle_run_s", command, exit_codes.NOTHING), ("idle_papermill_s", papermill, 0)):
            timed = [seconds(lambda: python(world, *words, codes=(code,))) for _ in range(1 if quick else 9)]  # noqa: B023
            told = f"2 tables, local folder, SQLite catalog; median of {len(timed)}, {max(timed):.2f} s at most"
            found.append(figure(name, median(timed), "s", told))
    return found
