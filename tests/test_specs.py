"""What table specs say beyond key and types: columns left out, masked or widened, partitions, sort order, no key at all."""

import hashlib
import random
from collections import Counter

import pytest
import yaml

from frazil_old.config.spec import SpecError, parse_spec
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, D, I, U, csv_field

spark = pytest.mark.spark
NO_RULES = {"rules": []}
OLD_ROWS = {"rules": [{"rule-type": "transformation", "rule-action": "add-before-image-columns",
                       "before-image-def": {"column-prefix": "BI_", "column-filter": "all"}}]}  # fmt: skip


def given(**more):
    columns = [
        {"name": "id", "type": "INT8"},
        {"name": "at", "type": "DATETIME"},
        {"name": "n", "type": "NUMERIC(5,2)"},
    ]
    return {"source": "public.t", "key": ["id"], "columns": columns, **more}


def sha(text) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def declare(world, table: str, columns=(), **entries):
    """Add entries to a table's spec, and to its columns by name."""
    spec = world.specs[table]
    spec.update(entries)
    for c in spec["columns"]:
        c.update(dict(columns).get(c["name"], {}))
    (world.root / f"specs/{table}.yml").write_text(yaml.safe_dump(spec))
    return world


# --- specs


def test_partition_and_sort_become_sql():
    spec = parse_spec(given(partition=["day(at)", "bucket(16, id)", "truncate(4,id)", "n"], sort=["at desc", "id"]))
    assert spec.partition == ("days(`at`)", "bucket(16, `id`)", "truncate(4, `id`)", "`n`")
    assert spec.sort == ("`at` DESC", "`id` ASC")


def test_columns_are_left_out_either_way():
    left_out, kept = parse_spec(given(exclude=["at"])), parse_spec(given(include=["id", "n"]))
    assert left_out.names == kept.names == ["id", "n"]
    assert [c.name for c in left_out.file_columns] == ["id", "at", "n"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"partition": ["days(at)"]}, "partition: 'days(at)' is no column"),
        ({"partition": ["day(att)"]}, "partition: 'day(att)' is no column"),
        ({"partition": "id"}, "partition: 'id' should be a valid list\n  cure: write partition: [id]"),
        ({"partition": ["n"], "exclude": ["n"]}, "is no column of the lake"),
        ({"sort": ["idd"]}, "sort: no column 'idd'"),
        ({"exclude": ["nn"]}, "exclude: no column 'nn'"),
        ({"exclude": ["n"], "include": ["id"]}, "include and exclude together"),
        ({"exclude": ["id"]}, "key column 'id' is left out"),
        ({"key": [], "without_key": "apend"}, "did you mean 'append'"),
        ({"without_key": "append"}, "a key, and without_key"),
        ({"key": [], "without_key": "multiset", "exclude": ["n"]}, "whole rows are compared"),
        ({"columns": [{"name": "id", "type": "INT8", "mask": "md5"}]}, "unknown mask 'md5'"),
        ({"columns": [{"name": "id", "type": "INT8", "lake": "int"}]}, "'int' may not hold every INT8"),
        ({"columns": [{"name": "id", "type": "NUMERIC(5,2)", "lake": "decimal(5,3)"}]}, "may not hold every"),
    ],
)
def test_a_wrong_entry_is_refused(change, says):
    with pytest.raises(SpecError) as e:
        parse_spec(given(**change), "specs/t.yml")
    assert says in str(e.value) and str(e.value).startswith("specs/t.yml")


# --- columns


@spark
@pytest.mark.parametrize("header", [False, True])
def test_masked_and_left_out_columns_never_reach_the_lake(new_world, header):
    w = new_world(AddColumnName=header).table(
        "t", "id WSTRING(9)", "secret WSTRING(9)", "born DATE", "pay NUMERIC(9,2)"
    )
    declare(w, "t", {"id": {"mask": "sha256"}, "born": {"mask": "sha256"}, "pay": {"lake": "decimal(12,4)"}}, exclude=["secret"])  # fmt: skip
    w.load("t", ("a", "sesame", "2001-02-03", "1.50"), ("b", "x", None, None)).loaded()
    w.changes("t", U("A", "sesame", "2001-02-03", "2.25", was="a"), D("b"), I("c", "y", "2001-02-04", "3")).merged()
    assert {r[:2]: str(r[2]) for r in w.rows("t")} == {
        (sha("A"), sha("2001-02-03")): "2.2500",
        (sha("c"), sha("2001-02-04")): "3.0000",
    }
    assert w.spark.table(w.name("t")).columns == ["id", "born", "pay"]


