"""The source's columns change: what the lake's schema follows, by which policy, and what is refused by name."""

from decimal import Decimal

import pytest
import yaml

from frazil_old.config.settings import CdcMergeSettings
from frazil_old.config.spec import SpecError, parse_spec
from frazil_old.flows.plan import plan
from frazil_old.lake import jvm_schema
from helpers import FILE1, FILE2, FILE3, LOAD1, U, rename_property

pytestmark = pytest.mark.spark
TS = "2024-01-01 09:59:00.000000"


@pytest.fixture
def source(new_world):
    """A table with a header in its files, loaded with two rows."""
    return begun(new_world(AddColumnName=True))


def begun(world):
    world.rules = {"rules": []}
    world.table("t", "id INT8", "v WSTRING(9)", "n INT4")
    world.write("t", LOAD1, f"ts,id,v,n\n{TS},1,a,10\n{TS},2,b,20\n")
    return world.loaded()


def declare(world, *columns, **more):
    """Write the spec anew; columns are written `name TYPE`, or as in YAML."""
    entries = [dict(zip(("name", "type"), c.split(" ", 1), strict=True)) if isinstance(c, str) else c for c in columns]
    spec = world.specs["t"] | {"columns": entries} | more
    world.specs["t"] = spec
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(spec))
    return world


def put(world, name, header, *rows):
    world.write("t", name, f"Op,ts,{header}\n" + "".join(f"{r[0]},{TS},{r[2:]}\n" for r in rows))
    return world


def table(world):
    """The rows by key, as dicts."""
    return {r["id"]: {k: v for k, v in r.asDict().items() if k != "id"} for r in world.spark.table(world.name("t")).collect()}  # fmt: skip


def ids(world):
    return {f.name: f.id for f in jvm_schema.fields(world.spark, world.iceberg("t"))}


def refused(world, *says, **settings):
    before = ids(world), world.head("t")
    note = world.merge(**settings)["t"].note
    assert all(s in note for s in says), note
    assert (ids(world), world.head("t")) == before
    return note


def test_a_column_that_the_spec_adds_comes_where_it_says_with_type_and_comment(source):
    put(source, FILE1, "id,v,n", "U,1,A,11")
    put(source, FILE2, "id,w,v,n", "I,3,2024-05-06,c,30", "U,2,,B,20")
    declare(source, "id INT8", {"name": "w", "type": "DATE", "comment": "when"}, "v WSTRING(9)", "n INT4")
    planned = plan(source.book(CdcMergeSettings))[0]
    assert planned["schema"] == "add w date" and planned["decision"] == ""
    assert "w" not in ids(source)
    source.merged()
    fields = jvm_schema.fields(source.spark, source.iceberg("t"))
    assert [(f.name, f.type, f.comment) for f in fields][:2] == [("id", "bigint", ""), ("w", "date", "when")]
    got = table(source)
    assert got[1] == {"w": None, "v": "A", "n": 11} and str(got[3]["w"]) == "2024-05-06" and got[2]["v"] == "B"


def test_a_batch_ends_where_the_columns_of_the_files_change(source):
    put(source, FILE1, "id,v,n", "U,1,A,11", "D,2,,")
    put(source, FILE2, "id,v,n,w", "U,1,B,12,x", "I,3,c,30,y")
    put(source, FILE3, "id,v,n,w", "U,3,C,31,z")
    declare(source, "id INT8", "v WSTRING(9)", "n INT4", "w WSTRING(9)")
    done = source.merge()["t"]
    assert (done.counts["batches"], done.counts["files"]) == (2, 3), done.note
    assert table(source) == {1: {"v": "B", "n": 12, "w": "x"}, 3: {"v": "C", "n": 31, "w": "z"}}


def test_a_column_that_files_bring_is_refused_added_or_ignored_as_the_policy_says(source):
    put(source, FILE1, "id,v,n,more", "U,1,A,11,x")
    refused(source, "unknown column 'more'", "changes: {new: add}")
    assert plan(source.book(CdcMergeSettings))[0]["decision"]
    source.merged(changes={"new": "ignore"})
    assert table(source)[1] == {"v": "A", "n": 11}
    assert source.position("t")["skips"] == ["more"]
    put(source, FILE2, "id,v,n,more,most", "U,1,A,12,y,z")
    declare(source, "id INT8", "v WSTRING(9)", "n INT4", changes={"new": "add"})
    source.merged()
    assert table(source)[1] == {"v": "A", "n": 12, "most": "z"}, "what was ignored before stays so"
    put(source, FILE3, "id,v,n,most", "U,2,B,22,q")
    source.merged()
    assert table(source)[2] == {"v": "B", "n": 22, "most": "q"}


