"""The rules of the repository: pins, what git keeps, the top level, notebooks without outputs."""

import ast
import json
import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


WAREHOUSE_DRIVERS = {"snowflake", "athena", "redshift", "databricks", "bigquery", "trino", "duckdb"}
"""Extras that a user installs for a warehouse; the environment has none of them."""
OF_TESTS = {"metrics", "lineage"}
"""Extras whose packages the extra `test` has too."""


def test_the_environment_pins_what_the_package_pins():
    project = tomllib.loads((ROOT / "lib/pyproject.toml").read_text())["project"]
    every = project["optional-dependencies"]
    extras = {n: pins for n, pins in every.items() if n not in WAREHOUSE_DRIVERS | OF_TESTS}
    assert {pin for n in OF_TESTS for pin in every[n]} <= set(every["test"])
    package = [*project["dependencies"], *chain(*extras.values())]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(d["pip"] for d in conda if isinstance(d, dict))
    assert sorted(p for p in pip if not p.startswith("--editable")) == sorted(package)
    assert all("==" in p for p in [*package, *chain(*project["optional-dependencies"].values())])


LOCKS = {"demo": ("spark", "workbook", "demo", "kafka"), "test": ("test",), "bench": ("bench",), "engines": ("trino",)}
"""The extras whose packages a lock holds."""


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_what_the_package_pins_with_hashes_and_names_no_host(lock):
    text = (ROOT / f"lib/locks/{lock}.txt").read_text()
    project = tomllib.loads((ROOT / "lib/pyproject.toml").read_text())["project"]
    pinned = [pin for n in LOCKS[lock] for pin in project["optional-dependencies"][n]]
    held = set(re.findall(r"^([\w.\[\]-]+==\S+)", re.sub(r"\[\w+\]", "", text), re.MULTILINE))
    assert {re.sub(r"\[\w+\]", "", pin).lower() for pin in pinned} <= held
    assert text.count("--hash=sha256:") >= len(held) and "://" not in text


def test_git_ignores_none_of_our_folders():
    names = "lib/frazil_old/lake/new.py lib/frazil_demo/new.py params/new.yml notebooks/new.ipynb tests/new.py tests/data/new.csv"
    kept = names.split()
    ignored = ["runs/demo/x", "lib/frazil_old/__pycache__/x.pyc", "notebooks/.ipynb_checkpoints/x"]
    check = subprocess.run(
        ["git", "check-ignore", "--no-index", *kept, *ignored], cwd=ROOT, capture_output=True, text=True
    )
    if check.returncode > 1:
        pytest.skip(f"no git checkout: {check.stderr.strip()}")
    assert check.stdout.split() == ignored


def test_the_top_level_holds_only_what_belongs_there():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"no git checkout: {listed.stderr.strip()}")
    top = {name.split("/")[0] for name in listed.stdout.splitlines() if not name.startswith(".")}
    assert top <= {"README.md", "notebooks", "lib", "params", "tests", "environment.yml", "Makefile", "LICENSE"}


# --- notebooks


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.name)
def test_a_committed_notebook_is_clean(file):
    notebook = json.loads(file.read_text())
    code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    assert re.fullmatch(r"\d\d_[a-z_]+\.ipynb", file.name)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert [(c["outputs"], c["execution_count"]) for c in code] == [([], None)] * len(code)
    assert sum("parameters" in c["metadata"].get("tags", []) for c in code) == 1
    for cell in code:
        source = "".join(cell["source"])
        assert not re.search(r"^\s*[%!]", source, re.M), source
        assert not [
            n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Try)
        ], source


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.name)
def test_a_parameters_cell_holds_only_literals_with_a_help(file):
    cells = json.loads(file.read_text())["cells"]
    (cell,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    for line in "".join(cell["source"]).splitlines():
        if line.strip() and not line.startswith("#"):
            (statement,) = ast.parse(line).body
            assert isinstance(statement, ast.Assign | ast.AnnAssign), line
            ast.literal_eval(statement.value)
            assert re.search(r"  # \S", line), line
