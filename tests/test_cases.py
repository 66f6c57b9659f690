"""Cases: small tables that share a world. Each says what DMS writes in one or more steps, and what the table holds after each.

A file below `cases/` has `worlds` (the settings that its tables are tried with) and `cases`; tests/README.md lists the words that they may use.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from dms_streams import Shards, Topic
from dms_writer import BEFORE_IMAGE, NO_RULES, D, I, Messages, U, columns_of, file_name
from world import Result, World, house

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
FOLDER = Path(__file__).parent / "cases"
CHANGES = {"I": I, "U": U, "D": D}
WORDS = {
    "load", "changes", "files", "messages", "sends", "gone", "spec", "column", "by_others", "maintain", "new_process", "decide",
    "rows", "of", "result", "quarantine", "position", "columns_there", "renamed",
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
        assert not unknown, f"{file}.yml: {case}: no word of a case: {', '.join(sorted(unknown))}"
    return found


class Case:
    """One table of a world: what is written for it step by step, and what came of each step."""

    def __init__(self, world: World, name: str, said: dict):
        self.world, self.name = world, name
        self.table = said.get("table") or re.sub(r"\W+", "_", name.lower())[:60]
        self.steps = said.get("steps") or [{w: v for w, v in said.items() if w in WORDS}]
        self.found: list[dict] = []
        self.ids: dict[str, int] = {}
        more = {"key": said["key"]} if "key" in said else {}
        world.table(self.table, *said.get("columns", ()), **more, **spec_entries(said.get("declare", {})))

    def write(self, number: int) -> None:
        """Write what a step brings: to the source, to the spec, and by another writer."""
        if number >= len(self.steps):
            return
        step = self.steps[number]
        if "spec" in step:
            self.world.declare(self.table, **spec_entries(step["spec"]))
        self._bring(step, number)
        for column, entries in step.get("column", {}).items():
            self.world.column(self.table, column, **entries)
        for statement in step.get("by_others", []):
            self.world.sql(statement, self.table)

    def _bring(self, step: dict, number: int) -> None:
        source, t = self.world.source, self.table
        for name, rows in _by_name(step.get("load"), "LOAD00000001.csv").items():
            self._put(source.load, lambda row: tuple(row), name, rows)
        for name, rows in _by_name(step.get("changes"), file_name(number)).items():
            self._put(source.changes, change, name, rows)
        for name, data in step.get("files", {}).items():
            source.write(t, name, data)
        for text in step.get("messages", []):
            source.send(text.replace("{t}", t))
        for said in step.get("sends", []):
            self._send(dict(said))
        for name in step.get("gone", []):
            source.path(t, name).unlink()

    def _put(self, put, form, name: str, rows) -> None:
        """Write rows of a file; `{columns: …, rows: …}` has the columns that the source has then, if not those of the spec."""
        spec, named = self.world.specs[self.table], {} if isinstance(self.world.source, Messages) else {"name": name}
        declared = spec["columns"]
        if isinstance(rows, dict):
            spec["columns"], rows = [{"name": n} for n in rows["columns"]], rows["rows"]
        put(self.table, *map(form, rows), **named)
        spec["columns"] = declared

    def _send(self, said: dict) -> None:
        """Send a message as it stands: `{update: {id: 1, v: a}, was: {id: 2}}`, or `{control: rename-column, columns: {…}}`."""
        source, more = self.world.source, {n: said.pop(n) for n in ("partition",) if n in said}
        if "control" in said:
            columns, told = said.pop("columns", {}), said.pop("control")
            return source.control(told, self.table, **said, **more, **columns)
        was = said.pop("was", None)
        ((operation, row),) = said.items()
        return source.data(operation, self.table, row, was, **more)

    def look(self, number: int, results: dict[str, Result]) -> None:
        """Carry out a step's decision, and keep what the table then is."""
        if number >= len(self.steps):
            return
        step, w, t = self.steps[number], self.world, self.table
        result = w.decide(t, **step["decide"]) if "decide" in step else results.get(t, Result(t, "not there"))
        seen = {"result": result}
        if "rows" in step:
            seen["rows"] = self._rows(step.get("of"))
        if "quarantine" in step:
            seen["quarantine"] = w.quarantine(t)
        if "position" in step:
            seen["position"] = w.position(t)["last"]
        if "columns_there" in step:
            seen["columns_there"] = [f.name for f in w.metadata(t).schema().fields]
        if "renamed" in step or (number == 0 and any("renamed" in s for s in self.steps)):
            ids = {f.name: f.field_id for f in w.metadata(t).schema().fields}
            self.ids = self.ids or ids
            seen["renamed"] = {n: next((o for o, i in self.ids.items() if i == ids.get(n)), None) for n in ids}
        self.found.append(seen)

    def _rows(self, of: list[str] | None):
        """Return the table's rows, or of each row the values of some columns."""
        if not self.world.exists(self.table):
            return "no such table"
        rows, names = self.world.rows(self.table), [f.name for f in self.world.metadata(self.table).schema().fields]
        if of is None:
            return rows
        return [tuple(r[names.index(n)] if n in names else f"no column {n}" for n in of) for r in rows]


