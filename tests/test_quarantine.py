"""Quarantined rows: exactly once with their batch, obsolete or not by what came later, replayed in order and never over newer data."""

import os
import random
import re
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import functions as F

from frazil_old.cli import check
from frazil_old.config.settings import CdcMergeSettings, OperateSettings
from frazil_old.flows import quarantine_counts, quarantine_replay
from frazil_old.flows.plan import plan
from frazil_old.lake import jvm, quarantine_table, table_pause
from helpers import FILE1, FILE2, FILE3, LOAD1, ONE_COMMIT, D, I, Killed, U, slow

pytestmark = pytest.mark.spark
COLUMNS = ("id INT8", "n INT4", "note WSTRING(99)")


@pytest.fixture
def aside(world):
    """A loaded table of three rows whose bad rows are set aside, in a quarantine of its own."""
    world.more = {"on_bad_rows": "quarantine", "ops_namespace": f"{world.space}_ops"}
    book = world.book
    world.book = lambda kind=CdcMergeSettings, **settings: book(kind, **{**world.more, **settings})
    world.table("t", *COLUMNS).load("t", (1, 1, "a"), (2, 2, "b"), (3, 3, "c"))
    return world.loaded()


def widen(world, **types):
    """Mend the cause: another type for a column in the spec, which a replay brings to the lake."""
    world.table("t", *[" ".join([n, types.get(n, t)]) for n, t in (c.split(" ") for c in COLUMNS)])


def kept(world, *columns, table="t") -> list[tuple]:
    """What stands in the quarantine, newest record of each row, in order of place."""
    name = f"lake.{world.space}_ops.quarantine"
    rows = world.spark.sql(
        f"select * from (select *, row_number() over (partition by table_name, id order by sequence desc, changed_at desc) nth "
        f"from {name}) where nth = 1 order by path, row_no"
    )
    return [tuple(int(r[c]) if c == "row_no" else r[c] for c in columns) for r in rows.collect()]


def outcomes(world) -> list[tuple]:
    return sorted((r["column"], r["rows"], r["replay"]) for r in quarantine_replay.plan(world.book()))


def replayed(world, **settings):
    (result,) = quarantine_replay.run(world.book(quarantine="replay", **settings))
    assert not result.failed, result.note
    return result


BIG = 3_000_000_000


@pytest.mark.slow
def test_a_batch_runs_the_code_that_the_ones_before_it_had_compiled(aside):
    """A number or a time of the batch in the text of generated code would cost seconds of compilation in each."""
    metrics = aside.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
    compiled = []
    for n in range(1, 6):
        aside.changes("t", U(1, n, "A"), U(2, n, "B"), U(3, "bad", "C"), name=f"20240612-10312510{n}.csv")
        assert aside.merge(lane="merge")["t"].counts["quarantined"] == 1
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount())
    assert compiled[-1] == compiled[-2], compiled


def test_bad_rows_lie_in_the_quarantine_and_good_ones_in_the_table(aside):
    aside.changes("t", U(1, 9, "A"), I(4, "four", "d"), U(2, 8, "B"), D(3))
    result = aside.merge()["t"]
    assert (result.status, result.counts["quarantined"], result.counts["changes"]) == ("merged", 1, 4)
    assert aside.rows("t") == [(1, 9, "A"), (2, 8, "B")]
    (row,) = kept(aside, "table_name", "status", "column_name", "reason", "raw", "row_no", "key", "op", "batch")
    assert row[:4] == ("public.t", "waiting", "n", "column 'n': 'four' does not fit INT4 (int in the lake)")
    assert bytes(row[4]) == b'"I","2024-01-01 09:59:00.000000","4","four","d",,'
    assert row[5:] == (2, '["4"]', "I", aside.position("t")["batch"])
    ((path,),) = kept(aside, "path")
    assert path.endswith(f"/public/t/{FILE1}")
    assert aside.merge()["t"].status == "unchanged"
    aside.changes("t", I(5, "five", "d"), I(6, "six", "e"), name=FILE2)  # nothing but bad rows
    assert aside.merge()["t"].counts["quarantined"] == 2
    assert aside.position("t")["last"] == FILE2
    assert kept(aside, "row_no", "status") == [(2, "waiting"), (1, "waiting"), (2, "waiting")]
    limit = {"max_quarantined": 2}
    assert check._quarantined(aside.book(OperateSettings, **limit)) == [
        "quarantine: 3 waiting rows (3 of public.t), limit 2"
    ]
    assert [(r["quarantined"], r["action"]) for r in plan(aside.book())] == [(3, "nothing new")]
    name = aside.book().ops("quarantine")
    others = aside.spark.table(name).withColumns({"table_name": F.lit("public.u"), "id": F.concat("id", F.lit("u"))})
    others.writeTo(name).append()  # another environment's, which shares the quarantine
    assert "(3 of public.t)" in check._quarantined(aside.book(OperateSettings, **limit))[0]
    other = aside.book(OperateSettings)
    other.specs = {"public.v": replace(other.specs["public.t"], source="public.v")}
    assert check._quarantined(other) == []


