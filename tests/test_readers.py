"""Each program on the page of readers returns all rows of a table: of v2 and v3, with deletes, after a partition change."""

from __future__ import annotations

import re

import pytest

from dms_writer import FILE2, D, I, U
from world import HERE

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
PAGE = (HERE.parent / "lib/docs/readers.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^## (\w+)\n[^#]*?```python\n(.*?)^```$", PAGE, re.S | re.M))


def rows_of(program: str, w, table: str) -> list[tuple]:
    """Run a program with the names of a lake in place of the page's, and return its rows, sorted."""
    names = {
        "runs/prod/lake/catalog.db": w.lake["uri"].removeprefix("jdbc:sqlite:"),
        "runs/prod/lake/warehouse": w.lake["warehouse"], "sales.orders": f"{w.space}.{table}",
    }  # fmt: skip
    for shown, real in names.items():
        assert shown in program
        program = program.replace(shown, real)
    found: dict = {}
    exec(compile(program, "readers.md", "exec"), found)
    return sorted(found["rows"], key=repr)


@pytest.mark.parametrize("version", [3, 2])
def test_every_reader_returns_the_same_rows_after_deletes_and_a_partition_change(open_world, version):
    w = open_world(format_version=version).table("t")
    w.source.load("t", *[(n, f"v{n}") for n in range(40)])
    w.loaded()
    w.source.changes("t", D(3), U(4, "new"), I(100, None))
    w.merged().sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)")
    w.source.changes("t", D(5), U(6, "newer"), U(100, "x"), name=FILE2)
    w.merged()
    expected = {n: f"v{n}" for n in range(40) if n not in (3, 5)} | {4: "new", 6: "newer", 100: "x"}
    assert list(PROGRAMS) == ["Spark", "PyIceberg", "Polars", "DuckDB"]
    for name, program in PROGRAMS.items():
        assert rows_of(program, w, "t") == sorted(expected.items(), key=repr), name
        assert len([line for line in program.splitlines() if line]) <= 10
