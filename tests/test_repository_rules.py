"""The rules of the repository: pins, one-way imports, one bridge to the JVM, notebooks without outputs."""

import ast
import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest
import yaml

from frazil.config import settings
from frazil.config.environment_file import RETIRED

ROOT = Path(__file__).parent.parent
FRAZIL = ROOT / "lib/frazil"
LAYERS = ["errors", "exit_codes", "results", "config", "warehouses", "core", "dms", "lake", "engine", "report", "flows"]
MODULES = sorted(FRAZIL.rglob("*.py"))
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


def test_git_ignores_none_of_our_folders():
    kept = [
        "lib/frazil/lake/new.py",
        "lib/frazil_demo/new.py",
        "params/new.yml",
        "notebooks/new.ipynb",
        "tests/new.py",
        "tests/data/new.csv",
    ]
    ignored = ["runs/demo/x", "lib/frazil/__pycache__/x.pyc", "notebooks/.ipynb_checkpoints/x"]
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


# --- imports


def name_of(module: Path) -> str:
    return ".".join(module.relative_to(FRAZIL).with_suffix("").parts)


NAMES = {name_of(m) for m in MODULES}


def layer(module: Path) -> str:
    return module.relative_to(FRAZIL).parts[0].removesuffix(".py")


def imports(module: Path) -> set[str]:
    """The modules of frazil that a module imports when it runs, wherever in it the import stands."""
    found, tree = set(), ast.parse(module.read_text())
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    for_types = {id(n) for block in blocks for n in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found |= {node.module, *[f"{node.module}.{a.name}" for a in node.names]}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return {n.removeprefix("frazil.") for n in found if n.startswith("frazil.")} & NAMES


def allowed(of: str) -> set[str]:
    """The layers that a layer may import."""
    if of == "aws":
        return {"errors", "exit_codes", "results", "config", "aws"}
    return {*LAYERS[: LAYERS.index(of)], of} if of in LAYERS else {*LAYERS, "aws", of}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(FRAZIL)))
def test_imports_point_one_way(module):
    assert {n.split(".")[0] for n in imports(module)} <= allowed(layer(module))


def test_only_the_command_imports_the_deployment():
    assert {layer(m) for m in MODULES if any(n.startswith("aws") for n in imports(m))} == {"aws", "cli"}


def test_frazil_imports_nothing_of_the_demo():
    for module in MODULES:
        assert "frazil_demo" not in module.read_text(), module


def test_no_module_imports_itself_on_a_detour():
    graph = {name_of(m): imports(m) for m in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which shows the way round


def uses(module: Path, *names: str) -> set[str]:
    """Which of the names a module touches as attributes (or as text given to getattr)."""
    nodes = list(ast.walk(ast.parse(module.read_text())))
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    texts = {a.value for n in nodes if isinstance(n, ast.Call) for a in n.args if isinstance(a, ast.Constant)}
    return (attributes | texts) & set(names)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(FRAZIL)))
def test_only_the_bridge_calls_into_the_jvm(module):
    if module.parent not in (FRAZIL / "lake", FRAZIL / "config") or not module.name.startswith("jvm"):
        assert uses(module, "_jvm", "_jsparkSession", "_jsc", "_gateway", "_sc", "_jdf") == set()


def test_the_core_needs_no_more_than_spark_and_yaml():
    """What runs on a cluster imports nothing of the workbook or the demo at its top level."""
    heavy = {"pandas", "numpy", "matplotlib", "pyarrow", "duckdb", "pyiceberg", "psycopg"}
    for module in MODULES:
        if (
            layer(module) in LAYERS and layer(module) != "report" and module.name != "local_io.py"
        ):  # PyIceberg imports it
            tops = {
                a.name.split(".")[0]
                for n in ast.parse(module.read_text()).body
                if isinstance(n, ast.Import)
                for a in n.names
            }
            tops |= {
                n.module.split(".")[0] for n in ast.parse(module.read_text()).body if isinstance(n, ast.ImportFrom)
            }
            assert not tops & heavy, module


