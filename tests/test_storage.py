"""The source on S3 is the source in a folder: the same objects, found without going through what is old; and Spark reads them."""

import gzip
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import reference
from frazil_demo.seaweed import Seaweed
from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.jars import SDK_BUNDLES, needs_s3
from frazil_old.config.settings import MaintenanceSettings, ParameterError, Settings
from frazil_old.config.spark_session import get_spark, s3_conf
from frazil_old.config.spec import parse_spec
from frazil_old.dms import position, storage
from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.endpoint import DATE_DELIMITERS, SEQUENCES, DatePartition
from frazil_old.dms.file_names import name_at, time_of_name
from frazil_old.dms.listing import Begin, DmsObject, Recorded, TableObjects, Watch, folders_beside, list_table
from frazil_old.dms.pending_changes import AppliedState, require_applicable
from frazil_old.dms.position import POSITION
from frazil_old.dms.source_errors import SourceError
from frazil_old.dms.storage import StorageError
from frazil_old.flows import cdc, maintenance
from frazil_old.lake import pyiceberg_catalog
from frazil_old.lake.tables import MADE
from helpers import FILE1, FILE2, FILE3, D, I, U, World, spec_of

pytest.importorskip("boto3")
SPEC = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)"))
NOW = datetime.now(UTC).replace(microsecond=0)


