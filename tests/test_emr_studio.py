"""What EMR Studio's PySpark kernel asks of the notebooks, on an imitation of its ways: Livy's statements, a session that is there, no IPython."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import SparkContext

from dms_writer import U

ROOT = Path(__file__).parent.parent


class Livy:
    """Runs cells as a Livy session does: one by one in a bare interpreter; of a last expression it shows the text alone."""

    def __init__(self, **there):
        self.names = {"__name__": "builtins", **there}

    def run(self, code: str) -> str:
        """Run a cell and return what it shows."""
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<cell>", "exec"), self.names)
        self.last = eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.names) if last else None
        return repr(self.last) if last else ""


def cells(notebook: str, **parameters) -> list[str]:
    """Return a notebook's code with the parameters set behind their cell, as papermill does."""
    (file,) = (ROOT / "notebooks").glob(f"*_{notebook}.ipynb")
    code = [c for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "code"]
    found = []
    for cell in code:
        found.append("".join(cell["source"]))
        if "parameters" in cell["metadata"].get("tags", []):
            found.append("\n".join(f"{name} = {value!r}" for name, value in parameters.items()))
    return found


def test_the_library_is_imported_from_a_zip(tmp_path):
    """That is how it comes to a cluster; nothing may look for files beside the modules."""
    with zipfile.ZipFile(tmp_path / "frazil.zip", "w") as kept:
        for file in sorted(f for f in (ROOT / "lib/frazil_old").rglob("*") if f.suffix in (".py", ".j2")):
            kept.write(file, file.relative_to(ROOT / "lib"))
    code = (
        "import pkgutil, importlib, frazil_old as frazil\n"
        "names = [m.name for m in pkgutil.walk_packages(frazil.__path__, 'frazil_old.') if not m.name.endswith('__main__')]\n"
        "for name in names: importlib.import_module(name)\n"
        "from frazil_old.report.notebook_output import Grid\n"
        "print(len(names), frazil.__file__, Grid([{'a': '<b>'}])._repr_html_())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": "frazil.zip", "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout.split()[0]) > 80 and "frazil.zip" in ran.stdout and "&lt;b&gt;</td>" in ran.stdout


def test_the_first_cell_shows_nothing():
    for notebook in ("setup", "full_load", "cdc_merge", "maintenance", "latency", "explore"):
        assert Livy().run(cells(notebook)[0]) == ""


def test_the_policy_of_the_page_allows_what_jobs_of_the_deployment_may_do():
    """But for its queue, logs, runs on S3, and DMS."""

    def allowed(statements: list[dict]) -> set[str]:
        given = [s["Action"] for s in statements]
        return {a for action in given for a in ([action] if isinstance(action, str) else action)}

    page = (ROOT / "lib/docs/emr-studio.md").read_text()
    (policy,) = [json.loads(t) for t in re.findall(r"```json\n(.*?)```", page, re.S) if '"Version"' in t]
    (template,) = re.findall(
        r"  JobPolicy:\n.*?- Sid: Queue", (ROOT / "lib/frazil_old/aws/stack.yml").read_text(), re.S
    )
    assert allowed(policy["Statement"]) == set(re.findall(r"(?:s3|glue):[A-Z]\w+", template))


@pytest.mark.parametrize("file", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda f: f.name)
def test_no_cell_asks_for_what_only_ipython_has(file):
    """Neither magics nor `display`, `get_ipython`, `await`, `__file__`, an early exit: each fails there, or is passed over."""
    for cell in json.loads(file.read_text())["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))  # a magic, `!` or `await` is no Python here
            names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
            assert not names & {"display", "get_ipython", "__file__", "exit", "quit", "SystemExit", "_", "Out", "In"}


@pytest.mark.spark
def test_tables_are_worked_on_through_a_gateway_that_livy_made(world, monkeypatch):
    """It has no process of its own and answers every name that it is asked for."""
    ours = SparkContext._gateway
    world.table("t").load("t", (1, "a"))
    there = GatewayParameters(port=ours.gateway_parameters.port, auth_token=ours.gateway_parameters.auth_token, auto_convert=True)  # fmt: skip
    livys = JavaGateway(gateway_parameters=there)
    monkeypatch.setattr(SparkContext, "_gateway", livys)
    world.loaded().changes("t", U(1, "b")).merged()
    assert world.rows("t") == [(1, "b")]
    livys.close()
