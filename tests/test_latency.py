"""Latency and lateness: names of files in a time zone, and commits whose snapshots expired."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from dms_writer import FILE2, U

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Bogota"])
def test_names_of_files_in_a_time_zone_are_times_of_that_zone(open_world, zone):
    w = open_world(target={"DatePartitionEnabled": True, "DatePartitionTimezone": zone}).table("t")
    w.source.load("t", (1, "a"))
    w.loaded()
    written = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=20)
    name = f"{written.astimezone(ZoneInfo(zone)):%Y/%m/%d/%Y%m%d-%H%M%S000}.csv"
    file = w.source.changes("t", U(1, "b", ts=f"{written - timedelta(seconds=60):%Y-%m-%d %H:%M:%S}.000000"), name=name)
    os.utime(file, (written.timestamp() + 2,) * 2)
    assert 1190 < w.lateness()["t"]["lag_s"] < 1800
    found = w.merged().latency()
    assert found["source_to_dms"]["p50"] == pytest.approx(60, rel=0.12)
    assert found["dms_to_landed"]["p50"] == pytest.approx(2, rel=0.12)


def test_a_commit_counts_after_its_snapshot_expired_and_where_only_a_tag_keeps_it(open_world):
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    w.loaded()
    w.source.changes("t", U(1, "b"))
    assert w.merged().latency()["source_to_commit"]["changes"] == 1
    w.maintain()
    w.sql("ALTER TABLE {t} CREATE TAG kept")
    w.source.changes("t", U(1, "c"), name=FILE2)
    w.merged()
    w.call("expire_snapshots", "t", "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1")
    assert w.new_process().latency()["source_to_commit"]["changes"] == 2
