"""Runs in processes of their own: how signals, kills, errors and other runs end them, and what they leave behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

import reference
from frazil_old import exit_codes
from frazil_old.config.processes import host, is_running
from frazil_old.config.settings import resolve
from frazil_old.flows import cdc, full_load, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.report import runs

pytestmark = pytest.mark.notebooks
ROOT = Path(__file__).parent.parent


def place_of(folder: Path, code: str = "") -> Path:
    """Make a workspace with the notebooks; `code` takes the place of 00_setup, so that a run of it needs no Spark."""
    place = reference.workspace(folder)
    shutil.copytree(ROOT / "notebooks", place / "notebooks", ignore=shutil.ignore_patterns(".*"))
    return with_stub(place, code) if code else place


def with_stub(place: Path, code: str) -> Path:
    stub = nbformat.read(ROOT / "notebooks/00_setup.ipynb", as_version=4)
    parameters = next(c for c in stub.cells if "parameters" in c.metadata.get("tags", []))
    stub.cells = [parameters, nbformat.v4.new_markdown_cell("## The tables"), nbformat.v4.new_code_cell(code)]
    nbformat.write(stub, place / "notebooks/00_setup.ipynb")
    return place


def frazil(place: Path, *argv: str) -> subprocess.Popen:
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params"), "FRAZIL_MASTER": "local[2]"}
    command = [sys.executable, "-m", "frazil_old.cli", *argv]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen) -> tuple[int, str]:
    out = process.communicate(timeout=200)[0]
    return process.returncode, out


def wait_for(what, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def last_run(place: Path) -> dict:
    return runs.read(place / "runs/demo")[0]


RESULT = 'from frazil_old.report.notebook_output import NotebookResult\nNotebookResult("setup", "ok", tables={"t": {"status": "created"}})'
SETUP = ("run", "00_setup", "--env", "demo")


def test_a_killed_run_is_listed_as_failed_and_frees_its_lock(tmp_path):
    made = place_of(tmp_path, "import time; time.sleep(300)")
    ran = frazil(made, *SETUP)
    wait_for(lambda: list((made / "runs/demo").glob("00_setup-*/run.log")))
    assert [ended(frazil(made, *SETUP, *more))[0] for more in ((), ("--idle-ok",))] == [exit_codes.SKIPPED, exit_codes.OK]  # fmt: skip
    for process in [psutil.Process(ran.pid), *psutil.Process(ran.pid).children(recursive=True)]:
        process.send_signal(signal.SIGKILL)
    ran.wait()
    assert runs.read(made / "runs/demo")[-1]["outcome"] == "failed"
    code, out = ended(frazil(with_stub(made, f"print('batch 1')\n{RESULT}"), *SETUP, "--follow"))
    assert code == exit_codes.OK and out.splitlines()[:2] == ["## The tables", "batch 1"], out


WAITS = f"""
from pathlib import Path
from frazil_old.flows.interrupts import stop_requests
with stop_requests(print) as stop:
    Path("there").touch()
    stop.wait(200)
{RESULT}
"""
ENDS_WHEN_ASKED, ANY_OTHER = WAITS, 'time.sleep(2); open("there", "w"); time.sleep(200)'


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, ENDS_WHEN_ASKED), (signal.SIGINT, ANY_OTHER)], ids=["TERM", "INT"])  # fmt: skip
def test_a_signal_to_the_command_reaches_the_notebook(tmp_path, number, code):
    """Who stops a service knows the command's process alone; papermill would die of it and leave the kernel."""
    zombie = 'import os, time; os.posix_spawn("/bin/true", ["true"], {})\n'  # as Spark leaves them now and then
    made = place_of(tmp_path, zombie + code)
    ran = frazil(made, *SETUP)
    wait_for(lambda: (made / "there").exists())
    family = psutil.Process(ran.pid).children(recursive=True)
    ran.send_signal(number)
    exited, out = ended(ran)
    wanted = (exit_codes.OK, "ok") if code == ENDS_WHEN_ASKED else (exit_codes.FAILED, "failed")
    assert (exited, last_run(made)["outcome"]) == wanted, out
    wait_for(lambda: not [p for p in family if is_running(host(), p.pid, p.create_time())])


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("from frazil_old.errors import FrazilError\nraise FrazilError('no such thing', 'name another')", "no such thing\n  cure: name another"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the notebook did not end"),
    ],
    ids=["an error", "a killed kernel"],
)  # fmt: skip
def test_a_run_that_fails_is_listed_with_its_cause(tmp_path, code, cause):
    made = place_of(tmp_path, code)
    exited, out = ended(frazil(made, *SETUP))
    assert exited == exit_codes.FAILED and cause in out and "Traceback" not in out
    assert last_run(made)["outcome"] == "failed" and cause in last_run(made)["cause"]
    (last_run(made)["folder"] / runs.FILE).write_text('{"outcome": "o')
    assert last_run(made)["outcome"] == "failed", "a damaged record is a failed run"