@spark
def test_a_mask_that_comes_or_goes_mixes_no_hashes_with_values(new_world):
    """Of a key, each change would add a second row; of another column, older rows would keep what is to be hidden."""
    for name in ("k", "v"):
        w = new_world().table("t", "k WSTRING(9)", "v WSTRING(9)", key="k")
        for now, before in (("masked", "not"), ("not masked", "masked")):
            w.load("t", ("a", "old")).loaded().changes("t", U("a", "new"), name=FILE1)
            had = w.rows("t")
            w.table("t", "k WSTRING(9)", "v WSTRING(9)", key="k")
            declare(w, "t", {name: {"mask": "sha256"}} if now == "masked" else {})
            note = w.merge()["t"].note
            assert f"column '{name}' is {now} in" in note and f"the lake's rows are {before}" in note, note
            assert w.rows("t") == had
            w.spark.sql(f"DROP TABLE {w.name('t')} PURGE")
        w.setup(), declare(w, "t", {name: {"mask": "sha256"}}), w.setup()  # without a load it is created again
        assert w.loaded().merged().rows("t") == [(sha("a"), "new") if name == "k" else ("a", sha("new"))]


@spark
def test_a_column_that_comes_with_a_mask_keeps_it(world):
    world.rules = {"rules": []}
    world.table("t", "id INT8").load("t", (1,)).loaded()
    declare(world.table("t", "id INT8", "v WSTRING(9)"), "t", {"v": {"mask": "sha256"}})
    world.changes("t", U(1, "x")).merged()
    assert world.rows("t") == [(1, sha("x"))]
    world.table("t", "id INT8", "v WSTRING(9)").changes("t", U(1, "y"), name=FILE2)
    assert "column 'v' is not masked in" in world.merge()["t"].note
    world.specs["t"]["changes"] = {"type": "beside"}
    world.table_file("t").merged()
    assert world.spark.table(world.name("t")).columns == ["id", "v", "v_string"]
    assert world.rows("t") == [(1, "y", sha("x"))]


@spark
@pytest.mark.slow
def test_messages_do_not_show_masked_values(world):
    w = declare(world.table("t", "id INT8", "born DATE"), "t", {"born": {"mask": "sha256"}})
    w.load("t", (1, "2001-02-03")).loaded().changes("t", I(2, "sesame"), name=FILE1)
    assert "'born': a masked value does not fit DATE" in w.merge()["t"].note
    w.write("t", FILE1, "I,2024-01-01 10:00:00.000000,y,sesame,1,2,3,4,5\n")
    note = w.merge()["t"].note
    assert "too many or too few fields" in note and "sesame" not in note


@spark
def test_a_text_type_in_the_lake_keeps_what_dms_wrote(world):
    w = declare(world.table("t", "id INT8", "n NUMERIC(5,2)"), "t", {"n": {"lake": "string"}})
    w.load("t", (1, "1.500"), (2, "12345678.9")).loaded()
    assert w.rows("t") == [(1, "1.500"), (2, "12345678.9")]


# --- partitions


@spark
@pytest.mark.parametrize(
    ("readers", "lane"), [(["spark"], "merge"), (["spark"], "rowdelta"), (["trino"], "merge"), (["trino"], "rowdelta")]
)
def test_partitions_outside_the_key_follow_moves_and_deletes_that_carry_only_the_key(world, readers, lane):
    w = world.table("t", "id INT8", "region WSTRING(9)", "at DATETIME", "v INT4")
    declare(w, "t", partition=["region", "month(at)", "bucket(4, id)"], sort=["v desc"])
    days = ["2024-01-05 00:00:00", "2024-02-05 00:00:00"]
    w.load("t", *[(i, f"r{i % 3}", days[i % 2], i) for i in range(12)])
    assert not any(r.failed for r in {**w.setup(query_engines=readers), **w.full_load(query_engines=readers)}.values())
    w.changes("t", *[U(i, f"r{(i + 1) % 3}", days[(i + 1) % 2], i + 100) for i in range(4)], D(4), D(5),
              U(40, "r0", days[0], 1, was=6), I(5, None, None, 7)).merged(query_engines=readers, lane=lane)  # fmt: skip
    got = {r[0]: (r[1], r[3]) for r in w.rows("t")}
    wanted = {i: (f"r{(i + 1) % 3}", i + 100) for i in range(4)} | {i: (f"r{i % 3}", i) for i in range(7, 12)}
    assert got == wanted | {5: (None, 7), 40: ("r0", 1)} and len(w.rows("t")) == len(got)
    assert w.history("t")[0].summary()["frazil.lane"] == lane
    table = w.iceberg("t")
    assert [f.name() for f in table.spec().fields()] == ["region", "at_month", "id_bucket"]
    assert table.sortOrder().fields().size() == 1


# --- no key


