"""The notebooks as papermill runs them, on files that DMS wrote; a kill between two cells; what their parameters name."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import nbformat
import papermill
import pytest
from nbclient.exceptions import DeadKernelError

import table_reader
from dms_writer import FILE1, FILE2, D, Folder, I, U, columns_of
from frazil.settings.settings_model import Settings

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
OF_CELLS = {"env", "settings", "table", "key"}
"""Parameters that are no settings."""
KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


class Shop:
    """An environment of one table, in a folder as a user has it."""

    def __init__(self, root: Path):
        columns = columns_of("id INT8", "v WSTRING(9)")
        spec = {"source": "public.t", "target": "shop.t", "key": ["id"], "columns": columns}
        self.root, self.dms = root, Folder(root / "dms", {"t": spec})
        self.lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{root}/catalog.db", "warehouse": f"{root}/lake"}
        places = {"source": "dms", "specs": "specs", "endpoint": "endpoint.json", "mappings": "mappings.json"}
        options = {"catalog_options": self.lake, "spark_options": {"spark.driver.memory": "1g"}}
        endpoint = {"S3Settings": self.dms.settings}
        files = {"params/shop.yml": {**places, **options}, "specs/t.yml": spec}
        for name, content in {**files, "endpoint.json": endpoint, "mappings.json": self.dms.rules}.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(json.dumps(content))  # which is YAML as well

    def run(self, name: str, killed_before: str = "") -> dict:
        """Run a notebook, and return its record; with `killed_before` its kernel is killed before that cell."""
        notebook, copy = nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4), str(self.root / f"{name}.ipynb")
        if killed_before:
            place = next(n for n, cell in enumerate(notebook.cells) if cell.source.startswith(killed_before))
            notebook.cells.insert(place, nbformat.v4.new_code_cell(KILL))
        nbformat.write(notebook, copy)
        papermill.execute_notebook(copy, copy, {"env": "shop"}, progress_bar=False)
        return json.loads(max(self.root.glob(f"runs/shop/{name}-*/run.json")).read_text())

    @property
    def rows(self) -> list[tuple]:
        return table_reader.rows(self.lake, "shop.t")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / "params"))
    monkeypatch.setenv("FRAZIL_MASTER", "local[1]")
    return Shop(tmp_path)


@pytest.mark.notebooks
@pytest.mark.spark
def test_notebooks_set_up_load_and_merge_and_a_kill_between_write_and_commit_changes_nothing(shop):
    shop.dms.load("t", (1, "a"), (2, "b"))
    assert shop.run("00_setup")["outcome"] == "ok" and shop.rows == []
    assert shop.run("01_full_load")["outcome"] == "ok" and shop.rows == [(1, "a"), (2, "b")]
    shop.dms.changes("t", I(3, "c"), U(2, "B"), D(1), name=FILE1)
    with pytest.raises(DeadKernelError):
        shop.run("02_cdc_merge", killed_before="commit = step.commit")
    left = table_reader.leftovers(shop.lake, "shop.t")
    assert shop.rows == [(1, "a"), (2, "b")] and any("file" in one for one in left)
    shop.dms.changes("t", U(3, "C"), name=FILE2)
    (told,) = shop.run("02_cdc_merge")["tables"]
    assert (told["status"], told["counts"]["changes"]) == ("merged", 4) and shop.rows == [(2, "B"), (3, "C")]
    assert shop.run("02_cdc_merge")["outcome"] == "nothing"


def test_parameters_are_what_open_takes_and_known_settings():
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = [cell for cell in nbformat.read(file, 4).cells if cell.cell_type == "code"]
        if cells[0].source != "import frazil":
            continue  # of the former library
        named = {node.targets[0].id for node in ast.parse(cells[1].source).body}
        (opened,) = [n for n in ast.walk(ast.parse(cells[2].source)) if isinstance(n, ast.Call)]
        passed = {keyword.arg for keyword in opened.keywords} - {None}
        assert opened.args[0].value == file.stem and passed == named - OF_CELLS <= {*Settings.model_fields}
        used = {n.id for cell in cells[2:] for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Name)}
        assert named <= used
