"""The pages for operators say what the code does: every error has its line, every schedule works as given."""

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import frazil
from frazil.errors import FrazilError
from frazil.observe import runs

DOCS = Path(__file__).parent.parent / "lib/docs"
SCHEDULES, TROUBLES = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("schedules", "troubles"))
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", SCHEDULES, re.S | re.M))


def every_error(of: type = FrazilError) -> set[str]:
    for module in pkgutil.walk_packages(frazil.__path__, "frazil."):
        if not module.name.startswith("frazil.demo") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    known, found = [of], set()
    while known:
        known += (below := known.pop().__subclasses__())
        found |= {c.__name__ for c in below if not c.__module__.startswith("frazil.demo")}
    return found


def test_every_error_has_its_line_and_no_line_is_of_another():
    assert set(re.findall(r"^\| `(\w+Error)`", TROUBLES, re.M)) == every_error()


def test_the_exit_codes_are_those_of_the_code():
    told = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| ([a-z ]+) \|", SCHEDULES, re.M)}
    assert told == runs.EXIT_CODES


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_the_systemd_units_are_right(tmp_path):
    command = tmp_path / ".venv/bin/frazil"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace("/srv/frazil", str(tmp_path)))
    ran = subprocess.run(["systemd-analyze", "verify", tmp_path / "frazil-cdc.timer"], capture_output=True, text=True)
    assert [line for line in ran.stderr.splitlines() if "frazil" in line] == []
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.skipif("FRAZIL_AIRFLOW" not in os.environ, reason="`make test-airflow` names the Python that has Airflow")
@pytest.mark.parametrize(("code", "state"), [(0, "success"), (10, "skipped"), (3, "failed")])
def test_the_dag_is_parsed_and_run_by_airflow(tmp_path, code, state):
    """What stands for Frazil here is a command that ends with each code: how Airflow takes it is what is tested."""
    command = tmp_path / ".venv/bin/frazil"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\nexit {code}\n')
    command.chmod(0o755)
    dags = tmp_path / "airflow/dags"
    dags.mkdir(parents=True)
    text = FILES["frazil_dag.py"].replace("/srv/frazil", str(tmp_path))
    (dags / "frazil_dag.py").write_text(text)
    run = 'print("task state:", dag.test().get_task_instance("cdc_merge").state)'
    (dags / "run.py").write_text(f'{text}\nif __name__ == "__main__":\n    {run}\n')
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": ""}  # fmt: skip
    python = os.environ["FRAZIL_AIRFLOW"]
    for arguments in (["-m", "airflow", "db", "migrate"], ["-m", "airflow", "dags", "reserialize"]):
        done = subprocess.run([python, *arguments], env=environment, cwd=dags, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    ran = subprocess.run([python, str(dags / "run.py")], env=environment, cwd=dags, capture_output=True, text=True)
    assert f"task state: {state}" in ran.stdout, (ran.stdout + ran.stderr)[-3000:]
    assert (tmp_path / "called").read_text() == "run 02_cdc_merge --env prod\n"
