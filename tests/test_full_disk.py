"""A full or read-only disk below `runs/`: tables are processed all the same, and it is named."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import reference
from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.report import runs

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the small disk that these tests fill")


@pytest.fixture
def place(tmp_path):
    """A workspace whose `runs/` is a disk of 1 MB."""
    made = reference.workspace(tmp_path)
    (made / "runs").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", made / "runs"])
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    yield made
    subprocess.run(["umount", "--lazy", made / "runs"], check=True)


def fill(place: Path) -> None:
    (place / "runs/demo").mkdir(exist_ok=True)
    with pytest.raises(OSError), open(place / "runs/filler", "wb", buffering=0) as file:
        while True:
            file.write(b"0" * 4096)


def make_read_only(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", place / "runs"], check=True)


def with_notebook(place: Path, code: str) -> None:
    """Put a notebook that needs no Spark in the place of 00_setup."""
    (place / "notebooks").mkdir()
    stub = nbformat.read(ROOT / "notebooks/00_setup.ipynb", as_version=4)
    parameters = next(c for c in stub.cells if "parameters" in c.metadata.get("tags", []))
    stub.cells = [parameters, nbformat.v4.new_code_cell(code)]
    nbformat.write(stub, place / "notebooks/00_setup.ipynb")


RESULT = """
from frazil_old.report.notebook_output import NotebookResult
NotebookResult("setup", "ok", tables={"app.person": {"status": "created"}})
"""
FILLS = """
try:
    with open("runs/filler", "wb", buffering=0) as file:
        while True:
            file.write(b"0" * 4096)
except OSError:
    pass
"""


@pytest.mark.notebooks
@pytest.mark.parametrize("when", ["at the start", "at the end", "read-only"])
def test_a_run_goes_on_and_tells_what_came_of_it(place, when):
    with_notebook(place, (FILLS if when == "at the end" else "") + RESULT)
    if when == "at the start":
        fill(place)
    elif when == "read-only":
        make_read_only(place)
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params")}
    command = [sys.executable, "-m", "frazil_old.cli", "run", "00_setup", "--env", "demo"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == exit_codes.OK and "00_setup: ok in" in ran.stderr, ran.stdout + ran.stderr
    assert f"{place}/runs/demo cannot be written: " in ran.stderr and "Traceback" not in ran.stderr
    kept = [Path(line.strip()) for line in ran.stderr.splitlines() if line.startswith("  /")]
    assert any((folder / "00_setup.ipynb").exists() for folder in kept), "the notebook is where the message says"
    if when == "at the end":
        (run,) = runs.read(place / "runs/demo")
        assert run["outcome"] == "ok", "the room for the outcome was kept free"
    for folder in kept:
        if not folder.is_relative_to(place):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.spark
@pytest.mark.parametrize("fault", [fill, make_read_only])
def test_a_check_tells_it_as_a_breach_and_a_plan_is_shown(spark, place, fault, monkeypatch, capsys):
    fault(place)
    monkeypatch.setenv("FRAZIL_PARAMS", str(place / "params"))
    assert main(["check", "--env", "demo"]) == exit_codes.BREACH
    assert f"runs: {place}/runs/demo cannot be written: " in capsys.readouterr().err
    assert main(["plan", "--env", "demo"]) == exit_codes.OK
    out, err = capsys.readouterr()
    assert "app.person" in out and f"{place}/runs/demo cannot be written: " in err
