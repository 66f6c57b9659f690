"""The source on S3 is the source in a folder: the same objects, found without going through what is old; and Spark reads them."""

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from frazil_demo.seaweed import Seaweed
from frazil_old.config.settings import MaintenanceSettings, ParameterError, Settings
from frazil_old.config.spark_session import get_spark
from frazil_old.config.spec import parse_spec
from frazil_old.dms import position
from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.listing import list_table
from frazil_old.dms.source_errors import SourceError
from frazil_old.flows import cdc, maintenance
from frazil_old.lake import pyiceberg_catalog
from helpers import FILE1, FILE2, FILE3, D, I, U, World, spec_of

pytest.importorskip("boto3")
SPEC = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)"))


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


def at(when: datetime) -> str:
    return f"{when:%Y%m%d-%H%M%S}000.csv"


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


# --- what goes wrong is told with its cure


# --- reading and settings


def test_an_address_on_s3_stays_what_it_is(tmp_path):
    settings = Settings(root=str(tmp_path), source="s3://bucket/a/b/", specs="s3://bucket/specs")
    assert settings.location("source") == "s3://bucket/a/b"
    assert Settings(root=str(tmp_path), source="x").location("source") == tmp_path / "x"
    with pytest.raises(ParameterError, match="name a local"):
        settings.path("specs")


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
