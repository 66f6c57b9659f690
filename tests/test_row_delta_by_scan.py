"""A row delta whose old rows a scan of the table's keys finds: no key index, and Spark's tasks write large batches."""

from pathlib import Path

import pytest
import yaml

from frazil_old.engine import large_batch, scan_row_delta, small_batch
from frazil_old.flows import cdc
from helpers import FILE1, FILE2, FILE3, D, I, U
from lake_reader import lake_rows

pytestmark = pytest.mark.spark


@pytest.fixture(params=["in tasks", "old rows in the driver", "in this process"])
def size(request, monkeypatch):
    """Let Spark's tasks read and write the batches, and find their old rows there or in the driver, or this process all."""
    monkeypatch.setattr(small_batch, "MOST_MB", 32 if request.param == "in this process" else 0)
    monkeypatch.setattr(scan_row_delta, "MOST_FOUND", 0 if request.param == "in tasks" else 1_000_000)
    return request.param


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()


def summary(world, table: str = "t") -> dict:
    return dict(world.history(table)[0].summary())


def test_a_batch_is_one_snapshot_that_adds_rows_and_deletes_positions(loaded, catalog_options, size):
    before = len(loaded.history("t"))
    loaded.changes("t", U(1, "b"), D(2), I(90, "c"), D(91), name=FILE1).merged(lane="scan")
    assert len(loaded.history("t")) == before + 1
    told = summary(loaded)
    assert (told["frazil.lane"], told["added-records"], told["added-position-deletes"]) == ("scan", "2", "2")
    loaded.changes("t", U(1, "d"), U(3, "e"), D(90), name=FILE2).merged(lane="scan")
    expected = {i: f"a{i}" for i in range(50)} | {1: "d", 3: "e"}
    del expected[2]
    assert sorted(lake_rows(catalog_options, f"{loaded.space}.t")) == sorted(expected.items())


def test_deletes_of_format_v2_grow_with_each_batch(world, catalog_options, size):
    world.given["query_engines"] = ["trino"]
    world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()
    world.changes("t", U(1, "b"), D(2), name=FILE1).merged(lane="scan")
    world.changes("t", U(1, "c"), U(3, "d"), D(4), name=FILE2).merged(lane="scan")
    assert (
        summary(world)["total-position-deletes"] == "5"
        and world.iceberg("t").operations().current().formatVersion() == 2
    )
    expected = {i: f"a{i}" for i in range(50) if i not in (2, 4)} | {1: "c", 3: "d"}
    assert sorted(lake_rows(catalog_options, f"{world.space}.t")) == sorted(expected.items())


def test_the_driver_collects_no_rows_of_a_batch_with_many_keys(loaded, monkeypatch):
    monkeypatch.setattr(small_batch, "MOST_MB", 0)
    monkeypatch.setattr(scan_row_delta, "MOST_FOUND", 3)
    monkeypatch.setattr(scan_row_delta, "find_rows", None)
    monkeypatch.setattr(large_batch, "collect_arrow", None)
    loaded.changes("t", U(1, "b"), D(2), I(90, "c"), U(60, "d", was=3), name=FILE1).merged(lane="scan")
    expected = {i: f"a{i}" for i in range(50) if i not in (2, 3)} | {1: "b", 90: "c", 60: "d"}
    assert sorted(loaded.rows("t")) == sorted(expected.items()) and summary(loaded)["frazil.lane"] == "scan"


def test_a_damaged_deletion_vector_stops_the_batch_before_anything_is_lost(loaded, size):
    loaded.changes("t", U(1, "b"), D(2), name=FILE1).merged(lane="scan")
    (vectors,) = Path(loaded.catalog_options["warehouse"]).rglob(f"{loaded.space}/t/**/*.puffin")
    whole = vectors.read_bytes()
    content = bytearray(whole)
    content[12] ^= 0xFF
    vectors.write_bytes(bytes(content))
    loaded.changes("t", U(1, "c"), D(4), name=FILE2)
    assert loaded.merge(lane="scan")["t"].failed
    vectors.write_bytes(whole)
    assert not loaded.merge(lane="scan")["t"].failed
    expected = {i: f"a{i}" for i in range(50) if i not in (2, 4)} | {1: "c"}
    assert sorted(loaded.rows("t")) == sorted(expected.items())


def test_an_updated_row_keeps_its_row_id_and_a_new_row_gets_one(loaded, size):
    def ids() -> dict:
        found = loaded.spark.sql(f"SELECT id, _row_id FROM {loaded.name('t')}").collect()
        assert len({row[1] for row in found}) == len(found)
        return {row[0]: row[1] for row in found}

    before = ids()
    loaded.changes("t", U(1, "b"), D(2), I(90, "c"), name=FILE1).merged(lane="scan")
    after = ids()
    assert {i: after[i] for i in before if i != 2} == {i: n for i, n in before.items() if i != 2}
    assert after[90] not in before.values()
    loaded.changes("t", U(90, "d"), U(1, "e"), name=FILE2).merged(lane="scan")
    assert ids() == after


