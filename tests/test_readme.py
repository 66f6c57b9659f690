"""What the pages say about files, commands, parameters and names of the library is so; the user's pages are short and plain.

python tests/test_readme.py --demo    writes the demo's table in README.md again, from the last finished run in runs/demo
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "lib"))


from frazil.settings.settings_model import Settings  # noqa: E402
from frazil_old.config import settings  # noqa: E402
from frazil_old.config.spec import load_specs  # noqa: E402
from frazil_old.report.notebook_output import Grid  # noqa: E402

FILE, LIB, RUN = ROOT / "README.md", ROOT / "lib/README.md", ROOT / "runs/demo"
FOLDERS = [ROOT / folder / "README.md" for folder in ("params", "notebooks", "tests")]
PAGES = {str(f.relative_to(ROOT)): f for f in [FILE, *FOLDERS, *sorted((ROOT / "lib/docs").glob("*.md"))]}
"""The user's pages."""
PROSE = {**PAGES, "lib/README.md": LIB}
"""These, and the page for who takes the code over."""


def read(file: Path = FILE) -> str:
    return file.read_text(encoding="utf-8")


# --- the demo's table


def of_demo(text: str) -> re.Match:
    """Find the demo's table between its marker comments."""
    found = re.search(r"(<!-- demo:[^\n]*\n)(.*?)(<!-- end of demo -->)", text, re.S)
    assert found, "the table of the demo is not in the text"
    return found


def demo_table(summary: dict) -> str:
    """Render the table that a run of the demo closes with."""
    rows = Grid([{"table": name, **row} for name, row in summary["tables"].items()])
    verdict = "equal" if summary["reconciled"] else "NOT EQUAL"
    return f"```text\n{rows!r}\n\n{verdict}: see runs/demo/report.html\n```\n"


def test_the_demos_table_is_one_that_ended_equal_with_all_tables():
    shown = of_demo(read())[2]
    rows = [line.split() for line in shown.splitlines() if line.startswith("shop.")]
    assert [r[0] for r in rows] == sorted(load_specs(ROOT / "params/shop"))
    for _, source, lake, differing, *others in rows:
        assert {source, lake, *others} == {source}
        assert differing == "0"
    assert "\nequal: see" in shown


# --- what the text names


