"""Setup of tables: those of others, those that are missing or half made, their columns and format."""

import pytest

from helpers import D, I, Killed, U, small_files

pytestmark = pytest.mark.spark


def test_a_table_that_frazil_did_not_make_is_refused(world):
    world.table("t").load("t", (1, "a"))
    world.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{world.space}")
    world.spark.sql(f"CREATE TABLE {world.name('t')} (id BIGINT, v STRING) USING iceberg")
    small_files(world, "t", (9, "theirs"))
    assert "was not created by Frazil" in world.setup()["t"].note
    assert "carries no position" in world.full_load()["t"].note
    assert world.rows("t") == [(9, "theirs")]


def test_an_empty_table_of_others_is_refused_and_stays_as_it_is(world):
    world.table("t").load("t", (1, "a"))
    world.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{world.space}")
    world.spark.sql(f"CREATE TABLE {world.name('t')} (id BIGINT, v STRING, theirs INT) USING iceberg")
    for _ in range(2):
        assert "was not created by Frazil" in world.setup()["t"].note
    assert world.spark.table(world.name("t")).columns == ["id", "v", "theirs"]


def test_a_setup_that_was_killed_is_finished_by_the_next_one(world, monkeypatch):
    world.table("t", "id INT8", "v WSTRING(9)")
    world.specs["t"]["sort"] = ["v"]
    world.table_file("t")
    run = type(world.spark).sql

    def dies(session, statement, *more, **named):
        if statement.startswith("ALTER TABLE"):
            raise Killed
        return run(session, statement, *more, **named)

    with monkeypatch.context() as at_first:
        at_first.setattr(type(world.spark), "sql", dies)
        with pytest.raises(Killed):
            world.setup()
    assert world.setup()["t"].status == "exists"
    table = world.iceberg("t")
    assert table.sortOrder().isSorted() and table.schema().identifierFieldNames().toString() == "[id]"


def test_a_table_that_does_not_exist_points_to_the_setup(world):
    world.table("t").load("t", (1, "a")).changes("t", I(2, "b"))
    assert "run 00_setup first" in world.full_load()["t"].note
    assert "run 00_setup first" in world.merge()["t"].note


def test_setup_brings_columns_to_the_spec_or_says_why_it_cannot(loaded):
    loaded.table("t", "id INT8", "v WSTRING(99)", "w DATE").setup()
    assert loaded.spark.table(loaded.name("t")).columns == ["id", "v", "w"]
    loaded.table("t", "id INT8", "v INT4", "w DATE")
    note = loaded.setup()["t"].note
    assert "column 'v' is string in the lake and INT4 (int)" in note and "no promotion leads there" in note


def test_a_reader_that_is_not_known_to_read_v3_gets_v2_tables(world):
    world.table("t").load("t", *[(n, f"v{n}") for n in range(20)])
    for result in (*world.setup(query_engines=["spark", "unheard-of"]).values(), *world.full_load().values()):
        assert not result.failed
    world.changes("t", D(3), U(4, "new"), U(99, "moved", was=5), I(100, None)).merged()
    expected = {n: f"v{n}" for n in range(20)} | {4: "new", 99: "moved", 100: None}
    assert dict(world.rows("t")) == {k: v for k, v in expected.items() if k not in (3, 5)}
    assert world.iceberg("t").operations().current().formatVersion() == 2
