"""Runs refresh the declared warehouses after their commits, and a warehouse in trouble harms no run."""

import os
import re
import shutil
import time
from pathlib import Path

import duckdb
import pytest
import yaml

from fake_driver import SERVERS, FakeServer
from frazil_old.cli.commands import main
from frazil_old.config.settings import MaintenanceSettings, SetupSettings
from frazil_old.flows import cdc, full_load, ledger, maintenance, setup, warehouse_refresh
from frazil_old.flows.plan import plan
from frazil_old.lake import snapshot_expiry
from frazil_old.warehouses import duckdb as engine
from helpers import D, FullLoadSettings, I, U
from warehouse_world import ENTRIES

pytestmark = pytest.mark.spark


def with_warehouses(params, **warehouses) -> None:
    """Declare warehouses in the environment file `w.yml`."""
    file = params / "w.yml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "warehouses": warehouses}))


def rows_in(file, view: str) -> list[tuple]:
    with duckdb.connect() as db:
        for name in ("avro", "iceberg"):
            db.execute(f"LOAD '{engine._extension(name)}'")
        db.execute("SET enable_external_file_cache = false")
        db.execute(f"ATTACH '{file}' AS w (READ_ONLY)")
        return sorted(db.execute(f"SELECT * FROM w.{view}").fetchall())


def with_duckdb(world, monkeypatch, tmp_path):
    """Declare a DuckDB file as a reader of the world's table `t`, and return the file."""
    params, file = world.table("t").environment(monkeypatch), tmp_path / "w.duckdb"
    with_warehouses(params, duck={"engine": "duckdb", "database": str(file), "namespace": "readers"})
    with duckdb.connect(str(file)) as db:
        db.execute("CREATE SCHEMA readers")
    return file


def test_each_commit_of_a_run_is_served_by_duckdb_and_one_in_trouble_is_recorded(world, monkeypatch, tmp_path):
    params, file = world.table("t").environment(monkeypatch), tmp_path / "w.duckdb"
    stuck = {"engine": "snowflake", **ENTRIES, "refresh_wait_s": 1}
    duck = {"engine": "duckdb", "database": str(file), "namespace": "readers"}
    with_warehouses(params, duck=duck, snow=stuck)
    SERVERS["fake"] = FakeServer(answers=[("REFRESH$", 4.0)])
    with duckdb.connect(str(file)) as db:
        db.execute("CREATE SCHEMA readers")

    world.load("t", (1, "a"), (2, "b")).setup()
    assert not [r for r in full_load.run(world.book(FullLoadSettings, env="w")) if r.failed]
    assert rows_in(file, "readers.t") == [(1, "a"), (2, "b")]
    for number in range(3):
        world.changes("t", I(10 + number, "n"), U(1, f"u{number}"), D(2), name=f"20240101-10000{number}000.csv")
    began = time.monotonic()
    (result,) = cdc.run(world.book(env="w", max_batch_files=1))
    assert (result.status, result.counts["batches"]) == ("merged", 3)
    assert time.monotonic() - began < 60
    assert rows_in(file, "readers.t") == sorted(world.rows("t"))
    assert any("snow does not serve the newest state of public.t yet" in line for line in world.said), world.said
    seen = world.spark.table(world.book().ops("served")).orderBy("seen_at").collect()
    served = [r for r in seen if r.warehouse == "duck" and r.status == "served"]
    assert served and all(r.snapshot_id == r.newest_id and r.metadata.endswith(".metadata.json") for r in served)
    commits = ledger.commits(world.book(env="w")).orderBy("committed_ms").collect()
    waits = [{n: ms - c.committed_ms for n, ms in c.served_ms.items()} for c in commits]
    assert [set(w) for w in waits] == [{"duck"}] * 3, "each commit was served, also one that a newer state replaced"
    assert all(-50 < w["duck"] < 60_000 for w in waits)
    statuses = {r.status for r in seen if r.warehouse == "snow"}
    assert "unanswered" in statuses and "served" not in statuses
    SERVERS.clear()