def test_a_column_named_like_a_key_may_be_one_that_a_rule_adds(source):
    put(source, FILE1, "id,v,n,BI_id", "U,1,A,11,1")
    note = refused(source, "unknown column 'BI_id'")
    assert "cure: print the task's table mappings again if a rule adds it, as old values of id; else add it to" in note


def test_a_column_that_an_earlier_version_added_is_kept_and_its_property_is_renamed_with_the_next_one(source):
    names = "frazil.auto-columns", "frazil.learnt"
    put(source, FILE1, "id,v,n,more", "U,1,A,11,x").merged(changes={"new": "add"})
    assert source.properties("t", *names) == ('["more"]', None)
    rename_property(source, "t", *names)
    put(source, FILE2, "id,v,n,more", "U,1,A,12,y").merged(changes={"new": "add"})
    assert table(source)[1] == {"v": "A", "n": 12, "more": "y"}
    assert source.properties("t", *names) == (None, '["more"]'), "nothing was added since"
    put(source, FILE3, "id,v,n,more,most", "U,2,B,22,y,z").merged(changes={"new": "add"})
    assert table(source)[2] == {"v": "B", "n": 22, "more": "y", "most": "z"}
    assert source.properties("t", *names) == ('["more", "most"]', None)


def test_a_column_that_files_no_longer_carry_stops_the_table_or_keeps_its_values(source):
    put(source, FILE1, "id,v", "U,1,A", "I,3,c")
    refused(source, "no column n", "changes: {gone: keep}")
    source.merged(changes={"gone": "keep"}, lane="rowdelta")
    assert table(source) == {1: {"v": "A", "n": 10}, 2: {"v": "b", "n": 20}, 3: {"v": "c", "n": None}}
    assert source.position("t")["lacks"] == ["n"]
    put(source, FILE2, "id,v", "U,3,C").merged()
    assert table(source)[3] == {"v": "C", "n": None}, "once it is gone, no policy is needed"


def test_files_of_before_and_after_a_column_went_keep_what_each_row_carried(source):
    put(source, FILE1, "id,v,n", "I,3,c,30", "U,1,A,11")
    put(source, FILE2, "id,v", "U,3,C", "U,2,B")
    assert source.merge(changes={"gone": "keep"})["t"].counts["batches"] == 2
    assert table(source) == {1: {"v": "A", "n": 11}, 2: {"v": "B", "n": 20}, 3: {"v": "C", "n": 30}}


@pytest.mark.parametrize("empty", [FILE1, FILE3], ids=["before", "after"])
def test_a_file_without_bytes_takes_no_values_from_the_rows_of_others(source, empty):
    declare(source, "id INT8", "v WSTRING(9)", "n INT4", changes={"gone": "keep"})
    put(source, FILE2, "id,v", "U,1,A").write("t", empty, "")
    source.merged()
    assert source.rows("t") == [(1, "A", 10), (2, "b", 20)]


def test_a_column_that_the_spec_no_longer_lists_is_refused_kept_or_dropped(source):
    declare(source, "id INT8", "v WSTRING(9)")
    put(source, FILE1, "id,v", "U,1,A")
    refused(source, "the lake has a column 'n'", "renamed_from")
    assert source.setup()["t"].failed
    source.merged(changes={"gone": "keep"})
    assert table(source)[1] == {"v": "A", "n": 10}
    put(source, FILE2, "id,v", "U,2,B")
    source.merged(changes={"gone": "drop"})
    assert table(source) == {1: {"v": "A"}, 2: {"v": "B"}}
    source.full_load(on_changed_load="replay", changes={"gone": "drop"})
    source.merged(changes={"gone": "drop"})
    assert table(source) == {1: {"v": "A"}, 2: {"v": "B"}}, "load and old files carry n, and are read again"
    put(source, FILE3, "id,v,n", "U,2,B,99")
    refused(source, "unknown column 'n'", changes={"gone": "drop"})


