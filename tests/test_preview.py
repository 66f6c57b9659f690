"""The stages of a batch, a load and maintenance before they run: what they show is what is then done, and they never stop anything."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil_old.config.settings import CdcMergeSettings, FullLoadSettings, MaintenanceSettings
from frazil_old.engine import preview_sample, read_files
from frazil_old.flows import maintenance, preview
from frazil_old.flows.plan import plan
from frazil_old.lake import snapshot_expiry
from frazil_old.report import notebook_output
from frazil_old.report.notebook_output import Grid
from helpers import FILE1, FILE2, FILE3, D, I, U

pytestmark = pytest.mark.spark
BATCH = ("files", "records", "changes", "latest", "written")


def batch_of(world, table="", **settings) -> preview.Batch:
    book = world.book(CdcMergeSettings, **settings)
    return preview.Batch(book, plan(book), table)


def load_of(world, **settings) -> preview.Load:
    book = world.book(FullLoadSettings, **settings)
    return preview.Load(book, plan(book))


def shown(of, *stages) -> str:
    """All that the stages show in a notebook, as text and as HTML."""
    found = [notebook_output.stage(getattr(of, name)()) for name in stages]
    return "\n".join([*map(repr, found), *[card._repr_html_() for card in found]])


def test_the_latest_row_per_key_is_what_the_run_then_commits(world):
    world.table("t", "id INT8", "v WSTRING(99)", "n NUMERIC(9,2)").load(
        "t", *[(i, "a", "1.00") for i in range(6)]
    ).loaded()
    world.changes("t", U(1, "b", "2.50"), U(1, "c", None), D(2), I(7, "", "0.10"), U(8, "x", "1.00", was=3), name=FILE1)
    world.changes("t", U(1, "d", "3.00"), D(7), I(7, "z", "9.99"), U(9, "y", "1.00", was=8), name=FILE2)
    before = {r[0] for r in world.rows("t")}
    batch = batch_of(world)
    latest = batch.latest(100).rows
    written = {row["what"]: row["how many"] for row in batch.written().rows}
    world.merged()
    wrote = {int(r["id"]): (r["v"], r["n"]) for r in latest if r["then"] == "write the row"}
    deleted = {int(r["id"]) for r in latest if r["then"] == "delete the row"}
    lake = {r[0]: (r[1], str(r[2])) for r in world.rows("t")}
    assert wrote == {1: ("d", "3.00"), 7: ("z", "9.99"), 9: ("y", "1.00")} == {k: lake[k] for k in wrote}
    assert deleted == {2, 3, 8} and not deleted & lake.keys()
    assert lake.keys() == (before | wrote.keys()) - deleted
    assert written == {"rows to write": 3, "keys to delete": 3, "replaced changes": 5}
    assert world.history("t")[0].summary()["frazil.counts"].count('"keys":6')


def test_plan_and_preview_name_the_lane_that_the_run_takes_though_another_is_set(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.spark.sql(f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ('write.merge.mode' = 'copy-on-write')")
    world.changes("t", U(1, "b"))
    (row,) = plan(world.book(CdcMergeSettings, lane="rowdelta"))
    assert row["lane"] == "merge"
    assert "by MERGE (set, and the table is copy-on-write)" in batch_of(world, lane="rowdelta").written().sentence
    world.merged(lane="rowdelta")
    summary = world.history("t")[0].summary()
    assert (summary["frazil.lane"], summary["frazil.lane-reason"]) == ("merge", "set, and the table is copy-on-write")


@pytest.mark.parametrize(
    ("lane", "name"), [("merge", "MERGE"), ("rowdelta", "row delta"), ("scan", "row delta by scan")]
)
def test_what_is_written_names_its_lane(world, lane, name):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b"), name=FILE1)
    assert f"in one commit by {name} (parameter lane)" in batch_of(world, lane=lane).written().sentence


def test_a_reader_follows_one_key_through_the_stages(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", *[I(i, "x") for i in range(10, 40)], U(1, "b"), name=FILE1)
    world.changes("t", U(1, "c"), name=FILE2).changes("t", D(1), name=FILE3)
    batch = batch_of(world)
    assert batch.records().sentence == "all 33 records of 3 files; 3 of them are of key 1"
    records, changes, (last, *_) = batch.records().rows, batch.changes().rows, batch.latest().rows[::-1]
    assert [(r["Op"], r["id"], r["v"]) for r in records][-3:] == [("U", "1", "b"), ("U", "1", "c"), ("D", "1", None)]
    assert [(r["file"], r["row"]) for r in records] == [(r["file"], r["row"]) for r in changes]
    assert [c["replaced by"] for c in changes[-3:]] == [f"row 1 of {FILE3}"] * 2 + [""]
    assert (last["changes"], last["then"], last["id"], "v" in last) == (3, "delete the row", "1", False)
    assert len(records) == preview.SHOWN and {r["Op"] for r in records} == {"I", "U", "D"}


def test_the_table_with_most_pending_files_is_shown_unless_another_is_named(world):
    world.table("a").load("a", (1, "a")).table("b").load("b", (1, "a")).loaded()
    world.changes("a", U(1, "b"), name=FILE1)
    world.changes("b", U(1, "b"), name=FILE1).changes("b", U(1, "c"), name=FILE2)
    assert batch_of(world).files().sentence.startswith("public.b: the next batch is 2 files")
    assert batch_of(world, max_batch_files=1).files().sentence.endswith("; 1 more wait for later batches")
    assert batch_of(world, "public.a").files().sentence.startswith("public.a: the next batch is 1 file")
    assert "did you mean 'public.a'?" in batch_of(world, "public.aa").files().sentence


def test_masked_columns_show_as_masked_and_columns_left_out_never(world):
    world.table("t", "id WSTRING(9)", "pin WSTRING(9)", "n INT4", "v WSTRING(9)")
    world.specs["t"]["columns"][0]["mask"] = world.specs["t"]["columns"][1]["mask"] = "sha256"
    world.specs["t"]["exclude"] = ["v"]
    world.table_file("t")
    world.load("t", ("key-one", "sesame", 1, "gone"))
    seen = shown(load_of(world), "files", "records", "rows")
    world.loaded().changes(
        "t", U("key-two", "open", 2, "away", was="key-one"), D("key-two"), I("key-six", "shut", "x", "off")
    )
    batch = batch_of(world)
    seen += shown(batch, *BATCH)
    assert not [w for w in ("key-", "sesame", "open", "shut", "gone", "away", "off\n") if w in seen]
    assert "•••" in seen and "of the key, was " in seen
    assert {"id", "pin", "n", "id before"} <= batch.records().rows[0].keys() and "v" not in batch.records().rows[0]
    assert batch.changes().rows[2]["bad row"] == "column 'n': 'x' does not fit INT4 (int in the lake)"


@pytest.mark.parametrize("policy", ["stop", "quarantine"])
def test_a_bad_row_shows_its_column_its_value_and_what_becomes_of_it(world, policy):
    world.table("t", "id INT8", "n INT4").load("t", (1, 1)).loaded()
    world.changes("t", U(1, 2), U(1, "x"), U(1, 3)).write("t", FILE2, "U,2024-01-01 09:59:00,1,2,3,4,5,6,7\n")
    batch = batch_of(world, on_bad_rows=policy)
    bad = [r["bad row"] for r in batch.changes().rows if "bad row" in r]
    assert bad[0] == "column 'n': 'x' does not fit INT4 (int in the lake)" and "too few fields (9)" in bad[1]
    assert batch.changes().sentence.endswith(
        {"stop": ": the table will stop", "quarantine": "to be quarantined"}[policy]
    )
    assert [r["bad row"] for r in batch.records().rows if "bad row" in r] == bad
    assert notebook_output.stage(batch.changes())._repr_html_().count("box-shadow") == 2


def test_what_is_not_pending_shows_nothing_and_reads_no_table(world, monkeypatch):
    world.table("t").load("t", (1, "a")).loaded()
    monkeypatch.setattr(preview, "read_table_state", lambda *_: pytest.fail("the lake is asked"))
    batch = batch_of(world)
    assert batch.files().sentence == "no change file is to be applied now"
    assert [repr(notebook_output.stage(getattr(batch, s)())) for s in BATCH[1:]] == ["· nothing to show"] * 4
    assert load_of(world).files().sentence == "no table is to be loaded now"


def test_a_broken_file_fails_neither_the_preview_nor_the_other_tables(world):
    world.table("t").load("t", (1, "a")).table("u").load("u", (1, "a")).loaded()
    world.write("t", FILE1, 'U,2024-01-01 09:59:00,1,"open\n').changes("t", U(1, "c"), name=FILE2)
    world.changes("u", U(1, "b"))
    batch = batch_of(world)
    assert len(batch.files().rows) == 2
    assert batch.records().failed and "a quoted text does not end" in batch.records().sentence
    assert [getattr(batch, s)() for s in BATCH[2:]] == [preview.NOTHING] * 3
    assert {t: r.status for t, r in world.merge().items()} == {"t": "failed", "u": "merged"}


def test_an_error_of_the_preview_itself_is_a_sentence(world, monkeypatch):
    world.table("t").load("t", (1, "a")).loaded().changes("t", U(1, "b"))
    monkeypatch.setattr(preview, "next_batch", lambda *_: 1 / 0)
    assert batch_of(world).files().sentence == "cannot be shown: ZeroDivisionError: division by zero"
    monkeypatch.undo()
    monkeypatch.setattr(preview_sample.Sample, "fields", lambda *_: 1 / 0)
    batch = batch_of(world)
    assert batch.records().failed and not batch.changes().failed
    assert repr(notebook_output.stage(batch.records())).startswith("! cannot be shown")


def test_only_the_beginning_of_long_files_is_read(world, monkeypatch):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", *[I(i, "x" * 50) for i in range(10, 30_000)], name=FILE1)
    for n in range(12):
        world.changes("t", U(1, "b"), name=f"20240101-1001000{n:02}.csv")
    read = []
    kept = read_files.chunks

    def counted(*given):
        for part in kept(*given):
            read.append(len(part))
            yield part

    monkeypatch.setattr(read_files, "chunks", counted)
    batch = batch_of(world)
    assert batch.records().sentence.startswith("the first 1,000 records of 10 files")
    assert sum(read) <= preview_sample.EXTENT.block
    assert batch.written().sentence.startswith("the first 1,000 records of the batch: 1,000 changes")
    (world.root / "source/public/t" / FILE1).write_text('U,2024-01-01 09:59:00,1,"' + "x" * (6 << 20))
    read.clear()
    assert "a row is too long to be shown" in batch_of(world).records().sentence
    assert sum(read) <= preview_sample.EXTENT.most + preview_sample.EXTENT.block


@pytest.mark.parametrize(
    ("policy", "says"), [("append", "each change becomes a row"), ("multiset", "whole rows are compared")]
)
def test_a_table_without_a_key_says_what_becomes_of_its_changes(world, policy, says):
    world.table("t", "id INT8", "v WSTRING(99)", key=())
    world.specs["t"]["without_key"] = policy
    world.rules = json.loads(json.dumps(world.rules).replace('"BI_"', '"BI_", "column-filter": "all"'))
    world.table_file("t").load("t", (1, "a"))
    world.write("t", "LOAD00000001.csv", "2024-01-01 09:59:00.000000,1,a,,,\n").loaded()
    world.write("t", FILE1, "I,2024-01-01 09:59:00.000000,2,b,,,\nU,2024-01-01 09:59:00.000000,3,b,,2,b\n")
    batch = batch_of(world)
    assert [r["operation"] for r in batch.changes().rows] == ["insert", "update"]
    assert says in batch.latest().sentence and says in batch.written().sentence
    assert not [s for s in BATCH if getattr(batch, s)().failed]


def test_files_of_parquet_are_shown_too(new_world):
    world = new_world(DataFormat="parquet").table("t")
    world.rules = {"rules": []}
    folder = world.root / "source/public/t"
    folder.mkdir(parents=True)
    at = pa.array([1_700_000_000_000_000] * 3, pa.timestamp("us"))
    pq.write_table(pa.table({"ts": at[:1], "id": [1], "v": ["a"]}), folder / "LOAD00000001.parquet")
    load = load_of(world)
    assert [r["v: string"] for r in load.rows().rows] == ["a"]
    world.loaded()
    changed = {"Op": ["U", "U", "D"], "ts": at, "id": [1, 1, 2], "v": ["c", "d", None]}
    pq.write_table(pa.table(changed), folder / FILE1.replace("csv", "parquet"))
    batch = batch_of(world)
    assert [(r["Op"], r["id"]) for r in batch.records().rows] == [("U", "1"), ("U", "1"), ("D", "2")]
    assert [(r["id"], r.get("v")) for r in batch.latest().rows] == [("1", "d"), ("2", None)]


def test_a_load_shows_its_rows_and_the_data_files_that_they_make(world):
    world.table("t", "id INT8", "v WSTRING(99)", "d DATE").specs["t"]["partition"] = ["year(d)"]
    world.table_file("t")
    world.load("t", (1, "a", "2023-01-01"), (2, "b", "2024-01-01"), (3, None, "2024-05-05"), (1234567, "", None))
    load = load_of(world)
    assert "run 00_setup first" in load.written().sentence
    world.setup()
    load = load_of(world)
    assert load.files().sentence.startswith("public.t: the load is 1 file")
    assert [(r["id: bigint"], r["v: string"]) for r in load.rows().rows][2:] == [("3", None), ("1234567", '""')]
    before = sorted(world.root.parent.rglob("*.parquet"))
    rows = {r["partition"]: r["rows"] for r in load.written().rows}
    assert rows == {"d_year=2023": 1, "d_year=2024": 2, "d_year=null": 1}
    assert sorted(world.root.parent.rglob("*.parquet")) == before and world.rows("t") == []
    world.full_load()
    files = world.spark.sql(f"select partition.d_year, record_count from {world.name('t')}.files").collect()
    assert sorted(map(str, dict(files).values())) == sorted(map(str, rows.values()))


def test_maintenance_shows_the_files_that_it_then_rewrites_and_the_snapshots_that_it_expires(world, monkeypatch):
    monkeypatch.setattr(snapshot_expiry, "LEAST_SNAPSHOTS", 1)
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    for n in range(3):
        world.changes("t", U(1, f"v{n}"), I(10 + n, "x"), name=f"20240101-10000{n}000.csv").merged()
    limits = {"max_small_files": 1, "keep_hours": 0.0, "hourly_tags": 0, "daily_tags": 0}
    book = world.book(MaintenanceSettings, dry_run=False, **limits)
    planned = maintenance.plan(book)
    rewrites, expiring = maintenance.rewrites(book, planned), maintenance.expiring(book, planned)
    assert (rewrites.rows[0]["files"], rewrites.rows[0]["live rows"], rewrites.rows[0]["becomes"]) == (4, 5, "1 file")
    assert maintenance.rewrites(book, planned, "public.no").sentence == "no table's data files are to be rewritten"
    (done,) = maintenance.run(book)
    assert done.counts["rewritten_files"] == 4 and done.counts["added_files"] == 1
    left = {str(s.snapshotId()) for s in world.history("t")}
    assert expiring.rows and not left & {r["snapshot"] for r in expiring.rows}
    assert Grid(expiring.rows).columns == ["snapshot", "committed", "by"]
