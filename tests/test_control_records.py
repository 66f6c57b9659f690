"""Control records of a stream: columns that are added, dropped, renamed or retyped, in order with the messages around them."""

from __future__ import annotations

import itertools

import pytest
import yaml

from frazil_old.lake import jvm_schema
from helpers import rename_property
from stream_world import KafkaWorld

spark = pytest.mark.spark
_numbers = itertools.count(1)
WAS = {"id": "INT64", "v": "STRING", "n": "INT32"}


@pytest.fixture
def new_stream(kafka, spark, catalog_options, tmp_path):
    def make(partitions: int = 1) -> KafkaWorld:
        w = KafkaWorld(kafka, tmp_path / "w", f"ctl{next(_numbers)}", catalog_options, partitions=partitions)
        w.table("t", "id INT8", "v WSTRING(9)", "n INT4")
        return w.message("load", id=1, v="a", n=10).message("load", id=2, v="b", n=20).loaded()

    return make


def declare(w, *columns, **more):
    entries = [dict(zip(("name", "type"), c.split(" ", 1), strict=True)) if isinstance(c, str) else c for c in columns]
    w.specs["t"] |= {"columns": entries, **more}
    (w.root / "specs/t.yml").write_text(yaml.safe_dump(w.specs["t"]))
    return w


def table(w):
    return {r["id"]: {k: v for k, v in r.asDict().items() if k != "id"} for r in w.spark.table(w.name("t")).collect()}


def ids(w):
    return {f.name: f.id for f in jvm_schema.fields(w.spark, w.iceberg("t"))}


def refused(w, *says, **settings):
    before = ids(w), w.head("t"), w.offsets()
    note = w.merge(**settings)["t"].note
    assert all(s in note for s in says), note
    assert (ids(w), w.head("t"), w.offsets()) == before
    return w


@spark
def test_a_rename_keeps_the_column_by_its_id_and_the_spec_may_say_so_later(new_stream):
    w = new_stream()
    was = ids(w)
    w.message("update", id=1, v="A", n=11).control("rename-column", id="INT64", title="STRING", n="INT32")
    w.message("update", id=2, title="B", n=21).merged()
    assert table(w) == {1: {"title": "A", "n": 11}, 2: {"title": "B", "n": 21}}
    assert ids(w) == {"id": was["id"], "title": was["v"], "n": was["n"]}
    assert w.setup()["t"].status == "exists", "the spec still says v, and nothing is undone"
    w.message("insert", id=3, title="c", n=30).merged()
    w.control("rename-column", id="INT64", heading="STRING", n="INT32").message("update", id=3, heading="C", n=30)
    w.merged()
    assert table(w)[3] == {"heading": "C", "n": 30} and ids(w)["heading"] == was["v"]
    declare(w, "id INT8", {"name": "heading", "type": "WSTRING(9)", "renamed_from": ["title", "v"]}, "n INT4")
    w.message("update", id=1, heading="x", n=1).merged()
    assert table(w)[1] == {"heading": "x", "n": 1}


@spark
def test_what_an_earlier_version_kept_of_control_records_counts_and_is_renamed_with_the_next_one(new_stream):
    w, names = new_stream(), ("frazil.schema-events", "frazil.told")
    w.control("rename-column", id="INT64", title="STRING", n="INT32").message("update", id=2, title="B", n=21).merged()
    assert w.properties("t", *names) == ('[["rename", "v", "title"]]', None)
    rename_property(w, "t", *names)
    w.message("update", id=1, title="A", n=11).merged()
    assert table(w) == {1: {"title": "A", "n": 11}, 2: {"title": "B", "n": 21}}
    assert w.properties("t", *names) == (None, '[["rename", "v", "title"]]'), "no record came since"
    w.control("rename-column", id="INT64", heading="STRING", n="INT32").message("update", id=1, heading="C", n=12)
    w.merged()
    assert table(w) == {1: {"heading": "C", "n": 12}, 2: {"heading": "B", "n": 21}}
    assert w.properties("t", *names) == ('[["rename", "v", "title"], ["rename", "title", "heading"]]', None)


