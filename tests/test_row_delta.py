"""Row deltas end in the same tables as a replay, whatever others do to the table in between."""

import hashlib
import json
import random
import zlib
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
import yaml

from frazil_old.config.paths import local_path
from frazil_old.flows import cdc
from frazil_old.lake import compaction as compaction
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
