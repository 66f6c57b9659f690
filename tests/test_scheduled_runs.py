"""Scheduled runs: how they end, what they leave behind, and what they report when something is wrong."""

import html
import json
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
from frazil_old.cli import main
from frazil_old.config.processes import host, is_running
from frazil_old.config.settings import resolve
from frazil_old.flows import full_load, pending_work, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.report import notebook_output, runs
from frazil_old.results import TableResult, TablesFailedError
from monitored_world import Receiver

ROOT = Path(__file__).parent.parent


def place_of(folder: Path) -> Path:
    """Make a workspace with the notebooks, as somebody has it who runs them."""
    place = reference.workspace(folder)
    shutil.copytree(ROOT / "notebooks", place / "notebooks", ignore=shutil.ignore_patterns(".*"))
    return place


def frazil(place: Path, *argv: str, **more) -> subprocess.Popen:
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params"), "FRAZIL_MASTER": "local[2]"}
    return subprocess.Popen(
        [sys.executable, "-m", "frazil_old.cli", *argv], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more,
    )  # fmt: skip


def ended(process: subprocess.Popen) -> tuple[int, str]:
    out = process.communicate(timeout=200)[0]
    return process.returncode, out


def last_run(place: Path) -> dict:
    return runs.read(place / "runs/demo")[0]


def add_operate(place: Path, **settings) -> None:
    with open(place / "params/demo.yml", "a", encoding="utf-8") as file:
        file.write("\noperate:\n" + "".join(f"  {k}: {json.dumps(v)}\n" for k, v in settings.items()))


@pytest.fixture(scope="module")
def place(spark, tmp_path_factory) -> Path:
    """A lake that was set up and loaded here, to save two kernels, and merged by `frazil run`."""
    made = place_of(tmp_path_factory.mktemp("operate"))
    params = made / "params/demo.yml"
    params.write_text(
        params.read_text().replace("catalog: lake\n", "catalog: operated\n")
    )  # the tests' session has a `lake`
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(made / "params"))
        setup.create_tables(Workbook(resolve("setup", {"env": "demo"}).settings))
        full_load.run(Workbook(resolve("full_load", {"env": "demo"}).settings))
    code, out = ended(frazil(made, "run", "cdc_merge", "--env", "demo"))
    assert code == exit_codes.OK, out
    return made


def with_stub(made: Path, code: str) -> Path:
    """Put a notebook in the place of 00_setup that needs no Spark: what is tested is what becomes of its process."""
    stub = nbformat.read(ROOT / "notebooks/00_setup.ipynb", as_version=4)
    parameters = next(c for c in stub.cells if "parameters" in c.metadata.get("tags", []))
    stub.cells = [parameters, nbformat.v4.new_code_cell(code)]
    nbformat.write(stub, made / "notebooks/00_setup.ipynb")
    return made


@pytest.mark.notebooks
def test_a_run_keeps_notebook_log_and_record_and_is_indexed(place):
    run = next(r for r in runs.read(place / "runs/demo") if r["notebook"] == "02_cdc_merge" and r["outcome"] == "ok")
    assert {"02_cdc_merge.ipynb", "02_cdc_merge.html", "run.log", "run.json"} <= {
        f.name for f in run["folder"].iterdir()
    }
    assert run["rows"] > 0
    assert run["worst_lag_s"] > 0
    assert f"{run['folder'].name}/02_cdc_merge.html" in (place / "runs/demo/index.html").read_text()
    page = (run["folder"] / "02_cdc_merge.html").read_text()
    assert run["tables"] and all(table in page for table in run["tables"])


@pytest.mark.notebooks
def test_a_run_with_nothing_pending_says_so_and_starts_no_spark(place):
    before = (place / "runs/demo/spark.log").stat().st_mtime_ns
    code, out = ended(frazil(place, "run", "02_cdc_merge", "--env", "demo"))
    assert code == exit_codes.NOTHING, out
    assert (place / "runs/demo/spark.log").stat().st_mtime_ns == before
    assert not list(last_run(place)["folder"].glob("*.ipynb"))


