"""Maintenance during ingestion: no row changes, deletes that arrive during a rewrite are carried over, the ledger is exact."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.flows import ledger
from frazil_old.flows import maintenance as flow
from frazil_old.lake.maintenance_plan import measure
from lake_reader import metadata_of

pytestmark = pytest.mark.spark
S = MaintenanceSettings()


@pytest.fixture(params=[3, 2], ids=["v3", "v2"])
def table(request, world):
    """A Frazil table of 400 rows in four files, one row of it updated, two deleted."""
    world.table("t").load("t", *[(i, "old") for i in range(100)])
    world.given["query_engines"] = ["spark"] if request.param == 3 else ["trino"]
    world.loaded()
    world.spark.sql(
        f"insert into {world.name('t')} select id, 'old' from range(100, 400, 1, 3)"
    )  # a file per partition
    world.spark.sql(
        f"""merge into {world.name("t")} t using (select explode(array(3, 150, 250)) id) c on t.id = c.id
            when matched and t.id = 250 then update set v = 'new' when matched then delete"""
    )
    assert files(world) >= 4
    assert world.iceberg("t").operations().current().formatVersion() == request.param
    return world


def files(world, table="t") -> int:
    return world.spark.sql(f"select * from {world.name(table)}.files where content = 0").count()


def test_an_action_that_is_killed_is_in_the_ledger_once(world):
    world.table("t").load("t", (1, "a")).loaded()
    book = world.book(MaintenanceSettings)
    with pytest.raises(KeyboardInterrupt), ledger.action(book, "kill/1", world.name("t"), "expire snapshots", "test"):
        raise KeyboardInterrupt
    for _ in range(2):
        with ledger.action(book, "kill/2", world.name("t"), "expire snapshots", "test") as facts:
            facts["expired_snapshots"] = 7
    rows = book.spark.table("lake.ops.maintenance").where("id like 'kill/%'").orderBy("id").collect()
    assert [(r.id, r.status) for r in rows] == [("kill/1", "failed"), ("kill/2", "done")]
    assert json.loads(rows[1].counts) == {"expired_snapshots": 7}


def test_orphan_removal_leaves_tables_whose_files_others_use_or_lie_in_its_folder(world):
    world.table("outer").table("shared").load("outer", (1, "a")).load("shared", (1, "s")).loaded()
    inner = f"{world.name('outer')}.inner"
    world.spark.sql(f"CREATE NAMESPACE {world.name('outer')}")
    world.spark.sql(f"CREATE TABLE {inner} USING iceberg AS SELECT 1 AS id, 'i' AS v")
    world.spark.sql(f"ALTER TABLE {world.name('shared')} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    ten_days_ago = time.time() - 10 * 86_400
    for file in Path(world.catalog_options["warehouse"], world.space).rglob("*"):
        os.utime(file, (ten_days_ago, ten_days_ago))
    book = world.book(MaintenanceSettings, dry_run=False, orphan_days=3.0, keep_hours=0.0)
    refused = {r["table"]: r["action"] for r in flow.plan(book) if r["action"].startswith("cannot")}
    done = {r.table: r for r in flow.run(book)}
    for table, why in (("public.outer", "a namespace has the same name"), ("public.shared", "gc.enabled is false")):
        assert why in refused[table] and why in done[table].note
    assert world.spark.table(inner).collect() == [(1, "i")]
    assert world.rows("shared") == [(1, "s")]


def test_damaged_metadata_of_a_table_are_named_at_once_and_the_plan_of_others_goes_on(world):
    world.table("t").table("u").load("t", (1, "a")).load("u", (1, "b")).loaded()
    file = Path(metadata_of(world.catalog_options, f"{world.space}.t").removeprefix("file:"))
    file.write_text("{")
    book = world.book(MaintenanceSettings, max_small_files=0, hourly_tags=0)
    world.spark.sql(f"insert into {world.name('u')} values (2, 'c')")
    for rows in (flow.health(book), flow.plan(book)):
        t, u = rows
        assert t["action"].startswith("cannot") and file.name in t["action"]
        assert u["table"] == "public.u" and not u.get("action", "").startswith("cannot")


AUTOGROUP = Path("/proc/self/autogroup")
"""Where Linux says, if it shares the CPU out among sessions, how much of it this one gets."""


@pytest.mark.parametrize(("dry", "nice"), [(False, 10), (True, 0)])
def test_a_run_with_a_spark_of_its_own_lets_others_go_first_and_says_so_but_a_dry_run_does_not(
    tmp_path, catalog_options, dry, nice
):
    """Its JVM, where the work is done, has priority 10, and so has the session that a kernel leads."""
    code = f"""
import psutil
from frazil_old.config.spark_session import get_spark
from frazil_old.config.settings import MaintenanceSettings
spark = get_spark(MaintenanceSettings(root={str(tmp_path)!r}, dry_run={dry}, catalog_options={catalog_options!r}))
jvm = spark.sparkContext._gateway.proc.pid
lowest = {{psutil.os.getpriority(psutil.os.PRIO_PROCESS, t.id) for t in psutil.Process(jvm).threads()}}
print("of the JVM", *sorted(lowest), open(f"/proc/{{jvm}}/autogroup").read() if {AUTOGROUP.exists()} else "nice {nice}")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=550, start_new_session=True)  # fmt: skip
    assert re.search(f"of the JVM {nice} .*nice {nice}", ran.stdout), ran.stdout + ran.stderr
    assert ("lower priority (nice = 10)" in ran.stdout) is not dry


def test_small_files_that_are_each_alone_in_their_partition_are_not_planned_for_compaction(world):
    world.table("t").specs["t"]["partition"] = ["v"]
    world.table_file("t").load("t", *[(n, str(n)) for n in range(8)]).loaded()
    book = world.book(MaintenanceSettings, dry_run=False, hourly_tags=0, daily_tags=0, max_deleted_share=0.6)
    assert measure(world.spark, world.name("t"), S).small_files == 8
    assert flow.plan(book) == [] and flow.run(book)[0].status == "healthy"
    world.spark.sql(f"insert into {world.name('t')} values (9, '3')")
    assert [(r["action"], r["why"]) for r in flow.plan(book)] == [("compact", "9 files below 32 MB, allowed 5")]
    assert (flow.run(book)[0].status, files(world)) == ("maintained", 8)
    assert flow.plan(book) == []
