"""The rules of the acceptance suite: it sees only the doors, and its lists name what there is."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from houses import LIST, names_in

pytestmark = pytest.mark.acceptance

HERE = Path(__file__).parent
ADAPTERS = {"old_house.py", "new_house.py"}
"""The only files that may know a library."""
LIBRARY = ("frazil", "frazil_old", "frazil_demo", "helpers")
"""The library, its demo, and helpers of older tests that open the library themselves."""
OPEN_IT = {
    "test_aws_deploy.py", "test_aws_job.py", "test_demo.py",
    "test_emr_studio.py", "test_engines.py", "test_readme.py", "test_source.py", "test_troubles.py",
}  # fmt: skip
"""Older tests that open the library themselves. None is added: what is new goes through the doors."""


@cache
def imports(file: Path) -> set[str]:
    """Return the first words of all modules that a file imports, wherever it does."""
    tree = ast.parse(file.read_text())
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {name.split(".")[0] for name in names}


def suite() -> list[Path]:
    """Return the files of the suite: tests that carry its mark, and the modules beside them that they import."""
    found = [f for f in sorted(HERE.glob("test_*.py")) if re.search(r"pytest\.mark\.acceptance", f.read_text())]
    for file in found:
        beside = (HERE / f"{name}.py" for name in sorted(imports(file)))
        found += [f for f in beside if f.exists() and f not in found and f.name not in ADAPTERS]
    return found


@pytest.mark.parametrize("file", suite(), ids=lambda f: f.name)
def test_a_file_of_the_suite_knows_no_library(file):
    assert not imports(file) & {*LIBRARY, *(Path(a).stem for a in ADAPTERS)}
    named = re.findall(r"[\"']frazil[.][a-z]\w*", file.read_text())
    assert not named, "names of properties or modules of the library"


def test_every_expected_failure_is_a_test_that_there_is():
    for house, entries in yaml.safe_load((HERE / "known_failures.yml").read_text()).items():
        for entry in entries or []:
            file, name = entry["test"].split("::")
            assert f"def {name.split('[')[0]}(" in (HERE / file).read_text(), f"{house}: no test {entry['test']}"
            assert entry["kind"] and re.compile(entry["shows"])


def test_a_change_that_a_test_asks_for_is_listed():
    listed = re.findall(r"^\| `([\w-]+)` \|", (HERE / "changed.md").read_text(), re.MULTILINE)
    asked = {name for f in suite() for name in re.findall(r"""changed\(\s*["']([\w-]+)["']""", f.read_text())}
    assert asked and asked <= set(listed)
    assert len(set(listed)) == len(listed)


def test_no_other_test_opens_the_library_itself():
    others = [f for f in HERE.glob("test_*.py") if f.name not in OPEN_IT]
    assert [f.name for f in others if imports(f) & {*LIBRARY}] == []
    assert [name for name in OPEN_IT if not (HERE / name).exists()] == []


def test_no_test_leaves_the_list_of_those_that_pass_on_the_new_library():
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True).stdout

    base = git("merge-base", "HEAD", "origin/HEAD").strip() or "HEAD"
    before = names_in(git("show", f"{base}:tests/{LIST.name}"))
    assert [name for name in before if name not in names_in(LIST.read_text())] == []


def test_every_test_on_the_list_is_there():
    for name in names_in(LIST.read_text()):
        file, _, test = name.partition("::")
        assert f"def {test.split('[')[0]}(" in (HERE / file).read_text() if test else (HERE / file).exists(), name
