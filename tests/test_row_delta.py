"""Row deltas end in the same tables as a replay, whatever others do to the table in between."""

import hashlib
import json
import random
import re
import shutil
import zlib
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from frazil_old.config.paths import local_path
from frazil_old.config.settings import MaintenanceSettings, SetupSettings
from frazil_old.config.sql import identifier
from frazil_old.flows import cdc, setup
from frazil_old.lake import batch_branches, commit, jvm, jvm_data_files, jvm_row_delta, jvm_schema, lane_choice
from frazil_old.lake import compaction as compaction
from frazil_old.lake.index_sync import Locator, live_rows
from frazil_old.lake.key_index import KeyIndex
from helpers import FILE2, FILE3, D, I, U, slow

pytestmark = pytest.mark.spark


def files(count: int):
    return [f"20240101-10{i:02d}00000.csv" for i in range(count)]


def random_changes(rng, state: dict, key, count: int) -> list:
    """Change `state` {key: value} at random, and return the changes."""
    changes = []
    for _ in range(count):
        k, v = key(rng.randrange(60)), f"v{rng.randrange(10**6)}"
        if rng.random() < 0.25:
            changes.append(D(*k))
            state.pop(k, None)
        else:
            changes.append((U if k in state else I)(*k, v))
            state[k] = v
    return changes