def test_maintenance_keeps_what_a_warehouse_still_serves_and_says_for_whom_and_since_when(world, monkeypatch, tmp_path):
    file = with_duckdb(world, monkeypatch, tmp_path)
    world.load("t", *[(i, "a") for i in range(50)]).setup()
    full_load.run(world.book(FullLoadSettings, env="w"))
    before, old = rows_in(file, "readers.t"), world.iceberg("t").currentSnapshot().snapshotId()
    assert len(before) == 50

    monkeypatch.setattr(snapshot_expiry, "LEAST_SNAPSHOTS", 1)
    with monkeypatch.context() as withheld:
        withheld.setattr(warehouse_refresh._Watch, "committed", lambda self, spec: None)
        for number in range(3):
            world.changes("t", U(number, "new"), D(40 + number), name=f"20240101-10000{number}000.csv")
            cdc.run(world.book(env="w"))
        world.spark.sql(
            f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')"
        )
        for number in range(3):
            world.spark.sql(f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ('x' = '{number}')")
        limits = {"keep_hours": 0.0, "dry_run": False, "max_small_files": 0, "hourly_tags": 0, "daily_tags": 0}
        said = len(world.said)
        maintenance.run(world.book(MaintenanceSettings, env="w", **limits))
    (line,) = [s for s in world.said[said:] if "older snapshots are kept" in s]
    assert "warehouse duck serves" in line and " since 20" in line
    assert rows_in(file, "readers.t") == before, "files and metadata that DuckDB serves are still there"
    assert world.iceberg("t").snapshot(old) is not None

    assert main(["warehouse", "refresh", "--env", "w"]) == 0
    monkeypatch.setattr(ledger, "SERVED_DAYS", 0)
    maintenance.run(world.book(MaintenanceSettings, env="w", **limits))
    assert world.iceberg("t").snapshot(old) is None
    looks = world.spark.table(world.book().ops("served")).where(f"name = '{world.name('t')}'").collect()
    assert [r.status for r in looks] in (["served"], ["served", "served"]), (
        "only the newest look, and that of this run, stay"
    )
    assert rows_in(file, "readers.t") == sorted(world.rows("t"))


def test_a_declared_athena_makes_new_tables_v2_and_an_existing_v3_table_is_named_in_plan_and_setup(world, monkeypatch):
    params = world.table("old").environment(monkeypatch)
    world.load("old", (1, "a")).setup(env="w")
    full_load.run(world.book(FullLoadSettings, env="w"))
    with_warehouses(params, lake={"engine": "athena", "region": "eu-west-1"})
    world.table("new").load("new", (1, "a"))
    notes = world.setup(env="w")
    formats = [world.iceberg(t).operations().current().formatVersion() for t in ("old", "new")]
    assert formats == [3, 2]
    rows = {r["table"]: r for r in plan(world.book(FullLoadSettings, env="w"))}
    for said in (notes["old"].note, rows["public.old"]["impossible"]):
        assert "is format v3: athena reads no v3" in said and "drop the table, run 00_setup" in said
    assert "v3" not in rows["public.new"]["impossible"] + notes["new"].note


def test_orphan_files_stay_while_a_warehouse_serves_one_of_them(world, monkeypatch, tmp_path):
    params = world.table("t").environment(monkeypatch)
    with_warehouses(params, duck={"engine": "duckdb", "database": str(tmp_path / "w.duckdb"), "namespace": "readers"})
    world.load("t", (1, "a")).setup(env="w")
    full_load.run(world.book(FullLoadSettings, env="w"))
    newest = Path(world.iceberg("t").operations().current().metadataFileLocation().removeprefix("file:"))
    orphan = newest.with_name("00000-of-old.metadata.json")
    shutil.copy(newest, orphan)
    os.utime(orphan, (time.time() - 5 * 86_400,) * 2)
    at = round(time.time() * 1000)

    def seen(metadata: Path, ms: int) -> None:
        row = ("duck", world.book().name(world.book().specs["public.t"]), 1, ms, None, str(metadata), "served", "", ms)
        ledger.add_served(world.book(env="w"), [row])

    limits = {"orphan_days": 3.0, "dry_run": False, "max_small_files": 100}
    seen(orphan, at)
    maintenance.run(world.book(MaintenanceSettings, env="w", **limits))
    assert orphan.exists()
    assert any("orphan files stay: a warehouse serves" in s and orphan.name in s for s in world.said), world.said
    seen(newest, at + 1000)
    maintenance.run(world.book(MaintenanceSettings, env="w", **limits))
    assert not orphan.exists()


def test_a_newer_format_that_stops_a_warehouse_is_refused_and_the_remedy_makes_it(world, monkeypatch):
    params = world.table("t").environment(monkeypatch)
    SERVERS["fake"] = FakeServer()
    with_warehouses(params, snow={"engine": "snowflake", **ENTRIES})
    setup.create_tables(world.book(SetupSettings, env="w", query_engines=["athena"]))
    assert main(["warehouse", "apply", "--env", "w"]) == 0

    def again():
        (result,) = setup.create_tables(world.book(SetupSettings, env="w", query_engines=["spark"]))
        return result, world.iceberg("t").operations().current().formatVersion()

    refused, version = again()
    assert (refused.status, version) == ("failed", 2)
    assert "would be made again as format v3, which stops the refreshes of warehouse 'snow'" in refused.note
    undo = re.search(r"run frazil (warehouse undo .*?), then 00_setup", refused.note)[1]
    assert main(undo.split()) == 0
    done, version = again()
    assert (done.status, version) == ("created", 3)
    SERVERS.clear()


def test_a_commit_counts_as_served_when_a_newer_state_is(world, monkeypatch, tmp_path):
    with_duckdb(world, monkeypatch, tmp_path)
    world.load("t", (1, "a")).loaded()
    for number in range(3):
        world.changes("t", U(1, f"u{number}"), name=f"20240101-10000{number}000.csv")
        if number == 2:
            assert main(["warehouse", "refresh", "--env", "w"]) == 0
        world.merged()
    first, second, third = ledger.commits(world.book(env="w")).orderBy("committed_ms").collect()
    assert first.served_ms == second.served_ms and first.served_ms["duck"] >= second.committed_ms
    assert not third.served_ms
