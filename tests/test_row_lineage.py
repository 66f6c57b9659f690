"""A changed row keeps its `_row_id` on format v3, by whichever path it is written; a new row gets a new one."""

import pytest

from frazil_old.flows import cdc
from helpers import FILE2, FILE3, LOAD1, D, I, U
from lake_reader import duckdb_rows

pytestmark = pytest.mark.spark
LANES = ["merge", "rowdelta", "scan"]


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", *[(i, f"a{i}") for i in range(20)]).loaded()


def lineage(world) -> dict[int, tuple[int, int]]:
    """Return {key: (row id, sequence number of the last change)}, as Spark and DuckDB read them; no id may be there twice."""
    columns = "id, _row_id, _last_updated_sequence_number"
    rows = world.spark.sql(f"SELECT {columns} FROM {world.name('t')}").collect()
    assert sorted(map(tuple, rows), key=repr) == duckdb_rows(world.catalog_options, f"{world.space}.t", columns)
    found = {r[0]: (r[1], r[2]) for r in rows}
    assert len(rows) == len(found) == len({row_id for row_id, _ in found.values()}), rows
    return found


def row_ids(world) -> dict[int, int]:
    return {key: row_id for key, (row_id, _) in lineage(world).items()}


def sequence(world) -> int:
    """Return the sequence number of the last batch."""
    return next(s for s in world.history("t") if s.summary().get("frazil.kind") == "changes").sequenceNumber()


def lane(world) -> str:
    return next(s.summary().get("frazil.lane") for s in world.history("t") if s.summary().get("frazil.lane"))


@pytest.mark.parametrize("given", LANES)
def test_updated_rows_keep_their_ids_and_new_rows_get_new_ones(loaded, given):
    loaded.given["lane"], before = given, lineage(loaded)
    changed = {"20240101-100000000.csv": [U(1, "b"), I(100, "n"), D(2)], FILE2: [U(1, "c"), U(100, "m"), U(3, "b")],
               FILE3: [U(100, "l"), U(4, "b"), I(101, "n")]}  # fmt: skip
    for name, changes in changed.items():
        loaded.changes("t", *changes, name=name).merged()
        after = lineage(loaded)
        for change in changes:
            (key, *_), expected = change.values, before.get(change.values[0])
            if change.op == "D":
                assert key not in after
            elif change.op == "I":
                assert after[key] == (after[key][0], sequence(loaded))
                assert after[key][0] > max(row_id for row_id, _ in before.values())
            else:
                assert after[key] == (expected[0], sequence(loaded)), (name, key)
        told = {c.values[0] for c in changes}
        assert {k: v for k, v in after.items() if k not in told} == {k: v for k, v in before.items() if k not in told}
        before = after
    assert lane(loaded) == given


def test_partial_rows_keep_their_ids(new_world):
    world = new_world(UseCsvNoSupValue=True, CsvNoSupValue="?")
    world.table("t", "id INT8", "a WSTRING(9)", "b INT4").load("t", *[(n, "old", n) for n in range(5)]).loaded()
    before = row_ids(world)
    world.changes("t", U(1, "?", 8), U(9, "new", "?", was=2), U(3, "?", "?", was=4), D(3), I(4, "i", 4)).merged()
    assert world.rows("t") == [(0, "old", 0), (1, "old", 8), (4, "i", 4), (9, "new", 2)]
    after = row_ids(world)
    assert {k: after[k] for k in (0, 1, 9)} == {0: before[0], 1: before[1], 9: before[2]}
    world.load("t", *[(n, "again", n) for n in range(5)], name=LOAD1).full_load(on_changed_load="reload")
    assert not {*row_ids(world).values()} & {*after.values()}  # other rows than those that were there


def test_a_table_that_becomes_v3_keeps_ids_from_its_next_commit_on(world):
    world.given["query_engines"] = ["athena"]
    world.table("t").load("t", *[(i, f"a{i}") for i in range(20)]).loaded()
    book = world.book(lane="rowdelta")
    ways = []
    for number in range(4):
        world.changes("t", U(number, "b"), U(9, f"c{number}"), name=f"20240101-10{number:02d}00000.csv")
        before = row_ids(world) if number > 1 else {}
        assert not [r.note for r in cdc.run(book) if r.failed]
        ways.append(lane(world))
        if number == 0:
            world.spark.sql(f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ('format-version' = '3')")
        assert not before or row_ids(world) == before
    assert ways == ["rowdelta", "merge", "rowdelta", "rowdelta"], world.said
