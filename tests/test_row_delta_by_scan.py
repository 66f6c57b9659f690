"""A row delta whose old rows a scan of the table's keys finds: no key index, and Spark's tasks write large batches."""

import pytest

from frazil_old.flows import cdc
from helpers import FILE1, FILE2, FILE3, D, I, U

pytestmark = pytest.mark.spark


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()


def summary(world, table: str = "t") -> dict:
    return dict(world.history(table)[0].summary())


def test_the_key_index_of_a_run_follows_a_batch_by_scan(loaded):
    book = loaded.book(lane="rowdelta")
    loaded.changes("t", U(1, "b"), name=FILE1)
    assert not [r.note for r in cdc.run(book) if r.failed]
    loaded.changes("t", U(1, "c"), U(2, "d"), I(90, "e"), name=FILE2).merged(lane="scan")
    loaded.changes("t", U(1, "f"), D(90), name=FILE3)
    assert not [r.note for r in cdc.run(book) if r.failed]
    assert summary(loaded)["frazil.lane"] == "rowdelta"
    expected = {i: f"a{i}" for i in range(50)} | {1: "f", 2: "d"}
    assert sorted(loaded.rows("t")) == sorted(expected.items())


def test_a_table_whose_keys_no_index_can_hold_needs_no_merge(world):
    world.table("t", "id REAL8", "v STRING(9)").load("t", ("0.1", "a"), ("2.5", "b")).loaded()
    world.changes("t", U("0.1", "c"), D("2.5"), name=FILE1).merged(lane="rowdelta")
    told = summary(world)
    assert (told["frazil.lane"], world.rows("t")) == ("scan", [(0.1, "c")])
    assert told["frazil.lane-reason"].startswith("only Spark can number its keys")