def test_a_declared_rename_keeps_the_column_by_its_id_and_old_files_readable(source):
    was = ids(source)
    put(source, FILE1, "id,v,n", "U,1,A,11").merged()
    put(source, FILE2, "id,name,n", "U,2,B,22", "I,3,c,30")
    refused(
        source,
        "unknown column 'name', and no column v: renamed, or another one?",
        changes={"new": "add", "gone": "keep"},
    )
    declare(source, "id INT8", {"name": "name", "type": "WSTRING(9)", "renamed_from": "v"}, "n INT4")
    assert plan(source.book(CdcMergeSettings))[0]["schema"] == "rename v to name"
    source.merged(lane="rowdelta")
    expected = {1: {"name": "A", "n": 11}, 2: {"name": "B", "n": 22}, 3: {"name": "c", "n": 30}}
    assert table(source) == expected
    assert ids(source) == {"id": was["id"], "name": was["v"], "n": was["n"]}
    source.full_load(on_changed_load="replay")
    source.merged()
    assert table(source) == expected
    was_then = source.spark.sql(
        f"select * from {source.name('t')} version as of {source.history('t')[-2].snapshotId()}"
    )
    assert "v" in was_then.columns, "history is read with the names of its time"


def test_a_misspelt_earlier_name_adds_no_column_beside_the_one_that_is_kept(source):
    put(source, FILE1, "id,value,n", "U,1,A,11")
    declare(source, "id INT8", {"name": "value", "type": "WSTRING(9)", "renamed_from": "v"}, "n INT4")
    source.merged()
    put(source, FILE2, "id,text,n", "U,2,B,22")
    declare(source, "id INT8", {"name": "text", "type": "WSTRING(9)", "renamed_from": "valu"}, "n INT4")
    refused(source, "the lake has no column 'valu'", "write renamed_from: value if", changes={"gone": "keep"})
    declare(source, "id INT8", {"name": "text", "type": "WSTRING(9)", "renamed_from": "value"}, "n INT4")
    source.merged(changes={"gone": "keep"})
    assert table(source) == {1: {"text": "A", "n": 11}, 2: {"text": "B", "n": 22}}


def test_the_remedy_for_a_number_too_large_for_its_column_needs_no_new_load(source):
    put(source, FILE1, "id,v,n", "U,1,A,3000000000")
    refused(source, "does not fit INT4", "write INT8 at column 'n'")
    declare(source, "id INT8", "v WSTRING(9)", "n INT8")
    assert table(source.merged())[1] == {"v": "A", "n": 3_000_000_000}
    put(source, FILE2, "id,v,n,d", "U,1,A,1,12.50").merged(changes={"new": "ignore"})
    declare(source, "id INT8", "v WSTRING(9)", "n INT8", "d NUMERIC(4,2)")
    put(source, FILE3, "id,v,n,d", "U,1,A,1,12345.6")
    assert "write NUMERIC(7,2) at column 'd'" in source.merge()["t"].note
    declare(source, "id INT8", "v WSTRING(9)", "n INT8", "d NUMERIC(7,2)")
    assert table(source.merged())[1] == {"v": "A", "n": 1, "d": Decimal("12345.60")}


def test_a_column_may_be_renamed_and_another_one_take_its_name(source):
    """As migrations do: v becomes old_v, and a new v is added. A file that has v and no old_v is from before."""
    was = ids(source)
    put(source, FILE1, "id,v,n", "U,1,A,11").merged()
    put(source, FILE2, "id,v,n", "I,3,c,30")
    put(source, FILE3, "id,old_v,n,v", "U,2,B,22,new")
    declare(source, "id INT8", {"name": "old_v", "type": "WSTRING(9)", "renamed_from": "v"}, "n INT4", "v WSTRING(9)")
    assert plan(source.book(CdcMergeSettings))[0]["schema"] == "rename v to old_v, add v string"
    source.merged()
    expected = {
        1: {"old_v": "A", "n": 11, "v": None}, 2: {"old_v": "B", "n": 22, "v": "new"}, 3: {"old_v": "c", "n": 30, "v": None},
    }  # fmt: skip
    assert table(source) == expected
    now = ids(source)
    assert (now["old_v"], now["n"]) == (was["v"], was["n"]) and now["v"] not in was.values()
    source.full_load(on_changed_load="replay")
    assert table(source.merged()) == expected