def test_a_run_that_finds_nothing_loads_no_pyspark():
    """Not even to be imported: what the notebook of changes, and the command, load at their top."""
    code = [
        c["source"]
        for c in json.loads((ROOT / "notebooks/02_cdc_merge.ipynb").read_text())["cells"]
        if c["cell_type"] == "code"
    ]
    told = subprocess.run(
        [sys.executable, "-c", f"{''.join(code[0])}\nimport sys, frazil.cli.run\nprint('pyspark' in sys.modules)"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
    )  # fmt: skip
    assert (told.returncode, told.stdout) == (0, "False\n"), told.stderr[-1000:]


CLOSURES = {
    "frazil.report.notebook_output": (5, ["pyspark", "pyarrow", "numpy", "jinja2", "frazil.flows"]),
    "frazil.flows.pending_work": (81, ["pyspark", "pyarrow", "numpy", "frazil.lake.row_delta", "frazil.lake.quarantine_table", "frazil.dms.kafka", "frazil.engine"]),
    "frazil.flows.cdc": (123, [
        "pyspark", "pyarrow", "numpy", "frazil.dms.kafka", "frazil.dms.kinesis", "frazil.flows.stream_cdc", "frazil.flows.stream_load",
        "frazil.engine.message_batch", "frazil.engine.large_batch", "frazil.lake.row_delta", "frazil.lake.quarantine_table",
        "frazil.warehouses",
    ]),
    "frazil.core.changes": (20, ["pyspark", "pyarrow", "numpy", "frazil.lake", "frazil.dms"]),
    "frazil.core.messages": (20, ["pyspark", "pyarrow", "numpy", "frazil.lake", "frazil.dms"]),
}  # fmt: skip
"""Modules, how many of Frazil's an import of each loads at most, and what it must not load."""


@pytest.mark.parametrize("module", CLOSURES)
def test_an_import_loads_only_what_it_needs(module):
    most, without = CLOSURES[module]
    code = f"import sys, {module}\nprint(*sorted(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
    )
    loaded = set(told.stdout.split())
    ours = [m for m in loaded if m.split(".")[0] == "frazil"]
    assert told.returncode == 0 and not loaded & set(without), loaded & set(without)
    assert len(ours) <= most, len(ours)


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


# --- style

_LITERALS = ast.Dict | ast.List | ast.Set | ast.Tuple


def _is_table(value: ast.expr | None) -> bool:
    """Whether a value is written out as data: a literal, two joined ones, or a row for each item."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.left, _LITERALS) or isinstance(value.right, _LITERALS)
    return isinstance(value, _LITERALS) or (isinstance(value, ast.ListComp) and isinstance(value.elt, ast.Dict))


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(FRAZIL)))
def test_only_tables_of_data_are_formatted_by_hand(module):
    source = module.read_text()
    by_hand = [n for n, line in enumerate(source.split("\n"), 1) if "# fmt: skip" in line]
    statements = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)]
    for line in by_hand:
        around = [s for s in statements if s.lineno <= line <= s.end_lineno]
        smallest = min(around, key=lambda s: s.end_lineno - s.lineno)
        assert _is_table(getattr(smallest, "value", None)), f"{module.name}:{line}"


# --- SQL


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(FRAZIL)))
def test_only_one_module_makes_a_name_an_identifier(module):
    """No other text of the code has a backtick beside a value, or one without its fellow."""
    if module == FRAZIL / "config/sql.py":
        return
    nodes = list(ast.walk(ast.parse(module.read_text())))
    docs = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    formatted = [n for n in nodes if isinstance(n, ast.JoinedStr)]
    parts = {id(p) for f in formatted for p in f.values}
    texts = ["".join(p.value if isinstance(p, ast.Constant) else "\0" for p in f.values) for f in formatted]
    plain = [n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs | parts]
    assert not [t for t in texts if "`\0" in t or "\0`" in t]
    assert not [n.value for n in plain if n.value.count("`") % 2]


MOST_LINES, MOST_PARAMETERS = 39_400, 84
"""How large the library and its set of parameters may be: a new mechanism or parameter replaces an old one."""


def test_nothing_of_ours_gives_a_retired_parameter():
    """A benchmark or the demo would stop, or run with a warning, and no test runs all of them."""
    names = "|".join(name for _, name in RETIRED)
    given = re.compile(rf"Settings\([^)]*\)\.({names})\b|[(,]\s*({names})=")
    places = [*ROOT.glob("tests/bench/*.py"), *ROOT.glob("tests/torture/*.py"), *ROOT.glob("lib/frazil_demo/*.py")]
    assert [f.name for f in places if given.search(f.read_text())] == []


def test_the_library_does_not_grow():
    lines = sum(len(module.read_text().splitlines()) for module in MODULES)
    names = {f.name for cls in settings.NOTEBOOKS.values() for f in dataclasses.fields(cls)}
    assert lines <= MOST_LINES, "take out as many lines as you add, or say in MOST_LINES that it grows"
    assert len(names) <= MOST_PARAMETERS
