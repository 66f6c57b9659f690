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
from frazil_old.flows import full_load, ledger, maintenance, setup
from frazil_old.flows.plan import plan
from helpers import FullLoadSettings, U
from warehouse_world import ENTRIES

pytestmark = pytest.mark.spark


def with_warehouses(params, **warehouses) -> None:
    """Declare warehouses in the environment file `w.yml`."""
    file = params / "w.yml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "warehouses": warehouses}))


def with_duckdb(world, monkeypatch, tmp_path):
    """Declare a DuckDB file as a reader of the world's table `t`, and return the file."""
    params, file = world.table("t").environment(monkeypatch), tmp_path / "w.duckdb"
    with_warehouses(params, duck={"engine": "duckdb", "database": str(file), "namespace": "readers"})
    with duckdb.connect(str(file)) as db:
        db.execute("CREATE SCHEMA readers")
    return file


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