def test_a_folder_is_listed_with_what_lies_below_and_without_links_to_others(tmp_path, monkeypatch):
    for name in ("a/b/2.csv", "a/1.csv", "a-x/3.csv", "4.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "a/round").symlink_to(tmp_path)
    names = [e.path[len(str(tmp_path)) + 1 :] for e in storage.walk(str(tmp_path))]
    assert names == ["4.csv", "a-x/3.csv", "a/1.csv", "a/b/2.csv"]
    flat = [(e.path[len(str(tmp_path)) + 1 :], e.folder) for e in storage.walk(str(tmp_path), deep=False)]
    assert flat == [("4.csv", False), ("a-x/", True), ("a/", True)]
    assert [e.name for e in storage.walk(str(tmp_path), start_after="a-x/3.csv", prefix="a/")] == ["1.csv", "2.csv"]
    assert list(storage.walk(str(tmp_path / "none"))) == []

    def closed(folder):
        raise PermissionError(folder)

    monkeypatch.setattr(storage.os, "scandir", closed)
    with pytest.raises(StorageError, match=f"{tmp_path}/: permission denied"):
        list(storage.walk(str(tmp_path)))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as running:
        running.client().create_bucket(Bucket="dms")
        yield running


@pytest.fixture
def at_server(server, monkeypatch):
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    return server


@pytest.fixture
def source(at_server, request):
    """A folder of the bucket, for one test: `source(key, …)` puts objects below the schema `public`."""
    put = at_server.client().put_object

    class Source:
        root = "s3://dms/" + request.node.name.replace("[", "/").rstrip("]")

        def __call__(self, *keys: str, text: str = "x") -> "Source":
            for key in keys:
                put(Bucket="dms", Key=f"{self.root.removeprefix('s3://dms/')}/public/{key}", Body=text.encode())
            return self

    return Source()


def pending_after(there: TableObjects, applied: position.Position) -> list[DmsObject]:
    return require_applicable(there, AppliedState("lake.t", "t", applied, applied.to_json(), AppliedFiles())).pending


def at(when: datetime) -> str:
    return f"{when:%Y%m%d-%H%M%S}000.csv"


def shape(there: TableObjects, root) -> list:
    """A listing without what differs by nature: where the root lies, and ETags."""
    below = len(str(root)) + 1
    return [[(o.name, o.path[below:], o.size) for o in there.loads], [(o.name, o.path[below:], o.size) for o in there.changes],
            [f[below:] for f in there.foreign], there.ignored]  # fmt: skip


TREE = [
    "t/LOAD00000001.csv", "t/LOAD0000000A.csv", "t/LOAD0000000a.csv.tmp", "t/SEGMENT1_LOAD00000001.csv", "t/p0/LOAD00000001.csv",
    "t/p 1é/LOAD00000001.csv", "t/1/LOAD00000001.csv", "t/2023/LOAD00000001.csv", "t/20230101-000000000.csv",
    "t/20240611-235959999.csv", "t/2024/06/12/20240612-103125108.csv", "t/2024-06-13/20240613-103125108.parquet",
    "t/_SUCCESS", "t/awsdms_x/LOAD00000001.csv", "t_$folder$", "t2/LOAD00000001.csv", "awsdms_status/LOAD00000001.csv",
]  # fmt: skip


def test_a_tree_on_s3_is_listed_as_the_same_tree_in_a_folder(source, tmp_path):
    for key in TREE:
        file = tmp_path / "public" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (tmp_path / "public/t/LOAD00000002.parquet").touch()
    source(*TREE)("t/LOAD00000002.parquet", text="")
    there = list_table(source.root, SPEC)
    assert shape(there, source.root) == shape(list_table(tmp_path, SPEC), tmp_path)
    assert (len(there.loads), len(there.changes), len(there.foreign)) == (7, 4, 4)
    beside = {"public/awsdms_status": "DMS's own records, no data", "public/t2": "a table without a spec"}
    assert folders_beside(source.root, {"public/t"}) == folders_beside(tmp_path, {"public/t"}) == beside


def test_records_of_dms_and_foreign_objects_are_told_and_never_taken(source):
    source(
        "t/LOAD1.csv",
        "t/awsdms_apply_exceptions/LOAD1.csv",
        "t/s3_validation_failures/20240101-000000000.csv",
        "t/x",
        "t/y_$folder$",
    )
    there = list_table(source.root, SPEC)
    assert [o.name for o in there.loads] == ["LOAD1.csv"] and not there.changes
    assert there.ignored == "2 of DMS's own records: LOAD1.csv, 20240101-000000000.csv; 2 not DMS's: x, y_$folder$"
    with pytest.raises(SourceError, match="not data\n  cure: remove"):
        list_table(source.root, parse_spec(spec_of("public.awsdms_status", "id INT8")))


# --- only what may be new


LISTING = "before-parameter-build.s3.ListObjectsV2"


class Requests(list):
    """The listings that were asked of S3 in a block."""

    def __enter__(self):
        storage.client().meta.events.register(LISTING, self.note)
        return self

    def __exit__(self, *exc):
        storage.client().meta.events.unregister(LISTING, self.note)

    def note(self, params, **_):
        self.append(dict(params))


def after(last: str, partition: DatePartition = DatePartition(), *load_folders: str) -> Begin:  # noqa: B008
    """A listing from an hour before the last file applied."""
    return Begin(last, name_at(time_of_name(last) - position.LOOK_BACK), partition, frozenset(load_folders))


def test_old_change_files_are_passed_by(source):
    old = [at(datetime(2024, 1, 1) + timedelta(minutes=30 * i)) for i in range(1200)]
    new = [at(datetime(2024, 2, 1) + timedelta(seconds=i)) for i in range(3)]
    source("t/LOAD00000001.csv", *[f"t/{n}" for n in (*old, *new)])
    with Requests() as asked:
        there = list_table(source.root, SPEC, after(old[-1]))
    assert [o.name for o in there.changes] == [*old[-3:], *new], "from one hour before"
    assert [o.name for o in there.loads] == ["LOAD00000001.csv"]
    assert len(asked) == 2 and sum(r["MaxKeys"] for r in asked) <= 200, "the beginning, and what may be new"
    with Requests() as asked:
        assert len(list_table(source.root, SPEC).changes) == 1203
    assert len(asked) == 2


PARTITIONS = {f"{s} {d}": DatePartition(True, s, d) for s in SEQUENCES for d in DATE_DELIMITERS}
BY_DAY = [DatePartition(True, "YYYYMMDD", d) for d in DATE_DELIMITERS] + [DatePartition(True, "DDMMYYYY")]


@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=PARTITIONS)
def test_date_partitions_are_taken_back_to_the_one_of_the_last_object(source, partition):
    times = [NOW - timedelta(hours=5 * i + i * i) for i in reversed(range(18))]
    source(*[f"t/{t:{partition.form}}/{at(t)}" for t in times], "t/LOAD00000001.csv", "t/p7/LOAD00000001.csv")
    whole = list_table(source.root, SPEC)
    assert [o.name for o in whole.changes] == [at(t) for t in times]
    for last in (times[-1], times[-4]):
        with Requests() as asked:
            there = list_table(source.root, SPEC, after(at(last), partition))
        assert there.changes == tuple(o for o in whole.changes if o.name >= at(last - position.LOOK_BACK))
        assert there.loads == whole.loads and there.load_digest == whole.load_digest
        assert len(asked) <= 8 and sum(r["MaxKeys"] for r in asked) <= 800


