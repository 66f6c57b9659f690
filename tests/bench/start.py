"""What a process does before its first batch: import, read settings and specs, start Spark. Both libraries, in processes of their own, in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.__main__ import ROOT

LAKE = {"type": "jdbc", "uri": "jdbc:sqlite:runs/lake.db", "warehouse": "runs/lake"}
SPEC = "source: a.t{n}\nkey: c0\ncolumns:\n" + "".join(f"  - {{name: c{i}, type: WSTRING(20)}}\n" for i in range(20))
CLOCK = "import time; start = time.perf_counter()\n"
PRINT = "\nprint('TAKEN', time.perf_counter() - start, flush=True); import os; os._exit(0)"
NEW = "from frazil.settings import environment, spec, spark; from pathlib import Path\n"
OLD = "from frazil_old.config import settings, spec, spark_session; from pathlib import Path\n"
PROGRAMS = {
    "import_s": ("time to import the library", f"{CLOCK}import frazil", f"{CLOCK}import frazil_old.flows.cdc"),
    "settings_import_s": ("to import what reads settings and specs", f"{CLOCK}{NEW}", f"{CLOCK}{OLD}"),
    "settings_resolve_s": ("the first environment of a process", f"{NEW}{CLOCK}environment.resolve('new')", f"{OLD}{CLOCK}settings.resolve('cdc_merge', {{'env': 'old'}})"),
    "specs_300_s": ("300 specs of 20 columns", f"{NEW}{CLOCK}spec.load_specs(Path('specs'))", f"{OLD}{CLOCK}spec.load_specs(Path('specs'))"),
    "spark_start_s": ("a session with its catalog, local[2], jars kept", f"{NEW}s = environment.resolve('new')\n{CLOCK}spark.session(s)", f"{OLD}s = settings.resolve('cdc_merge', {{'env': 'old'}}).settings\n{CLOCK}spark_session.get_spark(s)"),
}  # fmt: skip
"""Each figure: what it is, and the program of each library that takes its time."""


def taken(program: str, folder: str) -> float:
    """Return the seconds that a program says it took."""
    found = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "lib"),
        "FRAZIL_PARAMS": f"{folder}/params",
        "FRAZIL_MASTER": "local[2]",
    }
    done = subprocess.run([sys.executable, "-c", program + PRINT], capture_output=True, text=True, cwd=folder, env=found, check=True)  # fmt: skip
    return float(done.stdout.rpartition("TAKEN")[2])


def run(quick: bool) -> list[dict]:
    """Measure each figure several times, the libraries in turn, and return the medians."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("params", "specs"):
            Path(folder, name).mkdir()
        Path(folder, "params/new.yml").write_text(json.dumps({"catalog_options": LAKE}))
        Path(folder, "params/old.yml").write_text(json.dumps({"common": {"catalog_options": LAKE}}))
        for n in range(300):
            Path(folder, f"specs/t{n}.yml").write_text(SPEC.replace("{n}", str(n)))
        for name, (what, *programs) in PROGRAMS.items():
            times = [[taken(p, folder) for p in programs] for _ in range(3 if quick else 7)][1:]
            for house, found in zip(("new", "old"), zip(*times, strict=True), strict=True):
                value = {"value": round(statistics.median(found), 4), "unit": "s", "conditions": what, "house": house}
                rows.append({"name": f"start_{name}" + "_old" * (house == "old"), **value})
    return rows
