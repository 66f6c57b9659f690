"""The stages of a batch on the first records of its files, which need no lake: what they show of hidden values, and of a key."""

import pytest

from frazil_old.engine.preview_sample import read_sample
from frazil_old.engine.read_files import plan_files
from frazil_old.flows import preview
from frazil_old.report import notebook_output
from helpers import FILE1, FILE2, D, I, U, World


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "w", "w", {})


def stages(world, *names: str) -> tuple[preview.Batch, str]:
    """Return the only table's batch, and all that some stages of it show."""
    book = world.book()
    (spec,) = book.specs.values()
    taken = list(book.objects(spec).changes)
    batch = preview.Batch(book, [])
    batch.spec, batch.taken = spec, taken
    planned, read = plan_files(book.source_table(spec), taken, batch.phase)
    batch.sample, batch.lane = read_sample(spec, planned, read, taken), ("merge", "set")
    found = [notebook_output.stage(getattr(batch, name)()) for name in names]
    return batch, "\n".join([*map(repr, found), *[card._repr_html_() for card in found]])


def test_no_stage_shows_a_value_that_is_masked_or_left_out(world):
    world.table("t", "id WSTRING(9)", "pin WSTRING(9)", "n INT4", "v WSTRING(9)")
    world.specs["t"]["columns"][0]["mask"] = world.specs["t"]["columns"][1]["mask"] = "sha256"
    world.specs["t"]["exclude"] = ["v"]
    world.table_file("t").changes("t", U("key-two", "open", 2, "away", was="key-one"), D("key-two"))
    world.changes("t", I("key-six", "shut", "x", "hence"), name=FILE2)
    batch, seen = stages(world, "files", "records", "changes", "latest", "written")
    assert not [word for word in ("key-", "open", "shut", "away", "hence") if word in seen]
    assert "•••" in seen and "of the key, was " in seen and "column 'n': 'x' does not fit INT4" in seen
    assert set(batch.records().rows[-1].values()) >= {"•••"} and "x" not in batch.records().rows[-1].values()


def test_the_key_with_most_changes_is_followed_to_its_last_one(world):
    world.table("t").changes("t", *[I(i, "x") for i in range(10, 30)], U(3, "a"), U(4, "b", was=3), name=FILE1)
    world.changes("t", U(4, "c"), D(4), name=FILE2)
    batch, seen = stages(world, "records", "changes", "latest", "written")
    assert batch.records().sentence == "all 24 records of 2 files; 3 of them are of key 4"
    assert [r["replaced by"] for r in batch.changes().rows[-3:]] == [f"row 2 of {FILE2}", "row 2", ""]
    last = {r["id"]: (r["changes"], r["then"]) for r in batch.latest(100).rows}
    assert (last["3"], last["4"], last["10"]) == ((2, "delete the row"), (3, "delete the row"), (1, "write the row"))
    assert {r["what"]: r["how many"] for r in batch.written().rows} == {
        "rows to write": 20,
        "keys to delete": 2,
        "replaced changes": 3,
    }
