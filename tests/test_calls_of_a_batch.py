"""The calls of one batch through the modules: how many it enters, and how often a call goes back to a higher package."""

import threading
from collections import Counter
from pathlib import Path

import pytest

import frazil_old as frazil
from helpers import FILE1, FILE2, U

pytestmark = pytest.mark.spark

ROOMS = ["errors", "results", "config", "warehouses", "source", "core", "dms", "lake", "engine", "report", "flows"]
HOME = str(Path(frazil.__file__).parent) + "/"


class Way:
    """Follows the calls between modules of Frazil, in the thread in which a function runs and below it."""

    def __init__(self, start: str):
        self.start, self.on = start, threading.local()
        self.steps: Counter = Counter()
        self.of_table: set[str] = set()
        """The modules whose functions took the table's spec."""

    def __call__(self, frame, event, _):
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(HOME):
            return
        if frame.f_code.co_name == self.start:
            self.on.way = event == "call"
            return
        if event == "call" and getattr(self.on, "way", False):
            caller = frame.f_back
            while caller and not caller.f_code.co_filename.startswith(HOME):
                caller = caller.f_back
            self.steps[_module(caller), _module(frame), frame.f_code.co_qualname] += 1
            if "spec" in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
                self.of_table.add(_module(frame))

    @property
    def modules(self) -> set[str]:
        """The modules that were entered."""
        return {entered for _, entered, _ in self.steps}

    @property
    def climbs(self) -> list[tuple[str, str, str]]:
        """The calls from a module to one of a higher package, each way once."""
        return sorted(step for step in self.steps if _height(step[1]) > _height(step[0]))


def _module(frame) -> str:
    return frame.f_code.co_filename.removeprefix(HOME).removesuffix(".py").replace("/", ".")


def _height(module: str) -> int:
    return ROOMS.index(module.split(".")[0])


MODULES, OF_TABLE, CLIMBS = 69, 25, 3
"""At most so many modules, so many that take the table's spec, and so many calls that climb."""


def test_a_small_batch_takes_a_short_way_to_its_row_delta(world):
    w = world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    w.changes("t", U(1, "A"), name=FILE1).merged(lane="rowdelta")
    w.changes("t", U(2, "B"), name=FILE2)
    way = Way("_one_pass")
    threading.setprofile(way)
    try:
        w.merged(lane="rowdelta")
    finally:
        threading.setprofile(None)
    figures = len(way.modules), len(way.of_table), len(way.climbs)
    print(figures, sorted(way.modules), sorted(way.of_table), way.climbs, sep="\n")
    assert "lake.row_delta" in way.modules and len(way.modules) <= MODULES, way.modules
    assert len(way.of_table) <= OF_TABLE, way.of_table
    assert len(way.climbs) <= CLIMBS, way.climbs