def test_a_damaged_operation_in_a_file_of_one_row_is_a_bad_row_and_no_wrong_setting(aside):
    damaged = I(1, 5, "z")._replace(op="0")
    aside.changes("t", damaged, name=FILE1).merged()
    assert kept(aside, "object", "row_no", "column_name") == [(FILE1, 1, "op")]
    aside.changes("t", damaged, damaged, name=FILE2)
    assert "not an operation in OpValues" in aside.merge()["t"].note


def test_replay_applies_what_a_wider_type_lets_pass(aside):
    aside.changes("t", U(1, BIG, "A"), I(4, BIG + 1, "d"), I(5, "five", "e")).merged()
    assert outcomes(aside) == [("n", 1, "still bad"), ("n", 2, "still bad")]  # a word, and numbers that are too large
    widen(aside, n="INT8")
    assert outcomes(aside) == [("n", 1, "still bad"), ("n", 2, "apply")]
    before = aside.rows("t")
    result = replayed(aside)
    assert (result.status, result.counts) == ("replayed", {"replayed": 2, "still_bad": 1})
    assert [before[0], aside.rows("t")] == [(1, 1, "a"), [(1, BIG, "A"), (2, 2, "b"), (3, 3, "c"), (4, BIG + 1, "d")]]
    assert kept(aside, "row_no", "status") == [(1, "replayed"), (2, "replayed"), (3, "still bad")]
    assert aside.position("t")["last"] == FILE1
    head = aside.head("t")
    assert replayed(aside).status == "unchanged"
    assert aside.head("t") == head


# --- exactly once


def killed_at(monkeypatch, where, name, after, nth=1):
    """Kill the nth call of a function: before it, or just after."""
    real, left = getattr(where, name), [nth]

    def kill(*arguments, **named):
        left[0] -= 1
        if left[0] or after:
            done = real(*arguments, **named)
        if not left[0]:
            raise Killed
        return done

    monkeypatch.setattr(where, name, kill)
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)  # a process that is gone by the next run


def staged(world) -> list[str]:
    refs = jvm.load_table(world.spark, f"lake.{world.space}_ops.quarantine").refs()
    return [r for r in refs.keySet() if r != "main"]


def test_a_kill_anywhere_loses_and_doubles_nothing(aside, monkeypatch):
    aside.changes("t", I(10, "bad", "x"), I(11, 1, "y")).merged()
    points = [
        (jvm, "fork", True, 1),  # there is a branch for what shall be set aside, and nothing on it
        (jvm, "publish", False, 1),  # the batch written, not committed
        (jvm, "publish", True, 1),  # committed, and what was set aside not published
    ]
    for n, (where, name, after, nth) in enumerate(points, 2):
        committed = n == 4
        aside.changes(
            "t", I(n * 10, "bad", "x"), I(n * 10 + 1, 1, "y"), U(1, n, "A"), name=f"20240101-10{n:02d}00000.csv"
        )
        killed_at(monkeypatch, where, name, after, nth)
        with pytest.raises(Killed):
            aside.merge()
        monkeypatch.undo()
        assert ((n * 10 + 1, 1, "y") in aside.rows("t")) == committed, name
        published = [(f'["{i}"]',) for i in range(10, n * 10, 10)]
        assert kept(aside, "key") == published, name
        aside.merged()
        assert kept(aside, "key") == [(f'["{i}"]',) for i in range(10, n * 10 + 1, 10)], name
        assert (n * 10 + 1, 1, "y") in aside.rows("t")
        assert (staged(aside), aside.branches("t")) == ([], [])