def spans(text: str) -> list[str]:
    """The inline code of a text, fenced blocks left out."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))


def fences(text: str) -> str:
    return "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.S | re.M))


def examples() -> dict[str, str]:
    """The files of an environment that the pages show, by the name in the marker before them."""
    text = "\n".join(map(read, PAGES.values()))
    return dict(re.findall(r"<!-- file: (params/\S+) -->\n```\w+\n(.*?)^```$", text, re.S | re.M))


PARAMETER_NAMES = {f.name for c in settings.NOTEBOOKS.values() for f in fields(c)}
PARAMETER_NAMES |= {*Settings.model_fields, "settings"}


@pytest.mark.parametrize("file", PROSE.values(), ids=PROSE)
def test_every_make_target_exists(file):
    targets = set(re.findall(r"^([a-z0-9-]+):", read(ROOT / "Makefile"), re.M))
    code = "\n".join([fences(read(file)), *spans(read(file))])
    assert set(re.findall(r"^make ([a-z][a-z0-9-]*)", code, re.M)) <= targets


@pytest.mark.parametrize("file", PROSE.values(), ids=PROSE)
def test_every_file_exists(file):
    text, shown = read(file), examples()
    links = [t.split("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in t]
    assert [t for t in links if t and not (file.parent / t).exists()] == []
    known = [*shown, *(str(Path(s).parent) for s in shown)]
    code = re.sub(r"[\w.-]+://\S+", "", "\n".join([fences(text), *spans(text)]))
    paths = re.findall(r"(?<![\w/.<-])((?:notebooks|params|tests|lib)/[\w./-]*\w)", code)
    assert [p for p in paths if p not in known and not (ROOT / p).exists()] == []
    tests = re.findall(r"(?<![\w/])(test_\w+\.py)", code)
    assert [t for t in tests if not (ROOT / "tests" / t).exists()] == []


@pytest.mark.parametrize("file", PROSE.values(), ids=PROSE)
def test_every_heading_that_is_linked_exists(file):
    for target, anchor in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", read(file)):
        there = read(file.parent / target) if target else read(file)
        headings = re.findall(r"^#+ (.+)$", there, re.M)
        assert anchor in {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("file", PROSE.values(), ids=PROSE)
def test_every_parameter_exists(file):
    text = read(file)
    given = re.findall(r"-p ([a-z]\w*)|-y [\"'](\w+):", "\n".join([fences(text), *spans(text)]))
    named = [m for s in spans(text) for m in re.findall(r"^([a-z]+(?:_[a-z]+)*)=", s)]
    assert {n for n in chain(*given, named) if n} <= PARAMETER_NAMES


@pytest.mark.parametrize("file", ["README.md", "notebooks/README.md"])
def test_every_notebook_has_its_line(file):
    (listed,) = re.findall(r"^##? The notebooks\n(.*?)^## ", read(PAGES[file]), re.S | re.M)
    assert re.findall(r"^\| \[`(\w+)`\]", listed, re.M) == [
        n.stem for n in sorted((ROOT / "notebooks").glob("*.ipynb"))
    ]


# --- short and plain


def sentences(text: str) -> list[str]:
    """The sentences of a page's prose, without code blocks, tables, headings and comments; inline code counts as one word."""
    text = re.sub(r"^( *)```.*?^\1```$|<!--.*?-->", "", text, flags=re.S | re.M)
    text = re.sub(r"^ *[|#].*$", "", text, flags=re.M)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]+`", "CODE", text))
    blocks = re.split(r"\n\s*\n|^ *(?:[*-]|\d+\.) ", text, flags=re.M)
    return [s for b in blocks for s in re.split(r"(?<=[.!?])[*_)]*\s+", " ".join(b.split())) if s]


def test_sentences_are_found_in_paragraphs_and_lists():
    text = "# No. 1\n\nOne `a. b`\nline. **Two.** Three\n\n* four\n  goes on\n* [five](x.md).\n\n| six. |\n\n```sh\nseven.\n```\n"
    assert sentences(text) == ["One CODE line.", "**Two.", "Three", "four goes on", "five."]


@pytest.mark.parametrize(("file", "most"), [(FILE, 200), (LIB, 300)], ids=["README.md", "lib/README.md"])
def test_both_readmes_are_short(file, most):
    lines = read(file).splitlines()
    assert len(lines) <= most
    assert [line for line in lines if len(line) > 160] == []


@pytest.mark.parametrize("file", PROSE.values(), ids=PROSE)
def test_no_sentence_is_long(file):
    assert [s for s in sentences(read(file)) if len(s.split()) > 30] == []


def test_the_documentation_lists_every_page():
    linked = {t.split("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", read())}
    assert {name for name in PROSE if name != "README.md"} <= linked


def test_every_test_file_is_on_the_page_of_tests():
    (listed,) = re.findall(r"^## The test files\n(.*?)^## ", read(ROOT / "tests/README.md"), re.S | re.M)
    named = re.findall(r"`(test_\w+\.py)`", listed)
    assert sorted(named) == sorted(f.name for f in (ROOT / "tests").glob("test_*.py"))


def main() -> None:
    """Write the demo's table again."""
    if "--demo" in sys.argv[1:]:
        summary = json.loads((RUN / "summary.json").read_text(encoding="utf-8"))
        text, found = read(), of_demo(read())
        FILE.write_text(text[: found.start(2)] + demo_table(summary) + text[found.end(2) :], encoding="utf-8")


if __name__ == "__main__":
    main()
