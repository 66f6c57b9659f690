"""`frazil lab`: open copies of the notebooks in JupyterLab, beginning with a start page."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

from frazil_old.cli.run import NOTEBOOK_FILES
from frazil_old.config.environment_file import find_params, root_of
from frazil_old.errors import FrazilError
from frazil_old.report.render import render

PAGE, COPIED = "start.ipynb", ".copied.json"
QUIET = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
"""JupyterLab asks nobody for news and updates, and does not ask whether it may."""


class LabError(FrazilError):
    """JupyterLab cannot be opened."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("jupyter", nargs="*", help="options of `jupyter lab`, after --")


def main(options: argparse.Namespace) -> int:
    """Copy the notebooks to `runs/lab`, and become JupyterLab with the checkout as its root."""
    program = shutil.which("jupyter", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if not program:
        raise LabError("JupyterLab is not installed", "pip install 'frazil[workbook]'")
    root = root_of(find_params())
    there = find_params().parent / "notebooks"
    for line in copies(there if there.is_dir() else NOTEBOOK_FILES, root / "runs/lab"):
        print(line)
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    start = f"--LabApp.default_url=/lab/tree/runs/lab/{PAGE}"
    config = root / "runs/lab/.jupyter"
    (config / "labconfig").mkdir(parents=True, exist_ok=True)
    (config / "labconfig/page_config.json").write_text(json.dumps(QUIET), encoding="utf-8")
    paths = os.pathsep.join(filter(None, [str(config), os.environ.get("JUPYTER_CONFIG_PATH", "")]))
    sys.stdout.flush()
    command = [program, "lab", f"--notebook-dir={root}", "--ip=127.0.0.1", start, *as_root, *options.jupyter]
    os.execve(program, command, {**os.environ, "JUPYTER_CONFIG_PATH": paths})


def copies(notebooks: Path, folder: Path) -> list[str]:
    """Bring a folder's copies of notebooks up to date, and its start page; return what should be known.

    A copy that was edited stays. Where its original is newer, the new one is written as `NAME.new.ipynb`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    noted = folder / COPIED
    known = json.loads(noted.read_text(encoding="utf-8")) if noted.exists() else {}
    notices = []
    for file in sorted(notebooks.glob("0*.ipynb")):
        # Relative links hold one folder further down.
        text, copy = file.read_text(encoding="utf-8").replace("](../", "](../../"), folder / file.name
        edited = copy.exists() and _digest(copy.read_text(encoding="utf-8")) != known.get(file.name)
        if edited and known.get(file.name) != _digest(text):
            copy = copy.with_suffix(".new.ipynb")
            notices.append(f"{file.name} is newer than your copy in {folder}, which you edited: see {copy.name}")
        if not edited or copy.suffixes[0] == ".new":
            copy.write_text(text, encoding="utf-8")
        known[file.name] = _digest(text)
    noted.write_text(json.dumps(known, indent=1), encoding="utf-8")
    _write_start_page(folder / PAGE)
    return notices


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write_start_page(file: Path) -> None:
    """Write the start page, a notebook with one cell of Markdown."""
    import nbformat

    cell = nbformat.v4.new_markdown_cell(render("start.md.j2"), id="start")
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel}), file)
