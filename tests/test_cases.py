"""Cases: small tables that share a world. Each says what DMS writes in one or more steps, and what the table holds after each.

A file below `cases/` has `worlds` (the settings that its tables are tried with) and `cases`; tests/README.md lists the words that they may use.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from time import time as now

import pytest
import yaml

from dms_streams import Topic
from dms_writer import BEFORE_IMAGE, NO_RULES, D, I, U, columns_of, file_name, typed_parquet
from world import Result, World, house

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
FOLDER = Path(__file__).parent / "cases"
CHANGES = {"I": I, "U": U, "D": D}
WORDS = {
    "wrote", "load", "changes", "files", "parquet", "messages", "gone", "aged", "spec", "column", "by_others", "maintain", "new_process", "decide",
    "rows", "result", "told", "quarantine", "position", "columns_there",
}  # fmt: skip
"""What a step may say."""
OF_TABLE = {"columns", "key", "table", "declare", "only", "steps", "why"}
"""What a case may say of its table."""


def worlds() -> list[tuple[str, str]]:
    """Return every world of every file, by the names of both."""
    return [(f.stem, w) for f in sorted(FOLDER.glob("*.yml")) for w in _read(f.stem).get("worlds", {"csv": {}})]


_files: dict[str, dict] = {}


def _read(file: str) -> dict:
    if file not in _files:
        _files[file] = yaml.safe_load((FOLDER / f"{file}.yml").read_text())
    return _files[file]


def cases(file: str, name: str) -> dict[str, dict]:
    """Return the cases of a world, by their names."""
    found = {n: c for n, c in _read(file)["cases"].items() if name in c.get("only", [name])}
    for case, said in found.items():
        unknown = {*said} - OF_TABLE - WORDS | {w for s in said.get("steps", []) for w in s} - WORDS
        unknown |= {*said} & WORDS if "steps" in said else set()
        assert not unknown, f"{file}.yml: {case}: no word of a case: {', '.join(sorted(unknown))}"
    return found


class Case:
    """One table of a world: what is written for it step by step, and what came of each step."""

    def __init__(self, world: World, name: str, said: dict):
        self.world, self.name = world, name
        self.table = said.get("table") or re.sub(r"\W+", "_", name.lower())[:60]
        self.steps = said.get("steps") or [{w: v for w, v in said.items() if w in WORDS}]
        self.found: list[dict] = []
        more = {"key": said["key"]} if "key" in said else {}
        world.table(self.table, *said.get("columns", ()), **more, **said.get("declare", {}))

    def write(self, number: int) -> None:
        """Write what a step brings: to the spec, to the source, and by another writer."""
        if number >= len(self.steps):
            return
        step, t = self.steps[number], self.table
        if "spec" in step:
            columns = [c if isinstance(c, dict) else columns_of(c)[0] for c in step["spec"].get("columns", [])]
            self.world.declare(t, **step["spec"] | ({"columns": columns} if columns else {}))
        for column, entries in step.get("column", {}).items():
            self.world.column(t, column, **entries)
        if "wrote" in step:
            self.world.source.specs[t] = {**self.world.specs[t], "columns": [{"name": n} for n in step["wrote"]]}
        self._write_rows(number, step)
        self._write_files(step)
        for statement in step.get("by_others", []):
            self.world.sql(statement, t)

    def _write_rows(self, number: int, step: dict) -> None:
        source = self.world.source
        for name, rows in _by_name(step.get("load"), "LOAD00000001.csv").items():
            source.load(self.table, *map(tuple, rows), **_named(name, source))
        for name, rows in {} if self.together else _by_name(step.get("changes"), file_name(number)).items():
            source.changes(self.table, *map(change, rows), **_named(name, source))
        for text in step.get("messages", []):
            source.send(text.replace("{t}", self.table))

    def _write_files(self, step: dict) -> None:
        source, t = self.world.source, self.table
        for name, data in step.get("files", {}).items():
            source.write(t, name, data)
        for name, columns in step.get("parquet", {}).items():
            source.write(t, name, typed_parquet(**columns))
        for name in step.get("gone", []):
            source.path(t, source.named(name)).unlink()
        for name, days in step.get("aged", {}).items():
            os.utime(source.path(t, source.named(name)), (now() - 86_400 * days,) * 2)

    @property
    def together(self) -> bool:
        """Whether DMS writes the changes of all tables into the same files."""
        return bool(self.world.source.settings.get("PreserveTransactions"))

    def of_all_tables(self, number: int) -> dict[str, list]:
        """Return this table's changes of a step, by the names of the files of all tables."""
        said = self.steps[number].get("changes") if self.together and number < len(self.steps) else None
        found = _by_name(said, file_name(number)).items()
        day = f"CDC_TXN-2024010{number + 1}"
        return {name.replace("20240101-", day): [(self.table, change(r)) for r in rows] for name, rows in found}

    def look(self, number: int, results: dict[str, Result], told: dict) -> None:
        """Carry out a step's decision, and keep what the table then is."""
        if number >= len(self.steps):
            return
        step, w, t = self.steps[number], self.world, self.table
        result = w.decide(t, **step["decide"]) if "decide" in step else results.get(t, Result(t, "not there"))
        seen = {"result": result}
        if "told" in step:
            lines = [line for line in told["check"] if line.startswith(f"public.{t}: ")]
            seen["told"] = [told["plan"][t]["decision"], "\n".join(lines)]
        asked = {
            "rows": lambda: w.rows(t),
            "quarantine": lambda: w.quarantine(t),
            "position": lambda: w.position(t)["last"],
            "columns_there": lambda: [f.name for f in w.metadata(t).schema().fields],
        }
        there = w.exists(t)
        seen |= {word: look() if there else "no such table" for word, look in asked.items() if word in step}
        self.found.append(seen)