def test_a_rollback_of_the_table_takes_its_rows_back_out_and_what_overtook_others_too(aside):
    aside.changes("t", I(4, "four", "d"), I(5, 5, "e")).merged()
    old, position = aside.head("t"), aside.iceberg("t").properties().get("frazil.position")
    aside.changes("t", U(4, 4, "D"), I(6, "six", "f"), name=FILE2).merged()
    assert kept(aside, "key", "status") == [('["4"]', "obsolete"), ('["6"]', "waiting")]
    aside.call("rollback_to_snapshot", "t", f", snapshot_id => {old}")
    aside.spark.sql(f"ALTER TABLE {aside.name('t')} SET TBLPROPERTIES ('frazil.position' = '{position}')")
    assert outcomes(aside) == [("n", 1, "still bad")]
    assert kept(aside, "key", "status") == [('["4"]', "waiting")]
    aside.merged()
    assert kept(aside, "key", "status") == [('["4"]', "obsolete"), ('["6"]', "waiting")]
    assert aside.rows("t")[3:] == [(4, 4, "D"), (5, 5, "e")]


def test_tables_side_by_side_share_the_quarantine(world):
    settings = {"on_bad_rows": "quarantine", "ops_namespace": f"{world.space}_ops", "parallel_tables": 4}
    for name in "abcd":
        world.table(name, *COLUMNS).load(name, (1, 1, "x"))
    world.loaded()
    for n, file in enumerate((FILE1, FILE2, FILE3), 2):
        for name in "abcd":
            world.changes(name, U(1, name, "y"), I(n, n, name), name=file)
        world.merged(**settings)
        assert sorted(kept(world, "table_name", "status")) == sorted([(f"public.{name}", "waiting") for name in "abcd"] * (n - 1))  # fmt: skip
    assert world.rows("a")[1] == (2, 2, "a")


# --- what came later


def test_a_row_that_stays_bad_is_not_applied_later_over_what_was_replayed_before(aside):
    aside.changes("t", U(1, "later", "first"), U(1, BIG, "second")).merged()
    widen(aside, n="INT8")
    assert outcomes(aside) == [("n", 1, "apply"), ("n", 1, "still bad")]
    replayed(aside)
    assert aside.rows("t")[0] == (1, BIG, "second")
    assert kept(aside, "status") == [("obsolete",), ("replayed",)]


@pytest.mark.slow
def test_random_histories_end_as_if_no_row_had_ever_been_bad(aside):
    """Rows too big for the type are set aside at random; some are replayed half-way, the rest once the type is wide enough."""
    r, model, number = random.Random(1), {1: (1, "a"), 2: (2, "b"), 3: (3, "c")}, 0
    for n in range(4):
        changes = []
        for _ in range(r.randint(4, 9)):
            number += 1
            value = (BIG + number if r.random() < 0.4 else number), f"v{number}"
            key, what = r.choice([*model, r.randint(4, 9)]), r.random()
            if what < 0.2 and key in model:
                del model[key]
                changes.append(D(key, value[0]) if r.random() < 0.5 else D(key))
            elif what < 0.45 and key in model and (new := r.choice([k for k in range(1, 12) if k not in model])):
                del model[key]
                model[new] = value
                changes.append(U(new, *value, was=key))
            else:
                changes.append((U if key in model else I)(key, *value))
                model[key] = value
        aside.changes("t", *changes, name=f"20240101-10{n:02d}00000.csv")
        aside.merged(lane="rowdelta" if n == 1 else "merge")
        if n == 2:
            widen(aside, n="INT8")
            replayed(aside)
            assert aside.rows("t") == sorted(((k, *v) for k, v in model.items()), key=repr)
    assert aside.rows("t") == sorted(((k, *v) for k, v in model.items()), key=repr)


