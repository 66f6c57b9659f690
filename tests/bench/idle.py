"""Figures: how long a scheduled run takes that finds nothing to do: the old library's command, or a script; and papermill alone."""

from __future__ import annotations

from statistics import median

from bench._lake import ROOT, figure, lake, python, seconds, stop_spark
from frazil_old import exit_codes
from world import house, house_name

SCRIPT = "import frazil; assert frazil.open('02_cdc_merge', 'w').merge().outcome == 'nothing'"


def run(quick: bool = False) -> list[dict]:
    """Load and merge two tables, then let a run find nothing, and the notebook under papermill (quick: once each)."""
    found = []
    with lake() as world:
        for table in ("t", "u"):
            world.table(table).source.load(table, (1, "a"))
        world.loaded().source.write("t", "20260101-000000000.csv", "U,2026-01-01 00:00:00.000000,1,b\n")
        world.merged()
        stop_spark()
        command, nothing, notebooks = ["-c", SCRIPT], 0, ROOT / "notebooks"
        if house_name() == "old":
            house().command_line(world, ())
            command, nothing = ["-m", "frazil_old.cli", "run", "--env", "w", "02_cdc_merge"], exit_codes.NOTHING
            notebooks = world.root / "notebooks"
        notebook = [f"{notebooks}/02_cdc_merge.ipynb", f"{world.root}/out.ipynb"]
        papermill = ["-m", "papermill", *notebook, "-k", "python3", "-p", "env", "w"]
        for name, words, code in (("idle_run_s", command, nothing), ("idle_papermill_s", papermill, 0)):
            timed = [seconds(lambda: python(world, *words, codes=(code,))) for _ in range(2 if quick else 10)][1:]  # noqa: B023
            told = f"2 tables, local folder, SQLite catalog; median of {len(timed)}, {max(timed):.2f} s at most"
            found.append(figure(name, median(timed), "s", told))
    return found
