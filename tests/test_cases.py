"""Cases: small tables that share a world. Each says what DMS writes in one or more steps, and what the table holds after each.

A file below `cases/` has `worlds` (the settings that its tables are tried with) and `cases`; tests/README.md lists the words that they may use.
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import yaml

from case_worlds import Case, configured, through, unknown_words
from dms_streams import Shards, Topic
from dms_writer import BEFORE_IMAGE, NO_RULES

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
FOLDER = Path(__file__).parent / "cases"


@cache
def read(file: str) -> dict:
    """Return what a file of cases says."""
    return yaml.safe_load((FOLDER / f"{file}.yml").read_text())


def worlds() -> list[tuple[str, str]]:
    """Return every world of every file, by the names of both."""
    return [(f.stem, name) for f in sorted(FOLDER.glob("*.yml")) for name in read(f.stem)["worlds"]]


def cases(file: str, name: str) -> dict[str, dict]:
    """Return the cases of a world, by their names."""
    found = {n: c for n, c in read(file)["cases"].items() if name in c.get("only", [name])}
    for case, said in found.items():
        assert not unknown_words(said), f"{file}.yml: {case}: no word of a case: {', '.join(unknown_words(said))}"
    return found


def is_repeated(file: str, name: str, case: str) -> bool:
    """Return whether a case runs in `make torture` in this world: the file calls the world a further one, and another has the case."""
    further, only = read(file).get("further", []), read(file)["cases"][case].get("only", read(file)["worlds"])
    return name in further and not {*only} <= {*further}


@pytest.fixture(scope="module")
def made(shared_world):
    """Make the world of some cases, once, and let them go through all of their steps."""
    known: dict[tuple[str, str], dict[str, Case]] = {}

    def make(file: str, name: str, request) -> dict[str, Case]:
        if (file, name) not in known:
            said = read(file)["worlds"][name] or {}
            target = said.get("target", {})
            w = shared_world(f"cases_{file}_{name}", target=target, **said.get("settings", {}))
            if kind := said.get("stream"):
                {"kafka": Topic, "kinesis": Shards}[kind](w, request.getfixturevalue(kind), **target)
            if "rules" in said:
                w.source.rules = {"none": NO_RULES, "before-image": BEFORE_IMAGE}.get(str(said["rules"]), said["rules"])
            asked = [getattr(item, "callspec", None) for item in request.session.items]
            chosen = {
                c.params["case"] for c in asked if c and (c.params.get("file"), c.params.get("name")) == (file, name)
            }
            found = known[file, name] = {n: Case(w, n, c) for n, c in cases(file, name).items() if n in chosen}
            assert len({c.table for c in found.values()}) == len(found), "two cases have one table"
            with configured(w.session, said.get("conf", {})):
                through(w, [*found.values()])
        return known[file, name]

    return make


def pytest_generate_tests(metafunc):
    """Make a test of each case of each world."""
    found = [(*world, case) for world in worlds() for case in cases(*world)]
    marks = {True: pytest.mark.torture, False: ()}
    marked = [pytest.param(*f, marks=marks[is_repeated(*f)], id="-".join(f)) for f in found]
    metafunc.parametrize("file, name, case", marked)


def test_a_case_ends_as_it_says(made, request, file, name, case):
    found = made(file, name, request)[case]
    for number, (step, seen) in enumerate(zip(found.steps, found.found, strict=True)):
        check_result(step, seen, f"step {number + 1}")
        check_table(step, seen, f"step {number + 1}: {seen['result'].note}")


def check_result(step: dict, seen: dict, at: str) -> None:
    """Compare what the verbs said of a table with what a step says."""
    result, said = seen["result"], step.get("result", {})
    said = {"status": said} if isinstance(said, str) else said
    wanted = "failed" if "code" in said and "status" not in said else said.get("status")
    told = f"{at}: {result.status} {result.code}: {result.note}"
    assert result.status == wanted if wanted else result.went_well, told
    assert result.code == said.get("code", result.code), told
    assert result.names(*map(str, said.get("names", []))), told
    assert not any(result.names(hidden) for hidden in said.get("hides", [])), told
    for count, number in said.get("counts", {}).items():
        assert result.counts.get(count, 0) == number, f"{told} {result.counts}"
    for place in seen.get("told", []):
        assert all(str(part) in place for part in step["told"]), f"{told}\nplan and check say: {seen['told']}"


def check_table(step: dict, seen: dict, told: str) -> None:
    """Compare a table with what a step says."""
    if "rows" in step:
        assert rows_of(seen["rows"]) == rows_of(step["rows"]), told
    left = list(seen.get("quarantine", []))
    for row in step.get("quarantine", []):
        found = next((r for r in left if {k: plain(r[k]) for k in row} == row), None)
        assert found, f"{told}\nnot in the quarantine: {row}; there is {seen['quarantine']}"
        left.remove(found)
    assert not left, f"{told}\nalso in the quarantine: {left}"
    for word in ("position", "columns_there"):
        if word in step:
            assert seen[word] == step[word], told
    for new, old in step.get("renamed", {}).items():
        assert seen["renamed"].get(new, "not there") == old, f"{told}: {seen['renamed']}"


def plain(value):
    """Return a value as a case writes it: what YAML has no form for is a text."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal | datetime | date | time) else value


def rows_of(found: list | str) -> list | str:
    """Return rows as a case writes them, in a fixed order."""
    return found if isinstance(found, str) else sorted(([plain(v) for v in r] for r in found), key=repr)