@spark
def test_a_table_without_a_key_is_refused_alone(world):
    w = world.table("t", key=()).table("u")
    w.load("t", (1, "a")).load("u", (1, "a"))
    created, loaded = w.setup(), w.full_load()
    assert created["t"].failed and "has no key" in created["t"].note and "without_key: append" in created["t"].note
    assert loaded["t"].failed and loaded["u"].status == "loaded"


@spark
def test_the_time_of_a_load_row_must_be_one_where_it_is_kept_and_else_look_like_one(world):
    no_day = "2024-02-31 00:00:00.000000"
    w = declare(world.table("keyed").table("kept", key=()), "kept", without_key="append")
    w.load("keyed", (1, "a")).load("kept", (1, "a"))
    for table in ("keyed", "kept"):
        file = w.root / "source/public" / table / LOAD1
        w.write(table, LOAD1, file.read_text().replace(ONE_COMMIT, no_day))
    w.setup()
    results = w.full_load()
    assert (w.rows("keyed"), w.rows("kept")) == ([(1, "a")], [])
    assert results["kept"].failed and f"commit timestamp '{no_day}' is not" in results["kept"].note


@spark
def test_append_keeps_every_change_with_its_operation_once(world):
    world.rules = NO_RULES
    w = declare(world.table("t", key=()), "t", without_key="append")
    w.load("t", (1, "a"), (1, "a")).loaded()
    w.changes("t", I(2, "b"), U(2, "c"), D(1, "a"), name=FILE1).changes("t", I(2, "b"), name=FILE2)
    w.merged(max_batch_files=1)
    assert w.merge()["t"].status == "unchanged"
    rows = w.spark.table(w.name("t")).orderBy("_object", "_row").collect()
    assert [(r.id, r.v, r._op, r._object, r._row) for r in rows if r._object < "LOAD"] == [
        (2, "b", "I", FILE1, 1), (2, "c", "U", FILE1, 2), (1, "a", "D", FILE1, 3), (2, "b", "I", FILE2, 1),
    ]  # fmt: skip
    assert len(rows) == 6 and str(rows[0]._commit_ts).startswith("2024-01-01 09:59:00")


def line(op, row, old=()):
    return ",".join(csv_field(f, "NULL") for f in [op, ONE_COMMIT, *row, *(old or [None] * len(row))]) + "\n"


@spark
def test_a_multiset_holds_as_many_copies_as_the_source(new_world):
    w = new_world(CsvNullValue="NULL")
    w.rules = OLD_ROWS
    declare(w.table("t", "id INT8", "v WSTRING(9)", key=()), "t", without_key="multiset")
    chance, truth = random.Random(5), Counter({(1, "a"): 3, (1, None): 2, (None, ""): 1})
    w.write("t", "LOAD00000001.csv", "".join(line("I", r)[2:] for r in truth.elements())).loaded()
    values = [(i, v) for i in (1, 2, None) for v in ("a", "", None) if (i, v) != (None, None)]
    for name in (FILE1, FILE2):
        lines = []
        for _ in range(40):
            new, old = chance.choice(values), chance.choice(sorted(truth.elements(), key=repr) or [None])
            op = chance.choice("IUD") if old else "I"
            truth += Counter([new] if op != "D" else [])
            truth -= Counter([old] if op != "I" else [])
            lines.append(line(op, old if op == "D" else new, old if op == "U" else ()))
        w.write("t", name, "".join(lines))
        w.merged()
        assert Counter(w.rows("t")) == truth
    assert w.merge()["t"].status == "unchanged" and "frazil.counts" in w.history("t")[0].summary()


@spark
def test_a_multiset_does_not_go_on_as_a_table_of_all_changes_nor_the_other_way_round(new_world):
    for made, now in (("multiset", "append"), ("append", "multiset")):
        w = new_world()
        w.rules = OLD_ROWS
        w.table("t", key=()).specs["t"]["without_key"] = made
        w.table_file("t").write("t", LOAD1, f"{ONE_COMMIT},1,a,,\n").loaded()
        had = w.rows("t")
        declare(w, "t", without_key=now).write("t", FILE1, f"U,{ONE_COMMIT},1,b,1,a\n")
        for changes in ({}, {"gone": "drop"}, {"gone": "keep"}):
            declare(w, "t", changes=changes)
            assert "write without_key as it was" in w.merge()["t"].note and w.rows("t") == had, changes
        declare(w, "t", without_key=made, changes={}).merged()
        assert len(w.rows("t")) == (1 if made == "multiset" else 2)


@spark
def test_a_multiset_refuses_an_update_without_its_old_row(world):
    world.rules = NO_RULES
    w = declare(world.table("t", key=()), "t", without_key="multiset").load("t", (1, "a")).loaded()
    w.changes("t", U(1, "b"))
    assert "an update without the old row" in w.merge()["t"].note and w.rows("t") == [(1, "a")]
