"""`frazil lab`: copies of the notebooks that keep what was edited, a start page, and JupyterLab with the checkout as root."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from frazil_old.cli import lab

ROOT = Path(__file__).parent.parent


@pytest.fixture
def originals(tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name in ("00_setup", "01_full_load"):
        (folder / f"{name}.ipynb").write_text((ROOT / f"notebooks/{name}.ipynb").read_text())
    return folder


def test_an_edited_copy_stays_and_a_newer_original_comes_beside_it(originals, tmp_path):
    folder = tmp_path / "runs/lab"
    assert lab.copies(originals, folder) == []
    assert lab.copies(originals, folder) == []
    (folder / "00_setup.ipynb").write_text("edited")
    (originals / "00_setup.ipynb").write_text("newer")
    (originals / "01_full_load.ipynb").write_text("newer")
    (line,) = lab.copies(originals, folder)
    assert "00_setup.ipynb is newer than your copy" in line and "00_setup.new.ipynb" in line
    found = {f.name: f.read_text() for f in folder.glob("0*")}
    assert found == {"00_setup.ipynb": "edited", "00_setup.new.ipynb": "newer", "01_full_load.ipynb": "newer"}
    assert lab.copies(originals, folder) == [], "it is said once"
    assert (folder / "00_setup.ipynb").read_text() == "edited"


def test_every_link_of_the_copies_and_of_the_start_page_leads_to_a_file(tmp_path):
    """In a folder two levels below the checkout, as `runs/lab` is; the demo's report is there after the demo."""
    for part in ("notebooks", "params", "lib", "README.md"):
        (tmp_path / part).symlink_to(ROOT / part)
    folder = tmp_path / "runs/lab"
    lab.copies(tmp_path / "notebooks", folder)
    (tmp_path / "runs/demo").mkdir()
    (tmp_path / "runs/demo/report.html").touch()
    links = [
        link.split("#")[0]
        for file in folder.glob("*.ipynb")
        for cell in nbformat.read(file, 4).cells
        if cell.cell_type == "markdown"
        for link in re.findall(r"\]\(([^)]+)\)", cell.source)
    ]
    assert len(links) > 20 and not [link for link in links if not (folder / link).exists()]


def test_the_start_page_names_every_notebook_in_order(tmp_path):
    lab.copies(ROOT / "notebooks", tmp_path)
    (cell,) = nbformat.read(tmp_path / lab.PAGE, 4).cells
    names = [f.stem for f in sorted((ROOT / "notebooks").glob("0*.ipynb"))]
    assert re.findall(r"\| \[(\w+)\]", cell.source) == names


def test_jupyterlab_opens_on_the_start_page_with_the_checkout_as_its_root(tmp_path):
    (tmp_path / "params").mkdir()
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    fake = tmp_path / "bin/python"
    fake.parent.mkdir()
    fake.symlink_to(sys.executable)
    (tmp_path / "bin/jupyter").write_text('#!/bin/sh\nfor a in "$@"; do echo "$a"; done\n')
    (tmp_path / "bin/jupyter").chmod(0o755)
    code = f"import sys; sys.executable = {str(fake)!r}; from frazil_old.cli import commands; commands.main(['lab', '--', '--no-browser'])"
    environment = {**os.environ, "FRAZIL_PARAMS": str(tmp_path / "params")}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    given = ran.stdout.split()
    assert given[0] == "lab" and "--no-browser" in given, ran.stderr
    assert f"--notebook-dir={tmp_path}" in given and "--LabApp.default_url=/lab/tree/runs/lab/start.ipynb" in given
    assert json.loads((tmp_path / "runs/lab/.copied.json").read_text())
