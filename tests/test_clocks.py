"""A wrong clock stops a run before it writes; a snapshot from the future is named, and repaired without a loss."""

import json
import sqlite3
import time
from pathlib import Path

import pytest

from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import FullLoadSettings, MaintenanceSettings, OperateSettings
from frazil_old.flows import lag, maintenance
from frazil_old.flows.plan import plan
from frazil_old.lake import snapshot_expiry
from frazil_old.lake.clocks import ClockError
from helpers import FILE2, FILE3, I, U
from lake_reader import duckdb_rows, lake_rows, metadata_of

pytestmark = pytest.mark.spark
DAYS = 3 * 86_400


@pytest.fixture(autouse=True)
def least_snapshots(monkeypatch):
    monkeypatch.setattr(snapshot_expiry, "LEAST_SNAPSHOTS", 1)


def heads(world) -> dict[str, str]:
    return {t: metadata_of(world.catalog_options, f"{world.space}.{t}") for t in world.specs}


def maintained(world, **more):
    asked = {"dry_run": False, "max_small_files": 0, "keep_hours": 1.0, **more}
    return {r.table.split(".")[1]: r for r in maintenance.run(world.book(MaintenanceSettings, **asked))}


@pytest.mark.parametrize("off", [DAYS, -3600], ids=["three days ahead", "an hour behind"])
def test_a_run_with_a_wrong_clock_stops_before_any_write(world, off, monkeypatch):
    world.table("t").load("t", (1, "a")).table("new").load("new", (1, "a"))
    world.setup(), world.full_load(tables=["public.t"])
    world.changes("t", U(1, "b")).merged()
    world.changes("t", U(1, "c"), name=FILE2)
    before, real = heads(world), time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + off)
        works = [lambda: world.full_load(), lambda: world.merge(lane="merge"), lambda: world.merge(lane="rowdelta"), lambda: maintained(world), world.setup]  # fmt: skip
        for work in works:
            with pytest.raises(ClockError, match="the clock of host .* says 20.*, and that of .* 20"):
                work()
    assert heads(world) == before
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() - 50)
        world.merged(lane="rowdelta")
    assert lake_rows(world.catalog_options, f"{world.space}.t") == [(1, "c")]


def shift(world, table: str, seconds: int) -> int:
    """Make the newest snapshot one that a host with a wrong clock committed; return its id."""
    target = table if "." in table else f"{world.space}.{table}"
    place = metadata_of(world.catalog_options, target)
    file = Path(place.removeprefix("file:"))
    told, ms = json.loads(file.read_text()), seconds * 1000
    told["snapshots"][-1]["timestamp-ms"] += ms
    told["snapshot-log"][-1]["timestamp-ms"] += ms
    told["last-updated-ms"] += ms
    new = file.with_name(f"{int(file.name[:5]) + 1:05d}-00000000-0000-0000-0000-00000000f00d.metadata.json")
    new.write_text(json.dumps(told))
    namespace, name = target.rsplit(".", 1)
    with sqlite3.connect(world.catalog_options["uri"].removeprefix("jdbc:sqlite:")) as db:
        db.execute("UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = metadata_location WHERE table_namespace = ? AND table_name = ?", (place.replace(file.name, new.name), namespace, name))  # fmt: skip
    return told["current-snapshot-id"]


def test_a_snapshot_from_the_future_is_named_and_repaired_without_a_loss(world, monkeypatch):
    lanes = {"merged": "merge", "delta": "rowdelta", "just_loaded": "merge"}
    for table in (*lanes, "fine"):
        world.table(table).load(table, (1, "a"), (2, "b")).changes(table, U(1, "A"))
    world.given = {"ops_namespace": f"{world.space}_ops"}
    world.loaded()
    for lane in ("merge", "rowdelta"):
        world.merged(
            lane=lane,
            tables=[f"public.{t}" for t in (*lanes, "fine") if lanes.get(t, "merge") == lane and t != "just_loaded"],
        )
    shifted = {table: shift(world, table, DAYS) for table in lanes}
    for table in world.specs:
        world.changes(table, U(2, "B"), I(3, "c"), name=FILE2)
    before = heads(world)
    run = {t: r.note for t, r in world.merge(lane="rowdelta").items()}
    planned = {r["table"].split(".")[1]: r["decision"] for r in plan(world.book(FullLoadSettings))}
    checked = {r["table"].split(".")[1]: r["problem"] + r["cure"] for r in lag.per_table(world.book(OperateSettings))}
    kept = {t: r.note for t, r in maintained(world, tables=[f"public.{t}" for t in lanes]).items()}
    for said in (run, planned, checked, kept):
        assert all(
            str(snapshot) in said[t] and f"frazil repair --table public.{t}" in said[t]
            for t, snapshot in shifted.items()
        ), said
    assert {t: h for t, h in heads(world).items() if t != "fine"} == {t: h for t, h in before.items() if t != "fine"}
    assert lake_rows(world.catalog_options, f"{world.space}.fine") == [(1, "A"), (2, "B"), (3, "c")]

    shift(world, f"{world.space}_ops.commits", DAYS)
    with pytest.raises(ClockError, match="commits: its snapshot"):
        maintained(world)
    world.environment(monkeypatch)
    (world.root / "params/w.yml").write_text(
        (world.root / "params/w.yml").read_text() + f"  ops_namespace: {world.space}_ops\n"
    )
    assert main(["repair", "--env", "w"]) == exit_codes.OK
    world.merged(lane="rowdelta")
    assert not [r.note for r in maintained(world).values() if r.failed]
    world.changes("merged", I(4, "d"), name=FILE3).merged(lane="merge")
    for table in lanes:
        wanted = [(1, "A"), (2, "B"), (3, "c"), *([(4, "d")] if table == "merged" else [])]
        for read in (lake_rows, duckdb_rows):
            assert read(world.catalog_options, f"{world.space}.{table}") == wanted


def test_in_the_hour_that_autumn_repeats_a_batch_stops_rather_than_that_older_values_win(new_world):
    """File names are in local time: the later of the two files has the earlier name. DMS's sequence shows it."""
    w = new_world(DatePartitionEnabled=True, DatePartitionTimezone="Europe/Berlin")
    w.table("t").load("t", (1, "a")).loaded()
    first, second = (f"2024/10/27/20241027-{at}00000.csv" for at in ("0259", "0201"))
    zeros, commits = "0" * 19, ("2024-10-27 00:58:59.000000", "2024-10-27 01:00:59.000000")
    w.changes("t", U(1, "b", seq=f"2024102700585900{zeros}", ts=commits[0]), name=first)
    w.changes("t", U(1, "c", seq=f"2024102701005900{zeros}", ts=commits[1]), name=second)
    note = w.merge()["t"].note
    assert "Europe/Berlin repeats" in note and "late_files=after" in note and w.rows("t") == [(1, "a")]
    there = w.root / "source/public/t" / second
    there.rename(w.root / "aside")
    w.merged()
    (w.root / "aside").rename(there)
    assert w.merged(late_files="after").rows("t") == [(1, "c")]