# --- keys that could not be read


def test_rows_of_another_width_are_replayed_in_order_but_not_over_what_may_be_newer(aside):
    aside.rules = {"rules": []}
    line = "{},2024-01-01 10:00:00.000000,{}\n"

    def late(name, good, *rows):  # the first row of a file must fit its layout
        aside.write("t", name, "".join(line.format(*row) for row in (("U", good), *rows))).merged()

    late(FILE1, "3,9,c", ("U", "1,10,A,new"))
    late(FILE2, "2,5,B", ("U", "1,6,a2"))
    late(FILE3, "3,8,c", ("U", "3,29,C,new"), ("U", "3,30,C,newer"), ("I", "4,4,d,new"), ("D", "2,2,b,new"))
    likely = [f'["{key}"]' for key in (1, 3, 3, 4, 2)]  # what stands where the key should be
    assert kept(aside, "key", "keyed", "column_name", "status") == [(k, False, "fields", "waiting") for k in likely]
    aside.table("t", *COLUMNS, "extra WSTRING(9)")
    assert outcomes(aside) == [("fields", 1, "obsolete"), ("fields", 4, "apply")]
    replayed(aside)
    assert aside.rows("t") == [(1, 6, "a2", None), (3, 30, "C", "newer"), (4, 4, "d", "new")]
    assert kept(aside, "status") == [("obsolete",), *[("replayed",)] * 4]
    assert outcomes(aside) == []


# --- loads, forms, policies


@pytest.mark.slow
def test_bad_rows_of_a_load_are_set_aside_and_a_reload_makes_them_obsolete(aside):
    aside.table("u", *COLUMNS).load("u", (1, BIG, "a"), (2, 2, "b"), (3, 3, "two\nlines")).setup()
    result = aside.full_load()["u"]
    assert (result.status, result.counts) == ("loaded", {"rows": 2, "quarantined": 1})
    aside.changes("u", U(2, BIG, "B")).merged()
    assert kept(aside, "phase", "key", "status", "row_no") == [(1, '["2"]', "waiting", 1), (0, '["1"]', "waiting", 1)]
    aside.load("u", (1, 1, "a"), (2, BIG, "b")).full_load(on_changed_load="reload")
    assert aside.rows("u") == [(1, 1, "a")]
    assert kept(aside, "phase", "key", "status") == [
        (1, '["2"]', "obsolete"),
        (0, '["1"]', "obsolete"),
        (0, '["2"]', "waiting"),
    ]


