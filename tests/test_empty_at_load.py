"""Tables that were empty when DMS loaded them: 01_full_load finds nothing, and 02_cdc_merge continues from there."""

import pytest

from frazil_old.cli import check
from frazil_old.config.settings import OperateSettings
from helpers import FILE2, D, I, U
from lake_reader import duckdb_rows, lake_rows
from stream_world import KafkaWorld, KinesisWorld

pytestmark = pytest.mark.spark


@pytest.fixture(params=["kafka", "kinesis"])
def new_stream(request, spark, catalog_options, tmp_path):
    def make(**more):
        given = (tmp_path / "w", f"e{abs(hash(str(tmp_path))) % 10**8}", catalog_options)
        world = {"kafka": KafkaWorld, "kinesis": KinesisWorld}[request.param]
        return world(request.getfixturevalue(request.param), *given, **more)

    return make


def _words(results):
    return {t: r.status for t, r in results.items()}


def test_the_changes_of_an_empty_table_arrive_whether_its_load_file_is_absent_or_late(world, catalog_options):
    tables = ("absent", "late", "two_late", "filled", "idle")
    for t in tables:
        world.table(t)
    world.load("filled", (1, "a")).setup()
    first = world.full_load()
    assert (first["filled"].status, {first[t].status for t in tables if t != "filled"}) == ("loaded", {"empty"})
    assert all("no load files" in first[t].note for t in tables if t != "filled")
    assert set(_words(world.merge()).values()) == {"unchanged"}  # nothing is held back

    world.changes("absent", I(1, "a"), I(2, "b")).changes("filled", U(1, "b"))
    world.load("late", (1, "old"), (2, "old")).changes("late", U(1, "new"))
    world.load("two_late", (1, "old")).load("two_late", (2, "old"), name="LOAD00000002.csv").changes("two_late", D(1))
    merged = world.merged()
    assert merged.rows("idle") == []
    world.changes("absent", D(2), name=FILE2).changes("late", D(2), I(3, "c"), name=FILE2).merged()

    def rows(t):
        assert duckdb_rows(catalog_options, f"{world.space}.{t}") == lake_rows(catalog_options, f"{world.space}.{t}")
        return lake_rows(catalog_options, f"{world.space}.{t}")

    assert rows("absent") == [(1, "a")] and rows("filled") == [(1, "b")] and rows("idle") == []
    assert rows("late") == [(1, "new"), (3, "c")] and rows("two_late") == [(2, "old")]
    assert _words(world.full_load()) == dict.fromkeys(tables, "unchanged")

    world.load("absent", (9, "z"))  # its changes are applied: this is another load
    refused = world.full_load()["absent"]
    assert refused.failed and refused.decision and "on_changed_load" in refused.note
    assert rows("absent") == [(1, "a")]


def test_a_replay_of_a_table_that_was_empty_at_its_load_applies_its_change_files_again(world, catalog_options):
    world.table("t").table("idle").table("filled").load("filled", (1, "a")).loaded()
    world.changes("t", I(1, "new"), I(2, "b"), name=FILE2).merged()
    world.changes("t", I(1, "old"))
    assert "on_changed_load=replay" in world.merge()["t"].note
    assert _words(world.full_load(on_changed_load="replay"))["t"] == "replayed"
    assert lake_rows(catalog_options, f"{world.space}.t") == []
    world.merged()
    assert lake_rows(catalog_options, f"{world.space}.t") == [(1, "new"), (2, "b")]
    assert _words(world.full_load(on_changed_load="replay"))["idle"] == "unchanged"


def test_a_late_load_file_without_changes_is_reported_until_it_is_loaded(world, catalog_options):
    world.table("t").table("still").setup()
    world.full_load()
    world.load("t", (1, "a"))
    held = world.merge()
    assert (held["t"].status, held["still"].status) == ("waiting", "unchanged") and "01_full_load" in held["t"].note
    lines = check.look(world.book(OperateSettings).settings)[0]
    assert any(line.startswith("public.t: ") and "01_full_load" in line for line in lines)
    assert not any("public.still" in line for line in lines)
    assert _words(world.full_load()) == {"t": "loaded", "still": "unchanged"}
    assert _words(world.merge()) == {"t": "unchanged", "still": "unchanged"}
    assert lake_rows(catalog_options, f"{world.space}.t") == [(1, "a")]


def test_what_a_stream_brings_after_an_empty_load_arrives_with_its_load_records_absent_or_late(
    new_stream, catalog_options
):
    w = new_stream()
    for t in ("absent", "late", "slow", "idle"):
        w.table(t)
    w.setup()
    given = {"load_complete_when": "changes"}
    assert set(_words(w.full_load(**given)).values()) == {"empty"}
    assert set(_words(w.merge()).values()) == {"unchanged"}

    w.message("insert", "absent", id=1, v="a")
    w.message("load", "late", id=1, v="old").message("load", "late", id=2, v="old").message(
        "update", "late", id=1, v="new"
    )
    w.message("load", "slow", id=1, v="s")
    done = w.merge()
    assert _words(done) == {"absent": "merged", "late": "merged", "slow": "waiting", "idle": "unchanged"}
    w.message("update", "slow", id=1, v="S").message("delete", "absent", id=1).message("insert", "absent", id=2, v="b")
    w.merged()

    rows = {t: lake_rows(catalog_options, f"{w.space}.{t}") for t in ("absent", "late", "slow", "idle")}
    assert rows == {"absent": [(2, "b")], "late": [(1, "new"), (2, "old")], "slow": [(1, "S")], "idle": []}
    assert set(_words(w.full_load(**given)).values()) == {"unchanged"}


def test_late_load_records_are_found_before_changes_are_applied_however_small_a_pass_is(
    kafka, spark, catalog_options, tmp_path
):
    w = KafkaWorld(kafka, tmp_path / "w", "e_small", catalog_options, partitions=2).table("t")
    w.setup()
    assert w.full_load(load_complete_when="changes")["t"].status == "empty"
    for n in range(5):
        w.message("load", id=n, v="old", partition=1)
    for n in range(5):
        w.message("update", id=n, v="new", partition=0)
    w.merged(max_batch_messages=1)
    assert lake_rows(catalog_options, "e_small.t") == [(n, "new") for n in range(5)]
