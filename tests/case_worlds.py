"""Worlds of cases: tables that share a source, its settings and each run. A case writes step by step, and keeps what came of each step."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime
from time import time

from dms_writer import D, I, Messages, U, columns_of, file_name, typed_parquet
from world import Result, World

CHANGES = {"I": I, "U": U, "D": D}
WRITTEN = {
    "spec", "column", "load", "changes", "files", "parquet", "messages", "sends", "gone", "aged", "cure", "by_others",
    "new_process", "maintain", "decide",
}  # fmt: skip
"""What a step may do."""
SEEN = {"rows", "of", "result", "told", "quarantine", "position", "columns_there", "renamed"}
"""What a step may say of its end."""
OF_TABLE = {"columns", "key", "table", "declare", "only", "steps", "why"}
"""What a case may say of its table."""


def unknown_words(said: dict) -> set[str]:
    """Return the words of a case that are none; a case with steps says in them what it does."""
    words = WRITTEN | SEEN
    unknown = {*said} - OF_TABLE - words | {w for s in said.get("steps", []) for w in s} - words
    return unknown | ({*said} & words if "steps" in said else set())


class Case:
    """One table of a world: what is written for it step by step, and what came of each step."""

    def __init__(self, world: World, name: str, said: dict):
        self.world, self.name = world, name
        self.table = said.get("table") or re.sub(r"\W+", "_", name.lower())[:60]
        self.steps = said.get("steps") or [{w: v for w, v in said.items() if w in WRITTEN | SEEN}]
        self.found: list[dict] = []
        self.ids: dict[str, int] = {}
        more = {"key": said["key"]} if "key" in said else {}
        world.table(self.table, *said.get("columns", ()), **more, **spec_entries(said.get("declare", {})))

    # --- what a step writes

    def write(self, number: int) -> None:
        """Write what a step brings: to the spec, to the source, and by another writer."""
        step = self.steps[number]
        if "spec" in step:
            self.world.declare(self.table, **spec_entries(step["spec"]))
        for column, entries in step.get("column", {}).items():
            self.world.column(self.table, column, **entries)
        self._write_rows(number, step)
        self._write_files(step)
        if step.get("cure"):
            self.world.cure(self.found[-1]["result"])
        for statement in step.get("by_others", []):
            self.world.sql(self._with_snapshots(statement), self.table)

    def _write_rows(self, number: int, step: dict) -> None:
        source = self.world.source
        for name, rows in by_name(step.get("load"), "LOAD00000001.csv").items():
            self._put(source.load, tuple, name, rows)
        for name, rows in {} if self.together else by_name(step.get("changes"), file_name(number)).items():
            self._put(source.changes, change, name, rows)
        for text in step.get("messages", []):
            source.send(text.replace("{t}", self.table))
        for said in step.get("sends", []):
            self._send(dict(said))

    def _put(self, put: Callable, form: Callable, name: str, rows: list | dict) -> None:
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
            source.control(told, self.table, **said, **more, **columns)
            return
        was = said.pop("was", None)
        ((operation, row),) = said.items()
        source.data(operation, self.table, row, was, **more)

    def _write_files(self, step: dict) -> None:
        source, t = self.world.source, self.table
        for name, data in step.get("files", {}).items():
            source.write(t, name, data)
        for name, columns in step.get("parquet", {}).items():
            source.write(t, name, typed_parquet(**columns))
        for name in step.get("gone", []):
            source.path(t, source.named(name)).unlink()
        for name, days in step.get("aged", {}).items():
            named = datetime.strptime(f"{name[:8]}+0000", "%Y%m%d%z").timestamp() if days == "as named" else 0.0
            os.utime(source.path(t, source.named(name)), (named or time() - 86_400 * days,) * 2)

    def _with_snapshots(self, statement: str) -> str:
        """Return a statement with the ids of snapshots: `{s-1}` is the one that was made last, `{s-2}` the one before."""
        numbers = re.findall(r"\{s(-?\d+)\}", statement)
        made = sorted(self.world.metadata(self.table).snapshots, key=lambda s: s.sequence_number) if numbers else []
        for number in numbers:
            statement = statement.replace(f"{{s{number}}}", str(made[int(number)].snapshot_id))
        return statement

    @property
    def together(self) -> bool:
        """Whether DMS writes the changes of all tables into the same files."""
        return bool(self.world.source.settings.get("PreserveTransactions"))

    def of_all_tables(self, number: int) -> dict[str, list]:
        """Return this table's changes of a step, by the names of the files of all tables."""
        said = by_name(self.steps[number].get("changes"), file_name(number)) if self.together else {}
        day = f"CDC_TXN-2024010{number + 1}"
        return {name.replace("20240101-", day): [(self.table, change(r)) for r in rows] for name, rows in said.items()}

    # --- what came of it

    def look(self, number: int, results: dict[str, Result], told: dict) -> None:
        """Carry out a step's decision, and keep what the table then is."""
        step, w, t = self.steps[number], self.world, self.table
        result = w.decide(t, **step["decide"]) if "decide" in step else results.get(t, Result(t, "not there"))
        seen = {"result": result}
        if "told" in step:
            lines = [line for line in told["check"] if line.startswith(f"public.{t}: ")]
            seen["told"] = [told["plan"][t]["decision"], "\n".join(lines)]
        asked = {
            "rows": lambda: self._rows(step.get("of")),
            "quarantine": lambda: w.quarantine(t),
            "position": lambda: w.position(t)["last"],
            "columns_there": lambda: [*self._columns()],
            "renamed": self._renamed,
        }
        there = w.exists(t)
        seen |= {word: look() if there else "no such table" for word, look in asked.items() if word in step}
        if there and not self.ids:
            self.ids = self._columns()
        self.found.append(seen)

    def _columns(self) -> dict[str, int]:
        """Return the field ids of the table's columns."""
        return {f.name: f.field_id for f in self.world.metadata(self.table).schema().fields}

    def _renamed(self) -> dict[str, str | None]:
        """Return the name that each column had after the first step."""
        first = {field: name for name, field in self.ids.items()}
        return {name: first.get(field) for name, field in self._columns().items()}

    def _rows(self, of: list[str] | None) -> list[tuple]:
        """Return the table's rows, or of each row the values of some columns."""
        rows, names = self.world.rows(self.table), [*self._columns()]
        if of is None:
            return rows
        return [tuple(r[names.index(n)] if n in names else f"no column {n}" for n in of) for r in rows]


def by_name(said: list | dict | None, name: str) -> dict:
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


def through(world: World, cases: list[Case]) -> None:
    """Let all cases of a world go through their steps at the same time."""
    for number in range(max(len(c.steps) for c in cases)):
        now = [c for c in cases if number < len(c.steps)]
        steps = [c.steps[number] for c in now]
        for case in now:
            case.write(number)
        together: dict[str, list] = {}
        for name, changes in (item for c in now for item in c.of_all_tables(number).items()):
            together.setdefault(name, []).extend(changes)
        for name, changes in together.items():
            world.source.of_all_tables(name, *changes)
        if any(step.get("new_process") for step in steps):
            world.new_process()
        results = world.through(**({} if len(now) == len(cases) else {"tables": [c.table for c in now]}))
        if any(step.get("maintain") for step in steps):
            world.maintain()
        told = {"plan": world.plan(), "check": world.check()} if any("told" in step for step in steps) else {}
        for case in now:
            case.look(number, results, told)


@contextmanager
def configured(session, options: dict[str, str]):
    """Set options of the Spark session for a while."""
    usual = {name: session.conf.get(name) for name in options}
    for name, value in options.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in usual.items():
            session.conf.set(name, value)
