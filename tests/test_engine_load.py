"""A full load in Arrow tasks: files of several forms become data files that Spark, PyIceberg and DuckDB read alike."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from frazil_old.config.spec import parse_spec
from frazil_old.engine import load_files as load_files_module
from frazil_old.engine.load_files import write_in_tasks
from frazil_old.engine.read_files import FileToRead, ReadPlan
from frazil_old.engine.write_rows import WritePlan
from frazil_old.lake import jvm_data_files, jvm_maintenance, jvm_row_delta
from helpers import FILE1, LOAD1, ONE_COMMIT, D, I, U
from lake_reader import duckdb_rows, lake_rows, metadata_of

pytestmark = pytest.mark.spark


def test_load_files_become_data_files_that_every_engine_reads_alike(world, catalog_options, spark):
    world.table("t", "id INT8", "v WSTRING(99)", "n NUMERIC(9,2)", "at DATETIME", "day DATE")
    world.specs["t"]["partition"] = ["bucket(2, id)"]
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(world.specs["t"]))
    world.setup()
    rows = [(i, f'v "{i}",\n' if i % 3 else None, f"{i}.25", ONE_COMMIT, "2024-02-29") for i in range(300)]
    for number, some in enumerate((rows[:100], rows[100:200]), 1):
        world.load("t", *some, name=f"LOAD0000000{number}.csv")
    folder = world.root / "source/public/t"
    with (folder / "LOAD00000002.csv").open("a") as file:
        file.write(f"{ONE_COMMIT},x,,,,,,\n")
    columns = zip(*rows[200:], strict=True)
    names = [f"c{n}" for n in range(5)]
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), folder / "LOAD00000003.parquet")
    spec = parse_spec(world.specs["t"])
    after = [f"after:{c}" for c in spec.names]
    csv_roles = ("ts", *after, "seq", "before:id")
    files = [FileToRead(str(folder / f"LOAD0000000{n}.csv"), n, csv_roles) for n in (1, 2)]
    files.append(FileToRead(str(folder / "LOAD00000003.parquet"), 3, tuple(after)))
    target = f"{world.space}.t"
    metadata = Path(metadata_of(catalog_options, target).removeprefix("file:")).read_text()
    written = write_in_tasks(spark, [files[:2], files[2:]], ReadPlan(spec), WritePlan(metadata))
    assert (written.tally.rows, written.tally.bad.count) == (300, 1)
    assert [(order, b.number, b.column) for order, b in written.tally.bad.rows] == [(2, 101, "id")]
    jvm_data_files.put(spark, f"{world.name('t')}.branch_main", written.entries, {"made-by": "a test"})
    found = lake_rows(catalog_options, target)
    assert [(r[0], r[1], str(r[2]), str(r[4])) for r in sorted(found)] == [(i, v, n, d) for i, v, n, _, d in rows]
    assert duckdb_rows(catalog_options, target) == found
    assert sorted(tuple(r) for r in spark.table(world.name("t")).collect()) == sorted(found)


SORTED = "alter table {} write ordered by v desc"
AS_ORC = "alter table {} set tblproperties ('write.format.default' = 'orc')"
ELSEWHERE = "alter table {} set location '{}/a#b'"
TYPED = ("id INT8", "v WSTRING(99)", "n NUMERIC(9,2)", "at DATETIME", "moment DATETIME", "day DATE", "raw BYTES(9)")
ROW = (9999999999, 'a\n"b"', "1.25", "0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999", "0001-01-01", "00ff")
IN_LAKE = [
    "9999999999",
    'a\n"b"',
    "1.25",
    "0001-01-01 00:00:00.000001",
    "9999-12-31 23:59:59.999999",
    "0001-01-01",
    "00FF",
]
TEXTS = "cast(id as string), v, cast(n as string), cast(at as string), cast(moment as string), cast(day as string), hex(raw)"


def _in_tasks(monkeypatch):
    monkeypatch.setattr(load_files_module, "IN_PROCESS", -1)


def _paths(world):
    return [r[0] for r in world.spark.sql(f"select file_path from {world.name('t')}.files").collect()]


@pytest.mark.parametrize("change", [SORTED, AS_ORC, ELSEWHERE], ids=["sorted", "orc", "elsewhere"])
@pytest.mark.parametrize("size", [lambda _: None, _in_tasks], ids=["small", "in tasks"])
def test_rows_that_only_spark_can_write_are_those_of_the_files(new_world, monkeypatch, change, size):
    size(monkeypatch)
    world = new_world(TimestampColumnName="ts")
    world.table("t", *TYPED, utc=("moment",))
    world.load("t", ROW, (1, *[None] * 6)).load("t", ("x", *[None] * 6), (2, "z", *[None] * 5), name="LOAD00000002.csv")
    world.setup()
    world.spark.sql(change.format(world.name("t"), world.root))
    done = world.full_load(on_bad_rows="quarantine", max_bad_percent=50.0)["t"]
    assert (done.status, done.counts) == ("loaded", {"rows": 3, "quarantined": 1}), done.note
    found = sorted(tuple(r) for r in world.spark.sql(f"select {TEXTS} from {world.name('t')}").collect())
    assert [list(row) for row in found] == [["1", *[None] * 6], ["2", "z", *[None] * 5], IN_LAKE]
    formats = {r[0] for r in world.spark.sql(f"select distinct file_format from {world.name('t')}.files").collect()}
    assert formats == {"ORC" if change == AS_ORC else "PARQUET"}
    if change == SORTED:
        lying = [
            r[0]
            for r in world.spark.read.parquet(*[f.removeprefix("file:") for f in _paths(world)]).select("v").collect()
        ]
        assert lying == sorted(lying, key=lambda v: (v is not None, v or ""), reverse=True)


@pytest.mark.parametrize("size", [lambda _: None, _in_tasks], ids=["small", "in tasks"])
def test_a_bad_row_stops_a_load_that_only_spark_can_write(world, monkeypatch, size):
    size(monkeypatch)
    world.table("t").load("t", (1, "a"), ("x", "b"))
    world.setup()
    world.spark.sql(SORTED.format(world.name("t")))
    done = world.full_load()["t"]
    assert done.failed and "LOAD00000001.csv row 2: column 'id': 'x' does not fit INT8" in done.note
    assert world.rows("t") == []


@pytest.mark.parametrize("size", [lambda _: None, _in_tasks], ids=["small", "in tasks"])
def test_a_sorted_table_is_loaded_from_a_file_without_rows(world, monkeypatch, size):
    size(monkeypatch)
    world.table("t").load("t").setup()
    world.spark.sql(SORTED.format(world.name("t")))
    assert world.full_load()["t"].status == "loaded"
    world.changes("t", I(1, "a")).merged()
    assert world.rows("t") == [(1, "a")]


@pytest.mark.parametrize("size", [lambda _: None, _in_tasks], ids=["small", "in tasks"])
def test_a_sorted_table_that_keeps_every_change_gets_them_in_its_order(world, monkeypatch, size):
    size(monkeypatch)
    world.table("t", key=[])
    world.specs["t"]["without_key"] = "append"
    world.table_file("t").load("t", (1, "a")).loaded()
    world.spark.sql(SORTED.format(world.name("t")))
    world.changes("t", U(1, "b"), D(1, "b")).merged()
    rows = world.spark.sql(f"select id, v, _op, cast(_commit_ts as string), _object, _row from {world.name('t')}")
    assert sorted(tuple(r) for r in rows.collect()) == [
        (1, "a", "I", ONE_COMMIT[:-7], LOAD1, 1),
        (1, "b", "D", ONE_COMMIT[:-7], FILE1, 2),
        (1, "b", "U", ONE_COMMIT[:-7], FILE1, 1),
    ]


@pytest.mark.parametrize("size", [lambda _: None, _in_tasks], ids=["small", "in tasks"])
@pytest.mark.parametrize(
    ("columns", "text", "rows"),
    [(["v WSTRING(9)", "n INT4"], "a,1\n,\nb,2\n", [("a", 1, 1), ("b", 2, 3), (None, None, 2)]), (["n INT4"], "1\n\n2\n\n", [(1, 1), (2, 3), (None, 2), (None, 4)])],
)  # fmt: skip
def test_a_row_of_nulls_alone_is_loaded_into_a_table_without_a_key(new_world, monkeypatch, columns, text, rows, size):
    size(monkeypatch)
    w = new_world(TimestampColumnName="")
    w.rules = {"rules": []}
    w.table("t", *columns, key=[])
    w.specs["t"]["without_key"] = "append"
    w.table_file("t").write("t", LOAD1, text).loaded()
    assert [(*r[: len(columns)], r[-1]) for r in w.rows("t")] == rows


@pytest.mark.parametrize("size", [lambda _: None, _in_tasks], ids=["small", "in tasks"])
def test_files_without_rows_are_applied_to_a_table_that_only_spark_can_write(world, monkeypatch, size):
    size(monkeypatch)
    world.table("t").write("t", LOAD1, "").setup()
    world.spark.sql(SORTED.format(world.name("t")))
    assert world.full_load()["t"].status == "loaded" and world.rows("t") == []
    assert world.changes("t", I(1, "a")).merged().rows("t") == [(1, "a")]


def test_a_file_that_changes_between_sparks_two_reads_of_it_adds_no_row(world, monkeypatch):
    _in_tasks(monkeypatch)
    world.table("t", key=[])
    world.specs["t"]["without_key"] = "append"
    world.table_file("t").load("t", (1, "a")).loaded()
    world.spark.sql(SORTED.format(world.name("t")))
    world.changes("t", U(1, "b"))
    put = load_files_module.put

    def put_later(*args, **more):
        world.changes("t", U(1, "longer"))
        put(*args, **more)

    monkeypatch.setattr(load_files_module, "put", put_later)
    assert world.merge()["t"].status == "unchanged"
    monkeypatch.undo()
    _in_tasks(monkeypatch)
    assert [row[:2] for row in world.merged().rows("t")] == [(1, "a"), (1, "longer")]


def test_many_small_load_files_become_few_data_files_in_one_commit(world, monkeypatch):
    _in_tasks(monkeypatch)
    world.table("t").setup()
    before = len(world.history("t"))
    for number in range(40):
        world.load("t", (number, "a"), (number + 100, "b"), name=f"LOAD{number + 1:08X}.csv")
    assert world.full_load()["t"].counts == {"rows": 80}
    assert len(world.history("t")) == before + 1
    assert len(_paths(world)) == 1  # one group: a task reads 32 MB or more
    assert [r[0] for r in world.rows("t")] == sorted([*range(40), *range(100, 140)], key=lambda n: repr((n,)))


def test_data_files_go_over_to_java_and_come_back_in_slices(world, monkeypatch):
    for module in (jvm_data_files, jvm_row_delta):
        monkeypatch.setattr(module, "AT_ONCE", 3)
    world.table("t")
    world.specs["t"]["partition"] = ["bucket(16, id)"]
    world.table_file("t").load("t", *[(n, f"v{n}") for n in range(200)]).loaded()
    paths, table = _paths(world), world.iceberg("t")
    assert len(paths) == 16 and [r[0] for r in world.rows("t")] == sorted(range(200), key=lambda n: repr((n,)))
    live_files = jvm_row_delta.live_files(world.spark, table, world.head("t"))
    partitions = dict(world.spark.sql(f"select file_path, partition.id_bucket from {world.name('t')}.files").collect())
    found = {
        path: file.partition for path, file in live_files.items()
    }  # a list, or by field id: versions of Iceberg differ
    assert {p: [*(v.values() if isinstance(v, dict) else v)] for p, v in found.items()} == {
        p: [v] for p, v in partitions.items()
    }
    some = jvm_maintenance.Tasks(world.spark, table, world.head("t"), [*paths[:5], "elsewhere"])
    assert sorted(some.by_path) == sorted(paths[:5])
    assert all(some.task(path).file().location() == path for path in paths[:5])
    world.changes("t", *[U(n, "new") for n in range(0, 200, 3)], D(1)).merged(lane="scan")
    assert world.rows("t") == sorted([(n, "new" if n % 3 == 0 else f"v{n}") for n in range(200) if n != 1], key=repr)
