"""A full or read-only disk below `runs/`: tables are processed all the same, and it is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from dms_writer import FILE2, U

pytestmark = [
    pytest.mark.spark, pytest.mark.notebooks, pytest.mark.acceptance,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the small disk that these tests fill"),
]  # fmt: skip


def fill(runs) -> None:
    with pytest.raises(OSError), open(runs / "filler", "wb", buffering=0) as file:
        while True:
            file.write(b"0" * 4096)


def make_read_only(runs) -> None:
    subprocess.run(["mount", "-o", "remount,ro", runs], check=True)


@pytest.fixture
def place(open_world):
    """A world with a change that waits, whose `runs/` is a disk of 1 MB."""
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    w.loaded().source.changes("t", U(1, "b"))
    (runs := w.root / "runs").mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", runs]).returncode:
        pytest.skip("no disk can be mounted here")
    yield w
    subprocess.run(["umount", "--lazy", runs], check=True)


@pytest.mark.parametrize("fault", [fill, make_read_only])
def test_tables_are_processed_and_each_command_names_the_disk(place, fault):
    fault(place.root / "runs")
    named = f"{place.root}/runs/"
    code, told = place.command("run", "02_cdc_merge")
    assert (code, place.rows("t")) == (0, [(1, "b")]) and "Traceback" not in told
    assert "cannot be written: " in told and named in told
    folders = [Path(line.strip()) for line in told.splitlines() if line.startswith("  /")]
    assert any((f / "02_cdc_merge.ipynb").exists() for f in folders), "the notebook is where the message says"
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    place.source.changes("t", U(1, "c"), name=FILE2)
    code, told = place.command("check")
    assert code == 6 and "cannot be written: " in told and named in told
    code, told = place.command("plan")
    assert code == 0 and "public.t" in told and "cannot be written: " in told


def test_a_disk_that_fills_during_a_run_hides_no_outcome(place, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what finds no room is put there
    run = place.started("run", "02_cdc_merge")
    while run.poll() is None and not [*(place.root / "runs").rglob("run.log")]:
        time.sleep(0.1)
    fill(place.root / "runs")
    told = run.communicate(timeout=200)[0]
    assert (run.returncode, place.rows("t")) == (0, [(1, "b")]) and "cannot be written: " in told, told
    assert json.loads(place.command("runs", "--json")[1])[0]["outcome"] == "ok", (
        "the room for the outcome was kept free"
    )