def test_columns_that_take_each_others_names_at_once_are_refused_and_swap_by_way_of_a_third_name(source):
    def column(name: str, kind: str, *old: str) -> dict:
        return {"name": name, "type": kind, "renamed_from": [*old]}

    was = ids(source)
    put(source, FILE1, "id,v,n", "U,1,A,11").merged()
    put(source, FILE2, "id,n,v", "I,3,c,30")
    declare(source, "id INT8", column("n", "WSTRING(9)", "v"), column("v", "INT4", "n"))
    refused(source, "columns n, v take each other's names", "third name")
    for names in (
        (column("x", "WSTRING(9)", "v"), "n INT4"),
        (column("x", "WSTRING(9)", "v"), column("v", "INT4", "n")),
    ):
        declare(source, "id INT8", *names).setup()
    declare(source, "id INT8", column("n", "WSTRING(9)", "x", "n"), column("v", "INT4", "n"))
    source.merged()
    assert ids(source) == {"id": was["id"], "n": was["v"], "v": was["n"]}
    assert table(source)[3] == {"n": "c", "v": 30} and table(source)[1] == {"n": "A", "v": 11}


def test_a_column_that_takes_the_name_of_a_dropped_one_while_another_takes_its_own_is_refused(new_world):
    """At the source: drop a, rename b to a, add b. Names alone do not show it: neither in the lake nor in files."""
    world = new_world(AddColumnName=True)
    world.rules = {"rules": []}
    world.table("t", "id INT8", "a WSTRING(9)", "b WSTRING(9)").write(
        "t", LOAD1, f"ts,id,a,b\n{TS},1,old,kept\n"
    ).loaded()
    put(world, FILE1, "id,a,b", "I,2,x,new")
    column = {"name": "a", "type": "WSTRING(9)", "renamed_from": "b"}
    declare(world, "id INT8", column, "b WSTRING(9)")
    refused(world, "column 'a' was 'b' by", "third name")
    declare(world, "id INT8", {**column, "name": "c"}, {"name": "d", "type": "WSTRING(9)", "renamed_from": "a"}).setup()
    declare(world, "id INT8", {**column, "renamed_from": "c"}, "b WSTRING(9)", changes={"gone": "drop"}).setup()
    assert table(world.merged()) == {1: {"a": "kept", "b": None}, 2: {"a": "x", "b": "new"}}


def test_a_table_that_is_created_with_a_renamed_column_and_its_old_name_needs_no_rename(new_world):
    world = new_world(AddColumnName=True)
    world.rules = {"rules": []}
    world.table("t", "id INT8")
    declare(world, "id INT8", {"name": "a", "type": "WSTRING(9)", "renamed_from": "b"}, "b WSTRING(9)")
    world.write("t", LOAD1, f"ts,id,a,b\n{TS},1,x,z\n").loaded()
    put(world, FILE1, "id,a,b,c", "I,2,y,new,more")
    declare(world, "id INT8", {"name": "a", "type": "WSTRING(9)", "renamed_from": "b"}, "b WSTRING(9)", "c WSTRING(9)")
    rows = sorted(tuple(row.values())[:2] for row in table(world.merged()).values())
    assert rows == [("x", "z"), ("y", "new")]


def test_a_key_column_may_be_renamed_but_the_key_stays(source):
    put(source, FILE1, "no,v,n", "U,1,A,11", "D,2,,")
    declare(source, {"name": "no", "type": "INT8", "renamed_from": "id"}, "v WSTRING(9)", "n INT4", key=["no"])
    source.merged()
    assert [tuple(r) for r in source.spark.table(source.name("t")).collect()] == [(1, "A", 11)]
    declare(source, {"name": "no", "type": "INT8", "renamed_from": "id"}, "v WSTRING(9)", "n INT4", key=["no", "v"])
    put(source, FILE2, "no,v,n", "U,1,A,12")
    refused(source, "the key is (no, v)", "identified by (no)", "drop the table")
    declare(source, "v WSTRING(9)", "n INT4", key=["v"])
    refused(source, "the key is (v)")


def test_old_values_of_another_column_show_that_the_sources_key_changed(new_world):
    w = (
        new_world(AddColumnName=True)
        .table("t")
        .load("t", (1, "a"))
        .loaded()
        .changes("t", U(1, "b"), name=FILE1)
        .merged()
    )
    w.write("t", FILE2, f"Op,ts,id,v,seq,BI_id,BI_v\nI,{TS},1,second,,,\n")
    refused(w, "the source's primary key is (id, v), and (id) in", changes={"new": "add"})
    w.merged(changes={"key": "keep"})
    assert w.rows("t") == [(1, "second")]