def _by_name(said, name: str) -> dict:
    return {} if said is None else said if isinstance(said, dict) else {name: said}


def _named(name: str, source) -> dict:
    return {} if isinstance(source, Topic) else {"name": name}


def change(said: list):
    """Return a change that is written `[U, 2, a, {was: 1}]`."""
    more = said[-1] if isinstance(said[-1], dict) else {}
    if isinstance(more.get("was"), list):
        more = {**more, "was": tuple(more["was"])}
    return CHANGES[said[0]](*[v for v in said[1:] if v is not said[-1] or not more], **more)


def plain(value):
    """Return a value as a case writes it: what YAML has no form for is a text."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal | datetime | date | time) else value


def rows_of(found) -> list:
    """Return rows as a case writes them, in a fixed order."""
    return found if isinstance(found, str) else sorted(([plain(v) for v in r] for r in found), key=repr)


def through(world: World, of_world: dict[str, Case]) -> None:
    """Let all cases of a world go through their steps at the same time."""
    for number in range(max(len(c.steps) for c in of_world.values())):
        now = [c.steps[number] for c in of_world.values() if number < len(c.steps)]
        for case in of_world.values():
            case.write(number)
        together: dict[str, list] = {}
        for name, changes in (item for c in of_world.values() for item in c.of_all_tables(number).items()):
            together.setdefault(name, []).extend(changes)
        for name, changes in together.items():
            world.source.of_all_tables(name, *changes)
        if any(step.get("new_process") for step in now):
            world.new_process()
        results = world.through()
        if any(step.get("maintain") for step in now):
            world.maintain()
        told = {"plan": world.plan(), "check": world.check()} if any("told" in step for step in now) else {}
        for case in of_world.values():
            case.look(number, results, told)


@pytest.fixture(scope="module")
def made(spark, catalog_options, tmp_path_factory):
    """Make the world of some cases, once, and let them go through all of their steps."""
    known: dict[tuple[str, str], dict[str, Case]] = {}

    def make(file: str, name: str, request) -> dict[str, Case]:
        if (file, name) not in known:
            said = _read(file).get("worlds", {"csv": {}})[name] or {}
            space, root = f"cases_{file}_{re.sub(r'W+', '_', name)}", tmp_path_factory.mktemp("cases") / "w"
            w = World(root, space, catalog_options, said.get("target"), **said.get("settings", {}))
            if said.get("stream") == "kafka":
                Topic(w, request.getfixturevalue("kafka"), **said.get("target", {}))
            if "rules" in said:
                w.source.rules = {"none": NO_RULES, "before-image": BEFORE_IMAGE}.get(str(said["rules"]), said["rules"])
            w.source.specs = ChainMap({}, w.specs)
            found = {n: Case(w, n, c) for n, c in cases(file, name).items()}
            assert len({c.table for c in found.values()}) == len(found), "two cases have one table"
            known[file, name] = found
            usual = {option: w.session.conf.get(option) for option in said.get("conf", {})}
            for option, value in said.get("conf", {}).items():
                w.session.conf.set(option, value)
            try:
                through(w, found)
            finally:
                for option, value in usual.items():
                    w.session.conf.set(option, value)
        return known[file, name]

    yield make
    house().forget()


def pytest_generate_tests(metafunc):
    """Make a test of each case of each world."""
    found = [(*world, case) for world in worlds() for case in cases(*world)]
    metafunc.parametrize("file, name, case", found, ids=["-".join(f) for f in found])


def test_a_case_ends_as_it_says(made, request, file, name, case):
    found = made(file, name, request)[case]
    for number, (step, seen) in enumerate(zip(found.steps, found.found, strict=True)):
        check(step, seen, f"step {number + 1}")


def check(step: dict, seen: dict, at: str) -> None:
    """Compare what came of a step with what it says."""
    result, said = seen["result"], step.get("result", {})
    said = {"status": said} if isinstance(said, str) else said
    wanted = "failed" if "code" in said and "status" not in said else said.get("status")
    told = f"{at}: {result.status} {result.code}: {result.note}"
    assert result.status == wanted if wanted else result.went_well, told
    if "code" in said:
        assert result.code == said["code"], told
    assert result.names(*map(str, said.get("names", []))), told
    for count, number in said.get("counts", {}).items():
        assert result.counts.get(count, 0) == number, f"{told} {result.counts}"
    for place in seen.get("told", []):
        assert all(str(part) in place for part in step["told"]), f"{told}\nplan and check say: {seen['told']}"
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