@pytest.mark.notebooks
def test_the_notebook_alone_starts_no_spark_where_nothing_is_pending(place, tmp_path):
    """Nor does it load what only Spark, or the reading of rows, needs."""
    before = (place / "runs/demo/spark.log").stat().st_mtime_ns
    notebook = nbformat.read(ROOT / "notebooks/02_cdc_merge.ipynb", as_version=4)
    code = "import sys\nprint('loaded:', sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    notebook.cells.append(nbformat.v4.new_code_cell(code))
    nbformat.write(notebook, tmp_path / "i.ipynb")
    command = [sys.executable, "-m", "papermill", str(tmp_path / "i.ipynb"), str(tmp_path / "o.ipynb"), "-k", "python3"]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "FRAZIL_PARAMS": str(place / "params")})  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert (place / "runs/demo/spark.log").stat().st_mtime_ns == before
    assert "loaded: []" in (tmp_path / "o.ipynb").read_text()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("max_batch_mbs", "5"), "did you mean 'max_batch_mb'?"),
        (("max_batch_mb", "much"), "max_batch_mb: 'much' should be a valid integer"),
        (("tables", "app.person"), "write tables: [app.person]"),
        (("tables", "[app.persom]"), "did you mean 'app.person'?"),
        (("tables", "[app.person"), "is no YAML"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_starts(tmp_path, given, says, capsys, monkeypatch):
    made = place_of(tmp_path)
    add_operate(made, on_trouble=f"cat > {tmp_path}/told.json")
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    assert main(["run", "02_cdc_merge", "--env", "demo", "-p", *given]) == exit_codes.WRONG
    assert says in capsys.readouterr().err
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["outcome"] == "wrong parameters" and says in told["cause"]
    run = last_run(made)
    assert (run["notebook"], run["outcome"], str(run["folder"])) == ("02_cdc_merge", told["outcome"], told["folder"])
    assert [f.name for f in run["folder"].iterdir()] == [runs.FILE]
    row = html.unescape((made / "runs/demo/index.html").read_text()).partition("</th></tr>")[2]
    assert 'class="bad"' in row and f">{exit_codes.WRONG}</td>" in row and says in row


def test_what_no_run_can_come_of_is_on_the_page_if_the_environment_is_there(tmp_path, capsys, monkeypatch):
    made = place_of(tmp_path)
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    assert main(["run", "02_cdc_merge", "--env", "dmeo"]) == exit_codes.WRONG
    assert "did you mean 'demo'?" in capsys.readouterr().err
    assert not (made / "runs").exists()
    assert main(["run", "02_cdc_murge", "--env", "demo"]) == exit_codes.WRONG
    (made / "params/demo.yml").write_text("comon: {}\n")
    assert main(["run", "02_cdc_merge", "--env", "demo"]) == exit_codes.WRONG
    page = html.unescape((made / "runs/demo/index.html").read_text())
    assert all(word in page for word in ("no notebook '02_cdc_murge'", "unknown section 'comon'"))


@pytest.mark.notebooks
@pytest.mark.slow
def test_a_table_that_fails_and_one_that_needs_a_decision_have_codes_of_their_own(tmp_path, place):
    made = Path(shutil.copytree(place, tmp_path / "copy"))
    load = made / "s3/app/person/LOAD00000001.csv"
    load.write_text(
        "".join(load.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8"
    )  # DMS loaded again
    changes = made / "s3/app/visit/20260301-080103000.csv"
    head = changes.read_text(encoding="utf-8").splitlines()[0]
    (changes.parent / "20261001-000000000.csv").write_text(f"{head}\nX,nonsense\n", encoding="utf-8")
    loading, merging = (frazil(made, "run", n, "--env", "demo") for n in ("01_full_load", "02_cdc_merge"))
    code, out = ended(loading)
    assert code == exit_codes.DECISION, out
    code, out = ended(merging)
    assert code == exit_codes.SOME_FAILED, out


@pytest.mark.notebooks
@pytest.mark.slow
def test_a_run_that_sets_rows_aside_shows_in_its_notebook_what_is_wrong_with_them(tmp_path, place):
    made = Path(shutil.copytree(place, tmp_path / "copy"))
    first = (made / "s3/app/visit/20260301-080103000.csv").read_text(encoding="utf-8").splitlines()[0]
    bad = "I,2099-01-01 00:00:00.000000,9,Arlington,yesterday,NULL,NULL"
    (made / "s3/app/visit/20261001-000000000.csv").write_text(f"{first}\n{bad}\n", encoding="utf-8")
    code, out = ended(frazil(made, "run", "02_cdc_merge", "--env", "demo", "-p", "on_bad_rows", "quarantine"))
    assert code == exit_codes.OK and "1 row quarantined" in out, out
    cells = nbformat.read(last_run(made)["folder"] / "02_cdc_merge.ipynb", as_version=4).cells
    shown = next(c for c in cells if c.source.startswith("wait = "))
    assert (
        "20261001-000000000.csv row 1: column 'at': 'yesterday' does not fit DATETIME"
        in shown.outputs[-1].data["text/plain"]
    )


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


@pytest.mark.notebooks
@pytest.mark.slow
def test_of_runs_that_overlap_one_does_the_work_and_the_others_skip_politely(tmp_path, place):
    """Two begin at once on one machine: its lock parts them. A third, of another machine, has another lock, and overtakes."""
    made = Path(shutil.copytree(place, tmp_path / "copy"))
    shutil.copy(made / "params/demo.yml", made / "params/elsewhere.yml")
    add_operate(made, on_trouble=f"cat > {tmp_path}/told.json")
    notebook = nbformat.read(made / "notebooks/02_cdc_merge.ipynb", as_version=4)
    at = next(i for i, c in enumerate(notebook.cells) if c.cell_type == "code" and "cdc.run(book)" in c.source)
    notebook.cells.insert(at, nbformat.v4.new_code_cell(GATE.format(made=str(made))))
    nbformat.write(notebook, made / "notebooks/02_cdc_merge.ipynb")
    rows = [
        "Op,committed,person_id,place,at,BI_person_id,BI_place",
        "I,2026-03-01 09:00:00.000000,9,Rome,NULL,NULL,NULL",
    ]
    (made / "s3/app/visit/20260301-090000000.csv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")

    pair = [frazil(made, "run", "02_cdc_merge", "--env", "demo") for _ in range(2)]
    wait_for(lambda: (made / "at the gate").exists() and any(p.poll() is not None for p in pair), 150)
    (second,) = [p for p in pair if p.poll() is not None]
    code, out = ended(second)
    assert code == exit_codes.SKIPPED and "another run of this notebook is in progress" in out, out
    code, out = ended(frazil(made, "run", "02_cdc_merge", "--env", "elsewhere"))
    assert code == exit_codes.OK, out
    (made / "open").touch()
    code, out = ended(next(p for p in pair if p is not second))
    assert code == exit_codes.SKIPPED and "app.visit: skipped: operated.app.visit: its position moved" in out, out

    here = [r["outcome"] for r in runs.read(made / "runs/demo")[:2]]
    assert here == ["skipped", "skipped"] and not (tmp_path / "told.json").exists()
    assert (
        'class="bad"'
        not in (made / "runs/demo/index.html").read_text().partition("</th></tr>")[2].partition("</tr>")[0]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(made / "params"))
        table = pyiceberg_catalog.open_catalog(resolve("cdc_merge", {"env": "elsewhere"}).settings).load_table(
            "app.visit"
        )
    assert [r["place"] for r in table.scan(row_filter="person_id = 9").to_arrow().to_pylist()] == ["Rome"]


def test_what_tables_come_to_is_what_the_run_comes_to():
    def of(*statuses, **more):
        return exit_codes.outcome([{"status": s, **more} for s in statuses])

    assert of("merged", "unchanged") == "ok"
    assert of("unchanged", "unchanged") == "nothing to do"
    assert of("merged", "failed") == "some tables failed"
    assert of("failed", "failed") == "failed"
    assert of("merged", "waiting") == of("merged", "differs") == "needs a decision"
    assert of("failed", decision=True) == "needs a decision"
    assert exit_codes.outcome([{"status": "merged"}, {"status": "failed", "decision": True}]) == "needs a decision"
    assert of("merged", "skipped") == "skipped"
    assert exit_codes.outcome([{"table": "only looked at"}]) == "ok"
    record = {
        "tables": {"a": {"status": "merged"}, "b": {"status": "waiting", "note": "wait\n  cure: load"}},
        "compared": [{"table": "c", "status": "differs"}],
    }
    assert exit_codes.why(record) == "b: waiting: wait\n  cure: load\nc: differs" and exit_codes.why(None) == ""
    assert exit_codes.outcome_of(None, "UnknownTablesError") == "needs a decision"
    assert (exit_codes.outcome_of(None, "SpecError"), exit_codes.outcome_of(None, "TypeError")) == (
        "wrong parameters",
        "failed",
    )


def test_of_several_results_of_a_table_that_stands_which_says_most():
    def come_of(*found):
        record = notebook_output.finish("cdc_merge", [TableResult("t", *r) for r in found])
        return exit_codes.outcome(list(record.facts["tables"].values())), record.facts["tables"]["t"]["status"]

    assert come_of(("replayed",), ("unchanged",)) == ("ok", "replayed")
    assert come_of(("replayed",), ("merged",)) == ("ok", "merged")
    assert come_of(("unchanged",), ("unchanged",)) == ("nothing to do", "unchanged")
    with pytest.raises(TablesFailedError, match="t: no such row"):
        come_of(("failed", "no such row"), ("merged",))


def test_a_run_says_what_it_did_again():
    load = {
        "a": {"status": "replayed", "rows": 1200},
        "b": {"status": "unchanged"},
        "c": {"status": "reloaded", "rows": 3},
    }
    assert runs.restored(load) == (
        "load reloaded: c (3 rows); load replayed: a (1,200 rows); 02_cdc_merge applies their change files again"
    )
    results = TableResult("a", "replayed", counts={"replayed": 4, "still_bad": 1}), TableResult("a", "merged", counts={"changes": 2})  # fmt: skip
    record = notebook_output.finish("cdc_merge", results)
    assert runs.restored(record.facts["tables"]) == "4 rows of the quarantine replayed: a"
    assert runs.restored({"a": {"status": "merged", "changes": 3}}) == ""


@pytest.mark.notebooks
def test_a_killed_run_is_indexed_as_failed_and_frees_its_lock(tmp_path):
    made = with_stub(place_of(tmp_path), "import time; time.sleep(300)")
    ran = frazil(made, "run", "00_setup", "--env", "demo")
    wait_for(lambda: list((made / "runs/demo").glob("00_setup-*/run.log")))
    assert ended(frazil(made, "run", "00_setup", "--env", "demo"))[0] == exit_codes.SKIPPED
    family = psutil.Process(ran.pid).children(recursive=True)
    for process in [psutil.Process(ran.pid), *family]:
        process.send_signal(signal.SIGKILL)
    ran.wait()
    assert runs.read(made / "runs/demo")[-1]["outcome"] == "failed"
    assert 'class="bad"' in runs.write_index(made / "runs/demo").read_text()
    finish = 'from frazil_old.report.notebook_output import NotebookResult\nNotebookResult("setup", "ok", tables={"t": {"status": "created"}})'
    code, out = ended(frazil(with_stub(made, finish), "run", "00_setup", "--env", "demo"))
    assert code == exit_codes.OK, out


WAITS = """
from pathlib import Path
from frazil_old.flows.interrupts import stop_requests
from frazil_old.report.notebook_output import NotebookResult
with stop_requests(print) as stop:
    Path("there").touch()
    stop.wait(200)
NotebookResult("setup", "ok", tables={"t": {"status": "created"}})
"""


@pytest.mark.notebooks
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("waits", [True, False], ids=["a cell that ends when asked", "any other"])
def test_a_signal_to_the_command_reaches_the_notebook(tmp_path, number, waits):
    """Who stops a service knows the command's process alone; papermill would die of it and leave the kernel."""
    zombie = 'import os, time; os.posix_spawn("/bin/true", ["true"], {})\n'  # as Spark leaves them now and then
    made = with_stub(
        place_of(tmp_path), zombie + (WAITS if waits else 'time.sleep(2); open("there", "w"); time.sleep(200)')
    )
    ran = frazil(made, "run", "00_setup", "--env", "demo")
    wait_for(lambda: (made / "there").exists())
    family = psutil.Process(ran.pid).children(recursive=True)
    ran.send_signal(number)
    code, out = ended(ran)
    assert (code, last_run(made)["outcome"]) == ((exit_codes.OK, "ok") if waits else (exit_codes.FAILED, "failed")), out
    assert waits or last_run(made)["cause"] == "stopped"
    wait_for(lambda: not [p for p in family if is_running(host(), p.pid, p.create_time())])


@pytest.mark.notebooks
@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("from frazil_old.errors import FrazilError\nraise FrazilError('no such thing', 'name another')", "no such thing\n  cure: name another"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the notebook did not end, see"),
    ],
    ids=["an error", "a killed kernel"],
)  # fmt: skip
def test_a_run_that_fails_is_indexed_with_its_cause_and_told_of(tmp_path, code, cause):
    made = with_stub(place_of(tmp_path), code)
    add_operate(made, on_trouble=f"cat > {tmp_path}/told.json")
    exited, out = ended(frazil(made, "run", "00_setup", "--env", "demo"))
    assert exited == exit_codes.FAILED and cause in out and "Traceback" not in out
    assert last_run(made)["outcome"] == "failed" and cause in last_run(made)["cause"]
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["notebook"], told["outcome"]) == ("00_setup", "failed") and cause in told["cause"]
    assert 'class="bad"' in (made / "runs/demo/index.html").read_text()


