"""Latency over many commits: merged sketches, idle sources, clocks that contradict each other, advice."""

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from frazil_old.config.settings import LatencySettings, OperateSettings
from frazil_old.flows import lag, ledger
from helpers import FILE2, U


@pytest.mark.spark
def test_the_worst_latency_of_a_run_is_known_though_a_table_does_not_exist(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged()
    world.table("a").table("z")
    assert lag.worst_latency(world.book(OperateSettings).settings, 0.0) > 86_400


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Bogota"])
def test_names_of_files_in_a_time_zone_are_times_of_that_zone(new_world, zone):
    w = new_world(DatePartitionEnabled=True, DatePartitionTimezone=zone)
    w.table("t").load("t", (1, "a")).loaded()
    written = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=20)
    name = f"{written.astimezone(ZoneInfo(zone)):%Y/%m/%d/%Y%m%d-%H%M%S000}.csv"
    w.changes("t", U(1, "b", ts=f"{written - timedelta(seconds=60):%Y-%m-%d %H:%M:%S}.000000"), name=name)
    os.utime(w.root / "source/public/t" / name, (written.timestamp() + 2,) * 2)
    (row,) = lag.per_table(w.book(OperateSettings))
    assert 1190 < row["lag_s"] < 1800
    w.merged()
    (found,) = ledger.commits(w.book(LatencySettings)).collect()
    assert set(found.dms_ms) == {60_000} and set(found.land_ms) == {2000}


@pytest.mark.spark
def test_a_commit_keeps_its_time_when_only_a_tag_keeps_its_snapshot(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged(lane="merge")
    book = world.book(LatencySettings)
    (before,) = ledger.commits(book).collect()
    ledger.record(book)
    world.spark.sql(f"ALTER TABLE {world.name('t')} CREATE TAG kept")
    world.changes("t", U(1, "c"), name=FILE2).merged(lane="merge")
    world.call("expire_snapshots", "t", ", older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1")
    after = {r.snapshot_id: r.committed_ms for r in ledger.commits(book).collect()}
    assert len(after) == 2 and after[before.snapshot_id] == before.committed_ms


# --- advice