@pytest.mark.parametrize("partition", BY_DAY)
def test_what_dms_writes_after_a_standstill_still_lies_in_old_partitions_and_is_found(source, partition):
    """The folder is the day of the commit, the name that of the writing."""
    commits, written = [NOW - timedelta(days=6 - i) for i in range(7)], [NOW + timedelta(seconds=i) for i in range(7)]
    source(*[f"t/{c:{partition.form}}/{at(w)}" for c, w in zip(commits, written, strict=True)])
    for i in range(7):
        there = list_table(source.root, SPEC, after(at(written[i]), partition))
        assert [o.name for o in there.changes if o.name > at(written[i])] == [at(w) for w in written[i + 1 :]]


@pytest.mark.parametrize("partition", [*BY_DAY, DatePartition(True, "YYYYMM"), DatePartition(True, "MMYYYYDD", "NONE")])
def test_partitions_switched_on_later_are_found_among_old_files(source, partition):
    old, new = NOW - timedelta(days=2), NOW
    flat = [at(old - timedelta(days=i)) for i in range(100)]
    source(*[f"t/{n}" for n in flat], f"t/{new:{partition.form}}/{at(new)}")
    there = list_table(source.root, SPEC, after(at(old), partition))
    assert [o.name for o in there.changes] == [at(old), at(new)]


def test_a_last_object_that_is_gone_or_an_old_one_by_day_of_the_month_takes_a_full_listing(source):
    """Of two years of days, the listing cannot skip those before the last object: their names do not sort by time."""
    partition, times = DatePartition(True, "DDMMYYYY"), [NOW - timedelta(days=90 * i) for i in reversed(range(9))]
    source(*[f"t/{t:{partition.form}}/{at(t)}" for t in times])
    with Requests() as asked:
        there = list_table(source.root, SPEC, after(at(times[-2]), partition))
    assert len(asked) == 1 and [o.name for o in there.changes] == [at(t) for t in times]
    gone = after(at(NOW - timedelta(days=1)), partition)
    assert [o.name for o in list_table(source.root, SPEC, gone).changes] == [at(t) for t in times]


def test_change_files_in_folders_that_the_settings_do_not_state_are_all_listed(source):
    """The check of the settings then refuses those that are to be applied."""
    days = [datetime(2024, 1, 2) + timedelta(days=i) for i in range(5)]
    names = [f"t/{d:%Y-%m-%d}/{at(d)}" for d in days]
    source(*names, f"t/{at(days[-1] + timedelta(days=1))}")
    for stated in (DatePartition(), DatePartition(True, "YYYYMMDD", "SLASH"), DatePartition(True, "DDMMYYYY", "DASH")):
        there = list_table(source.root, SPEC, after(at(days[-1]), stated))
        new = [o.name for o in there.changes if o.name >= at(days[-1])]
        assert new == [at(days[-1]), at(days[-1] + timedelta(days=1))]


