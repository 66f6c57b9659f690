"""`make demo` at a small size: what it proves, what it leaves behind, and how it fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from frazil_old import exit_codes
from frazil_old.config.spec import load_specs

pytestmark = [pytest.mark.notebooks, pytest.mark.slow]
ROOT = Path(__file__).parent.parent


def demo(root: Path, **environment: str) -> subprocess.CompletedProcess:
    """Run the demo on a copy of notebooks and params, so that the runs of the checkout stay as they are."""
    for part in ("notebooks", "params"):
        shutil.copytree(ROOT / "lib/frazil_old" / part, root / part, dirs_exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "frazil_demo.run", "--scale", "0.05", "--transactions", "60"], cwd=root, text=True,
        capture_output=True, env={**os.environ, "FRAZIL_PARAMS": str(root / "params"), **environment},
    )  # fmt: skip


def test_the_demo_ends_equal_and_says_so(tmp_path):
    ran = demo(tmp_path)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    folder = tmp_path / "runs" / "demo"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["reconciled"] is True
    assert set(summary["tables"]) == set(load_specs(ROOT / "params" / "shop"))
    for row in summary["tables"].values():
        assert row["differing_rows"] == 0
        assert row["source_rows"] == row["lake_rows"] == row["duckdb_rows"] == row["pyiceberg_rows"] > 0
    assert {n["status"] for n in summary["notebooks"].values()} == {"ok"}
    assert len(summary["notebooks"]) == 8
    assert summary["transactions"]["rolled_back"] > 0
    assert "equal: see" in ran.stdout
    executed = [json.loads((folder / "notebooks" / f"{n}.ipynb").read_text()) for n in summary["notebooks"]]
    outputs = [o for notebook in executed for c in notebook["cells"] for o in c.get("outputs", ())]
    assert [o["text"] for o in outputs if o.get("name") == "stderr"] == [], "a warning stands in a notebook"
    # The source is gone, and what the demo leaves can be gone on with all the same.
    again = subprocess.run(
        [sys.executable, "-m", "frazil_old.cli", "run", "02_cdc_merge", "--env", "demo"], cwd=tmp_path, text=True,
        capture_output=True, env={**os.environ, "FRAZIL_PARAMS": str(tmp_path / "params")},
    )  # fmt: skip
    assert again.returncode == exit_codes.NOTHING, again.stdout + again.stderr


def test_a_demo_that_fails_says_why_in_one_line(tmp_path):
    ran = demo(tmp_path, FRAZIL_MASTER="nowhere")
    assert ran.returncode == 1
    (line,) = ran.stderr.strip().splitlines()
    assert line.startswith("demo failed: notebook 00_setup failed: SessionError: Spark did not start")