@spark
def test_in_one_batch_each_message_is_read_with_the_columns_of_its_place(new_stream):
    w = new_stream()
    was = ids(w)
    w.message("update", id=1, v="A", n=11).control("rename-column", id="INT64", title="STRING", n="INT32")
    w.control("add-column", id="INT64", title="STRING", n="INT32", v="INT32")
    w.message("update", id=2, title=None, n=21, v=7).message("insert", id=3, title="c", n=30, v=8)
    w.control("drop-column", id="INT64", title="STRING", v="INT32").message("update", id=3, title="C", v=9)
    w.merged(changes={"new": "add", "gone": "keep"})
    assert table(w) == {
        1: {"title": "A", "n": 11, "v": None}, 2: {"title": None, "n": 21, "v": 7}, 3: {"title": "C", "n": 30, "v": 9},
    }  # fmt: skip
    assert ids(w)["title"] == was["v"] != ids(w)["v"] and w.position("t")["lacks"] == ["n"]
    w.message("update", id=2, title="B", v=1).merged()
    assert table(w)[2] == {"title": "B", "n": 21, "v": 1}, "what is gone keeps its values"
    w.control("rename-column", id="INT64", title="STRING", u="INT32").message("update", id=2, title="B", u=2).merged()
    assert table(w)[2] == {"title": "B", "n": 21, "u": 2}, "whatever else changes; and what was added may be renamed"
    w.control("add-column", id="INT64", title="STRING", u="INT32", n="INT32").message(
        "update", id=2, title="B", u=2, n=22
    )
    assert table(w.merged())[2]["n"] == 22 and "lacks" not in w.position("t")


@spark
def test_what_no_policy_allows_stops_the_table_by_the_records_place_and_no_other(new_stream):
    w = new_stream().table("u").message("load", table="u", id=1, v="a")
    w.loaded().message("insert", table="u", id=2, v="b")
    w.control("add-column", **WAS, w="DATE32").message("insert", id=3, v="c", n=30, w="2024-05-06")
    refused(w, "kafka://", " offset 4: unknown column 'w'", "changes: {new: add}")
    assert len(w.rows("u")) == 2, "the others go on"
    declare(w, "id INT8", {"name": "w", "type": "DATE", "comment": "when"}, "v WSTRING(9)", "n INT4").merged()
    assert str(table(w)[3]["w"]) == "2024-05-06" and list(ids(w)) == ["id", "w", "v", "n"]
    w.control("drop-column", id="INT64", v="STRING", w="DATE32").message("update", id=1, v="A", w=None)
    refused(w, "no column n", "changes: {gone: keep}").merged(changes={"gone": "keep"})
    assert table(w)[1]["n"] == 10
    w.control("change-columns", id="INT64", x="STRING", w="DATE32").message("update", id=1, x="A", w=None)
    refused(w, "unknown column 'x', and no column v: renamed, or another one?", changes={"new": "add", "gone": "keep"})


@spark
def test_a_wider_type_is_followed_and_another_one_stops_the_table_or_stands_beside(new_stream):
    w = new_stream()
    w.control("column-type-change", **WAS | {"n": "INT64"}).message("update", id=1, v="A", n=3_000_000_000).merged()
    assert table(w)[1]["n"] == 3_000_000_000
    w.message("update", id=2, v="B", n=4_000_000_000).merged()
    w.message("update", id=1, v="A", n=5)
    w.control("column-type-change", **WAS | {"n": "STRING"}).message("insert", id=3, v="c", n="many")
    assert "column 'n' is INT4" in w.merge()["t"].note and table(w)[1]["n"] == 5, "rows before the record are applied"
    refused(w, "WSTRING from here on: no promotion leads there", "changes: {type: beside}")
    w.merged(changes={"type": "beside"})
    expected = {
        1: {"v": "A", "n_bigint": 5, "n": None}, 2: {"v": "B", "n_bigint": 4_000_000_000, "n": None},
        3: {"v": "c", "n_bigint": None, "n": "many"},
    }  # fmt: skip
    assert table(w) == expected
    w.message("update", id=2, v="B", n="two").merged(changes={"type": "beside"})
    assert table(w) == expected | {2: {"v": "B", "n_bigint": 4_000_000_000, "n": "two"}}