# --- with tables


@pytest.fixture(scope="module")
def place(spark, tmp_path_factory) -> Path:
    """A workspace whose tables are set up, loaded and merged."""
    made = place_of(tmp_path_factory.mktemp("operate"))
    params = made / "params/demo.yml"
    params.write_text(params.read_text().replace("catalog: lake\n", "catalog: operated\n"))  # the session has a `lake`
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(made / "params"))
        for name, flow in (("setup", setup.create_tables), ("full_load", full_load.run), ("cdc_merge", cdc.run)):
            assert not [r for r in flow(Workbook(resolve(name, {"env": "demo"}).settings)) if r.failed]
    return made


@pytest.mark.spark
def test_the_notebook_alone_starts_no_spark_where_nothing_is_pending(place, tmp_path):
    """Nor does it load what only Spark, or the reading of rows, needs."""
    notebook = nbformat.read(ROOT / "notebooks/02_cdc_merge.ipynb", as_version=4)
    code = "import sys\nprint('loaded:', sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    notebook.cells.append(nbformat.v4.new_code_cell(code))
    nbformat.write(notebook, tmp_path / "i.ipynb")
    command = [sys.executable, "-m", "papermill", str(tmp_path / "i.ipynb"), str(tmp_path / "o.ipynb"), "-k", "python3"]
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params")}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "loaded: []" in (tmp_path / "o.ipynb").read_text()


GATE = """
import time
from pathlib import Path
applied = cdc.apply_batch
def at_the_gate(*given):
    Path({made!r}, "at the gate").touch()
    while not Path({made!r}, "open").exists():
        time.sleep(0.1)
    return applied(*given)
if env == "demo":
    cdc.apply_batch = at_the_gate
"""
VISIT = "Op,committed,person_id,place,at,BI_person_id,BI_place\nI,2026-03-01 09:00:00.000000,9,Rome,NULL,NULL,NULL\n"


@pytest.mark.spark
@pytest.mark.slow
def test_of_runs_that_overlap_one_does_the_work_and_the_others_skip_politely(tmp_path, place):
    """Two begin at once on one machine: its lock parts them. A third, of another machine, has another lock, and overtakes."""
    made = Path(shutil.copytree(place, tmp_path / "copy"))
    shutil.copy(made / "params/demo.yml", made / "params/elsewhere.yml")
    notebook = nbformat.read(made / "notebooks/02_cdc_merge.ipynb", as_version=4)
    at = next(i for i, c in enumerate(notebook.cells) if c.cell_type == "code" and "cdc.run(book)" in c.source)
    notebook.cells.insert(at, nbformat.v4.new_code_cell(GATE.format(made=str(made))))
    nbformat.write(notebook, made / "notebooks/02_cdc_merge.ipynb")
    (made / "s3/app/visit/20260301-090000000.csv").write_text(VISIT, encoding="utf-8")
    pair = [frazil(made, "run", "02_cdc_merge", "--env", "demo") for _ in range(2)]
    wait_for(lambda: (made / "at the gate").exists() and any(p.poll() is not None for p in pair), 150)
    (second,) = [p for p in pair if p.poll() is not None]
    assert ended(second)[0] == exit_codes.SKIPPED
    code, out = ended(frazil(made, "run", "02_cdc_merge", "--env", "elsewhere"))
    assert code == exit_codes.OK, out
    (made / "open").touch()
    assert ended(next(p for p in pair if p is not second))[0] == exit_codes.SKIPPED
    assert [r["outcome"] for r in runs.read(made / "runs/demo")[:2]] == ["skipped", "skipped"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(made / "params"))
        catalog = pyiceberg_catalog.open_catalog(resolve("cdc_merge", {"env": "elsewhere"}).settings)
    rows = catalog.load_table("app.visit").scan(row_filter="person_id = 9").to_arrow().to_pylist()
    assert [r["place"] for r in rows] == ["Rome"]
