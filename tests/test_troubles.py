"""The page of schedules says what the code does: exit codes, cron lines, systemd units, the DAG."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from frazil_old import exit_codes

DOCS = Path(__file__).parent.parent / "lib/docs"
SCHEDULES = (DOCS / "schedules.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", SCHEDULES, re.S | re.M))


def test_the_exit_codes_are_those_of_the_code():
    told = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| ([a-z ]+) \|", SCHEDULES, re.M)}
    assert told == exit_codes.EXIT_CODES


def test_the_readme_has_the_same_cron_lines():
    (lines,) = re.findall(r"## cron\n\n```text\n(.*?)```", SCHEDULES, re.S)
    assert lines in (DOCS.parent.parent / "README.md").read_text(encoding="utf-8")


def stand_in(folder: Path) -> Path:
    """Put a command in the place of Frazil's that tells how it was called and ends with the code that lies beside it."""
    command = folder / ".venv/bin/frazil"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\necho "$@" > {folder}/called\nexit $(cat {folder}/code 2>/dev/null)\n')
    command.chmod(0o755)
    return folder / "called"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="the systemd units are NOT verified: systemd-analyze is missing (Debian: apt-get install systemd)")  # fmt: skip
def test_the_systemd_units_are_right(tmp_path):
    stand_in(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace("/srv/frazil", str(tmp_path)))
    ran = subprocess.run(["systemd-analyze", "verify", tmp_path / "frazil-cdc.timer"], capture_output=True, text=True)
    assert [line for line in ran.stderr.splitlines() if "frazil" in line] == []
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    """A real Airflow with the page's DAG in its folder; gives the folder that stands for Frazil's, and a way to run Python there."""
    folder = tmp_path_factory.mktemp("airflow")
    stand_in(folder)
    (dags := folder / "home/dags").mkdir(parents=True)
    text = FILES["frazil_dag.py"].replace("/srv/frazil", str(folder))
    (dags / "frazil_dag.py").write_text(text)
    run = 'print("task state:", dag.test().get_task_instance("cdc_merge").state)'
    (dags / "run.py").write_text(f'{text}\nif __name__ == "__main__":\n    {run}\n')
    environment = {**os.environ, "AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": ""}  # fmt: skip

    def python(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([os.environ["FRAZIL_AIRFLOW"], *arguments], env=environment, cwd=dags, capture_output=True, text=True)  # fmt: skip

    for arguments in (("db", "migrate"), ("dags", "reserialize")):
        done = python("-m", "airflow", *arguments)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder, python


@pytest.mark.slow
@pytest.mark.skipif("FRAZIL_AIRFLOW" not in os.environ, reason="`make test-airflow` names the Python that has Airflow")
@pytest.mark.parametrize(("code", "state"), [(0, "success"), (10, "skipped"), (3, "failed")])
def test_the_dag_is_parsed_and_run_by_airflow(airflow, code, state):
    """What stands for Frazil here is a command that ends with each code: how Airflow takes it is what is tested."""
    folder, python = airflow
    (folder / "code").write_text(str(code))
    ran = python(str(folder / "home/dags/run.py"))
    assert f"task state: {state}" in ran.stdout, (ran.stdout + ran.stderr)[-3000:]
    assert (folder / "called").read_text() == "run 02_cdc_merge --env prod\n"
