"""Each program on the page of readers returns all rows of a table: of v2 and v3, with deletes, after a partition change."""

import re
from pathlib import Path

import pytest
from helpers import D, I, U

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parent.parent / "lib/docs/readers.md"
PROGRAMS = dict(re.findall(r"^## (\w+)\n[^#]*?```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M))


def rows_of(program: str, world, table: str) -> list[tuple]:
    """Run a program with the names of a lake in place of the page's, and return its rows, sorted."""
    names = {
        "runs/prod/lake/catalog.db": world.catalog_options["uri"].removeprefix("jdbc:sqlite:"),
        "runs/prod/lake/warehouse": world.catalog_options["warehouse"], "sales.orders": f"{world.space}.{table}",
    }  # fmt: skip
    for shown, real in names.items():
        assert shown in program
        program = program.replace(shown, real)
    found: dict = {}
    exec(compile(program, "readers.md", "exec"), found)
    return sorted(found["rows"], key=repr)


def test_the_page_has_a_program_of_ten_lines_at_most_for_each_reader_that_runs_here():
    assert list(PROGRAMS) == ["Spark", "PyIceberg", "Polars", "DuckDB"]
    assert all(len([line for line in p.splitlines() if line]) <= 10 for p in PROGRAMS.values())


@pytest.mark.parametrize("engine", ["spark", "athena"], ids=["v3", "v2"])
def test_every_reader_returns_the_same_rows_after_deletes_and_a_partition_change(world, engine):
    world.given["query_engines"] = [engine]
    world.table("t").load("t", *[(n, f"v{n}") for n in range(40)]).loaded()
    world.changes("t", D(3), U(4, "new"), I(100, None), name="20240101-100000000.csv").merged(lane="rowdelta")
    world.spark.sql(f"ALTER TABLE {world.name('t')} ADD PARTITION FIELD bucket(4, id)")
    world.changes("t", D(5), U(6, "newer"), U(100, "x"), name="20240101-100100000.csv").merged(lane="rowdelta")
    expected = {n: f"v{n}" for n in range(40) if n not in (3, 5)} | {4: "new", 6: "newer", 100: "x"}
    assert world.iceberg("t").operations().current().formatVersion() == (3 if engine == "spark" else 2)
    for name, program in PROGRAMS.items():
        assert rows_of(program, world, "t") == sorted(expected.items(), key=repr), name
