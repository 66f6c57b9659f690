"""The merge of small files of row deltas: fewer files, the same rows with the same ids, and an index that is right without a read."""

import random
from pathlib import Path

import pytest
import yaml

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.flows import cdc
from frazil_old.lake import compaction, small_file_merge, table_history
from frazil_old.lake.index_sync import Locator
from helpers import D, I, U, slow
from test_row_delta import files, random_changes

pytestmark = pytest.mark.spark
KINDS = {
    "plain": (lambda n: (n,), ["id INT8"], []),
    "parted": (lambda n: (f"k{n}",), ["id STRING(9)"], ["truncate(1, v)"]),
}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Merge files after three commits."""
    monkeypatch.setattr(small_file_merge, "MERGE_AFTER", 3)


def ingest(world, book=None, **settings) -> None:
    given = {"lane": "rowdelta", "max_batch_files": 1} | settings
    assert not [r.note for r in cdc.run(book or world.book(**given)) if r.failed]


def folds(world, table: str = "t") -> list:
    return [s for s in world.history(table) if s.summary().get("frazil.kind") == small_file_merge.KIND]


def data_files(world, table: str = "t", at: str = "") -> list[str]:
    return [
        r.file_path for r in world.spark.sql(f"SELECT file_path FROM {world.name(table)}.data_files {at}").collect()
    ]


@pytest.mark.parametrize("readers", [["spark"], slow(["athena"])], ids=["v3", "v2"])
def test_folded_rows_are_what_they_were(world, readers):
    rng, states = random.Random(3), {kind: {key(n): "l" for n in range(20)} for kind, (key, *_) in KINDS.items()}
    for kind, (key, columns, parts) in KINDS.items():
        world.table(kind, *columns, "v WSTRING(99)")
        world.specs[kind]["partition"] = parts
        (world.root / f"specs/{kind}.yml").write_text(yaml.safe_dump(world.specs[kind]))
        world.load(kind, *[(*key(n), "l") for n in range(20)])
    assert not [r.note for r in {**world.setup(query_engines=readers), **world.full_load()}.values() if r.failed]
    for name in files(11):
        for kind, (key, *_) in KINDS.items():
            world.changes(kind, *random_changes(rng, states[kind], key, 9), name=name)
    ingest(world)
    lineage = ", _row_id, _last_updated_sequence_number" if readers == ["spark"] else ""
    for kind, state in states.items():
        assert sorted(world.rows(kind)) == sorted((*k, v) for k, v in state.items()), kind
        assert len(folds(world, kind)) >= 3, world.said
        for s in folds(world, kind):
            rows = [
                sorted(
                    map(
                        tuple,
                        world.spark.sql(f"SELECT *{lineage} FROM {world.name(kind)} VERSION AS OF {at}").collect(),
                    )
                )
                for at in (s.parentId(), s.snapshotId())
            ]
            assert rows[0] == rows[1], kind
            assert s.operation() == "replace"
    assert sorted(len(folds(world, kind)) for kind in KINDS) == [3, 4]  # the other one's first comes a commit earlier
    assert len(data_files(world, "plain")) <= 1 + 4 + 2  # the load, a file of each fold, what came since


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()


def test_the_index_follows_a_fold_without_a_look_at_the_files(loaded, monkeypatch):
    book = loaded.book(lane="rowdelta", max_batch_files=1)
    expected, read = dict(loaded.rows("t")), []
    for n, name in enumerate(files(4)):
        loaded.changes("t", U(n, f"u{n}"), I(100 + n, "n"), D(100 + n - 2), name=name)
        if n == 1:
            ingest(loaded, book)  # the index is built here
            monkeypatch.setattr(Locator, "_read_keys", lambda self, table, paths, snapshot: read.extend(paths))
        elif n > 1:
            ingest(loaded, book)
        expected |= {n: f"u{n}", 100 + n: "n"}
        expected.pop(100 + n - 2, None)
    assert len(folds(loaded)) == 1, loaded.said
    loaded.changes("t", U(0, "z"), U(101, "q"), D(2), I(103, "again"), name="20240101-120000000.csv")
    ingest(loaded, book)
    del expected[2]
    assert not read and sorted(loaded.rows("t")) == sorted((expected | {0: "z", 101: "q", 103: "again"}).items())
    assert all(s.summary().get("frazil.lane") == "rowdelta" for s in loaded.history("t")[:2]), loaded.said


def test_an_index_of_another_run_follows_a_fold_by_its_order(loaded, monkeypatch):
    monkeypatch.setattr(small_file_merge, "MERGE_AFTER", 2)
    book = loaded.book(lane="rowdelta", max_batch_files=1)
    for n, name in enumerate(files(2)):
        loaded.changes("t", U(n, f"u{n}"), I(100 + n, "n"), name=name)
    with monkeypatch.context() as m:
        m.setattr(small_file_merge.SmallFileMerge, "merge", lambda self, *a: None)
        ingest(loaded, book)
        book.lanes.save()  # as it was before the fold
        m.undo()
        lane = book.lanes.open[loaded.name("t")]
        lane.small.merge(loaded.spark, lane.locator, lane.spec, [])
    assert len(folds(loaded)) == 1
    read = []
    monkeypatch.setattr(Locator, "_read_keys", lambda self, table, paths, snapshot: read.extend(paths))
    loaded.changes("t", U(1, "z"), D(100), name="20240101-120000000.csv")
    ingest(loaded)
    rows = dict(loaded.rows("t"))
    assert not read and rows[1] == "z" and 100 not in rows and rows[101] == "n" and len(rows) == 51


MEANWHILE = {
    "delete": lambda w: w.spark.sql(f"DELETE FROM {w.name('t')} WHERE id = 101"),
    "compaction": lambda w: w.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')"),
    "insert": lambda w: w.spark.sql(f"INSERT INTO {w.name('t')} VALUES (500, 'theirs')"),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_others_come_in_between(loaded, monkeypatch, what):
    real, struck = small_file_merge.write_rows, []

    def between(*arguments):
        found = real(*arguments)
        if not struck:
            struck.append(1)
            MEANWHILE[what](loaded)
        return found

    monkeypatch.setattr(small_file_merge, "write_rows", between)
    book = loaded.book(lane="rowdelta", max_batch_files=1)
    for n, name in enumerate(files(3)):
        loaded.changes("t", U(n, f"u{n}"), I(100 + n, "n"), name=name)
    ingest(loaded, book)
    expected = {i: f"a{i}" for i in range(50)} | {n: f"u{n}" for n in range(3)} | {100 + n: "n" for n in range(3)}
    expected.pop(101) if what == "delete" else expected.update({500: "theirs"} if what == "insert" else {})
    assert struck and sorted(loaded.rows("t")) == sorted(expected.items())
    assert len(folds(loaded)) == (what == "insert")  # who adds rows is not in the way
    known = {f for s in loaded.history("t") for f in data_files(loaded, at=f"VERSION AS OF {s.snapshotId()}")}
    folder = Path(loaded.iceberg("t").location().removeprefix("file:"), "data")
    there = {p.name for p in folder.rglob("*.parquet")}
    assert there and there == {Path(f).name for f in known}
    for n, name in enumerate(files(9)[3:]):
        loaded.changes("t", U(n, f"w{n}"), U(100 + n % 3, "m"), name=name)
        expected |= {n: f"w{n}", 100 + n % 3: "m"}
    ingest(loaded, book)
    assert sorted(loaded.rows("t")) == sorted(expected.items()) and folds(loaded)


def test_maintenance_leaves_young_files_to_the_next_fold(loaded, monkeypatch):
    for n, name in enumerate(files(5)):
        loaded.changes("t", U(n, f"u{n}"), name=name)
    ingest(loaded)
    table = loaded.iceberg("t")
    young = small_file_merge.left_to_ingestion(loaded.spark, table)
    assert len(young) == 2 and young < set(data_files(loaded))
    (piece,) = compaction.file_groups(loaded.spark, table, MaintenanceSettings(root="."))
    assert set(piece.files) == set(data_files(loaded)) - young
    monkeypatch.setattr(small_file_merge, "AT_WORK_S", 0.0)
    assert not small_file_merge.left_to_ingestion(loaded.spark, table)


def test_the_history_of_a_key_knows_of_no_fold(loaded):
    for n, name in enumerate(files(5)):
        loaded.changes("t", U(7, f"u{n}"), U(8 + n, "x"), name=name)
    ingest(loaded)
    states = table_history.lineage(loaded.spark, loaded.name("t"))
    found = table_history.versions(loaded.spark, loaded.name("t"), states, "id = 7")
    assert [v.row["v"] for v in found] == ["a7", *[f"u{n}" for n in range(5)]]


def test_rows_that_are_all_gone_leave_no_file(loaded, monkeypatch):
    monkeypatch.setattr(small_file_merge, "MERGE_AFTER", 2)
    for n, name in enumerate(files(3)):
        loaded.changes("t", *([I(100 + n, "n")] if n < 2 else [D(100), D(101)]), name=name)
    ingest(loaded)
    for n, name in enumerate(files(6)[3:]):
        loaded.changes("t", I(200 + n, "n"), *([D(200)] if n else []), name=name)
    ingest(loaded)
    assert dict(loaded.rows("t")).keys() == {*range(50), 201, 202}


def test_large_commits_are_not_folded(loaded, monkeypatch):
    monkeypatch.setattr(small_file_merge, "SMALL_BYTES", 10)
    for name in files(3):
        loaded.changes("t", U(1, name), name=name)
    ingest(loaded)
    assert not folds(loaded) and len(data_files(loaded)) == 4


def test_the_tables_of_a_run_do_not_fold_at_once(monkeypatch):
    monkeypatch.setattr(small_file_merge, "MERGE_AFTER", 16)
    first = [small_file_merge.SmallFileMerge(nth).commits for nth in range(8)]
    assert first[0] == 0 and len({*first}) == 8 and all(0 <= n < 16 for n in first)