@pytest.mark.notebooks
def test_a_run_beyond_its_time_is_stopped_with_its_kernel_and_told_of(tmp_path):
    made = with_stub(place_of(tmp_path), "import time; time.sleep(300)")
    add_operate(made, on_trouble=f"cat > {tmp_path}/told.json", timeout_s=5.0)
    ran = frazil(made, "run", "00_setup", "--env", "demo")
    family: set[psutil.Process] = set()  # whatever it has started until then: on a busy machine no kernel yet
    while ran.poll() is None:
        family |= set(psutil.Process(ran.pid).children(recursive=True))
        time.sleep(0.05)
    code, out = ended(ran)
    assert code == exit_codes.TIMED_OUT, out
    assert family
    wait_for(lambda: not [p for p in family if is_running(host(), p.pid, p.create_time())])
    assert json.loads((tmp_path / "told.json").read_text())["outcome"] == "timed out"


def wait_for(what, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


@pytest.mark.notebooks
def test_check_tells_each_breach_in_a_line_and_calls_the_hooks(tmp_path, place, monkeypatch, capsys):
    made = Path(shutil.copytree(place, tmp_path / "copy", copy_function=shutil.copy2))
    monkeypatch.setenv("FRAZIL_PARAMS", str(place / "params"))
    assert main(["check", "--env", "demo"]) == exit_codes.OK, capsys.readouterr().err
    receiver = Receiver(204)
    add_operate(made, webhook=f"{receiver.url}/", table_max_lag_s={"app.visit": "1"}, max_run_age_s=0.0)
    params = made / "params/demo.yml"
    text = params.read_text().replace("jdbc:sqlite:lake", f"jdbc:sqlite:{place}/lake")
    params.write_text(text.replace("warehouse: lake", f"warehouse: {place}/lake"))
    (made / "s3/app/visit/20260301-090000000.csv").write_text("", encoding="utf-8")
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    with receiver:
        assert main(["check", "--env", "demo"]) == exit_codes.BREACH
    told = capsys.readouterr().err.splitlines()
    assert len([line for line in told if line.startswith("app.visit: 1 file pending")]) == 1
    assert len([line for line in told if line.startswith("runs: 02_cdc_merge last succeeded")]) == 1
    assert json.loads(receiver.heard[0][1])["breaches"] == told


def test_a_catalog_that_cannot_be_read_is_told_in_a_line_and_left_to_spark(tmp_path, monkeypatch, capsys):
    made = place_of(tmp_path)
    (made / "lake").mkdir()
    (made / "lake/catalog.db").write_text("junk")
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    assert main(["check", "--env", "demo"]) == exit_codes.BREACH
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("lake: the lake cannot be read without Spark: DatabaseError: (sqlite3.DatabaseError) file is not a database; cure: ")  # fmt: skip
    assert others == ["runs: 02_cdc_merge has not succeeded yet"]
    assert pending_work.nothing_pending(Workbook(resolve("cdc_merge", {"env": "demo"}).settings)) is None


def test_the_oldest_runs_go(tmp_path):
    for number in range(5):
        (tmp_path / f"r{number}").mkdir()
        runs.write(tmp_path / f"r{number}", outcome="ok", notebook="n", began=float(number), pid=1)
    assert sorted(f.name for f in runs.retain(tmp_path, 2)) == ["r0", "r1", "r2"]
    assert [r["folder"].name for r in runs.read(tmp_path)] == ["r4", "r3"]


def test_the_oldest_runs_go_also_where_only_kernels_run_notebooks(tmp_path):
    for number in range(runs.KEPT):
        (tmp_path / f"r{number}").mkdir()
        runs.write(tmp_path / f"r{number}", outcome="ok", notebook="n", began=float(number), pid=1)
    runs.record(tmp_path, "cdc_merge", {"status": "ok", "tables": {}}, "demo", time.time())
    assert {f"r{n}" for n in range(runs.KEPT)} - {f.name for f in tmp_path.iterdir()} == {"r0"}


@pytest.mark.parametrize("text", ["", '{"outcome": "o', "[]", '{"outcome": "ok"}'])
def test_a_damaged_record_is_a_failed_run_and_hides_no_other(tmp_path, text):
    for n in (1, 2):
        (tmp_path / f"02_cdc_merge-{n}").mkdir()
        runs.write(tmp_path / f"02_cdc_merge-{n}", outcome="ok", notebook="02_cdc_merge", began=float(n), pid=1)
    (tmp_path / "02_cdc_merge-2" / runs.FILE).write_text(text)
    damaged, good = runs.read(tmp_path)
    assert (damaged["notebook"], damaged["outcome"], good["outcome"]) == ("02_cdc_merge", "failed", "ok")
    assert f"{tmp_path}/02_cdc_merge-2/run.json is damaged" in html.unescape(runs.write_index(tmp_path).read_text())


@pytest.mark.notebooks
def test_down_removes_exactly_what_it_listed(place, monkeypatch, capsys):
    """Last in this file: the lake is gone then."""
    monkeypatch.setenv("FRAZIL_PARAMS", str(place / "params"))
    other = place / "lake/warehouse/other/kept.txt"
    other.parent.mkdir()
    other.write_text("not ours")
    assert main(["down", "--env", "demo", "--yes"]) == exit_codes.FAILED
    assert "nothing was listed yet" in capsys.readouterr().err
    catalog = pyiceberg_catalog.open_catalog(resolve("setup", {"env": "demo"}).settings)
    person, no_table = (
        (f"operated.app.{name}", 1, int(time.time() * 1000), "pyiceberg") for name in ("person", "other")
    )
    pyiceberg_catalog.append(catalog, "ops", "visible", [person, no_table])
    assert main(["down", "--env", "demo"]) == exit_codes.OK
    assert "not deleted: table ops.visible: it also has rows about operated.app.other" in capsys.readouterr().out
    catalog.drop_table("ops.visible")
    pyiceberg_catalog.append(catalog, "ops", "visible", [person])
    catalog.create_namespace("theirs")
    assert main(["down", "--env", "demo"]) == exit_codes.OK
    told = capsys.readouterr().out.splitlines()
    assert {"table app.person", "table app.visit", "table ops.visible", "namespace app", "namespace ops"} < set(told)
    listed = set(json.loads((place / "runs/demo/down.json").read_text())["files"])
    assert listed and any("/ops/visible/" in file for file in listed)
    stray = Path(sorted(listed)[0]).parent / "later.txt"
    stray.write_text("came after the list")
    assert main(["down", "--env", "demo", "--yes"]) == exit_codes.FAILED
    assert all(Path(f).exists() for f in listed)
    stray.unlink()
    before = {str(f) for f in place.rglob("*") if f.is_file() and "runs" not in f.parts}
    assert main(["down", "--env", "demo", "--yes"]) == exit_codes.OK
    after = {str(f) for f in place.rglob("*") if f.is_file() and "runs" not in f.parts}
    assert before - after == listed
    assert other.read_text() == "not ours"
    assert runs.read(place / "runs/demo") == []
    assert catalog.list_namespaces() == [("theirs",)] and catalog.list_tables("theirs") == []
