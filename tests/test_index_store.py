"""The key index beside its table: what is stored is always whole, and a new driver takes it instead of reading the keys."""

import json
import os
import random
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Lock

import numpy as np
import pytest

from frazil_old.config.paths import local_path
from frazil_old.config.settings import MaintenanceSettings
from frazil_old.lake import index_store, jvm, jvm_data_files, jvm_files, maintenance_actions
from frazil_old.lake.index_store import IndexStore
from frazil_old.lake.index_sync import Locator
from frazil_old.lake.key_index import KeyIndex, parsed, written
from helpers import FILE1, FILE2, FILE3, D, I, U

MANIFEST = "manifest.json"


class Store:
    """A folder in the place of an object store. `before(what, name)` is called before each access."""

    def __init__(self, folder: Path):
        self.folder, self.done, self.before = folder, [], lambda *_: None
        folder.mkdir()

    def name(self) -> str:
        return "lake.s.t"

    def location(self) -> str:
        return "store"

    def at(self, name: str, what: str) -> Path:
        self.before(what, name)
        self.done.append((what, name))
        return self.folder / name.removeprefix("store/_frazil/").removeprefix("index/")

    def put(self, data: bytes, name: str) -> None:
        file = self.at(name, "store")
        file.write_bytes(data)
        os.utime(file, (time.time(), time.time()))  # by the test's clock

    def named(self) -> list[str]:
        return [s["name"] for s in parsed((self.folder / MANIFEST).read_bytes())["segments"]]

    def segments(self) -> set[str]:
        return {f.name for f in self.folder.glob("*.seg")}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(jvm_files, "exists", lambda s, name: s.at(name, "exists").exists())
    monkeypatch.setattr(jvm_files, "read", lambda s, name: s.at(name, "read").read_bytes())
    monkeypatch.setattr(jvm_files, "write", lambda s, name, data: s.at(name, "write").write_bytes(data))
    monkeypatch.setattr(jvm_files, "delete", lambda s, name: s.at(name, "delete").unlink(missing_ok=True))
    monkeypatch.setattr(jvm_files, "fetch", lambda _, s, name, to: shutil.copy(s.at(name, "fetch"), to))
    monkeypatch.setattr(jvm_files, "names", lambda s, _: {f.name: f.stat().st_mtime * 1000 for f in s.folder.iterdir()})
    monkeypatch.setattr(jvm_data_files, "store", lambda _, s, file, to: s.put(Path(file).read_bytes(), to))
    monkeypatch.setattr(index_store, "LEAST_ROWS", 1)
    return Store(tmp_path / "store")


class Driver:
    """A driver with a folder of its own, whose index has the keys that it added or took."""

    def __init__(self, folder: Path, store: Store):
        self.store, self.mine = store, IndexStore(None, folder)
        self.index, self.there = KeyIndex(folder, "t", 1), {}

    def add(self, *keys: int, snapshot: int) -> "Driver":
        path = f"f{snapshot}"
        file = np.full(len(keys), self.index.number(path), np.int32)
        self.index.add([np.array(keys, np.int64)], file, np.arange(len(keys), dtype=np.int32))
        self.index.marks |= {path: ""}
        self.index.snapshot, self.there = snapshot, self.there | dict.fromkeys(keys, path)
        return self

    def save(self, at_end: bool = True) -> "Driver":
        self.mine.offer(self.store, self.index.save(self.mine.kept), at_end)
        return self

    def take(self, newer: bool = True) -> bool:
        return self.mine.take(self.store, "t", lambda _: newer) and self.index.load()


def content(index: KeyIndex) -> dict[int, str]:
    keys = np.arange(2000, dtype=np.int64)
    return {int(k): index.files[n] for k, n in zip(keys, index.locate([keys])[0].tolist(), strict=True) if n >= 0}


@pytest.fixture
def driver(store, tmp_path, monkeypatch):
    """Make drivers, each a process of its own: none waits for another's lock."""
    made = []
    monkeypatch.setattr(index_store, "_at_work", nullcontext())

    def new() -> Driver:
        made.append(Driver(tmp_path / f"driver{len(made)}", store))
        return made[-1]

    return new