def test_a_wider_type_in_the_spec_widens_the_column(new_world):
    w = new_world(AddColumnName=True)
    w.rules = {"rules": []}
    w.table("t", "id INT8", "n INT4", "r REAL4", "d NUMERIC(6,2)").write("t", LOAD1, f"ts,id,n,r,d\n{TS},1,1,1,1\n")
    was = ids(w.loaded())
    put(w, FILE1, "id,n,r,d", "I,2,3000000000,1e300,1234567.89")
    assert "does not fit" in w.merge()["t"].note
    declare(w, "id INT8", "n INT8", "r REAL8", "d NUMERIC(12,2)").merged()
    assert {k: str(v) for k, v in table(w)[2].items()} == {"n": "3000000000", "r": "1e+300", "d": "1234567.89"}
    assert ids(w) == was
    declare(w, "id INT8", "n INT4", "r REAL4", "d NUMERIC(6,2)")  # narrower again: the lake stays as wide as it is
    put(w, FILE2, "id,n,r,d", "U,1,3000000000,1e300,1234567.89").merged()
    assert table(w)[1] == table(w)[2]


def test_a_type_that_no_promotion_leads_to_stops_the_table_or_stands_beside_the_old_one(source):
    source.table("other").write("other", LOAD1, f"ts,id,v\n{TS},1,a\n")
    source.setup(), source.full_load()
    put(source, FILE1, "id,v,n", "U,1,A,eleven", "I,3,c,thirty")
    source.write("other", FILE1, f"Op,ts,id,v\nU,{TS},1,b\n")
    declare(source, "id INT8", "v WSTRING(9)", {"name": "n", "type": "WSTRING(9)", "comment": "in words"})
    done = source.merge()
    assert "no promotion leads there" in done["t"].note and "beside" in done["t"].note and done["t"].decision
    assert source.rows("other") == [(1, "b")], "the others go on"
    was = ids(source)
    source.merged(changes={"type": "beside"})
    assert table(source) == {
        1: {"v": "A", "n_int": 10, "n": "eleven"}, 2: {"v": "b", "n_int": 20, "n": None}, 3: {"v": "c", "n_int": None, "n": "thirty"},
    }  # fmt: skip
    assert ids(source)["n_int"] == was["n"]
    put(source, FILE2, "id,v,n", "U,2,B,twenty").merged()
    assert table(source)[2] == {"v": "B", "n_int": 20, "n": "twenty"}


def test_a_type_that_changes_back_and_forth_leaves_a_column_of_each_change(world):
    world.table("t", "id INT8", "v INT4").load("t", (1, 5)).loaded()
    world.specs["t"]["changes"] = {"type": "beside"}
    for kind, value, file in (("WSTRING(9)", "a", FILE1), ("INT4", 7, FILE2), ("WSTRING(9)", "b", FILE3)):
        world.specs["t"]["columns"][1]["type"] = kind
        world.table_file("t").changes("t", U(1, value), name=file).merged()
    world.merged()
    (row,) = world.spark.table(world.name("t")).collect()
    assert row.asDict() == {"id": 1, "v": "b", "v_int": 5, "v_string": "a", "v_int_2": 7}


def test_every_snapshot_keeps_the_schema_that_it_was_written_with(source):
    put(source, FILE1, "id,v,n", "U,1,A,11").merged()
    put(source, FILE2, "id,v,n,more", "U,1,A,11,x")
    declare(source, "id INT8", "v WSTRING(9)", "n INT4", "more WSTRING(9)").merged()
    ever = jvm_schema.ever(source.spark, source.iceberg("t"))
    one, two = (ever[s.schemaId()] for s in source.history("t")[1::-1])
    assert [f.name for f in one] == ["id", "v", "n"] and [f.name for f in two] == ["id", "v", "n", "more"]


def test_tables_without_a_key_follow_only_as_far_as_rows_stay_whole(new_world):
    w = new_world(AddColumnName=True)
    w.rules = {"rules": []}
    w.table("t", "id INT8", "v WSTRING(9)", key=()).write("t", LOAD1, f"ts,id,v\n{TS},1,a\n")
    declare(w, "id INT8", "v WSTRING(9)", without_key="append").loaded()
    put(w, FILE1, "id,v,w", "I,2,b,x")
    declare(w, "id INT8", "v WSTRING(9)", "w WSTRING(9)").merged()
    rows = w.spark.table(w.name("t")).select("id", "v", "w", "_op").collect()
    assert sorted(map(tuple, rows)) == [(1, "a", None, "I"), (2, "b", "x", "I")]


