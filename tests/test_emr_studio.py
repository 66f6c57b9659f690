"""What EMR Studio's PySpark kernel asks of the notebooks, on an imitation of its ways: Livy's statements, a session that is there, no IPython."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import reference
from frazil_old import exit_codes
from frazil_old.config import spark_session
from frazil_old.results import TablesFailedError

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


@pytest.mark.spark
@pytest.mark.notebooks
@pytest.mark.slow
def test_the_notebooks_run_beside_a_session_that_is_there_and_without_ipython(spark, tmp_path, monkeypatch):
    """The catalog is the session's own, so the parameters tell of none."""
    monkeypatch.setattr(spark_session, "_opened", [])  # the session counts as Livy's, not as one that Frazil has made
    place = reference.workspace(tmp_path)
    params = place / "params/demo.yml"
    head, _, tail = params.read_text().partition("  catalog_options:")
    params.write_text(head + "  ops_namespace: studio_ops\n" + tail[tail.index("  query_engines:") :])
    for spec in (place / "params/tiny").glob("*.yml"):
        spec.write_text(spec.read_text().replace("target: app.", "target: studio."))
    monkeypatch.setenv("FRAZIL_PARAMS", str(place / "params"))
    monkeypatch.setitem(sys.modules, "IPython", None)
    shown = {}
    for notebook in ("setup", "full_load", "cdc_merge", "latency", "explore"):
        livy = Livy(spark=spark, sc=spark.sparkContext)
        shown[notebook] = [livy.run(code) for code in cells(notebook, env="demo") if code]
        assert shown[notebook][-1] == f"{notebook}: ok" and exit_codes.outcome_of(livy.last.facts, "") == "ok"
    assert any(text.startswith("✔ 2 tables merged") for text in shown["cdc_merge"])
    assert any("20260301-080102000.csv    2  U" in text for text in shown["explore"])
    charts = [text for text in shown["latency"] if text.endswith("(a chart)")]
    assert any("changes took less than" in text for text in charts) and list((place / "runs/demo/charts").glob("*.png"))
    assert not [text for texts in shown.values() for text in texts if " object at 0x" in text]

    # A table that does not exist yet stops no notebook: it is named, and the others are done.
    later = (place / "params/tiny/visit.yml").read_text().replace("app.visit", "app.later")
    (place / "params/tiny/later.yml").write_text(later.replace("studio.visit", "studio.later"))
    missing = "lake.studio.later does not exist"
    for notebook, done in (("maintenance", "TablesFailedError"), ("latency", "ok"), ("explore", "ok")):
        livy, shown = Livy(spark=spark, sc=spark.sparkContext), []
        *before, last = [code for code in cells(notebook, env="demo") if code]
        shown = [livy.run(code) for code in before]
        assert [text for text in shown if missing in text], notebook
        if done == "ok":
            assert livy.run(last) == f"{notebook}: ok"
            continue
        with pytest.raises(TablesFailedError, match="1 of 3 tables failed\napp.later: table " + missing):
            livy.run(last)
        assert {r.table: r.status for r in livy.names["done"]} == {"app.later": "failed", "app.person": "maintained", "app.visit": "maintained"}  # fmt: skip


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