def stored(driver, store) -> dict[int, str]:
    """Return what a new driver takes from the store."""
    one = driver()
    assert one.take()
    return content(one.index)


def test_a_new_driver_takes_what_another_stored(driver, store):
    one = driver().add(*range(1000), snapshot=1).add(1, 2, 3, 1001, snapshot=2).save()
    assert stored(driver, store) == content(one.index) == one.there


@pytest.mark.parametrize("why", ["not newer", "other table", "wrong in this run", "none"])
def test_an_index_that_is_of_no_use_is_not_fetched(driver, store, why):
    if why != "none":
        driver().add(1, snapshot=1).save()
    store.done, one = [], driver()
    one.mine.refused = why == "wrong in this run"
    assert not one.mine.take(store, "u" if why == "other table" else "t", lambda _: why != "not newer")
    assert not [what for what, _ in store.done if what == "fetch"]


def test_segments_that_are_there_are_not_stored_again_and_the_manifest_comes_last(driver, store, monkeypatch):
    monkeypatch.setattr(index_store, "EVERY_S", -1.0)
    one = driver().add(*range(1000), snapshot=1).save()
    store.done = []
    one.add(1, 2, snapshot=2).save()
    assert [what for what, _ in store.done] == ["exists", "read", "store", "write"]
    store.done = []
    one.save()
    assert [what for what, _ in store.done] == ["exists", "read"], "nothing is new"


def test_small_changes_are_stored_at_the_end_of_a_run_if_five_minutes_have_passed(driver, store, monkeypatch):
    one = driver().add(*range(1000), snapshot=1).save().add(1, snapshot=2).save()
    assert parsed((store.folder / MANIFEST).read_bytes())["snapshot"] == 1
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 301)
    assert one.save() and parsed((store.folder / MANIFEST).read_bytes())["snapshot"] == 2


def test_indexes_of_few_rows_are_not_stored(driver, store, monkeypatch):
    monkeypatch.setattr(index_store, "LEAST_ROWS", 4)
    driver().add(1, 2, 3, snapshot=1).save()
    assert not store.done