def _by_name(said, name: str) -> dict:
    """Return what is written to each file; what names no file goes to the usual one."""
    if said is None:
        return {}
    return said if isinstance(said, dict) and "rows" not in said else {name: said}


def spec_entries(said: dict) -> dict:
    """Return entries of a spec, whose columns may be written `name TYPE`."""
    columns = [c if isinstance(c, dict) else columns_of(c)[0] for c in said.get("columns", [])]
    return {**said, **({"columns": columns} if columns else {})}


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
        if any(step.get("new_process") for step in now):
            world.new_process()
        results = world.through()
        if any(step.get("maintain") for step in now):
            world.maintain()
        for case in of_world.values():
            case.look(number, results)


@pytest.fixture(scope="module")
def made(spark, catalog_options, tmp_path_factory):
    """Make the world of some cases, once, and let them go through all of their steps."""
    known: dict[tuple[str, str], dict[str, Case]] = {}

    def make(file: str, name: str, request) -> dict[str, Case]:
        if (file, name) not in known:
            said = _read(file).get("worlds", {"csv": {}})[name] or {}
            space, root = f"cases_{file}_{name}", tmp_path_factory.mktemp("cases") / "w"
            w = World(root, space, catalog_options, said.get("target"), **said.get("settings", {}))
            if kind := said.get("stream"):
                {"kafka": Topic, "kinesis": Shards}[kind](w, request.getfixturevalue(kind), **said.get("target", {}))
            elif "rules" in said:
                named = {"none": NO_RULES, "before-image": BEFORE_IMAGE}
                w.source.rules = named[said["rules"]] if isinstance(said["rules"], str) else said["rules"]
            known[file, name] = {n: Case(w, n, c) for n, c in cases(file, name).items()}
            assert len({c.table for c in known[file, name].values()}) == len(known[file, name]), (
                "two cases have one table"
            )
            through(w, known[file, name])
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
    assert not any(result.names(hidden) for hidden in said.get("hides", [])), told
    for count, number in said.get("counts", {}).items():
        assert result.counts.get(count, 0) == number, f"{told} {result.counts}"
    if "rows" in step:
        assert rows_of(seen["rows"]) == rows_of(step["rows"]), told
    if "quarantine" in step:
        waiting = [
            {k: plain(r[k]) for k in wanted} for wanted, r in zip(step["quarantine"], seen["quarantine"], strict=False)
        ]
        assert (waiting, len(seen["quarantine"])) == (step["quarantine"], len(step["quarantine"])), seen["quarantine"]
    for word in ("position", "columns_there"):
        if word in step:
            assert seen[word] == step[word], told
    for new, old in step.get("renamed", {}).items():
        assert seen["renamed"].get(new, "not there") == old, f"{told}: ids {seen['renamed']}"