@pytest.mark.parametrize("form", [slow("header"), "parquet", "transactions", "append"])
def test_other_forms_are_read_again_as_they_were_written(new_world, form):
    settings = {
        "header": {"AddColumnName": True, "CsvNullValue": "NULL", "CsvDelimiter": "|"},
        "parquet": {"DataFormat": "parquet"},
        "transactions": {"PreserveTransactions": True, "CdcPath": "changes"},
        "append": {},
    }[form]
    w = new_world(**settings)
    more = {"on_bad_rows": "quarantine", "ops_namespace": f"{w.space}_ops"}
    w.rules = {"rules": []}
    columns = ("id INT8", "n INT4", "note NCLOB", "raw BYTES(9)", "at DATETIME", "flag BOOLEAN")

    def table(n):
        w.table("t", "id INT8", f"n {n}", *columns[2:])
        if form == "append":
            spec = {**w.specs["t"], "key": [], "without_key": "append"}
            w.specs["t"] = spec
            (w.root / "specs/t.yml").write_text(yaml.safe_dump(spec))

    table("INT4")
    notes = ['say "hi", all', "", None, "x|y"]
    rows = [
        ("I", ONE_COMMIT, i, BIG + i, note, "00ff", "2024-01-01 10:00:00.123456", "true")
        for i, note in enumerate(notes)
    ]
    if form == "parquet":
        load, name = LOAD1.replace("csv", "parquet"), FILE1.replace("csv", "parquet")
        write_parquet(w.root / "source/public/t" / load, [])
        write_parquet(w.root / "source/public/t" / name, rows)
    elif form == "transactions":
        w.load("t", (100, 1, "a", None, None, None))
        file = w.root / "source/changes/CDC_TXN-20240101100000000.csv"
        file.parent.mkdir()
        file.write_text("".join(w._line((r[0], "t", "public", *r[1:])) for r in rows) + "I,other,public,1,2\n")
    else:
        w.load("t", (100, 1, "a", None, None, None))
        w.changes("t", I(101, 1, "good", None, None, None), *[I(*r[2:]) for r in rows])
    w.loaded().merged(**more)
    bad = w.rows("t")
    (told,) = quarantine_replay.plan(w.book(**more))
    assert told["because"] == "" and re.search(r" (row|offset) \d+: ", told["example"]), told
    table("INT8")
    (result,) = quarantine_replay.run(w.book(quarantine="replay", **more))
    assert result.counts == {"replayed": 4}, result.note
    new = sorted((r for r in w.rows("t") if r not in bad), key=lambda r: r[0])
    at = datetime(2024, 1, 1, 10, 0, 0, 123456)
    assert [(*r[:3], bytes(r[3]), *r[4:6]) for r in new] == [
        (i, BIG + i, note, b"\x00\xff", at, True) for i, note in enumerate(notes)
    ]
    if form == "append":
        assert [(r[6], r[9], r[10]) for r in new] == [("I", FILE1, i + 2) for i in range(4)]


def write_parquet(file, rows):
    kinds = [("Op", pa.string()), ("ts", pa.string()), ("id", pa.int64()), ("n", pa.string()), ("note", pa.string()),
             ("raw", pa.binary()), ("at", pa.timestamp("us")), ("flag", pa.bool_())]  # fmt: skip
    made = [(*r[:3], str(r[3]), r[4], bytes.fromhex(r[5]), datetime.fromisoformat(r[6]), r[7] == "true") for r in rows]
    columns = list(zip(*made, strict=True)) or [[]] * len(kinds)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table([pa.array(c, k) for c, (_, k) in zip(columns, kinds, strict=True)], names=[n for n, _ in kinds]), file
    )


@pytest.mark.slow
def test_beyond_the_limit_a_table_stops_and_nothing_is_set_aside(aside):
    aside.changes("t", U(1, "one", "A"), U(2, "two", "B"), U(3, 7, "C"))
    for limits in ({"max_bad_rows": 1}, {"max_bad_percent": 60.0}, {"on_bad_rows": "stop"}):
        result = aside.merge(**limits)["t"]
        assert result.failed and "2 bad rows" in result.note and "column 'n': 'one' does not fit" in result.note
    assert "max_bad_percent=60" in aside.merge(max_bad_percent=60.0)["t"].note
    assert aside.rows("t")[2] == (3, 3, "c")
    assert not aside.spark.catalog.tableExists(f"lake.{aside.space}_ops.quarantine")
    spec = {**aside.specs["t"], "max_bad_rows": 2, "max_bad_percent": 70}
    (aside.root / "specs/t.yml").write_text(yaml.safe_dump(spec))
    aside.merged(max_bad_rows=0)
    assert len(kept(aside, "id")) == 2


def test_rows_with_hidden_columns_are_never_kept(world):
    world.table("t", *COLUMNS)
    spec = {**world.specs["t"], "on_bad_rows": "quarantine"}
    spec["columns"][2]["mask"] = "sha256"
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(spec))
    world.load("t", (1, 1, "a")).loaded().changes("t", U(1, "one", "A"))
    assert "not quarantined: columns of the table are masked" in world.merge()["t"].note