KEYS = {
    "INT8": (lambda n: (n * 10**15,), ["id INT8"]),
    "STRING": (lambda n: (f"k'{n}",), ["id STRING(40)"]),
    "DATETIME": (lambda n: (f"2024-01-01 00:00:{n % 60:02d}.000001",), ["id DATETIME"]),
    "composite": (lambda n: (n % 7, f"x{n // 7}"), ["a INT4", "b WSTRING(9)"], "truncate(2, v)"),
    "bucket": (lambda n: (n,), ["id INT4"], "bucket(3, id)", "truncate(2, v)"),
    "days": (lambda n: (f"2024-01-{n % 28 + 1:02d}", n // 28), ["d DATE", "n INT4"], "month(d)"),
}


@pytest.mark.parametrize("lane", ["rowdelta", "scan"])
@pytest.mark.parametrize("readers", [["spark"], slow(["athena"])], ids=["v3", "v2"])
def test_random_histories_end_as_a_replay(world, readers, lane):
    """Keys of every kind in plain and partitioned tables; a row's partition is told by its value, which changes."""
    kinds = KEYS if readers == ["spark"] else {k: KEYS[k] for k in ("composite", "bucket")}
    rng, states = random.Random(7), {kind: {key(n): "l" for n in range(20)} for kind, (key, *_) in kinds.items()}
    for kind, (key, columns, *parts) in kinds.items():
        world.table(kind, *columns, "v WSTRING(99)", key=[c.split()[0] for c in columns])
        world.specs[kind]["partition"] = parts
        (world.root / f"specs/{kind}.yml").write_text(yaml.safe_dump(world.specs[kind]))
        world.load(kind, *[(*key(n), "l") for n in range(20)])
    troubles = [r.note for r in {**world.setup(query_engines=readers), **world.full_load()}.values() if r.failed]
    assert not troubles
    for name in files(2):
        for kind, (key, *_) in kinds.items():
            world.changes(kind, *random_changes(rng, states[kind], key, 40), name=name)
        world.merged(lane=lane)
        for kind in kinds:
            assert world.history(kind)[0].summary()["frazil.lane"] == lane, world.said
    for kind, state in states.items():
        got = [(tuple(shown(v) for v in r[:-1]), r[-1]) for r in world.rows(kind)]
        assert sorted(got) == sorted((tuple(map(str, k)), v) for k, v in state.items()), kind


@pytest.mark.parametrize(("codec", "stored"), [("gzip", "GZIP"), ("uncompressed", "UNCOMPRESSED")])
def test_the_files_of_a_row_delta_are_compressed_as_the_table_says(loaded, codec, stored):
    loaded.spark.sql(
        f"ALTER TABLE {loaded.name('t')} SET TBLPROPERTIES ('write.parquet.compression-codec' = '{codec}')"
    )
    loaded.changes("t", U(1, "one")).merged(lane="rowdelta")
    (added,) = loaded.spark.sql(f"SELECT file_path FROM {loaded.name('t')}.data_files WHERE record_count = 1").collect()
    assert pq.ParquetFile(added.file_path.removeprefix("file:")).metadata.row_group(0).column(0).compression == stored
    assert dict(loaded.rows("t"))[1] == "one"


def shown(value) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if hasattr(value, "microsecond"):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()


def compact(w):
    w.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")


FOREIGN = {
    "compaction": compact,
    "delete": lambda w: w.spark.sql(f"DELETE FROM {w.name('t')} WHERE id IN (1, 3, 101)"),
    "insert": lambda w: w.spark.sql(f"INSERT INTO {w.name('t')} VALUES (500, 'theirs')"),
    "moved": lambda w: [w.spark.sql(f"DELETE FROM {w.name('t')} WHERE id = 5"),
                        w.spark.sql(f"INSERT INTO {w.name('t')} VALUES (5, 'theirs')")],
    "overwrite": lambda w: w.spark.sql(f"INSERT OVERWRITE {w.name('t')} SELECT id, concat(v, '!') FROM {w.name('t')}"),
    "merge lane": lambda w: w.changes("t", U(7, "seven"), D(8), name="20240101-100030000.csv").merged(lane="merge"),
}  # fmt: skip


@pytest.mark.parametrize("what", FOREIGN)
def test_the_index_follows_what_others_do(loaded, what):
    book = loaded.book(lane="rowdelta")
    loaded.changes("t", U(1, "A"), D(2), I(101, "n"))
    assert not [r.note for r in cdc.run(book) if r.failed]
    FOREIGN[what](loaded)
    expected = {r[0]: r[1] for r in loaded.rows("t")}
    loaded.changes("t", U(1, "B"), U(5, "E"), D(101), I(500, "ours"), U(9, "I"), name=FILE2)
    assert not [r.note for r in cdc.run(book) if r.failed]
    expected |= {1: "B", 5: "E", 500: "ours", 9: "I"}
    expected.pop(101, None)
    assert sorted(loaded.rows("t")) == sorted(expected.items())
    assert loaded.history("t")[0].summary()["frazil.lane"] == "rowdelta", loaded.said


@pytest.mark.parametrize("readers", [["spark"], ["athena"]], ids=["v3", "v2"])
def test_the_index_is_built_from_files_of_several_row_groups(world, readers):
    world.given["query_engines"] = readers
    world.table("t").load("t", (0, "a")).loaded()
    small = "'write.parquet.row-group-size-bytes' = '1', 'write.parquet.row-group-check-min-record-count' = '100'"
    world.spark.sql(f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ({small})")
    world.spark.sql(f"INSERT INTO {world.name('t')} SELECT id, concat('a', id) FROM range(1, 1000, 1, 1)")
    world.spark.sql(f"DELETE FROM {world.name('t')} WHERE id IN (3, 150, 151, 999)")
    files = [row.file_path for row in world.spark.sql(f"SELECT file_path FROM {world.name('t')}.data_files").collect()]
    assert max(pq.read_metadata(local_path(path)).num_row_groups for path in files) > 5
    changes = [U(1, "A"), D(2), U(99, "B"), U(100, "C"), D(400), U(998, "E"), I(3, "new")]
    world.changes("t", *changes).merged(lane="rowdelta")
    assert world.history("t")[0].summary()["frazil.lane"] == "rowdelta", world.said
    expected = {0: "a", **{i: f"a{i}" for i in range(1, 1000) if i not in (2, 3, 150, 151, 400, 999)}}
    assert dict(world.rows("t")) == expected | {1: "A", 99: "B", 100: "C", 998: "E", 3: "new"}


@pytest.mark.parametrize(("limit", "lane"), [(2048, "rowdelta"), (0, "scan")])
def test_delete_files_that_a_compaction_by_others_left_do_not_count(world, limit, lane):
    world.given["query_engines"] = ["athena"]
    world.table("t").load("t", *[(i, f"a{i}") for i in range(50)]).loaded()
    book = world.book(lane="rowdelta", index_limit_mb=limit)
    world.changes("t", U(1, "A"), D(2), I(101, "n"))
    assert not [r.note for r in cdc.run(book) if r.failed]
    world.spark.sql(f"DELETE FROM {world.name('t')} WHERE id IN (3, 4)")
    compact(world)
    expected = dict(world.rows("t"))
    assert live_rows(world.history("t")[0]) < len(expected)  # as the summary has it
    for name, change in {FILE2: U(5, "E"), FILE3: U(6, "F")}.items():
        world.changes("t", change, name=name)
        assert not [r.note for r in cdc.run(book) if r.failed]
        assert world.history("t")[0].summary()["frazil.lane"] == lane, world.said
    assert sorted(world.rows("t")) == sorted((expected | {5: "E", 6: "F"}).items())


def test_a_small_batch_takes_few_calls_of_the_jvm(loaded, monkeypatch):
    """One takes 0.1 to 1 ms: once 3,000 of them took longer than all the rest of a batch."""
    from py4j.java_gateway import GatewayClient

    book, calls, real = loaded.book(lane="rowdelta"), [], GatewayClient.send_command
    for name in files(2):
        loaded.changes("t", U(1, name), D(2), I(2, "again"), name=name)
        cdc.run(book)
    loaded.changes("t", U(1, "c"), name=files(3)[-1])
    monkeypatch.setattr(GatewayClient, "send_command", lambda *a, **k: calls.append(a[1]) or real(*a, **k))
    assert cdc.run(book)[0].counts["changes"] == 1
    in_vain = [c for c in calls if c.startswith(("r\nu\norg\n", "r\nu\norg.apache\n", "r\nu\njava\n", "r\nu\npy4j\n"))]
    assert len(calls) < 1_500 and len(in_vain) < 10, (len(calls), in_vain)


@pytest.mark.parametrize("lane", ["rowdelta", "merge"])
def test_who_is_always_later_gives_up_for_this_time(loaded, monkeypatch, lane):
    """A second writer that commits all the time: the batch waits for the next pass, and says so."""
    owner, point = (jvm_row_delta, "commit") if lane == "rowdelta" else (jvm, "publish")
    real, theirs = getattr(owner, point), []

    def late(*arguments):
        theirs.append(f"({500 + len(theirs)}, 'theirs')")
        loaded.spark.sql(f"INSERT INTO {loaded.name('t')} VALUES {theirs[-1]}")
        return real(*arguments)

    loaded.book().lanes.missing(loaded.name("t"))
    loaded.changes("t", U(1, "A"), D(2))
    with monkeypatch.context() as m:
        m.setattr(owner, point, late)
        done = loaded.merge(lane=lane)["t"]
    assert done.status == "skipped" and "others committed to it 5 times in a row" in done.note and len(theirs) == 5
    assert not loaded.branches("t")
    loaded.merged(lane=lane)
    assert len(loaded.rows("t")) == 54 and dict(loaded.rows("t"))[1] == "A"


@pytest.mark.parametrize("meanwhile", [False, True], ids=["alone", "beside a batch"])
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_no_key_is_read_again_after_a_compaction_of_ours(loaded, monkeypatch, meanwhile, twice):
    """The rows keep their order, so where they lie now is told by where they lay; deletes that came meanwhile included."""
    book, read, rewrite = loaded.book(lane="rowdelta"), [], compaction._rewrite

    def batch(name, *changes):
        loaded.changes("t", *changes, name=name)
        assert not [r.note for r in cdc.run(book) if r.failed]
        assert loaded.history("t")[0].summary()["frazil.lane"] == "rowdelta", loaded.said

    def between(*arguments):
        found = rewrite(*arguments)
        if meanwhile:
            batch("20240101-100030000.csv", U(3, "C"), D(4), D(101))
        return found

    batch("20240101-100000000.csv", U(1, "A"), D(2), I(101, "n"))
    monkeypatch.setattr(compaction, "_rewrite", between)
    monkeypatch.setattr(Locator, "_read_keys", lambda self, table, paths, snapshot: read.extend(paths))
    for number in range(1 + twice):
        if number:  # one more file, or there would be nothing to compact
            batch("20240101-100040000.csv", U(7, "G"))
        meanwhile = meanwhile and not number
        assert compaction.compact(loaded.spark, loaded.name("t"), MaintenanceSettings(), "r", print)["file_groups"]
    expected = dict(loaded.rows("t")) | {1: "B", 5: "E", 9: "I"}
    batch("20240101-100050000.csv", U(1, "B"), U(5, "E"), U(9, "I"))
    assert sorted(loaded.rows("t")) == sorted(expected.items())
    assert not read


def test_a_rollback_rebuilds_the_index(loaded):
    loaded.changes("t", U(1, "A"), D(2)).merged(lane="rowdelta")
    before, position = loaded.head("t"), loaded.position("t")
    loaded.changes("t", U(1, "B"), D(3), name=FILE2).merged(lane="rowdelta")
    loaded.spark.sql(f"CALL lake.system.rollback_to_snapshot('{loaded.space}.t', {before})")
    loaded.spark.sql(f"ALTER TABLE {loaded.name('t')} SET TBLPROPERTIES ('frazil.position' = '{json.dumps(position)}')")
    loaded.changes("t", U(3, "C"), name=FILE3).merged(lane="rowdelta")
    expected = {i: f"a{i}" for i in range(50)} | {1: "B", 3: "C"}
    del expected[2]
    assert sorted(loaded.rows("t")) == sorted(expected.items())


@pytest.mark.parametrize("harm", ["lost", "cut", "flipped", "garbage", "stale", "other Java"])
def test_an_index_that_is_not_whole_is_built_again(loaded, monkeypatch, harm):
    loaded.changes("t", U(1, "A"), D(2)).merged(lane="rowdelta")
    folder = loaded.root / f"runs/test/index/{loaded.name('t')}"
    segment = next(folder.glob("*.seg"))
    if harm == "stale":
        shutil.copytree(folder, folder.with_suffix(".old"))
        loaded.changes("t", U(1, "B"), D(4), name=FILE2).merged(lane="rowdelta")
        shutil.rmtree(folder)
        folder.with_suffix(".old").rename(folder)
    elif harm == "lost":
        shutil.rmtree(folder)
    elif harm == "cut":
        segment.write_bytes(segment.read_bytes()[:-4])
    elif harm == "flipped":
        data = bytearray(segment.read_bytes())
        data[-1] ^= 1
        segment.write_bytes(data)
    elif harm == "other Java":  # texts of numbers may be others there
        monkeypatch.setattr(jvm, "versions", lambda spark: "4.1 99")
    else:
        (folder / "manifest.json").write_text("{}")
    rebuild, built = Locator._rebuild, []
    monkeypatch.setattr(Locator, "_rebuild", lambda *a: (built.append(1), rebuild(*a)))
    loaded.changes("t", U(1, "C"), D(3), I(2, "back"), name=FILE3).merged(lane="rowdelta")
    assert bool(built) == (harm != "stale"), "an old one that is whole follows what came after it"
    expected = {i: f"a{i}" for i in range(50)} | {1: "C", 2: "back"}
    del expected[3]
    if harm == "stale":
        del expected[4]
    assert sorted(loaded.rows("t")) == sorted(expected.items())


def test_an_index_with_a_manifest_that_is_none_is_built_again_and_no_row_doubles(loaded):
    loaded.changes("t", U(1, "A"), D(2), I(101, "n")).merged(lane="rowdelta")
    file = loaded.root / f"runs/test/index/{loaded.name('t')}/manifest.json"
    for text, change, name in (("[]", U(1, "B"), FILE2), (None, U(101, "last"), FILE3)):
        if text is None:  # whole, but for a segment
            text = json.dumps({**json.loads(file.read_text().split("\n", 1)[1]), "segments": [], "of": [1, 1, 0]})
        file.write_text(f"{zlib.crc32(text.encode())}\n{text}")
        loaded.changes("t", change, name=name).merged(lane="rowdelta")
        assert loaded.history("t")[0].summary()["frazil.lane"] == "rowdelta", loaded.said
    expected = {i: f"a{i}" for i in range(50) if i != 2} | {1: "B", 101: "last"}
    assert sorted(loaded.rows("t")) == sorted(expected.items())


def before_commit(monkeypatch, do):
    real, left = jvm_row_delta.commit, [1]

    def wrapped(*arguments):
        if left[0]:
            left[0] = 0
            do()
        return real(*arguments)

    monkeypatch.setattr(jvm_row_delta, "commit", wrapped)


def test_a_compaction_in_the_middle_is_followed(loaded, monkeypatch):
    loaded.changes("t", U(1, "A"), D(2)).merged(lane="rowdelta")
    before_commit(monkeypatch, lambda: compact(loaded))
    loaded.changes("t", U(1, "B"), D(3), name=FILE2).merged(lane="rowdelta")
    expected = {i: f"a{i}" for i in range(50)} | {1: "B"}
    del expected[2], expected[3]
    assert sorted(loaded.rows("t")) == sorted(expected.items())


def test_a_compaction_of_other_files_in_the_middle_is_followed(loaded, monkeypatch):
    """No conflict for the batch; but unless the lane looks again it goes on with files that are no more, and rows double."""
    loaded.changes("t", U(1, "A"), I(101, "n")).merged(lane="rowdelta")
    book = loaded.book(lane="rowdelta")
    loaded.changes("t", U(101, "N"), name="20240101-100030000.csv")
    assert not [r.note for r in cdc.run(book) if r.failed]
    first = max(
        loaded.spark.sql(f"SELECT file_path, record_count FROM {loaded.name('t')}.files").collect(), key=lambda r: r[1]
    )[0]

    def rewrite_the_load():
        s = MaintenanceSettings()
        job = compaction.Job(loaded.spark, loaded.name("t"), s, "middle")
        done = compaction.compact_group(job, compaction.FileGroup((first,), 1, 49), 1)
        assert done["file_groups"] == 1

    before_commit(monkeypatch, rewrite_the_load)
    loaded.changes("t", I(102, "new"), name=FILE2)
    assert not [r.note for r in cdc.run(book) if r.failed]
    loaded.changes("t", U(5, "E"), D(6), U(102, "newer"), name=FILE3)
    assert not [r.note for r in cdc.run(book) if r.failed]
    expected = {i: f"a{i}" for i in range(50) if i != 6} | {1: "A", 5: "E", 101: "N", 102: "newer"}
    assert sorted(loaded.rows("t")) == sorted(expected.items())


def test_a_second_writer_wins_and_this_one_skips(loaded, monkeypatch):
    loaded.changes("t", U(1, "A"), D(2))
    before_commit(monkeypatch, lambda: loaded.merged(lane="merge"))
    assert loaded.merge(lane="rowdelta")["t"].status == "skipped"
    assert sorted(loaded.rows("t")) == sorted(({i: f"a{i}" for i in range(50) if i != 2} | {1: "A"}).items())


def test_a_commit_of_unknown_outcome_is_found(loaded, monkeypatch):
    real = jvm_row_delta.commit

    def lost(*arguments):
        real(*arguments)
        raise OSError("the answer was lost")

    loaded.changes("t", U(1, "A"), D(2))
    monkeypatch.setattr(jvm_row_delta, "commit", lost)
    assert loaded.merge(lane="rowdelta")["t"].status == "merged"
    monkeypatch.undo()
    loaded.changes("t", U(1, "B"), D(3), name=FILE2).merged(lane="rowdelta")
    assert sorted(loaded.rows("t")) == sorted(({i: f"a{i}" for i in range(50) if i not in (2, 3)} | {1: "B"}).items())


def test_old_rows_are_never_left_when_the_index_is_wrong(loaded, monkeypatch):
    """The sum over the new snapshot is held against the index before the commit."""
    loaded.changes("t", U(1, "A"), D(2)).merged(lane="rowdelta")
    real = KeyIndex.locate
    monkeypatch.setattr(KeyIndex, "load", lambda self: False)

    def blind(self, keys):
        file, pos, *row_ids = real(self, keys)
        return [file, pos * 0, *row_ids]  # every row said to be the first of its file

    monkeypatch.setattr(KeyIndex, "locate", blind)
    loaded.changes("t", U(5, "B"), U(6, "C"), name=FILE2).merged(lane="rowdelta")
    assert loaded.history("t")[0].summary()["frazil.lane"] == "merge"
    assert sorted(loaded.rows("t")) == sorted(
        ({i: f"a{i}" for i in range(50) if i != 2} | {1: "A", 5: "B", 6: "C"}).items()
    )


@pytest.mark.parametrize(("limit", "lane"), [(2048, "rowdelta"), (0, "scan")])
def test_odd_batches(loaded, limit, lane):
    """Deletes of rows that are not there, a key deleted and used again, chains of key changes, nothing at all."""
    expected = {i: f"a{i}" for i in range(50)}
    steps = [
        ([D(900), D(901)], {}),
        ([D(3), I(3, "again"), U(4, "x"), D(4), I(200, "short"), D(200)], {3: "again", 4: None}),
        ([U(300, "moved", was=5), U(301, "moved on", was=300), I(5, "new")], {5: "new", 301: "moved on"}),
        ([U(3, "last"), D(301)], {3: "last", 301: None}),
    ]
    for name, (changes, then) in zip(files(9), steps, strict=False):
        loaded.changes("t", *changes, name=name).merged(lane="rowdelta", index_limit_mb=limit)
        summary = loaded.history("t")[0].summary()
        assert summary["frazil.lane"] == lane, loaded.said
        assert lane == "rowdelta" or "above index_limit_mb (0)" in summary["frazil.lane-reason"]
        expected = {k: v for k, v in {**expected, **then}.items() if v is not None}
        assert sorted(loaded.rows("t")) == sorted(expected.items())
    assert (loaded.root / f"runs/test/index/{loaded.name('t')}/manifest.json").exists() == bool(limit)


@pytest.mark.parametrize("lane", ["rowdelta", "scan", "merge"])
def test_a_committed_batch_is_no_longer_taken_for_one_in_progress(loaded, lane):
    loaded.changes("t", U(1, "b")).merged(lane=lane)
    batch = loaded.history("t")[0].summary()["frazil.batch"]
    assert batch_branches.is_dead(f"{commit.BRANCH_PREFIX}{batch}")


def test_a_partition_spec_may_change(world):
    world.table("t").load("t", *[(i, f"a{i}") for i in range(20)]).loaded()
    expected = {i: f"a{i}" for i in range(20)}
    for name, change in zip(files(3), ["ADD PARTITION FIELD bucket(2, id)", "ADD PARTITION FIELD truncate(1, v)",
                                       "DROP PARTITION FIELD bucket(2, id)"], strict=True):  # fmt: skip
        world.spark.sql(f"ALTER TABLE {world.name('t')} {change}")
        number = int(name[11:13])
        world.changes("t", U(1, f"b{number}"), U(2 + number, "moved"), D(10 + number), I(30 + number, None), name=name)
        world.merged(lane="rowdelta")
        assert world.history("t")[0].summary()["frazil.lane"] == "rowdelta", world.said
        expected |= {1: f"b{number}", 2 + number: "moved", 30 + number: None}
        del expected[10 + number]
    assert dict(world.rows("t")) == expected
    assert {f["spec_id"] for f in world.spark.table(world.name("t") + ".files").select("spec_id").collect()} >= {
        0,
        1,
        2,
    }


def test_local_files_are_made_without_a_process_or_checksums_and_told_as_iceberg_does(loaded):
    loaded.changes("t", U(1, None), I(70, "z" * 40)).merged(lane="rowdelta")
    spark, table = loaded.spark, loaded.iceberg("t")
    hadoop = jvm.package(spark, "org.apache.hadoop.fs").FileSystem
    local = hadoop.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    assert local.getClass().getSimpleName() == "BareLocalFileSystem"  # Hadoop's own starts one for each file
    made = [p for p in Path(local_path(table.location())).rglob("*") if p.is_file()]
    assert made and not [p for p in made if p.suffix == ".crc"]
    assert {p.stat().st_mode & 0o777 for p in made if p.suffix == ".avro"} == {0o600}
    newest = max((p for p in made if p.suffix == ".parquet"), key=lambda p: p.stat().st_mtime)
    file, parquet = table.io().newInputFile(str(newest)), jvm.package(spark, "org.apache.iceberg.parquet").ParquetUtil
    wanted = jvm.package(spark, "org.apache.iceberg").MetricsConfig.forTable(table)
    ours, theirs = jvm_data_files._metrics(spark, table, file), parquet.fileMetrics(file, wanted)
    assert ours.recordCount() == theirs.recordCount() == 2
    for name in ("columnSizes", "valueCounts", "nullValueCounts", "lowerBounds", "upperBounds"):
        told = getattr(ours, name)()
        assert told.equals(getattr(theirs, name)()) and not told.isEmpty(), name


def test_masked_widened_and_omitted_columns(world):
    world.table("t", "id INT4", "name STRING(20)", "n INT4", "left_out INT4", "price NUMERIC(6,2)")
    spec = world.specs["t"]
    spec["columns"][0]["lake"], spec["columns"][1]["mask"], spec["columns"][2]["lake"] = "string", "sha256", "bigint"
    spec["columns"][4]["lake"], spec["exclude"] = "decimal(20,4)", ["left_out"]
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(spec))
    world.load("t", (1, "ann", 5, 0, "1.25"), (2, "bob", None, 0, None)).loaded()
    world.changes("t", U(2, "bob", 7, 1, "2.50"), I(10, "cy", 8, 1, "0.01"), D(1)).merged(lane="rowdelta")
    assert world.history("t")[0].summary()["frazil.lane"] == "rowdelta", world.said
    hashed = {n: hashlib.sha256(n.encode()).hexdigest() for n in ("bob", "cy")}
    assert sorted(world.rows("t")) == [
        ("10", hashed["cy"], 8, Decimal("0.0100")),
        ("2", hashed["bob"], 7, Decimal("2.5000")),
    ]


def test_what_only_a_merge_can_write_goes_there(world):
    world.table("t", key=())
    del world.specs["t"]["key"]
    (world.root / "specs/t.yml").write_text(yaml.safe_dump({**world.specs["t"], "without_key": "append"}))
    world.specs["t"]["key"] = []
    world.load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged(lane="rowdelta")
    assert world.history("t")[0].summary()["frazil.lane-reason"] == "the table keeps every change"


def test_without_the_calls_the_merge_lane_writes_and_says_why(loaded, monkeypatch):
    monkeypatch.setattr(lane_choice, "_tested", {})
    monkeypatch.setattr(jvm_row_delta, "for_each", lambda *a: 1 / 0)
    loaded.changes("t", U(1, "B")).merged(lane="rowdelta")
    assert "the self-test failed" in loaded.history("t")[0].summary()["frazil.lane-reason"]
    assert (1, "B") in loaded.rows("t")
    shown = loaded.spark.sql(f"SHOW TABLES IN lake.{loaded.space}").collect()
    assert [r.tableName for r in shown] == ["t"]
    monkeypatch.undo()
    monkeypatch.setattr(lane_choice, "_tested", {})
    loaded.changes("t", U(1, "C"), name=FILE3).merged(lane="rowdelta")
    assert loaded.history("t")[0].summary()["frazil.lane"] == "rowdelta"
    namespace = Path(loaded.iceberg("t").location().removeprefix("file:")).parent
    assert not [p for root in (loaded.root, namespace) for p in root.rglob("*selftest*")]


PARTITIONS = {
    "coarse": ["year(d)", "hour(at)", "truncate(10, n)", "bucket(4, v)", "bucket(5, n)"],
    "fine": ["d", "n", "day(at)", "truncate(2, v)", "bucket(3, id)"],
    "times": ["month(d)", "at", "v", "bucket(3, d)", "bucket(3, at)"],
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partition_values_of_rows_in_the_driver_are_those_that_spark_computes(world, kind):
    import pyarrow as pa

    from frazil_old.engine.collapsed_batch import frame_of
    from frazil_old.lake.row_delta import with_partition_values

    world.table("t", "id INT8", "d DATE", "at DATETIME", "n NUMERIC(12,2)", "v WSTRING(99)")
    world.specs["t"]["partition"] = PARTITIONS[kind]
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(world.specs["t"]))
    book = world.book()
    setup.create_tables(world.book(SetupSettings))
    spec = book.specs["public.t"]
    times = [
        datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime(2024, 2, 29, 5),
        None,
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23),
    ]
    numbers = [Decimal("-0.01"), Decimal("12345.67"), None, Decimal("0.00"), Decimal("9999999999.99")]
    rows = pa.table({
        "op": ["U"] * 5, "c0": pa.array([1, -(2**40), 3, 2**62, 5], pa.int64()),
        "c1": pa.array([t and t.date() for t in times], pa.date32()), "c2": pa.array(times, pa.timestamp("us")),
        "c3": pa.array(numbers, pa.decimal128(12, 2)), "c4": ["", "ab", None, "Zürich 東京 😀", "x" * 50],
    })  # fmt: skip
    parts = _partition_sql(world.name("t"), jvm_schema.partition_fields(world.spark, world.iceberg("t")))
    frame = frame_of(world.spark, rows, spec)
    by_spark = [[_json_value(v) for v in row] for row in frame.selectExpr(*parts).collect()]
    found = with_partition_values(world.spark, world.iceberg("t"), rows, spec)
    here = list(zip(*[found[f"p{i}"].to_pylist() for i in range(len(parts))], strict=True))
    assert [_shown(row) for row in here] == [_shown(row) for row in by_spark]


def _partition_sql(name: str, fields: list[tuple[int, str, str]]) -> list[str]:
    """Return the SQL of a row's partition values in `after`, with the functions of Iceberg's catalogs."""
    system = f"{name.split('.', 1)[0]}.system"
    listed = []
    for _, transform, column in fields:
        kind, width = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", transform).groups()
        value = f"after.{identifier(column)}"
        known = {"identity": value, "void": "null", "bucket": f"{system}.bucket({width}, {value})",
                 "truncate": f"{system}.truncate({width}, {value})"}  # fmt: skip
        listed.append(known.get(kind) or f"{system}.{kind}s({value})")
    return listed


def _json_value(value):
    """Return a partition value of Spark in the JSON form of the Iceberg spec."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex().upper()
    if hasattr(value, "microsecond"):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _shown(values) -> list[str]:
    """A whole second may be written with or without its microseconds."""
    return [str(v).removesuffix(".000000") for v in values]