def test_whatever_fails_the_stored_index_is_whole_and_the_next_one_is_stored(driver, store, monkeypatch, caplog):
    monkeypatch.setattr(index_store.log, "propagate", True)
    monkeypatch.setattr(index_store, "EVERY_S", -1.0)

    def fail_at(left: list[int]):
        def before(*_):
            left[0] -= 1
            if not left[0]:
                raise OSError("no answer")

        return before

    one, clock = driver().add(*range(1000), snapshot=1).save(), [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    for step in range(2, 40):
        clock[0] += 2000  # old segments are deleted too
        store.before = fail_at([step % 8 + 1])
        one.add(*range(step, 1000, 1 + step % 3), snapshot=step).save()
        store.before = lambda *_: None
        assert set(store.named()) <= store.segments()
        assert set(stored(driver, store).values()) <= {f"f{n}" for n in range(1, step + 1)}
    assert caplog.text.count("no answer") > 20
    assert stored(driver, store) == content(one.save().index)


@pytest.mark.parametrize("at", range(1, 5), ids=["exists", "read", "store", "write"])
def test_two_drivers_store_at_once_and_what_the_last_one_wrote_is_whole(driver, store, at):
    """The other one comes between any two steps of the first."""
    one, two = driver().add(*range(500), snapshot=1).save(), driver()
    assert two.take()
    two.there = dict(one.there)
    one.add(*range(400, 900), snapshot=2)
    two.add(*range(100, 700), snapshot=3)
    left = [at]

    def before(*_):
        left[0] -= 1
        if not left[0]:
            two.save()

    store.before = before
    one.save()
    assert left[0] <= 0 and set(store.named()) <= store.segments()
    assert stored(driver, store) in (one.there, two.there)
    store.before = lambda *_: None
    for again in (two.add(*range(1000, 1100), snapshot=4), one.add(*range(1100, 1200), snapshot=5)):
        again.save()
        assert set(store.named()) <= store.segments() and stored(driver, store) == again.there


def test_segments_that_no_manifest_names_are_deleted_after_six_hours(driver, store, monkeypatch):
    monkeypatch.setattr(index_store, "EVERY_S", -1.0)
    one, clock = driver().add(*range(100), snapshot=1).save(), [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    (first,), (killed, data) = store.named(), (store.folder / f"{'0' * 16}.seg", store.folder / "x.parquet")
    for file in (killed, data):
        file.write_bytes(b"")
    clock[0] += 6 * 3600 - 60
    assert one.add(*range(100), snapshot=2).save() and {first, killed.name} <= store.segments()
    clock[0] += 120
    assert one.add(*range(100), snapshot=3).save() and not {first, killed.name} & store.segments()
    assert len(store.segments()) == 2 and data.exists()


def test_a_segment_that_another_driver_dropped_and_deleted_is_stored_again(driver, store, monkeypatch):
    monkeypatch.setattr(index_store, "EVERY_S", -1.0)
    one = driver().add(*range(100), snapshot=1).save()
    (first,) = store.named()
    driver().add(*range(100), snapshot=2).save()  # which had built its own
    (store.folder / first).unlink()
    one.add(7, snapshot=3).save()
    assert first in store.named() and stored(driver, store) == one.there


ODD = ("", "{}", "5\n[]", [], {}, 5, None, "x", {"written": None}, {"written": "x"}, {"segments": [{}]})


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_stored_manifest_that_is_none_is_replaced(driver, store, odd):
    driver().add(1, snapshot=1).save()
    whole, file = parsed((store.folder / MANIFEST).read_bytes()), store.folder / MANIFEST
    file.write_bytes(
        odd.encode() if isinstance(odd, str) else written({**whole, **odd} if isinstance(odd, dict) and odd else odd)
    )
    one = driver().add(2, snapshot=1)
    if not isinstance(odd, dict) or "segments" in odd or not odd:
        assert not driver().take()
    one.save()
    assert stored(driver, store) == {2: "f1"}


@pytest.mark.parametrize("seed", range(6))
def test_random_drivers_never_leave_an_index_that_is_not_whole(driver, store, monkeypatch, seed):
    """They add, store, take, are replaced, fail and come between others' steps, at random times."""
    monkeypatch.setattr(index_store, "EVERY_S", -1.0)
    rng, clock, drivers, histories = random.Random(seed), [time.time()], [driver(), driver(), driver()], []
    monkeypatch.setattr(time, "time", lambda: clock[0])

    def act(depth: int) -> None:
        one, clock[0] = rng.choice(drivers), clock[0] + rng.choice((1, 60) if depth else (1, 60, 300))
        if rng.random() < 0.2:
            drivers[drivers.index(one)] = one = driver()
            if (store.folder / MANIFEST).exists() and one.take():
                one.there = content(one.index)
                assert one.there in histories
        count = rng.choice((1, 30, 300))
        one.add(*rng.sample(range(1000), count), snapshot=len(histories) + 1)
        histories.append(dict(one.there))

        def before(*_):
            chance = rng.random()
            if depth < 2 and chance < 0.1:
                act(depth + 1)
            elif chance > 0.95:
                raise OSError("no answer")

        outer, store.before = store.before, before
        try:
            one.save()
        finally:
            store.before = outer

    for _ in range(60):
        act(0)
        if (store.folder / MANIFEST).exists():
            assert set(store.named()) <= store.segments()
            assert stored(driver, store) in histories
    clock[0] += index_store.UNNAMED_S + 1
    driver().add(1, snapshot=len(histories) + 1).save()
    assert store.segments() == {*store.named()}


def test_a_thread_stores_what_a_long_run_has_while_batches_go_on(driver, store, monkeypatch):
    monkeypatch.setattr(index_store, "_at_work", Lock())
    monkeypatch.setattr(index_store, "EVERY_S", -1.0)
    began, may_end, one = Event(), Event(), driver().add(*range(1000), snapshot=1)

    def before(what, name):
        if what == "store":
            began.set()
            assert may_end.wait(30)

    store.before = before
    one.save(at_end=False)
    assert began.wait(30) and not (store.folder / MANIFEST).exists()
    one.add(*range(500, 1500), snapshot=2).save(at_end=False)  # its segments replace those that are being stored
    assert len(one.mine.kept) == 1 and (one.mine.folder / next(iter(one.mine.kept))).exists()
    may_end.set()
    store.before = lambda *_: None
    one.save()  # waits for the thread
    assert stored(driver, store) == one.there and not one.mine.kept
    one.index.save()
    assert len(list(one.mine.folder.glob("*.seg"))) == 1


# --- with a table


@pytest.fixture
def loaded(world, monkeypatch):
    monkeypatch.setattr(index_store, "LEAST_ROWS", 1)
    monkeypatch.setattr(index_store, "EVERY_S", -1.0)
    return world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()


def beside(world) -> Path:
    return Path(local_path(world.iceberg("t").location())) / "_frazil/index"


def largest(folder: Path) -> Path:
    return max(folder.glob("*.seg"), key=lambda file: file.stat().st_size)


def without_local(world) -> None:
    """Have a driver with an empty disk."""
    shutil.rmtree(world.root / "runs/test/index")


@pytest.fixture
def read(monkeypatch):
    """The data files whose keys are read."""
    found, real = [], Locator._read_keys

    def reading(self, table, paths, snapshot):
        found.extend(paths)
        return real(self, table, paths, snapshot)

    monkeypatch.setattr(Locator, "_read_keys", reading)
    return found


def applied(world, expected: dict) -> None:
    assert sorted(world.rows("t")) == sorted(expected.items())
    assert world.history("t")[0].summary()["frazil.lane"] == "rowdelta", world.said


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark", "athena"], ids=["v3", "v2"])
def test_a_driver_with_an_empty_disk_reads_no_key_and_follows_what_came_later(world, monkeypatch, read, engine):
    world.given["query_engines"] = [engine]
    monkeypatch.setattr(index_store, "LEAST_ROWS", 1)
    world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()
    world.changes("t", U(1, "A"), D(2), I(101, "n"), name=FILE1).merged(lane="rowdelta")
    assert len(read) == 1, "built from the load"
    without_local(world)
    world.changes("t", U(1, "B"), U(101, "N"), D(3), I(102, "o"), name=FILE2).merged(lane="rowdelta")
    expected = {i: f"a{i}" for i in range(50) if i not in (2, 3)} | {1: "B", 101: "N", 102: "o"}
    applied(world, expected)
    assert len(read) == 1
    stale = beside(world).with_name("stale")
    shutil.copytree(beside(world), stale)
    world.changes("t", U(4, "D"), I(103, "p"), name=FILE3).merged(lane="merge")
    world.spark.sql(f"DELETE FROM {world.name('t')} WHERE id = 5")
    without_local(world)
    shutil.rmtree(beside(world))
    stale.rename(beside(world))
    read.clear()
    world.changes("t", U(4, "E"), U(103, "q"), U(5, "back"), name="20240101-110000000.csv").merged(lane="rowdelta")
    applied(world, expected | {4: "E", 103: "q", 5: "back"})
    assert len(read) == 1, "the file that the MERGE added"


@pytest.mark.spark
def test_the_later_one_of_two_indexes_is_taken(loaded, read):
    loaded.changes("t", U(1, "A"), name=FILE1).merged(lane="rowdelta")
    local = loaded.root / f"runs/test/index/{loaded.name('t')}"
    shutil.copytree(local, local.with_suffix(".old"))
    loaded.changes("t", U(2, "B"), I(101, "n"), name=FILE2).merged(lane="rowdelta")
    shutil.rmtree(local)
    local.with_suffix(".old").rename(local)
    read.clear()
    loaded.changes("t", U(101, "N"), D(2), name=FILE3).merged(lane="rowdelta")
    applied(loaded, {i: f"a{i}" for i in range(50) if i != 2} | {1: "A", 101: "N"})
    assert not read
    there = parsed((beside(loaded) / MANIFEST).read_bytes())
    assert there["snapshot"] == loaded.head("t")


HARMS = ["block", "end", "cut", "missing", "manifest", "no manifest", "other Java"]


@pytest.mark.spark
@pytest.mark.parametrize("harm", HARMS)
def test_a_stored_index_that_is_damaged_is_built_again_and_replaced(loaded, monkeypatch, read, harm):
    loaded.changes("t", U(1, "A"), D(2), name=FILE1).merged(lane="rowdelta")
    segment = largest(beside(loaded))
    manifest, data = beside(loaded) / MANIFEST, bytearray(segment.read_bytes())
    if harm in ("block", "end"):
        data[8 if harm == "block" else -1] ^= 1
        segment.write_bytes(data)
    elif harm == "cut":
        segment.write_bytes(data[:-4])
    elif harm == "missing":
        segment.unlink()
    elif harm == "manifest":
        manifest.write_text(manifest.read_text().replace("lake", "lace").replace('"next":', '"nest":'))
    elif harm == "no manifest":
        manifest.unlink()
    else:
        monkeypatch.setattr(jvm, "versions", lambda spark: "4.1 99")
    without_local(loaded)
    read.clear()
    loaded.changes("t", U(1, "C"), D(3), I(2, "back"), name=FILE2).merged(lane="rowdelta")
    expected = {i: f"a{i}" for i in range(50) if i != 3} | {1: "C", 2: "back"}
    applied(loaded, expected)
    assert read, "built again"
    without_local(loaded)
    read.clear()
    loaded.changes("t", U(1, "D"), U(2, "again"), name=FILE3).merged(lane="rowdelta")
    applied(loaded, expected | {1: "D", 2: "again"})
    assert not read, "the stored one was replaced"


@pytest.mark.spark
def test_a_damaged_block_of_the_local_index_is_built_again_in_the_same_batch(loaded, read):
    loaded.changes("t", U(1, "A"), D(2), name=FILE1).merged(lane="rowdelta")
    segment = largest(loaded.root / f"runs/test/index/{loaded.name('t')}")
    data = bytearray(segment.read_bytes())
    data[8] ^= 1
    segment.write_bytes(data)
    read.clear()
    loaded.changes("t", U(1, "B"), D(3), name=FILE2).merged(lane="rowdelta")
    applied(loaded, {i: f"a{i}" for i in range(50) if i not in (2, 3)} | {1: "B"})
    assert read


@pytest.mark.spark
def test_after_a_rollback_the_stored_index_is_not_taken(loaded, read):
    loaded.changes("t", U(1, "A"), D(2), name=FILE1).merged(lane="rowdelta")
    before, position = loaded.head("t"), loaded.position("t")
    loaded.changes("t", U(1, "B"), D(3), name=FILE2).merged(lane="rowdelta")
    loaded.spark.sql(f"CALL lake.system.rollback_to_snapshot('{loaded.space}.t', {before})")
    loaded.spark.sql(f"ALTER TABLE {loaded.name('t')} SET TBLPROPERTIES ('frazil.position' = '{json.dumps(position)}')")
    without_local(loaded)
    read.clear()
    loaded.changes("t", U(3, "C"), name=FILE3).merged(lane="rowdelta")
    applied(loaded, {i: f"a{i}" for i in range(50) if i != 2} | {1: "B", 3: "C"})
    assert read


@pytest.mark.spark
def test_the_index_of_an_earlier_table_in_the_same_place_is_not_taken(loaded, read):
    loaded.changes("t", U(1, "A"), D(2), name=FILE1).merged(lane="rowdelta")
    folder, old = beside(loaded), loaded.iceberg("t").uuid().toString()
    loaded.spark.sql(f"DROP TABLE {loaded.name('t')} PURGE")
    assert folder.exists()
    without_local(loaded)
    (loaded.root / f"source/public/t/{FILE1}").unlink()
    loaded.load("t", *[(i, f"b{i}") for i in range(20)]).loaded()
    assert beside(loaded) == folder and loaded.iceberg("t").uuid().toString() != old
    read.clear()
    loaded.changes("t", U(1, "B"), D(2), name=FILE2).merged(lane="rowdelta")
    applied(loaded, {i: f"b{i}" for i in range(20) if i != 2} | {1: "B"})
    assert read and old not in (folder / MANIFEST).read_text()


@pytest.mark.spark
def test_two_drivers_by_turns_each_take_what_the_other_stored(loaded, read, monkeypatch):
    expected = {i: f"a{i}" for i in range(50)}
    disks, index = [loaded.root / "one", loaded.root / "two"], loaded.root / "runs/test/index"
    for n in range(6):
        if disks[n % 2].exists():
            disks[n % 2].rename(index)
        loaded.changes("t", U(n, f"u{n}"), I(100 + n, "n"), D(40 + n), name=f"20240101-10{n:02}00000.csv")
        loaded.merged(lane="rowdelta")
        expected |= {n: f"u{n}", 100 + n: "n"}
        del expected[40 + n]
        applied(loaded, expected)
        there = parsed((beside(loaded) / MANIFEST).read_bytes())
        assert there["snapshot"] == loaded.head("t") and there["keys"] == 50
        index.rename(disks[n % 2])
    assert len(read) == 1, "the load"


@pytest.mark.spark
def test_where_nothing_may_be_written_beside_the_table_the_local_index_serves(loaded, monkeypatch):
    def refuse(*_):
        raise OSError("Access Denied")

    monkeypatch.setattr(jvm_data_files, "store", refuse)
    monkeypatch.setattr(index_store, "is_stored", lambda table: False)
    loaded.changes("t", U(1, "A"), name=FILE1).merged(lane="rowdelta")
    loaded.changes("t", U(1, "B"), name=FILE2).merged(lane="rowdelta")
    applied(loaded, {i: f"a{i}" for i in range(50)} | {1: "B"})
    assert "is not stored next to it: OSError: Access Denied" in (loaded.root / "runs/test/frazil.log").read_text()
    assert not (beside(loaded) / MANIFEST).exists()


@pytest.mark.spark
def test_a_segment_whose_manifest_could_not_be_written_is_stored_with_the_next_one(loaded, read):
    def refuse(*_):
        raise OSError("no answer")

    with pytest.MonkeyPatch.context() as at_first:
        at_first.setattr(jvm_files, "write", refuse)
        loaded.changes("t", U(1, "A"), name=FILE1).merged(lane="rowdelta")
    assert list(beside(loaded).glob("*.seg")) and not (beside(loaded) / MANIFEST).exists()
    loaded.changes("t", U(2, "B"), name=FILE2).merged(lane="rowdelta")
    without_local(loaded)
    read.clear()
    loaded.changes("t", U(3, "C"), name=FILE3).merged(lane="rowdelta")
    applied(loaded, {i: f"a{i}" for i in range(50)} | {1: "A", 2: "B", 3: "C"})
    assert not read


@pytest.mark.spark
def test_maintenance_leaves_the_stored_index_and_it_is_still_taken(loaded, read):
    loaded.changes("t", U(1, "A"), D(2), name=FILE1).merged(lane="rowdelta")
    folder = Path(local_path(loaded.iceberg("t").location()))
    orphan = folder / "data/left.parquet"
    orphan.write_bytes(b"")
    for file in folder.rglob("*"):
        os.utime(file, (0, 0))
    gone = maintenance_actions.orphan_files(loaded.spark, loaded.name("t"), MaintenanceSettings(orphan_days=3.0), False)
    assert [Path(g).name for g in gone] == ["left.parquet"] and not orphan.exists()
    without_local(loaded)
    read.clear()
    loaded.changes("t", U(1, "B"), D(3), name=FILE2).merged(lane="rowdelta")
    applied(loaded, {i: f"a{i}" for i in range(50) if i not in (2, 3)} | {1: "B"})
    assert not read


@pytest.mark.spark
def test_a_large_segment_is_fetched_in_parts(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(jvm_files, "PART", 1000)
    table, data = loaded.iceberg("t"), random.Random(1).randbytes(4321)
    (tmp_path / "a").write_bytes(data)
    jvm_data_files.store(loaded.spark, table, str(tmp_path / "a"), jvm_files.place(table.location(), "index/a"))
    jvm_files.fetch(loaded.spark, table, "index/a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == data and sorted(jvm_files.names(table, "index")) == ["a"]
    with pytest.raises(Exception, match="NotFound|does not exist"):
        jvm_files.fetch(loaded.spark, table, "index/none", tmp_path / "c")
    assert {f.name for f in tmp_path.iterdir() if f.is_file()} == {"a", "b"}
