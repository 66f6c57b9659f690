"""A changed row keeps its `_row_id` on format v3, by whichever path it is written; a new row gets a new one."""

import random

import pytest
import yaml

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.engine import scan_row_delta, small_batch
from frazil_old.flows import cdc
from frazil_old.lake import compaction, small_file_merge
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


@pytest.mark.parametrize("read_by", ["this process", "tasks", "tasks and the driver"])
@pytest.mark.parametrize("given", LANES)
def test_a_row_keeps_its_id_when_its_key_changes(loaded, given, read_by, monkeypatch):
    monkeypatch.setattr(small_batch, "MOST_MB", 32 if read_by == "this process" else 0)
    monkeypatch.setattr(scan_row_delta, "MOST_FOUND", 0 if read_by == "tasks" else 1_000_000)
    before = row_ids(loaded)
    moved = [
        U(50, "one step", was=1), U(60, "x", was=2), U(61, "two steps", was=60),
        U(70, "x", was=3), U(3, "there and back", was=70),
        U(80, "x", was=4), U(4, "swapped", was=5), U(5, "swapped", was=80),
        D(6), U(6, "where a row was deleted", was=7), U(51, "moved", was=8), I(8, "where a row left"),
        U(91, "of no row", was=90), U(10, "of no row", was=92),
    ]  # fmt: skip
    loaded.changes("t", *moved).merged(lane=given)
    after = row_ids(loaded)
    assert {k: after[k] for k in (50, 61, 3, 4, 5, 6, 51, 10)} == {
        50: before[1], 61: before[2], 3: before[3], 5: before[4], 4: before[5], 6: before[7], 51: before[8], 10: before[10],
    }  # fmt: skip
    assert not {after[8], after[91]} & {*before.values()}
    assert not {1, 2, 7, 60, 70, 80} & {*after}
    assert dict(loaded.rows("t")) | {c.values[0]: c.values[1] for c in moved if c.values[0] in after and c.op != "D"} == dict(loaded.rows("t"))  # fmt: skip
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


def some_changes(rng, state: dict[int, int], number: int) -> list:
    """Change `state` {key: which row it is} at random, and return the changes."""
    changes = []
    for n in range(12):
        key, new, value = rng.randrange(40), rng.randrange(40), f"{rng.choice('abc')}{number}"
        if key not in state:
            changes.append(I(key, value))
            state[key] = number * 100 + n
        elif rng.random() < 0.2:
            changes.append(D(key))
            del state[key]
        elif rng.random() < 0.3 and new not in state:
            changes.append(U(new, value, was=key))
            state[new] = state.pop(key)
        else:
            changes.append(U(key, value))
    return changes


def test_random_histories_by_every_path_leave_each_row_its_id(world, monkeypatch):
    """Batches by each path, in one run and in the next, with merges of small files, compaction and merged manifests in between."""
    monkeypatch.setattr(small_file_merge, "AT_WORK_S", 0.0)  # compaction leaves no file to ingestion
    monkeypatch.setattr(small_file_merge, "MERGE_AFTER", 2)
    rng, state = random.Random(5), {n: -n for n in range(25)}
    world.table("t")
    world.specs["t"]["partition"] = ["truncate(1, v)"]
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(world.specs["t"]))
    world.load("t", *[(n, "abc"[n % 3]) for n in state]).loaded()
    known = {state[key]: found for key, found in lineage(world).items()}
    settings = {"merge": {}, "scan": {}, "rowdelta": {}, "no index": {"lane": "rowdelta", "index_limit_mb": 0}}
    books = {given: world.book(**({"lane": given} | more)) for given, more in settings.items()}
    order = ["rowdelta"] * 4 + ["merge", "rowdelta", "no index", "rowdelta", "scan", "rowdelta", "rowdelta"]
    for number, given in enumerate(order, 1):
        changes = some_changes(rng, state, number)
        world.changes("t", *changes, name=f"20240101-10{number:02d}00000.csv")
        assert not [r.note for r in cdc.run(books[given]) if r.failed]
        told, after = {c.values[0] for c in changes}, lineage(world)
        assert after.keys() == state.keys()
        for key, row in state.items():
            row_id, last = known.get(row, after[key])
            assert after[key] == (row_id, sequence(world) if key in told else last), (number, given, key)
        known = {row: after[key] for key, row in state.items()}
        if number == 5:
            books["rowdelta"].lanes.save()
            books["rowdelta"] = world.book(lane="rowdelta")  # another run, with the index on disk
        if number in (4, 7):
            given = MaintenanceSettings(root=str(world.root))
            assert compaction.compact(world.spark, world.name("t"), given, f"r{number}", print)["file_groups"]
            assert {state[key]: found for key, found in lineage(world).items()} == known
        if number == 8:  # a snapshot's new manifests then hold older files too
            world.spark.sql(
                f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '1')"
            )
    kinds = [s.summary().get("frazil.kind") for s in world.history("t")]
    lanes = [s.summary().get("frazil.lane") for s in world.history("t")]
    assert kinds.count(small_file_merge.KIND) >= 3 and lanes.count("rowdelta") == 8, world.said


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


@pytest.mark.parametrize("read_by", ["this process", "tasks", "tasks and the driver"])
def test_rows_without_ids_get_new_ones_from_a_row_delta_by_scan(world, read_by, monkeypatch):
    monkeypatch.setattr(small_batch, "MOST_MB", 32 if read_by == "this process" else 0)
    monkeypatch.setattr(scan_row_delta, "MOST_FOUND", 0 if read_by == "tasks" else 1_000_000)
    world.given["query_engines"] = ["athena"]
    world.table("t").load("t", *[(i, f"a{i}") for i in range(20)]).loaded()
    world.spark.sql(f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ('format-version' = '3')")
    world.changes("t", U(1, "b"), D(2), I(90, "c")).merged(lane="scan")
    ids = row_ids(world)
    assert len(ids) == 20 and min(ids.values()) >= 0
    world.changes("t", U(1, "d"), U(3, "e"), name=FILE2).merged(lane="scan")
    assert row_ids(world) == ids and lane(world) == "scan"
