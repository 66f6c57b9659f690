"""What the pages say about files, commands, parameters and names of the library is so; the user's pages are short and plain.

python tests/test_readme.py           writes the tables of parameters and entries in params/README.md again
python tests/test_readme.py --demo    also the demo's table in README.md, from the last finished run in runs/demo
python tests/test_readme.py --bench   also the pictures of the last benches (make bench BENCH="maintenance rowdelta")
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from dataclasses import MISSING, fields
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "lib"))


from frazil_old.config import settings  # noqa: E402
from frazil_old.config.query_engines import ENGINES  # noqa: E402
from frazil_old.config.spec import load_specs  # noqa: E402
from frazil_old.config.spec_model import ColumnEntries, TableEntries  # noqa: E402
from frazil_old.config.validation import Entries, flow  # noqa: E402
from frazil_old.config.warehouse_model import WarehouseEntries  # noqa: E402
from frazil_old.flows.source_catalog import DMS_TYPES  # noqa: E402
from frazil_old.report.notebook_output import Grid  # noqa: E402

FILE, PARAMS, LIB, RUN = ROOT / "README.md", ROOT / "params/README.md", ROOT / "lib/README.md", ROOT / "runs/demo"
PARAMETERS, DEMO, OF_TABLE, OF_COLUMN, OF_WAREHOUSE, OF_ENGINES = (
    (f"<!-- {n}:", f"<!-- end of {n} -->")
    for n in ("parameters", "demo", "table entries", "column entries", "warehouse entries", "engines")
)
FOLDERS = [ROOT / folder / "README.md" for folder in ("params", "notebooks", "tests")]
PAGES = {str(f.relative_to(ROOT)): f for f in [FILE, *FOLDERS, *sorted((ROOT / "lib/docs").glob("*.md"))]}
"""The user's pages."""
PROSE = {**PAGES, "lib/README.md": LIB}
"""These, and the page for who takes the code over."""


def read(file: Path = FILE) -> str:
    return file.read_text(encoding="utf-8")


# --- blocks that are generated


def block(text: str, marks: tuple[str, str]) -> re.Match:
    """Find what stands between a pair of marker comments."""
    found = re.search(rf"({re.escape(marks[0])}[^\n]*\n)(.*?)({re.escape(marks[1])})", text, re.S)
    assert found, f"{marks[0]} … {marks[1]} is not in the text"
    return found


def replaced(text: str, marks: tuple[str, str], inside: str) -> str:
    found = block(text, marks)
    return text[: found.start(2)] + inside + text[found.end(2) :]


def default_of(field) -> str:
    value = field.default_factory() if field.default is MISSING else field.default
    return json.dumps(value)


def parameter_table() -> str:
    """Render all parameters: those that every notebook takes, then each notebook's own."""
    common = {f.name for f in fields(settings.Settings)}
    own = chain(*[[(f, n) for f in fields(c) if f.name not in common] for n, c in settings.NOTEBOOKS.items()])
    lines = ["| name | type | default | notebooks | meaning |", "|---|---|---|---|---|"]
    for f, notebook in [*((f, "all") for f in fields(settings.Settings)), *own]:
        meaning = f.metadata["help"].replace("|", "\\|")
        lines.append(f"| `{f.name}` | {f.type} | `{default_of(f)}` | {notebook} | {meaning} |")
    return "\n".join(lines) + "\n"


def entry_table(model: type[Entries]) -> str:
    """Render the entries of a spec with their descriptions."""
    lines = ["| entry | meaning |", "|---|---|"]
    for name, entry in model.model_fields.items():
        shown = flow({name: entry.examples[0]})[1:-1] if entry.examples else name
        meaning = entry.description.replace("|", "\\|")
        lines.append(f"| `{shown}` | {meaning} |")
    return "\n".join(lines) + "\n"


