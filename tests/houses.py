"""Two libraries under one suite: which tests run on the new one. All others run on the old one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from world import house_name

HERE = Path(__file__).parent
LIST = HERE / "passes_on_new.txt"


def names_in(text: str) -> list[str]:
    """Return the tests that a list names: `test_values.py`, or `test_values.py::test_name[case]`, or all that begin so: `…[csv-*`."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


@cache
def listed() -> frozenset[str]:
    """Return the tests that run on the new library."""
    return frozenset(names_in(LIST.read_text()))


def runs_on_new(item) -> bool:
    """Return whether a test runs on the new library: a unit of it, or one that the list names."""
    name = f"{item.path.name}::{item.name}"
    begins = tuple(line[:-1] for line in listed() if line.endswith("*"))
    named = bool(listed() & {item.path.name, name, name.split("[")[0]}) or name.startswith(begins)
    return item.path.parent.name == "unit" or named


def of_this_house(items: list) -> tuple[list, list]:
    """Divide tests into those of the library under test and the others."""
    divided: tuple[list, list] = [], []
    for item in items:
        divided[runs_on_new(item) != (house_name() == "new")].append(item)
    return divided