def test_a_replay_applies_rows_in_the_order_of_their_batches_also_after_one_was_marked_later(aside):
    """The new row with the old key marks the first of the two rows again, after the second was quarantined."""
    aside.changes("t", D(2), U(12, BIG, "older", was=1), name=FILE1).merged()
    aside.changes("t", U(12, BIG + 1, "newer"), name=FILE2).merged()
    aside.changes("t", I(1, 5, "another row"), name=FILE3).merged()
    widen(aside, n="INT8")
    assert replayed(aside).counts == {"replayed": 2}
    assert aside.rows("t") == [(1, 5, "another row"), (12, BIG + 1, "newer"), (3, 3, "c")]


def test_a_paused_table_has_no_row_replayed_or_discarded(aside):
    aside.changes("t", U(1, BIG, "A")).merged()
    widen(aside, n="INT8")
    table_pause.pause(aside.iceberg("t"), "a check of the rows")
    for what in ("replay", "discard"):
        (result,) = quarantine_replay.run(aside.book(quarantine=what))
        assert (result.status, aside.rows("t")[0]) == ("paused", (1, 1, "a")) and "a check of the rows" in result.note
        assert [row["action"] for row in plan(aside.book(quarantine=what))] == ["paused"]
    table_pause.resume(aside.iceberg("t"))
    assert replayed(aside).counts == {"replayed": 1}


@pytest.mark.parametrize("made_by", ["this version", "an older version"])
def test_tables_of_one_name_in_two_environments_share_a_quarantine_and_no_row(new_world, made_by):
    """Two source databases have a table of the same name; each goes to its own table of one lake."""
    a, b = new_world(), new_world()
    ops = f"{a.space}_ops"
    for w in (a, b):
        w.given = {"on_bad_rows": "quarantine", "ops_namespace": ops}
        w.table("t", *COLUMNS).load("t", (1, 1, "a"), (2, 2, "b")).loaded()
    if made_by == "an older version":
        quarantine_table.create(a.spark, f"lake.{ops}.quarantine")
        a.spark.sql(f"ALTER TABLE lake.{ops}.quarantine DROP COLUMN target")
        assert outcomes(b) == []
    for n in range(3):  # the number of its batches decided about the rows of the other table
        a.changes("t", U(2, 3 + n, "A"), name=f"20240101-09000000{n}.csv").merged()
    a.changes("t", U(1, BIG, "A")).merged()
    assert [outcomes(w) for w in (a, b)] == [[("n", 1, "still bad")], []]
    assert quarantine_counts.waiting(b.book()) == {} and not b.merged().position("t")["last"]
    b.changes("t", I(9, BIG + 1, "B")).merged()
    for w in (a, b):
        assert quarantine_counts.waiting(w.book()) == {"public.t": 1}
        widen(w, n="INT8")
        assert replayed(w).counts == {"replayed": 1}
    assert a.rows("t") == [(1, BIG, "A"), (2, 5, "A")]
    assert b.rows("t") == [(1, 1, "a"), (2, 2, "b"), (9, BIG + 1, "B")]


@pytest.mark.slow
def test_a_row_that_changed_a_part_of_its_key_is_replayed_beside_newer_rows_of_other_keys(world):
    more = {"on_bad_rows": "quarantine", "ops_namespace": f"{world.space}_ops"}
    columns = ("a INT8", "b INT8", "n INT4")
    world.table("t", *columns, key=["a", "b"]).load("t", (1, 1, 1), (5, 5, 5)).loaded()
    world.changes("t", U(2, 1, BIG, was=(1, None))).merged(**more)
    world.changes("t", U(5, 5, 6), name=FILE2).merged(**more)
    world.table("t", *columns[:2], "n INT8", key=["a", "b"])
    (done,) = quarantine_replay.run(world.book(quarantine="replay", **more))
    assert done.counts == {"replayed": 1}, done.note
    assert world.rows("t") == [(2, 1, BIG), (5, 5, 6)]


def test_the_example_of_a_fault_is_its_oldest_row(aside):
    aside.changes("t", *[U(1, n) for n in range(8)], U(2, BIG), U(3, BIG)).merged()
    (told,) = quarantine_replay.plan(aside.book())
    assert (told["rows"], told["example"].split(": ")[0].rsplit(" ", 1)[1]) == (2, "9")