def test_a_compaction_meanwhile_loses_no_change(loaded, monkeypatch, size):
    by = scan_row_delta._InTasks if size == "in tasks" else scan_row_delta._InDriver
    write, turns = by.write, []

    def and_compact(delta):
        written = write(delta)
        turns.append(loaded.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')"))
        return written

    loaded.changes("t", U(1, "b"), D(2), name=FILE1).merged(lane="scan")
    monkeypatch.setattr(by, "write", and_compact)
    loaded.changes("t", U(1, "c"), U(3, "d"), D(4), name=FILE2).merged(lane="scan")
    assert len(turns) == 1 and summary(loaded)["frazil.lane"] == "scan"
    expected = {i: f"a{i}" for i in range(50) if i not in (2, 4)} | {1: "c", 3: "d"}
    assert sorted(loaded.rows("t")) == sorted(expected.items())


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


@pytest.mark.parametrize(
    ("columns", "first", "second"),
    [
        (("id REAL8", "v STRING(9)"), "0.1", "-0.0"),
        (("id NUMERIC(38,10)", "v STRING(9)"), "1234567890123456789012345678.0123456789", "0.0000000001"),
        (("id DATETIME", "v STRING(9)"), "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"),
        (("id DATE", "v STRING(9)"), "0001-01-01", "2026-11-26"),
        (("id STRING(9)", "v STRING(9)"), "it's", "it's "),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_keys_of_every_type_are_found(world, size, columns, first, second):
    world.table("t", *columns).load("t", (first, "a"), (second, "b")).loaded()
    world.changes("t", U(first, "c"), D(second), name=FILE1).merged(lane="scan")
    assert [row[1] for row in world.rows("t")] == ["c"] and summary(world)["frazil.lane"] == "scan"


def test_a_table_whose_keys_no_index_can_hold_needs_no_merge(world):
    world.table("t", "id REAL8", "v STRING(9)").load("t", ("0.1", "a"), ("2.5", "b")).loaded()
    world.changes("t", U("0.1", "c"), D("2.5"), name=FILE1).merged(lane="rowdelta")
    told = summary(world)
    assert (told["frazil.lane"], world.rows("t")) == ("scan", [(0.1, "c")])
    assert told["frazil.lane-reason"].startswith("only Spark can number its keys")


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"write.merge.mode": "copy-on-write"}, "set, and the table is copy-on-write"),
        ({"write.format.default": "orc"}, "set, and its data files are not Parquet"),
    ],
    ids=["copy-on-write", "ORC"],
)
@pytest.mark.parametrize("lane", ["scan", "rowdelta"])
def test_a_merge_writes_tables_that_only_spark_can_write(loaded, size, properties, why, lane):
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    loaded.spark.sql(f"ALTER TABLE {loaded.name('t')} SET TBLPROPERTIES ({pairs})")
    loaded.changes("t", U(1, "b"), D(2), I(90, "c"), name=FILE1).merged(lane=lane)
    assert (summary(loaded)["frazil.lane"], summary(loaded)["frazil.lane-reason"]) == ("merge", why)
    assert {r[0]: r[1] for r in loaded.rows("t")} == {i: f"a{i}" for i in range(50) if i != 2} | {1: "b", 90: "c"}


def test_tasks_join_keys_that_do_not_fit_a_broadcast(loaded, monkeypatch, size):
    monkeypatch.setattr(scan_row_delta, "MOST_BROADCAST", 2)
    monkeypatch.setattr(scan_row_delta, "MOST_FOUND", 2)
    loaded.changes("t", U(1, "b"), D(2), I(90, "c"), name=FILE1).merged(lane="scan")
    told = summary(loaded)
    if size == "in this process":
        assert (told["frazil.lane"], told["frazil.lane-reason"]) == ("merge", "3 keys are too many for this process")
    else:
        assert told["frazil.lane"] == "scan"
    assert {r[0]: r[1] for r in loaded.rows("t")} == {i: f"a{i}" for i in range(50) if i != 2} | {1: "b", 90: "c"}


def test_a_partition_follows_the_row(world, size):
    world.table("t", "id INT8", "v STRING(9)")
    world.specs["t"]["partition"] = ["truncate(1, v)"]
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(world.specs["t"]))
    world.load("t", (1, "a1"), (2, "b2")).loaded()
    world.changes("t", U(1, "b1"), U(2, "c2"), I(3, None), name=FILE1).merged(lane="scan")
    assert sorted(world.rows("t")) == [(1, "b1"), (2, "c2"), (3, None)]
    parts = world.spark.sql(f"SELECT DISTINCT partition.v_trunc FROM {world.name('t')}.data_files").collect()
    assert {row[0] for row in parts} >= {"a", "b", "c", None}


def test_nothing_is_committed_of_a_batch_with_a_bad_row(loaded, size):
    head = loaded.head("t")
    loaded.write("t", FILE1, "U,2024-01-01 09:59:00.000000,1,b\nI,2024-01-01 09:59:00.000000,x,c\n")
    assert "row 2" in loaded.merge(lane="scan")["t"].note and loaded.head("t") == head