# --- headerless files, and layouts with a validity


@pytest.fixture
def bare(new_world):
    w = new_world()
    w.rules = {"rules": []}
    w.table("t", "id INT8", "v WSTRING(9)", "n INT4").write("t", LOAD1, f"{TS},1,a,10\n{TS},2,b,20\n")
    return w.loaded()


def rows(world, name, *lines):
    return world.write("t", name, "".join(f"{r[0]},{TS},{r[2:]}\n" for r in lines))


def test_a_headerless_file_is_read_with_the_layout_that_held_when_it_was_written(bare):
    rows(bare, FILE1, "U,1,A,11")
    rows(bare, FILE2, "U,2,B,x", "I,3,c,y")
    was = {"until": FILE1, "columns": ["id", "v", "n"], "load": True}
    declare(bare, "id INT8", "v WSTRING(9)", "w WSTRING(9)", layouts=[was])
    refused(bare, "the lake has a column 'n'")
    bare.merged(changes={"gone": "keep"})
    expected = {1: {"v": "A", "w": None, "n": 11}, 2: {"v": "B", "w": "x", "n": 20}, 3: {"v": "c", "w": "y", "n": None}}
    assert table(bare) == expected
    bare.full_load(on_changed_load="replay", changes={"gone": "keep"})
    bare.merged(changes={"gone": "keep"})
    assert table(bare) == expected


def test_a_layout_of_the_past_holds_from_the_first_load(new_world):
    w = new_world()
    w.rules = {"rules": []}
    w.table("t", "id INT8", "w WSTRING(9)", "v WSTRING(9)").write("t", LOAD1, f"{TS},1,a\n{TS},2,b\n")
    past = {"until": FILE1, "columns": ["id", "v"], "load": True}
    declare(w, "id INT8", "w WSTRING(9)", "v WSTRING(9)", layouts=[past])
    rows(w, FILE1, "U,1,A")
    rows(w, FILE2, "U,2,x,B", "I,3,y,c")
    w.loaded().merged()
    assert table(w) == {1: {"v": "A", "w": None}, 2: {"v": "B", "w": "x"}, 3: {"v": "c", "w": "y"}}


@pytest.mark.parametrize("until", [FILE1, "2024-01-01 10:00:30"])
def test_a_file_that_fits_no_layout_shows_its_row_and_the_nearest_layout(bare, until):
    rows(bare, FILE2, "U,2,B,20,x,z")
    declare(bare, "id INT8", "v WSTRING(9)", "n INT4", "w WSTRING(9)", layouts=[{"until": until, "columns": ["id", "v", "n"], "load": True}])  # fmt: skip
    refused(bare, f"{FILE2} row 1: 7 fields, and 6 in the layout", "'B', '20', 'x', 'z'", "the nearest layout is that of 'now' (id, v, n, w)")  # fmt: skip
    assert bare.merge()["t"].decision


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"changes": {"now": "add"}}, "did you mean 'new'"),
        ({"changes": {"new": "ad"}}, "changes: unknown new 'ad'\n  cure: did you mean 'add'"),
        ({"layouts": [{"columns": ["id"]}]}, "layouts: no until\n  cure: write until: 2024"),
        ({"layouts": [{"until": "x", "columns": ["id"], "loads": True}]}, "unknown entry 'loads'"),
    ],
)
def test_entries_that_cannot_be_right_are_refused(entry, says):
    with pytest.raises(SpecError, match=says):
        parse_spec({"source": "a.b", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}], **entry})


@pytest.mark.parametrize("name", ["key", "n"], ids=["new name", "name of another column"])
def test_a_scan_for_a_key_that_was_renamed_since_the_last_commit_finds_its_rows(source, name):
    other = {"name": "m", "type": "INT8", "renamed_from": "n"}
    declare(source, "id INT8", "v WSTRING(9)", other).setup()
    declare(source, {"name": name, "type": "INT8", "renamed_from": "id"}, "v WSTRING(9)", other, key=[name]).setup()
    put(source, FILE1, f"{name},v,m", "U,1,x,11", "D,2,,").merged(lane="scan")
    assert source.rows("t") == [(1, "x", 11)]
    put(source, FILE2, f"{name},v,m", "U,1,y,12").merged(lane="scan")
    assert source.rows("t") == [(1, "y", 12)] and source.history("t")[0].summary()["frazil.lane"] == "scan"
