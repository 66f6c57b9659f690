"""The command in a terminal: help, near misses, defaults from the environment, JSON, colours, and runs that are followed."""

import json
import os
import pty
import re
import subprocess
import sys

import nbformat
import pytest
from frazil_old import __version__, exit_codes
from frazil_old.cli import commands, main
from frazil_old.cli.run import find_notebook
from frazil_old.config.settings import ParameterError, resolve
from test_scheduled_runs import ROOT, ended, frazil, place_of, with_stub

STUB = """from frazil_old.report.notebook_output import Summary
print("app.person: batch 1")
Summary("good", "2 tables loaded", [{"table": "app.person", "rows": 4}])"""

RESULT = """from frazil_old.report.notebook_output import finish
from frazil_old.results import TableResult
finish("setup", [TableResult("app.person", "created")])"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A workspace with a notebook 00_setup that needs no Spark."""
    made = with_stub(place_of(tmp_path), STUB)
    notebook = nbformat.read(made / "notebooks/00_setup.ipynb", as_version=4)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell("## The tables\n\nThey are loaded."))
    notebook.cells.append(nbformat.v4.new_code_cell(RESULT))
    nbformat.write(notebook, made / "notebooks/00_setup.ipynb")
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    monkeypatch.delenv(commands.ENV, raising=False)
    return made


def test_the_command_alone_prints_the_help_and_every_help_ends_with_codes_and_the_documentation(capsys):
    assert main([]) == exit_codes.WRONG
    said = capsys.readouterr().out
    for text in ("frazil peek dms", "10 nothing to do", commands.ENV, "lib/docs/operations.md", *commands.COMMANDS):
        assert text in said
    assert (ROOT / "lib/docs/operations.md").is_file()
    for name in commands.COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        said = capsys.readouterr().out
        assert stopped.value.code == 0 and "exit codes: 0 ok" in said and "operations.md" in said
        assert [line for line in said.splitlines() if len(line) > 100] == []


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0 and capsys.readouterr().out == f"frazil {__version__}\n"


def test_a_wrong_command_names_the_nearest(capsys):
    assert main(["pln", "--env", "x"]) == exit_codes.WRONG
    assert "no command 'pln': did you mean 'plan'?" in capsys.readouterr().err


def test_a_notebook_is_found_by_its_number_and_a_wrong_one_names_the_nearest(place):
    operate = resolve("operate", {"env": "demo"}).settings
    found = {name: find_notebook(name, operate)[0].stem for name in ("02", "cdc_merge", "02_cdc_merge", "00")}
    assert found == {
        "02": "02_cdc_merge",
        "cdc_merge": "02_cdc_merge",
        "02_cdc_merge": "02_cdc_merge",
        "00": "00_setup",
    }
    for wrong, near in (
        ("cdc_mrege", "'cdc_merge'"),
        ("02_cdc_murge", "'02_cdc_merge'"),
        ("7", "known:"),
        ("0", "known:"),
        ("03_m", "known:|03_maintenance"),
    ):
        with pytest.raises(ParameterError, match=near):
            find_notebook(wrong, operate)


def test_the_environment_is_taken_from_a_variable_unless_it_is_named(place, capsys, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        main(["runs"])
    assert stopped.value.code == exit_codes.WRONG and "--env" in capsys.readouterr().err
    monkeypatch.setenv(commands.ENV, "demo")
    assert main(["runs"]) == exit_codes.NOTHING
    assert main(["runs", "--env", "other"]) == exit_codes.WRONG


def test_runs_and_breaches_are_printed_as_json(place, capsys):
    code, out = ended(frazil(place, "run", "00", "--env", "demo"))
    assert code == exit_codes.OK and "The tables" not in out and "batch 1" not in out, "a pipe gets the result alone"
    assert main(["runs", "--env", "demo", "--json"]) == exit_codes.OK
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["notebook"], run["outcome"]) == ("00_setup", "ok")
    assert main(["runs", "--env", "demo"]) == exit_codes.OK
    assert re.search(r"^began +notebook +outcome +s +rows\n\d{4}-.* 00_setup +ok ", capsys.readouterr().out)
    assert main(["check", "--env", "demo", "--json"]) == exit_codes.BREACH
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["env"] == "demo" and "runs: 02_cdc_merge has not succeeded yet" in found["breaches"] and err == ""
    assert main(["down", "--env", "demo", "--json"]) == exit_codes.OK
    listed = json.loads(capsys.readouterr().out)
    assert listed["deleted"] is False and str(run["folder"]) in listed["folders"]
    assert main(["down", "--env", "demo", "--json", "--yes"]) == exit_codes.OK
    assert json.loads(capsys.readouterr().out) == {**listed, "deleted": True}
    assert main(["runs", "--env", "demo"]) == exit_codes.NOTHING


def test_a_skipped_run_is_no_failure_if_that_is_asked(place):
    with_stub(place, "import time; time.sleep(60)")
    first = frazil(place, "run", "00", "--env", "demo")
    try:
        while not list(place.glob("runs/demo/00_setup-*/run.json")):
            assert first.poll() is None
        assert ended(frazil(place, "run", "00", "--env", "demo"))[0] == exit_codes.SKIPPED
        assert ended(frazil(place, "run", "00", "--env", "demo", "--idle-ok"))[0] == exit_codes.OK
        assert (
            ended(frazil(place, "run", "00", "--env", "demo", "--idle-ok", "-p", "tables", "[no]"))[0]
            == exit_codes.WRONG
        )
    finally:
        first.terminate(), first.terminate()
        first.wait(60)


def test_a_followed_run_shows_headings_lines_and_results_as_they_come(place):
    code, out = ended(frazil(place, "run", "00", "--env", "demo", "--follow"))
    assert code == exit_codes.OK
    assert out.splitlines()[:4] == ["## The tables", "app.person: batch 1", "✔ 2 tables loaded", "  table       rows"]
    assert "00_setup: ok in" in out.splitlines()[5]


def on_a_terminal(place, *argv, **environment):
    """Run the command on a terminal of its own and return its exit code and output."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "FRAZIL_PARAMS": str(place / "params"), **environment}
    process = subprocess.Popen([sys.executable, "-m", "frazil_old.cli", *argv], env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = b""
    try:
        while part := os.read(ours, 1 << 16):
            out += part
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)
    return process.wait(60), out.decode()


def test_a_terminal_gets_progress_and_colours_unless_they_are_unwanted(place):
    code, out = on_a_terminal(place, "run", "00", "--env", "demo")
    assert code == exit_codes.OK and "## The tables" in out and "app.person: batch 1" in out
    assert "\x1b[31mParameterError\x1b[0m: " in on_a_terminal(place, "run", "7", "--env", "demo")[1]
    assert "\x1b" not in on_a_terminal(place, "run", "7", "--env", "demo", NO_COLOR="1")[1]
    assert "\x1b" not in ended(frazil(place, "run", "7", "--env", "demo"))[1]