@spark
def test_a_column_that_a_record_added_is_dropped_by_the_record_of_its_drop(new_stream):
    w, policy = new_stream(), {"new": "add", "gone": "drop"}
    w.control("add-column", **WAS, w="INT32").message("update", id=1, v="A", n=11, w=1).merged(changes=policy)
    assert table(w)[1] == {"v": "A", "n": 11, "w": 1}
    w.control("rename-column", **WAS, u="INT32").control("drop-column", **WAS).message("update", id=1, v="B", n=12)
    w.merged(changes=policy)
    assert table(w) == {1: {"v": "B", "n": 12}, 2: {"v": "b", "n": 20}}
    w.control("add-column", **WAS, w="STRING").message("update", id=1, v="C", n=13, w="new").merged(changes=policy)
    assert table(w)[1] == {"v": "C", "n": 13, "w": "new"}, "another column of a name that was dropped"
    w.control("drop-column", id="INT64", v="STRING", w="STRING").message("update", id=1, v="D", w="newer")
    w.merged(changes=policy)
    assert table(w)[1] == {"v": "D", "n": 13, "w": "newer"}, "what the spec lists stays until it no longer does"
    declare(w, "id INT8", "v WSTRING(9)")
    w.message("update", id=2, v="E", w="x").merged(changes=policy)
    assert table(w) == {1: {"v": "D", "w": "newer"}, 2: {"v": "E", "w": "x"}}


@spark
def test_a_name_that_another_column_had_before_may_come_again(new_stream):
    w = declare(new_stream(), "id INT8", {"name": "title", "type": "WSTRING(9)", "renamed_from": "v"}, "n INT4")
    w.message("update", id=1, title="A", n=11).control("add-column", id="INT64", title="STRING", n="INT32", v="INT32")
    w.message("update", id=1, title="B", n=12, v=7).merged(changes={"new": "add"})
    assert table(w) == {1: {"title": "B", "n": 12, "v": 7}, 2: {"title": "b", "n": 20, "v": None}}


@spark
def test_a_changed_key_under_its_name_from_before_a_rename_leaves_no_old_row(new_stream):
    """No record tells of the rename; the spec does, before these messages are read."""
    w = declare(
        new_stream(), {"name": "no", "type": "INT8", "renamed_from": "id"}, "v WSTRING(9)", "n INT4", key=["no"]
    )
    w.message("update", was={"id": 1}, id=5, v="A", n=11).message("update", was={"no": 2}, no=6, v="B", n=22).merged()
    assert w.rows("t") == [(5, "A", 11), (6, "B", 22)]


@spark
def test_another_primary_key_is_refused_unless_the_specs_own_is_declared_to_stay_unique(new_stream):
    w = (
        new_stream()
        .control("add-column", primary_key=["id", "v"], **WAS, w="INT32")
        .message("insert", id=3, v="c", n=3, w=3)
    )
    refused(
        w, "offset 2: the source's primary key is (id, v), and (id) in", "changes: {key: keep}", changes={"new": "add"}
    )
    assert w.merged(changes={"new": "add", "key": "keep"}).rows("t")[2] == (3, "c", 3, 3)


