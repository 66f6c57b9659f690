"""What EMR Studio's PySpark kernel asks of the notebooks, by reading: Livy's statements, no IPython; the library in a zip."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_the_library_is_imported_from_a_zip(tmp_path):
    """That is how it comes to a cluster; nothing may look for files beside the modules."""
    with zipfile.ZipFile(tmp_path / "frazil.zip", "w") as kept:
        for file in sorted(f for f in (ROOT / "lib/frazil").rglob("*") if f.suffix in (".py", ".java", ".properties")):
            kept.write(file, file.relative_to(ROOT / "lib"))
    code = (
        "import pkgutil, importlib, frazil\n"
        "names = [m.name for m in pkgutil.walk_packages(frazil.__path__, 'frazil.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names), frazil.__file__)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": "frazil.zip", "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout.split()[0]) > 50 and "frazil.zip" in ran.stdout


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


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.name)
def test_no_cell_asks_for_what_only_ipython_has(file):
    """Neither magics nor `display`, `get_ipython`, `await`, `__file__`, an early exit: each fails there, or is passed over."""
    code = ["".join(c["source"]) for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "code"]
    for tree in map(ast.parse, code):  # a magic, `!` or `await` is no Python here
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert not names & {"display", "get_ipython", "__file__", "exit", "quit", "SystemExit", "_", "Out", "In"}
    exec(code[0], {"__name__": "builtins"})
    assert not isinstance(ast.parse(code[0]).body[-1], ast.Expr), (
        "Livy shows the last expression; the first cell has none"
    )
