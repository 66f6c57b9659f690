"""The house `lib/frazil`: lines of each room, names of modules, and the ways that imports may take."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "lib/frazil"

CEILINGS = {
    ("__init__", "errors", "results"): 300,
    ("settings",): 1050,
    ("core",): 1500,
    ("dms",): 2600,
    ("discover",): 950,
    ("engine",): 800,
    ("iceberg",): 3000,
    ("pipeline",): 2500,
    ("report",): 700,
    ("warehouses",): 450,
    ("cli", "aws"): 900,
}
"""The most lines of Python that rooms have together. A ceiling may be lowered, never raised."""
MOST_LINES, MOST_OTHER_LINES, MOST_TEST_LINES = 15_000, 1_200, 20_000
"""The most lines of Python in the house, of its other texts (Java, SQL, YAML, shell), and of the tests with their cases."""

FLOORS = ["errors", "results", "settings", "core", "dms", "iceberg", "engine", "pipeline", "cli"]
"""The rooms from the ground up: each may import itself and those below."""
LEAVES = {"discover", "report", "warehouses"}
"""Rooms that import nothing above `dms`. `results` and `pipeline` import them inside functions."""
JVM = {"_jvm", "_jsparkSession", "_jsc", "_gateway", "_sc", "_jdf"}
"""The attributes by which Python reaches Spark's JVM."""
BRIDGES = {"iceberg/java.py", "settings/spark.py"}
"""The modules that may use them."""
NOT_IN_CORE = {"pyspark", "os", "pathlib", "shutil", "urllib", "socket", "obstore", "boto3", "pyiceberg"}
"""What `core` does without: it gets bytes and returns Arrow."""


def modules(house: Path) -> list[Path]:
    """Return the modules of a house."""
    return sorted(house.rglob("*.py"))


def room(module: Path, house: Path) -> str:
    """Return the room that a module is in; a module at the top is a room of its own."""
    return module.relative_to(house).parts[0].removesuffix(".py")


def lines(files: list[Path]) -> int:
    """Return the number of lines of files."""
    return sum(len(f.read_bytes().splitlines()) for f in files)


def imported(module: Path) -> Iterator[tuple[str, bool]]:
    """Return all that a module imports when it runs, each with whether a function does it."""

    def look(node: ast.AST, in_function: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            yield from ((a.name, in_function) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{a.name}", in_function) for a in node.names)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from look(child, inside)

    return look(ast.parse(module.read_text()), False)


def may_import(one: str, other: str, in_function: bool) -> bool:
    """Return whether a module of one room may import a module of another."""
    if one == other or one in ("__init__", "cli"):
        return True
    if other in LEAVES:
        return one in ("results", "pipeline") and in_function
    if one in LEAVES:
        return other in FLOORS[: FLOORS.index("dms") + 1]
    if one == "aws":
        return other in ("errors", "results", "settings")
    return other in FLOORS[: FLOORS.index(one)]


def faults(house: Path) -> list[str]:
    """Return what is wrong with the modules of a house: their names, imports and ways to the JVM."""
    found = []
    names = Counter(m.name for m in modules(house) if m.name != "__init__.py")
    found += [f"{name} stands {n} times in the tree" for name, n in names.items() if n > 1]
    for module in modules(house):
        at, one = str(module.relative_to(house)), room(module, house)
        if one not in {*FLOORS, *LEAVES, "aws", "__init__"}:
            found.append(f"{at}: '{one}' is no room")
            continue
        for name, in_function in imported(module):
            top, _, rest = name.partition(".")
            if top in ("frazil_old", "frazil_demo"):
                found.append(f"{at} imports {top}")
            if one == "core" and top in NOT_IN_CORE:
                found.append(f"{at} imports {top}: core has neither Spark nor files")
            if top == "frazil" and rest and not may_import(one, rest.split(".")[0], in_function):
                found.append(f"{at} imports {name}")
        touched = {n.attr for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, ast.Attribute)} & JVM
        if touched and at not in BRIDGES:
            found.append(f"{at} uses {', '.join(sorted(touched))}")
    return found


def test_names_and_imports_of_the_house_are_right():
    assert faults(HOUSE) == []


@pytest.mark.parametrize(
    "module, text, fault",
    [
        ("core/csv.py", "from frazil.dms.listing import x", "core/csv.py imports frazil.dms.listing.x"),
        ("core/csv.py", "def f():\n    import frazil_old.core", "core/csv.py imports frazil_old"),
        ("core/csv.py", "import os", "core/csv.py imports os: core has neither Spark nor files"),
        ("dms/csv.py", "", "csv.py stands 2 times in the tree"),
        ("report/charts.py", "from frazil.pipeline import run", "report/charts.py imports frazil.pipeline.run"),
        ("pipeline/run.py", "from frazil.report import charts", "pipeline/run.py imports frazil.report.charts"),
        ("errors.py", "from frazil.settings import spec", "errors.py imports frazil.settings.spec"),
        ("engine/read.py", "x = spark._jvm", "engine/read.py uses _jvm"),
        ("flows/cdc.py", "", "flows/cdc.py: 'flows' is no room"),
    ],
)
def test_a_fault_in_names_or_imports_is_found(tmp_path, module, text, fault):
    sound = {
        "core/csv.py": "import pyarrow",
        "pipeline/run.py": "from frazil.core.csv import read\n\n\ndef f():\n    from frazil.report import charts",
        "report/charts.py": "from frazil.dms import listing",
        "iceberg/java.py": "x = spark._jvm",
        "__init__.py": "from frazil.pipeline.run import run",
    }
    for name, content in {**sound, module: text}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert faults(tmp_path) == [fault]


@pytest.mark.parametrize("rooms", CEILINGS, ids="+".join)
def test_a_room_has_at_most_so_many_lines(rooms):
    assert lines([m for m in modules(HOUSE) if room(m, HOUSE) in rooms]) <= CEILINGS[rooms]


def test_the_house_and_its_tests_have_at_most_so_many_lines():
    listed = subprocess.run(["git", "ls-files", "lib/frazil", "tests"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"no git checkout: {listed.stderr.strip()}")
    files = [f for name in listed.stdout.splitlines() if (f := ROOT / name).is_file()]
    ours = [f for f in files if f.is_relative_to(HOUSE)]
    tests = [f for f in files if not f.is_relative_to(HOUSE) and f.suffix in (".py", ".yml", ".md")]
    assert lines(modules(HOUSE)) <= MOST_LINES
    assert lines([f for f in ours if f.suffix not in (".py", ".md")]) <= MOST_OTHER_LINES
    assert lines(tests) <= MOST_TEST_LINES
