"""The merge of small files of row deltas: fewer files, the same rows with the same ids, and an index that is right without a read."""

import pytest

from frazil_old.flows import cdc
from frazil_old.lake import small_file_merge, table_history
from helpers import U
from test_row_delta import files

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Merge files after three commits."""
    monkeypatch.setattr(small_file_merge, "MERGE_AFTER", 3)


def ingest(world, book=None, **settings) -> None:
    given = {"lane": "rowdelta", "max_batch_files": 1} | settings
    assert not [r.note for r in cdc.run(book or world.book(**given)) if r.failed]


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()


def test_the_history_of_a_key_knows_of_no_fold(loaded):
    for n, name in enumerate(files(5)):
        loaded.changes("t", U(7, f"u{n}"), U(8 + n, "x"), name=name)
    ingest(loaded)
    states = table_history.lineage(loaded.spark, loaded.name("t"))
    found = table_history.versions(loaded.spark, loaded.name("t"), states, "id = 7")
    assert [v.row["v"] for v in found] == ["a7", *[f"u{n}" for n in range(5)]]
