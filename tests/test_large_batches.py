"""Large batches of change files: Spark's tasks read them by the core, and the result is that of any other batch."""

import random

import pytest

from frazil_old.engine import small_batch
from helpers import D, I, U

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr(small_batch, "MOST_MB", 0)


def _file(number: int) -> str:
    return f"20260101-0000{number:02d}000.csv"


@pytest.mark.parametrize("lane", ["merge", "rowdelta", "scan"])
def test_many_files_end_as_a_replay_of_their_changes(world, lane):
    r, rows = random.Random(lane), dict.fromkeys(range(1, 40), "start")
    world.table("t").load("t", *rows.items()).loaded()
    for number in range(7):
        changes = []
        for _ in range(60):
            key, value = r.randrange(1, 60), f'{number} {r.random()}, "quoted"\nline'
            kind = r.choice("IUUD") if key in rows else "I"
            if kind == "D":
                changes.append(D(key))
                rows.pop(key)
            elif kind == "U" and (new := r.randrange(100, 10**6)) and r.random() < 0.3:
                changes.append(U(new, value, was=key))
                rows.pop(key)
                rows[new] = value
            else:
                changes.append((I if kind == "I" else U)(key, value))
                rows[key] = value
        world.changes("t", *changes, name=_file(number))
    done = world.merge(lane=lane)["t"]
    assert done.status == "merged" and done.counts["changes"] == 420, done
    assert sorted(world.rows("t")) == sorted(rows.items())


@pytest.mark.parametrize("lane", ["merge", "rowdelta", "scan"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_values_of_every_type_are_those_of_the_file(new_world, spark, lane, zone):
    columns = (
        "id INT8",
        "v NCLOB",
        "n NUMERIC(38,10)",
        "r REAL4",
        "at DATETIME",
        "day DATE",
        "b BYTES(9)",
        "y BOOLEAN",
        "u UINT8",
    )
    world = new_world().table("t", *columns)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        world.load("t", (1, *[None] * 8)).loaded()
        given = (
            1,
            "",
            "1234567890123456789012345678.0123456789",
            "0.1",
            "1969-12-31 23:59:59.999999",
            "0001-01-01",
            "00ff",
            "true",
            2**64 - 1,
        )
        world.changes("t", U(*given), I(2, *[None] * 8), name=_file(1)).merged(lane=lane)
        text = [f"cast({c} as string)" for c in ("id", "v", "n", "r", "at", "day", "hex(b)", "y", "u")]
        found = [tuple(row) for row in spark.table(world.name("t")).orderBy("id").selectExpr(*text).collect()]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert found[0] == (
        "1",
        "",
        "1234567890123456789012345678.0123456789",
        "0.1",
        "1969-12-31 23:59:59.999999",
        "0001-01-01",
        "00FF",
        "true",
        str(2**64 - 1),
    )
    assert found[1] == ("2", *[None] * 8)


def test_what_a_batch_held_is_told_in_its_snapshot(world):
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    world.changes("t", U(1, "c"), U(1, "d"), D(2), I(3, "e"), name=_file(1)).merged()
    summary = world.history("t")[0].summary()
    assert '"changes":4,"I":1,"U":2,"D":1,"keys":3,"out_of_sequence":0' in summary["frazil.counts"]
    assert '"age":[' in summary["frazil.latency"]


def test_a_bad_row_is_named_and_nothing_of_its_batch_is_applied(world):
    world.table("t", "id INT8", "n INT4").load("t", (1, 1)).loaded()
    world.changes("t", U(1, 2), name=_file(1)).changes("t", I(2, 3), I(3, "x"), name=_file(2))
    done = world.merge()["t"]
    assert done.status == "failed" and f"{_file(2)} row 2" in done.note and "'x' does not fit INT4" in done.note
    assert world.rows("t") == [(1, 1)]


@pytest.mark.parametrize("lane", ["merge", "rowdelta", "scan"])
def test_bad_rows_are_quarantined_and_a_later_change_of_their_key_makes_them_obsolete(world, lane):
    aside = {"on_bad_rows": "quarantine", "ops_namespace": f"{world.space}_ops", "lane": lane}
    world.table("t", "id INT8", "n INT4").load("t", (1, 1), (2, 2)).loaded()
    world.changes("t", U(1, 2), U(2, "two"), name=_file(1)).changes(
        "t", I(3, "three"), I(4, 4), U(2, 22), name=_file(2)
    )
    assert world.merge(**aside)["t"].counts["quarantined"] == 2
    assert world.rows("t") == [(1, 2), (2, 22), (4, 4)]
    name = f"lake.{world.space}_ops.quarantine"
    columns = "select object, row_no, key, status from"
    newest = f"(select *, row_number() over (partition by id order by sequence desc, changed_at desc) nth from {name})"
    rows = world.spark.sql(f"{columns} {newest} where nth = 1 order by object").collect()
    assert [tuple(r) for r in rows] == [(_file(1), "2", '["2"]', "obsolete"), (_file(2), "1", '["3"]', "waiting")]
    world.changes("t", I(3, 33), name=_file(3))
    assert world.merge(**aside)["t"].status == "merged"
    assert world.rows("t") == [(1, 2), (2, 22), (3, 33), (4, 4)]
    rows = world.spark.sql(f"{columns} {newest} where nth = 1 and status = 'waiting'").collect()
    assert not rows


def test_a_file_that_cannot_be_read_is_named(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b"), name=_file(1)).write("t", _file(2), 'I,2024-01-01 09:59:00.000000,2,"cut o')
    done = world.merge()["t"]
    assert done.failed and f"{_file(2)} row 1: a quoted text does not end" in done.note
    assert world.rows("t") == [(1, "a")]