@spark
def test_a_column_that_is_left_out_stays_out_under_its_new_name(new_stream):
    w = declare(new_stream(), "id INT8", "v WSTRING(9)", "n INT4", exclude=["v"])
    w.setup(changes={"gone": "drop"})
    w.control("rename-column", id="INT64", secret="STRING", n="INT32").message("update", id=1, secret="x", n=11)
    w.merged(changes={"new": "add", "gone": "drop"})
    assert table(w) == {1: {"n": 11}, 2: {"n": 20}}
    assert "public.t: schema: noted: rename v secret" in w.said


@spark
def test_a_record_without_messages_behind_it_is_not_lost(new_stream):
    w = new_stream().control("rename-column", id="INT64", title="STRING", n="INT32").merged()
    assert "title" in ids(w) and w.offsets() == [3]
    head = w.head("t")
    assert w.merge()["t"].status == "unchanged" and w.head("t") == head
    w.message("update", id=1, title="A", n=1).merged()
    assert table(w)[1]["title"] == "A"
    w.control("drop-column", id="INT64", title="STRING").merged(changes={"gone": "keep"})
    assert w.position("t")["lacks"] == ["n"] and w.offsets() == [5]
    w.message("update", id=1, title="B").merged()
    assert table(w)[1] == {"title": "B", "n": 1}, "what it has of a column that went stays"


@spark
def test_where_data_lie_in_other_partitions_they_are_read_by_the_names_that_they_have(new_stream):
    w = new_stream(partitions=2)
    w.control("drop-column", partition=1, stamp="2025-01-01T00:00:00Z", id="INT64", v="STRING")  # of the table before
    w.control("create-table", partition=1, stamp="2025-01-02T00:00:00Z", **WAS)
    w.message("update", id=1, v="A", n=11).message("update", id=2, title="B", n=3_000_000_000)
    w.control("column-type-change", partition=1, id="INT64", title="STRING", n="INT64", stamp="2026-01-01T10:00:02Z")
    w.control("rename-column", id="INT64", title="STRING", n="INT32", stamp="2026-01-01T10:00:01Z")
    w.message("insert", partition=1, id=3, title="c", n=30).merged()
    assert table(w) == {1: {"title": "A", "n": 11}, 2: {"title": "B", "n": 3_000_000_000}, 3: {"title": "c", "n": 30}}


@spark
def test_a_name_that_goes_and_comes_again_elsewhere_than_its_rows_is_refused(new_stream):
    w = new_stream(partitions=2).message("update", id=1, v="A", n=11).message("update", id=2, title="B", n=20, v="7")
    w.control("rename-column", partition=1, id="INT64", title="STRING", n="INT32", stamp="2026-01-01T10:00:01Z")
    w.control(
        "add-column", partition=1, id="INT64", title="STRING", n="INT32", v="STRING", stamp="2026-01-01T10:00:02Z"
    )
    refused(w, "column 'v' was dropped and added again", "load the table again", changes={"new": "add"})


@spark
def test_a_definition_that_is_none_or_that_messages_contradict_loses_nothing(new_stream):
    w = new_stream()
    w.control("add-column", w="DATE32").message("update", id=1, v="A", n=11).merged()
    assert table(w)[1] == {"v": "A", "n": 11} and any("without the key of public.t" in line for line in w.said)
    w.control("drop-column", id="INT64", n="INT32").message("update", id=2, v="B", n=21)
    w.merged(changes={"gone": "keep"})
    assert table(w)[2] == {"v": "B", "n": 21}, "v is there, whatever the record says"
    w.message("update", id=2, v="B", n=21, more=1)
    refused(w, "unknown column more", "IncludeControlDetails", changes={"new": "add"})
    assert table(w.merged(changes={"new": "ignore"}))[2] == {"v": "B", "n": 21}


@spark
def test_after_a_rename_a_new_load_is_read_with_the_new_names(new_stream):
    w = new_stream().control("rename-column", id="INT64", title="STRING", n="INT32").merged()
    w.message("load", id=5, title="e", n=50)
    assert w.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert table(w) == {5: {"title": "e", "n": 50}}