def engine_table() -> str:
    """Render the engines: which read v3, and what they cannot do."""
    lines = ["| engine | reads v3 | and | known from |", "|---|---|---|---|"]
    for name, e in ENGINES.items():
        new = "no" if e.v3_since is None else f"from {e.v3_since}" if e.v3_since else "yes"
        new += "" if e.assumed or e.v3_since is None else ", if you state the version"
        lines.append(f"| `{name}` | {new} | {e.limits} | {e.known} |")
    return "\n".join([*lines, "| any other | not known | | |"]) + "\n"


def type_table() -> str:
    """Render the native types of each source engine, with their DMS types."""
    lines = []
    for engine, types in DMS_TYPES.items():
        lines += ["", f"### {ENGINE_NAMES[engine]}", "", "| type | in specs |", "|---|---|"]
        lines += [f"| `{kind}` | `{dms}`{', `utc: true`' if utc else ''} |" for kind, (dms, utc) in types.items()]
    return "\n".join([*lines[1:], ""])


ENGINE_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL and MariaDB", "sqlserver": "SQL Server", "oracle": "Oracle"}
TABLES = {
    "parameters": (PARAMETERS, parameter_table),
    "table entries": (OF_TABLE, lambda: entry_table(TableEntries)),
    "column entries": (OF_COLUMN, lambda: entry_table(ColumnEntries)),
    "engines": (OF_ENGINES, lambda: engine_table()),
    "warehouse entries": (OF_WAREHOUSE, lambda: entry_table(WarehouseEntries)),
}
"""The tables of params/README.md that are made from the library."""
NATIVE = ROOT / "lib/docs/types.md"
OF_NATIVE = ("<!-- native types:", "<!-- end of native types -->")


def demo_table(summary: dict) -> str:
    """Render the table that a run of the demo closes with."""
    rows = Grid([{"table": name, **row} for name, row in summary["tables"].items()])
    verdict = "equal" if summary["reconciled"] else "NOT EQUAL"
    return f"```text\n{rows!r}\n\n{verdict}: see runs/demo/report.html\n```\n"


def test_the_demos_table_is_one_that_ended_equal_with_all_tables():
    shown = block(read(), DEMO)[2]
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


# --- names of the library in lib/README.md


def names_of(module: Path) -> set[str]:
    """What a module defines: functions, classes, their methods and fields, constants."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_every_name_of_the_library_on_its_page_exists():
    modules: dict[str, set[str]] = {}
    rooms = set()
    for module in (m for library in ("frazil", "frazil_old") for m in (ROOT / "lib" / library).rglob("*.py")):
        room, name = module.parent.name, module.stem
        rooms.add(room)
        for path in {f"{room}.{name}", name}:
            modules[path] = modules.get(path, set()) | names_of(module)
    for span in spans(read(LIB)):
        dotted = re.fullmatch(r"((?:[a-z]\w*\.)*[a-z]\w*)(?:\.(_?\w+))?(?:\(.*\))?", span)
        if of_class := re.fullmatch(r"([A-Z]\w+)\.(\w+)", span):
            assert any({*of_class.groups()} <= names for names in modules.values()), span
        if not dotted or "." not in span or span.startswith("frazil."):  # a table's property, or a log
            continue
        first, *rest = span.split("(")[0].split(".")
        if first in rooms and rest:
            assert f"{first}.{rest[0]}" in modules, span
            first, rest = f"{first}.{rest[0]}", rest[1:]
        if first in modules and rest:
            assert set(rest) <= modules[first], span


def main() -> None:
    """Write the generated blocks again."""
    for marks, rendered in TABLES.values():
        PARAMS.write_text(replaced(read(PARAMS), marks, rendered()), encoding="utf-8")
    NATIVE.write_text(replaced(read(NATIVE), OF_NATIVE, type_table()), encoding="utf-8")
    if "--demo" in sys.argv[1:]:
        summary = json.loads((RUN / "summary.json").read_text(encoding="utf-8"))
        FILE.write_text(replaced(read(), DEMO, demo_table(summary)), encoding="utf-8")
    if "--bench" in sys.argv[1:]:
        for picture in (ROOT / "runs/bench").glob("*.png"):
            shutil.copyfile(picture, ROOT / "lib/docs" / picture.name)


if __name__ == "__main__":
    main()