@pytest.mark.parametrize(
    "names", [["01", "02", "11"], ["2023", "2024"], ["202401", "202402"], ["1", "10", "2"], ["a", "b"]]
)
def test_folders_of_parallel_loads_are_not_taken_for_dates(source, names):
    source(*[f"t/{n}/LOAD0000000{i}.csv" for n in names for i in (1, 2)], f"t/{FILE1}", f"t/{FILE2}")
    there = list_table(source.root, SPEC, after(FILE2))
    assert len(there.loads) == 2 * len(names) and there == list_table(source.root, SPEC)


@pytest.mark.parametrize("partition", [DatePartition(), *BY_DAY])
def test_folders_of_parallel_loads_are_found_among_old_change_files(source, partition):
    days = [datetime(2021, 12, 10) + timedelta(days=100 * i) for i in range(8)]
    loads = [f"{n}/LOAD00000001.csv" for n in ("2022", "10", "20220601", "p1", "99")]
    source(*[f"t/{f'{d:{partition.form}}/' if partition.enabled else ''}{at(d)}" for d in days])
    source(*[f"t/{name}" for name in loads])
    whole = list_table(source.root, SPEC)
    known = [o.path.rpartition("/")[0] for o in whole.loads]
    there = list_table(source.root, SPEC, after(at(days[-1]), partition, *known))
    assert len(there.loads) == 5 and there.load_digest == whole.load_digest


def test_a_run_keeps_what_it_knows_of_load_folders_among_old_change_files(source, tmp_path):
    source("t/2022/LOAD00000001.csv", *[f"t/{at(datetime(2021, 12, 10) + timedelta(days=100 * i))}" for i in range(8)])
    world = World(tmp_path, "w", {}).table("t")
    book = world.book(source=source.root)
    spec, whole = book.specs["public.t"], list_table(source.root, SPEC)
    applied = position.after_load(position.Position(), whole, "a")
    applied = position.after_changes(applied, list(whole.changes), "b")
    first, later = (book.objects(spec, applied, may_list_fully=True, record=AppliedFiles(whole=True)) for _ in range(2))
    assert (first.full, later.full, len(first.changes), len(later.changes)) == (True, False, 8, 1)
    assert first.load_digest == later.load_digest == applied.load_digest


def test_a_listing_from_the_position_sees_what_came_late_and_what_was_written_again(source):
    source("t/LOAD1.csv", f"t/{FILE1}", f"t/{FILE3}")
    there = list_table(source.root, SPEC)
    applied = position.after_changes(position.after_load(position.Position(), there, "a"), list(there.changes), "b")
    assert not pending_after(list_table(source.root, SPEC, after(applied.last)), applied)
    source(f"t/{FILE2}")
    with pytest.raises(position.PositionError, match=f"{FILE2} arrived late"):
        pending_after(list_table(source.root, SPEC, after(applied.last)), applied)
    source(f"t/{FILE3}", text="other")
    with pytest.raises(position.PositionError, match="written again|arrived late"):
        pending_after(list_table(source.root, SPEC, after(applied.last)), applied)


