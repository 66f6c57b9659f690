"""Runs in processes of their own: how signals, kills, errors and other runs end them, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
import pytest

from dms_writer import FILE1, FILE2, I, U

pytestmark = [pytest.mark.spark, pytest.mark.notebooks, pytest.mark.acceptance]
OK, FAILED, SKIPPED = 0, 1, 11
MERGE = ("run", "02_cdc_merge")


def wait_for(what, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def outcomes(w) -> list[str]:
    """Return how runs ended, the newest first."""
    return [r["outcome"] for r in json.loads(w.command("runs", "--json")[1])]


@pytest.fixture
def ingest(open_world):
    """A world, a run that has applied a file and goes on, and all processes of the run."""
    w = open_world(run_for_s=600.0, trigger_s=0.3).table("t")
    w.source.load("t", (1, "a"))
    w.loaded().source.changes("t", U(1, "b"))
    run = w.started(*MERGE)
    wait_for(lambda: w.position("t").get("last") == FILE1 or run.poll() is not None)
    assert run.poll() is None, run.stdout.read()
    assert w.rows("t") == [(1, "b")]
    w.settings |= {"run_for_s": 0.0}  # of the runs of this test
    family = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
    yield w, run, family
    kill(family)


def kill(family: list[psutil.Process]) -> None:
    """Kill processes; a short-lived one among them may have ended by itself."""
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def is_kernel(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it has ended, or is a zombie
        return any("ipykernel" in word for word in process.cmdline())
    return False


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_of_two_runs_one_is_skipped_and_a_killed_one_is_listed_as_failed_and_frees_its_lock(ingest):
    w, run, family = ingest
    assert [w.command(*MERGE, *more)[0] for more in ((), ("--idle-ok",))] == [SKIPPED, OK]
    kill(family)
    run.wait()
    assert outcomes(w) == ["skipped", "skipped", "failed"]
    w.source.changes("t", I(2, "c"), name=FILE2)
    again = w.started(*MERGE, "--follow")
    told = again.communicate(timeout=200)[0]
    assert again.returncode == OK and "public.t" in told and told.startswith("#"), told
    assert w.rows("t") == [(1, "b"), (2, "c")] and outcomes(w)[0] == "ok"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_command_lets_the_notebook_end(ingest, number):
    """Who stops a service knows the command's process alone; papermill would die of it and leave the kernel."""
    w, run, family = ingest
    run.send_signal(number)
    told = run.communicate(timeout=200)[0]
    assert (run.returncode, outcomes(w)) == (OK, ["ok"]), told
    wait_for(lambda: all(map(gone, family)))
    w.source.changes("t", I(2, "c"), name=FILE2)
    assert w.merged().rows("t") == [(1, "b"), (2, "c")]


def test_a_run_whose_kernel_dies_is_listed_as_failed_and_so_is_one_with_a_damaged_record(ingest):
    w, run, family = ingest
    kernels = list(filter(is_kernel, family))
    assert kernels
    kill(kernels)
    told = run.communicate(timeout=200)[0]
    assert run.returncode == FAILED and "Traceback" not in told and outcomes(w) == ["failed"], told
    w.source.changes("t", I(2, "c"), name=FILE2)
    assert w.command(*MERGE)[0] == OK and outcomes(w) == ["ok", "failed"]
    newest = max((w.root / "runs").rglob("run.json"), key=lambda f: f.stat().st_mtime)
    newest.write_text('{"outcome": "o')
    assert outcomes(w) == ["failed", "failed"]


def test_a_run_that_fails_is_listed_with_its_cause(open_world, tmp_path):
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/files"}
    w = open_world(lake).table("t")
    (tmp_path / "catalog.db").write_text("junk")
    code, told = w.command("run", "00_setup")
    (run,) = json.loads(w.command("runs", "--json")[1])
    assert (code, run["outcome"]) == (FAILED, "failed") and "Traceback" not in told
    assert run["cause"] and run["cause"].splitlines()[0] in told and "cure" in told


def test_the_notebook_alone_starts_no_spark_where_nothing_is_pending(open_world, tmp_path):
    """Nor does it load what only Spark, or the reading of rows, needs."""
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    w.loaded().source.changes("t", U(1, "b"), name=FILE1)
    assert w.merged().command(*MERGE)[0] == 10
    notebook = nbformat.read(Path(__file__).parent.parent / "lib/frazil_old/notebooks/02_cdc_merge.ipynb", as_version=4)
    code = "import sys\nprint('loaded:', sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    notebook.cells.append(nbformat.v4.new_code_cell(code))
    nbformat.write(notebook, tmp_path / "i.ipynb")
    command = [sys.executable, "-m", "papermill", str(tmp_path / "i.ipynb"), str(tmp_path / "o.ipynb"), "-k", "python3", "-p", "env", "w"]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "loaded: []" in (tmp_path / "o.ipynb").read_text()
