"""Reference outputs of the notebooks: cells tagged `nbval-check-output`, run on `tests/data/tiny`.

python tests/reference.py        writes tests/reference.json anew: look at the difference before you commit it
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat

HERE = Path(__file__).parent
NOTEBOOKS = sorted((HERE.parent / "notebooks").glob("0*.ipynb"))
KEPT = HERE / "reference.json"
TAG = "nbval-check-output"


def workspace(folder: Path) -> Path:
    """Copy the tiny source and its params into a folder of its own, where the lake will lie too."""
    return Path(shutil.copytree(HERE / "data" / "tiny", folder / "tiny"))


def checked(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the cells whose outputs are compared."""
    return [c for c in notebook.cells if TAG in c.metadata.get("tags", [])]


def with_reference(source: Path, kept: dict[str, list]) -> nbformat.NotebookNode:
    """Return a notebook's present source with the reference outputs in the cells that are compared.

    nbval compares only cells that carry an execution count.
    """
    notebook = nbformat.read(source, as_version=4)
    for cell in checked(notebook):
        cell.outputs = [nbformat.from_dict(o) for o in kept[cell.id]]
        cell.execution_count = 1
    return notebook


def main() -> None:
    """Run the notebooks and keep what the compared cells show."""
    import papermill

    with tempfile.TemporaryDirectory() as folder:
        os.environ["FRAZIL_PARAMS"] = str(workspace(Path(folder)) / "params")
        kept: dict[str, list] = {}
        for source in NOTEBOOKS:
            out = Path(folder) / source.name
            papermill.execute_notebook(source, out, kernel_name="python3", progress_bar=False)
            kept |= {
                c.id: [{**o, "execution_count": 1} for o in c.outputs]
                for c in checked(nbformat.read(out, as_version=4))
            }
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