def test_of_a_local_folder_only_what_may_be_new_is_looked_at(tmp_path, monkeypatch):
    """A file of date partitions, of any age; the last 64 applied are known by name, so that is how far back a late one is told."""
    folder, start = tmp_path / "public/t/2024/01/01", datetime(2024, 1, 1)
    names = [at(start + timedelta(seconds=i)) for i in range(200)]
    for file in (tmp_path / "public/t/LOAD00000001.csv", *(folder / n for n in names)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    whole = list_table(tmp_path, SPEC)
    applied = position.after_load(position.Position(), whole, "a")
    applied = position.after_changes(applied, list(whole.changes[:-2]), "b")
    looked, look = [], storage._local_object
    monkeypatch.setattr(
        storage, "_local_object", lambda path, entry, by: looked.append(entry.name) or look(path, entry, by)
    )
    there = list_table(tmp_path, SPEC, Begin(applied.last, applied.look_from))
    assert sorted(looked) == sorted(["LOAD00000001.csv", *names[-66:]])
    assert there.loads == whole.loads and there.changes == whole.changes[-66:]
    assert pending_after(there, applied) == list(whole.changes[-2:])
    assert list_table(tmp_path, SPEC, after(applied.last)).changes == whole.changes, "within an hour"
    (folder / names[150].replace("000.csv", "500.csv")).touch()
    with pytest.raises(position.PositionError, match="arrived late"):
        pending_after(list_table(tmp_path, SPEC, Begin(applied.last, applied.look_from)), applied)


def test_the_first_listing_and_each_third_are_full_and_tell_what_vanished_since_the_last_full_one():
    watch, known = Watch(3), {"a": "1", "b": "1", "c": "1"}
    assert [watch.is_due() for _ in range(7)] == [True, False, False, True, False, False, True]
    for there, vanished in (("bc", ()), ("c", ("b",)), ("c", ()), ("abc", ())):
        recorded = Recorded(known, {})
        assert all(recorded.known(name, "1") for name in there)
        assert watch.vanished(recorded) == [*vanished]


# --- what goes wrong is told with its cure


def test_a_bucket_or_folder_that_is_not_there_is_told(source):
    with pytest.raises(StorageError, match="s3://nobody/.*the bucket does not exist\n  cure: correct the bucket"):
        list_table("s3://nobody/x", SPEC)
    with pytest.raises(SourceError, match="is empty\n  cure: set parameter 'source'"):
        list_table(source.root, SPEC)
    (other,) = [parse_spec(spec_of("publik.t", "id INT8"))]
    source("t2/LOAD1.csv")
    assert list_table(source.root, SPEC) == TableObjects(), "a table without rows has no folder"
    with pytest.raises(SourceError, match="did you mean 'public'"):
        list_table(source.root, other)


def test_missing_wrong_and_unreachable_access_is_told_without_secrets(at_server, monkeypatch):
    secret = at_server.environment["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" + secret)
    with pytest.raises(StorageError, match="does not belong to the access key\n  cure: set AWS_PROFILE") as told:
        list_table("s3://dms/x", SPEC)
    assert secret not in str(told.value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(StorageError, match="S3 does not know the access key"):
        list_table("s3://dms/x", SPEC)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StorageError, match="no AWS credentials found.*\n  cure: set AWS_PROFILE"):
        list_table("s3://dms/x", SPEC)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: "a task")
    with pytest.raises(StorageError, match="found on a Spark executor .*\n  cure: give the executors' machines a role"):
        list_table("s3://dms/x", SPEC)
    for name, value in {
        **at_server.environment,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match="http://127.0.0.1:9 cannot be reached"):
        list_table("s3://dms/x", SPEC)


# --- reading and settings


@pytest.mark.parametrize("on_s3", [False, True])
def test_what_is_asked_of_many_objects_comes_in_their_order_and_the_first_error_is_raised(on_s3):
    def work(n):
        if n in (5, 3):
            raise ValueError(n)
        return -n

    assert storage.each_of(work, [2, 1, 0], on_s3) == [-2, -1, 0]
    with pytest.raises(ValueError, match="5"):
        storage.each_of(work, range(9, 0, -1), on_s3)


def test_heads_of_objects_are_read_the_same_everywhere(at_server, tmp_path):
    content, packed = b"Op,id,v\n" + "I,1,é\n".encode() * 9, gzip.compress(b"Op,id\nI,1\n")
    for name, raw in (("a.csv", content), ("b.csv.gz", packed), ("c.csv", b"")):
        at_server.client().put_object(Bucket="dms", Key=f"heads/{name}", Body=raw)
        (tmp_path / name).write_bytes(raw)
    for root in ("s3://dms/heads", str(tmp_path)):
        assert storage.read(f"{root}/a.csv") == content and storage.head(f"{root}/a.csv").size == len(content)
        assert storage.read_head(f"{root}/a.csv", 4) == b"Op,i"
        assert storage.text_head(f"{root}/a.csv", 13) == "Op,id,v\nI,1,", "a cut character is left out"
        assert storage.text_head(f"{root}/b.csv.gz").startswith("Op,id\n")
        assert storage.read_head(f"{root}/c.csv") == b""


