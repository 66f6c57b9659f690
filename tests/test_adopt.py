"""Tables of another pipeline, which are taken over at a given position."""

from __future__ import annotations

import pytest

from dms_writer import FILE1, FILE2, FILE3, NO_RULES, D, I, U

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
TXN = [f"CDC_TXN-20240101100{n}00000.csv" for n in range(3)]


def foreign(w, table: str, *rows: tuple, version: int = 2) -> None:
    """Make a table as another Spark job does: copy-on-write, every column nullable."""
    w.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {w.catalog}.{w.space}")
    w.sql(f"CREATE TABLE {{t}} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version' = '{version}')", table)  # fmt: skip
    w.sql(f"INSERT INTO {{t}} VALUES {', '.join(map(str, rows))}", table)


def test_a_table_of_another_job_goes_on_from_its_last_file_exactly_once(open_world):
    """The job loaded the table, and merged one file of all tables."""
    w = open_world(target={"PreserveTransactions": True, "CdcPath": "changes/all"}).table("t")
    w.source.rules = NO_RULES
    w.source.load("t", (1, "a"), (2, "b"), (3, "c"))
    w.source.of_all_tables(TXN[0], ("t", U(1, "theirs")), ("t", D(2, None)))
    w.source.of_all_tables(TXN[1], ("t", I(2, "back")))
    w.source.of_all_tables(TXN[2], ("t", U(3, "c3")))
    foreign(w, "t", (1, "a"), (2, "b"), (3, "c"))
    w.sql("DELETE FROM {t} WHERE id = 2")
    w.sql("MERGE INTO {t} t USING (SELECT 1L id, 'theirs' v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    assert (w.merge()["t"].code, w.setup()["t"].code) == ("foreign-table", "foreign-table")
    assert w.decide("t", adopt=TXN[0]).status == "adopted" and w.plan()["t"]["changes"] == 2
    assert (w.setup()["t"].status, w.load()["t"].status) == ("exists", "unchanged")
    w.merged(max_batch_files=1)
    assert w.rows("t") == [(1, "theirs"), (2, "back"), (3, "c3")]
    before = w.metadata_file("t")
    assert w.merge()["t"].status == "unchanged" and w.metadata_file("t") == before
    assert w.decide("t", adopt=TXN[0]).code == "position-already"


def test_down_deletes_no_table_that_another_pipeline_has_made(open_world):
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    foreign(w, "t", (1, "a"))
    assert w.decide("t", adopt="load").status == "adopted"
    told = w.command("down")[1] + w.command("down", "--yes")[1]
    assert f"{w.space}.t" in told and w.rows("t")


POSITIONS = {"load": 3, FILE1: 2, "2024-01-01 10:01": 1, "20231231-230000000.csv": 3}


def test_a_position_is_a_file_a_time_or_the_load_and_all_else_is_refused(open_world):
    w = open_world()
    for n, position in enumerate(POSITIONS):
        w.table(f"t{n}").source.load(f"t{n}", (1, "a"))
        for name in (FILE1, FILE2, FILE3):
            w.source.changes(f"t{n}", U(1, name), name=name)
        foreign(w, f"t{n}", (1, "a"), version=1 + n % 2)
        for wrong in (FILE1.replace("-1000", "-1009"), "the end", "20231399-100000000.csv"):
            assert w.decide(f"t{n}", adopt=wrong).code == "no-position"
        assert w.decide(f"t{n}", adopt=position).status == "adopted"
    assert [row["changes"] for _, row in sorted(w.plan().items())] == [*POSITIONS.values()]
    assert {t: w.rows(t) for t in w.merged().specs} == {t: [(1, FILE3)] for t in w.specs}


def test_a_time_is_compared_with_names_in_the_time_zone_of_the_files(open_world):
    """A file with the name of 10:02 in Bogota was written at 15:02 UTC, so nothing of it is in the table."""
    w = open_world(target={"DatePartitionEnabled": True, "DatePartitionTimezone": "America/Bogota"}).table("t")
    w.source.load("t", (1, "a"))
    w.source.changes("t", U(1, "b"), name=f"2024/01/01/{FILE3}")
    foreign(w, "t", (1, "a"))
    assert w.decide("t", adopt="2024-01-01 14:00").status == "adopted" and w.plan()["t"]["changes"] == 1
    assert w.merged().rows("t") == [(1, "b")]


def test_a_table_that_cannot_be_taken_over_is_left_as_it_is(open_world):
    w = open_world()
    refused = {"twice": "key-twice", "wider": "spec-differs", "parted": "partition-dropped"}
    for table in refused:
        w.table(table).source.load(table, (1, "a"))
        w.source.changes(table, U(1, "b"))
        foreign(w, table, (1, "a"), version=1)
    w.sql("INSERT INTO {t} VALUES (1, 'b')", "twice")
    w.sql("ALTER TABLE {t} ADD COLUMN more INT", "wider")
    for change in ("ADD COLUMN p STRING", "ADD PARTITION FIELD p", "DROP PARTITION FIELD p", "DROP COLUMN p"):
        w.sql(f"ALTER TABLE {{t}} {change}", "parted")
    before = {t: w.metadata_file(t) for t in refused}
    assert {t: w.decide(t, adopt="load").code for t in refused} == refused
    assert {t: w.metadata_file(t) for t in refused} == before
    w.sql("CREATE TABLE {t}_copy USING iceberg AS SELECT * FROM {t}", "parted")
    w.declare("parted", target=f"{w.space}.parted_copy")
    assert w.decide("parted", adopt="load").status == "adopted"
    w.merge()
    assert w.rows("parted_copy") == [(1, "b")]


def test_a_mask_that_comes_or_goes_on_a_table_that_was_taken_over_stops_it(open_world):
    w = open_world().table("comes").table("goes")
    w.column("goes", "v", mask="sha256")
    for table in w.specs:
        w.source.load(table, (1, "a"))
        foreign(w, table, (1, "a"))
        assert w.decide(table, adopt="load").status == "adopted"
        w.source.changes(table, I(2, "b"))
    w.merged().column("comes", "v", mask="sha256")
    w.specs["goes"]["columns"][1].pop("mask")
    w.declare("goes")
    for table in w.specs:
        w.source.changes(table, I(3, "c"), name=FILE2)
    assert {t: r.code for t, r in w.merge().items()} == {"comes": "mask-changed", "goes": "mask-changed"}
    assert [len(w.rows(t)) for t in w.specs] == [2, 2]
