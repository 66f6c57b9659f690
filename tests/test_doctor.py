"""`frazil doctor`: each thing that is missing is named with its remedy, without Spark and without a secret."""

import os
import subprocess
import sys

import pytest
import reference
from frazil_old import exit_codes
from frazil_old.cli import main


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = reference.workspace(tmp_path)
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    return made


def examined(capsys) -> tuple[int, str]:
    """Return the exit code and all that is printed."""
    code = main(["doctor", "--env", "demo"])
    out, err = capsys.readouterr()
    assert err == "" and "Traceback" not in out
    return code, out


def test_all_is_there_and_nothing_is_left_behind(place, capsys):
    before = sorted(f for f in place.rglob("*") if "runs" not in f.parts)
    code, out = examined(capsys)
    assert code == exit_codes.OK, out
    lines = [line.split(":")[0][2:] for line in out.splitlines()]
    assert lines[:9] == ["Python", "Java", "parameters", "jars", "source", "catalog", "warehouse", "runs", "clock"]
    assert "✔ parameters: 2 tables" in out and "! catalog: not there yet: 00_setup makes it" in out
    assert out.endswith("demo: all that a run needs is there\n")
    assert sorted(f for f in place.rglob("*") if "runs" not in f.parts) == before


def test_spark_is_not_loaded(place):
    code = "from frazil_old.cli import main\nimport sys\nmain(['doctor', '--env', 'demo'])\nprint('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_an_environment_that_does_not_exist_ends_the_checks(place, capsys):
    assert main(["doctor", "--env", "dmeo"]) == exit_codes.FAILED
    out = capsys.readouterr().out
    assert "did you mean 'demo'?; frazil init writes a new one" in " ".join(out.split()) and "source" not in out


def test_without_an_environment_the_machine_is_checked(place, capsys, monkeypatch):
    monkeypatch.delenv("FRAZIL_ENV", raising=False)
    code = main(["doctor"])
    out = capsys.readouterr().out
    assert code == exit_codes.OK and [line.split(":")[0][2:] for line in out.splitlines()][:3] == [
        "Python",
        "Java",
        "jars",
    ]
    assert "frazil doctor --env NAME" in out
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["doctor"]) == exit_codes.FAILED and "apt-get install openjdk-17" in capsys.readouterr().out
