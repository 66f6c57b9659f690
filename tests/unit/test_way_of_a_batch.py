"""How much code a small batch passes: a reader of its way must know no more modules and functions than these."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import frazil
from dms_writer import FILE1, FILE2, FILE3, I, U
from frazil.pipeline import run
from new_house import opened

pytestmark = pytest.mark.spark
HOUSE = str(Path(frazil.__file__).parent)
MOST = {"csv": (66, 286), "parquet": (66, 300), "replay": (57, 250)}
"""Modules, and functions and methods, that a batch passes below `pipeline.run`. They may be lowered, never raised."""


def passed(table) -> tuple[int, int]:
    """Apply what is pending; return how many modules and functions were entered."""
    found = set()

    def note(frame, event: str, _) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOUSE) and not code.co_name.startswith("<"):
            found.add((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        assert run.merge_table(table, {table: 1}).counts["batches"] == 1
    finally:
        sys.setprofile(None)
    return len({file for file, _ in found}), len(found)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_small_batch_passes_few_modules_and_functions(open_world, form):
    w = open_world(target={"DataFormat": form}, on_bad_rows="quarantine").table("t", "id INT8", "n INT4")
    w.source.load("t", (1, 1), (2, 2))
    table = opened(w.loaded(), {})["public.t"]
    w.source.changes("t", U(1, 3), I(4, 4), name=FILE1)
    w.merge()
    w.source.changes("t", U(1, 5), I(5, 5 if form == "csv" else "x"), name=FILE2)
    found = {form: passed(table)}
    if form == "csv":
        w.source.changes("t", U(1, 6), I(6, "x"), name=FILE3)
        w.merge()
        table.replay(table.stored.position.quarantine.path)
        found["replay"] = passed(table)
    assert len(w.quarantine("t")) == 1
    assert all(got[n] <= MOST[kind][n] for kind, got in found.items() for n in (0, 1)), found