def test_an_address_on_s3_stays_what_it_is(tmp_path):
    settings = Settings(root=str(tmp_path), source="s3://bucket/a/b/", specs="s3://bucket/specs")
    assert settings.location("source") == "s3://bucket/a/b"
    assert Settings(root=str(tmp_path), source="x").location("source") == tmp_path / "x"
    with pytest.raises(ParameterError, match="name a local"):
        settings.path("specs")


def test_spark_gets_endpoint_and_region_but_no_secret(at_server):
    assert not needs_s3(Settings(source="here")) and needs_s3(Settings(catalog_options={"warehouse": "s3://b/w"}))
    for line in ("4.1", "3.5"):
        conf = s3_conf(line)
        assert conf["spark.hadoop.fs.s3a.endpoint"] == at_server.endpoint
        assert at_server.environment["AWS_SECRET_ACCESS_KEY"] not in json.dumps(conf)
    assert all("bundle" in pattern for pattern in SDK_BUNDLES)


# --- through the flows


class S3World(World):
    """A world whose files go to S3 when they are asked for."""

    def __init__(self, *args, bucket=None, **settings):
        super().__init__(*args, **settings)
        self.bucket = bucket

    def write(self, table, name, text, header=""):
        super().write(table, name, text, header)
        if self.bucket:
            file = self.root / "source/public" / table / name
            self.bucket.upload_file(str(file), f"{self.space}/public/{table}/{name}")
        return self

    def remove(self, table, name):
        (self.root / "source/public" / table / name).unlink()
        if self.bucket:
            self.bucket.Object(f"{self.space}/public/{table}/{name}").delete()

    def book(self, *args, **settings):
        return super().book(
            *args, **({"source": f"s3://{self.bucket.name}/{self.space}"} if self.bucket else {}), **settings
        )


def story(world: World, lane: str) -> dict:
    """Load a table in two parts, merge three files, one of them in a date partition, compact; return what it comes to."""
    world.s3["DatePartitionEnabled"] = True
    world.table("t").load("t", (1, "a"), (2, 'two\nlines, "quoted"')).load(
        "t", (3, ""), name="p1/LOAD00000001.csv"
    ).loaded()
    world.changes("t", U(1, "b"), I(4, "d")).merged(lane=lane)
    world.changes("t", D(2), name=FILE2).changes("t", U(5, "e", was=4), name=f"2024/01/01/{FILE3}").merged(lane=lane)
    seen = pyiceberg_catalog.position_of(
        pyiceberg_catalog.get_table(pyiceberg_catalog.open_catalog(world.book().settings), f"{world.space}.t")
    )
    stored = world.position("t")
    (kept,) = maintenance.run(world.book(MaintenanceSettings, dry_run=False, max_small_files=1, max_deleted_share=0.0))
    return {
        "rows": world.rows("t"),
        "last": stored["last"],
        "recent": stored["recent"],
        "commits": len(world.history("t")),
        "without_spark": seen.last,
        "kept": kept.status if kept.status != "failed" else kept.note,
        "lane": lane in {s.summary().get("frazil.lane") for s in world.history("t")},
        **stops(world, lane),
    }


def stops(world: World, lane: str) -> dict:
    """Return what stops the table: a file that vanishes while it is to be read, one that came late into an older folder, one written again."""
    pending, late, real = "2024/01/02/20240102-100000000.csv", "2023/12/29/20231229-090000000.csv", cdc.apply_batch

    def vanishing(*args):
        world.remove("t", pending)
        return real(*args)

    def told(name: str) -> bool:
        result = world.merge(lane=lane)["t"]
        return result.failed and name.rsplit("/", 1)[1] in result.note

    world.changes("t", I(8, "gone"), name=pending)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cdc, "apply_batch", vanishing)
        found = [told(pending)]
    found += [told(pending), world.merge(lane=lane, go_on_without=[pending.rsplit("/", 1)[1]])["t"].status]
    world.changes("t", I(9, "late"), name=late)
    found.append(told(late))
    world.remove("t", late)
    world.changes("t", U(1, "b"), I(4, "d"), I(7, "more"))
    return {"stops": [*found, told(f"t/{FILE1}")]}


@pytest.mark.spark
@pytest.mark.slow
def test_source_and_warehouse_on_s3_end_like_local_ones(server, tmp_path):
    """By SQLite (v3), and by REST (v2) in both lanes. In a process of its own: a Spark session has access to S3 from its start."""
    rest = server.rest_catalog("tables")
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path), json.dumps(rest)], capture_output=True, text=True, timeout=400,
        env={**os.environ, **server.environment, "FRAZIL_MASTER": "local[2]", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    local, *others = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert local["rows"] == [[1, "b"], [3, ""], [5, "e"]] and local["last"] == FILE3
    assert (local["without_spark"], local["lane"], local["kept"]) == (FILE3, True, "maintained")
    assert local["stops"] == [True, True, "unchanged", True, True]
    assert others == [local] * 4


def _tell_all(root: Path, rest: dict[str, str]) -> None:
    import boto3

    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{root}/catalog.db", "warehouse": f"{root}/warehouse"}
    on_s3 = {**lake, "uri": f"jdbc:sqlite:{root}/other.db", "warehouse": "s3://dms/lake", "io-impl": rest["io-impl"]}
    options = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    get_spark(
        Settings(root=str(root), source="s3://dms/x", catalog_options=rest, spark_options=options, catalog="rest")
    )

    def tell(world: World, lane: str = "merge", **given) -> None:
        world.given = given
        print(json.dumps(story(world, lane)))

    tell(S3World(root / "local", "local", lake))
    tell(S3World(root / "s3", "s3", lake, bucket=boto3.resource("s3").Bucket("dms")))
    tell(S3World(root / "jdbc", "jdbc", on_s3), "rowdelta", catalog="jdbc")
    for lane in ("merge", "rowdelta"):
        tell(S3World(root / f"rest_{lane}", f"rest_{lane}", rest), lane, catalog="rest", query_engines=["athena"])


if __name__ == "__main__":
    _tell_all(Path(sys.argv[1]), json.loads(sys.argv[2]))


def test_down_deletes_on_s3_what_it_listed_and_nothing_else(at_server, tmp_path, monkeypatch, capsys):
    """The table is PyIceberg's, with a position as Frazil's have one: what is tested is what becomes of its objects."""
    place = reference.workspace(tmp_path)
    params = place / "params/demo.yml"
    params.write_text(params.read_text().replace("warehouse: lake/warehouse", "warehouse: s3://dms/lake"))
    monkeypatch.setenv("FRAZIL_PARAMS", str(place / "params"))
    (place / "lake").mkdir()
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{place}/lake/catalog.db", warehouse="s3://dms/lake", **{"s3.endpoint": storage.endpoint_url(), "s3.region": "us-east-1"})  # fmt: skip
    catalog.create_namespace("app", {MADE: "true"})
    rows = pa.table({"id": [1, 2]})
    catalog.create_table("app.person", rows.schema, properties={POSITION: "{}"}).append(rows)
    catalog.create_table("app.visit", rows.schema).append(rows)

    def there() -> set[str]:
        return {e.path for e in storage.walk("s3://dms/lake")}

    before = there()
    ours = {path for path in before if "/person/" in path}
    assert len(ours) > 4 and len(before - ours) > 4
    assert main(["down", "--env", "demo"]) == exit_codes.OK
    told = capsys.readouterr().out.splitlines()
    assert ours == {line for line in told if line.startswith("s3://")}
    assert "table app.person" in told and "namespace app" not in told
    assert "not deleted: table app.visit: Frazil did not create it" in told
    assert main(["down", "--env", "demo", "--yes"]) == exit_codes.OK
    assert there() == before - ours and catalog.list_tables("app") == [("app", "visit")]
