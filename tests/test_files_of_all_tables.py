"""Files of all tables (PreserveTransactions), inserts only, keys that change unseen, objects that vanish."""

import pytest

from frazil_old.flows.plan import plan
from frazil_old.flows.reconcile import compare
from helpers import FILE1, FILE2, FILE3, U

pytestmark = pytest.mark.spark
TS = "2024-01-01 09:59:00.000000"
TXN1, TXN2, LATE = "CDC_TXN-20240101100000000.csv", "CDC_TXN-20240101100100000.csv", "CDC_TXN-20240101100030000.csv"


@pytest.fixture
def shared(new_world):
    world = new_world(PreserveTransactions=True, CdcPath="changes/all")
    world.rules = {"rules": []}
    world.table("t").table("wide", "id INT8", "a WSTRING(99)", "b INT4").load("t", (1, "a"), (2, "b")).load(
        "wide", (1, "x", 1)
    )
    return world.loaded()


def put(world, name: str, text: str):
    file = world.root / "source/changes/all" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", newline="")
    return world


def test_each_table_takes_its_rows_from_the_files_of_all(shared):
    put(
        shared,
        TXN1,
        f'U,t,public,{TS},1,"a,\nI,wide,public,{TS},9,no,9"\nI,wide,public,{TS},2,"li\nne",\nD,wide,public,{TS},1,,\n',
    )
    put(shared, TXN2, f"I,other,public,{TS},1\nI,t,elsewhere,{TS},7,no\nI,t,public,{TS},3,c\n")
    shared.merged(max_batch_files=1)
    assert shared.rows("t") == [(1, f"a,\nI,wide,public,{TS},9,no,9"), (2, "b"), (3, "c")]
    assert shared.rows("wide") == [(2, "li\nne", None)]
    assert shared.position("wide")["last"] == shared.position("t")["last"] == TXN2
    told = [line for line in shared.said if "ignored" in line]
    assert len(told) == 1 and "1 of elsewhere.t, 1 of public.other" in told[0]


def test_a_shared_row_that_fits_nobody_stops_every_table(shared):
    before = shared.rows("t")
    put(shared, TXN1, f"I,t,public,{TS},3,c\nI,t\n")
    results = shared.merge()
    assert all(
        r.failed and "I,t" in r.note and "too few" in r.note and "names no table" in r.note for r in results.values()
    )
    assert all(f"{TXN1} row 2: " in r.note for r in results.values()), results
    put(shared, TXN1, f"I,t,public,{TS},3,c\nI,wide,public,{TS},3\nI,,public,{TS},3,c,4\n")
    assert all(r.failed for r in shared.merge().values())
    assert shared.rows("t") == before


def test_a_shared_file_that_turns_up_late_is_refused(shared):
    put(shared, TXN1, f"U,t,public,{TS},1,z\n")
    put(shared, TXN2, f"U,t,public,{TS},2,z\n").merged()
    put(shared, LATE, f"U,t,public,{TS},1,y\n")
    assert all(r.failed and "arrived late" in r.note for r in shared.merge().values())


def test_after_preserve_transactions_is_switched_off_a_reload_goes_on_with_the_tables_own_files(shared):
    put(shared, TXN1, f"U,t,public,{TS},1,z\n").merged()
    shared.s3 = {**shared.s3, "PreserveTransactions": False}
    before = shared.rows("t")
    shared.changes("t", U(1, "own"), name=FILE2)
    (note,) = {r.note for r in shared.merge(tables=["public.t"], late_files="after").values() if r.failed}
    assert TXN1 in note and "PreserveTransactions is off" in note and shared.rows("t") == before
    shared.load("t", (1, "own"), (3, "c")).changes("t", U(1, "earlier"), name=FILE1.replace("-10", "-09"))
    assert shared.full_load(on_changed_load="reload")["t"].status == "reloaded"
    shared.changes("t", U(3, "last"), name=FILE3).merged(tables=["public.t"])
    assert shared.rows("t") == [(1, "own"), (3, "last")]


def test_inserts_only_files_have_no_operation(new_world):
    world = new_world(CdcInsertsOnly=True).table("t").load("t", (1, "a")).loaded()
    world.write("t", FILE1, f"{TS},2,b,,\n{TS},3,c,,\n").merged()
    assert world.rows("t") == [(1, "a"), (2, "b"), (3, "c")]


def test_without_before_image_the_old_row_stays_and_plan_and_reconcile_say_so(world):
    world.rules = {"rules": []}
    world.table("t").load("t", (1, "a")).loaded().changes("t", U(2, "a")).merged()
    assert world.rows("t") == [(1, "a"), (2, "a")]
    book = world.book()
    (planned,) = plan(book)
    assert "the old row stays" in planned["impossible"]
    source = world.spark.createDataFrame([(2, "a")], "id bigint, v string")
    found = compare(world.spark.table(world.name("t")), source, book.specs["public.t"])
    assert [(r["key"], r["source"]) for r in found.sample] == [("id=1", "(no row)")]


def test_a_setting_that_a_file_contradicts_is_refused_before_its_table_is_touched(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.write("t", FILE1, f"Op,ts,id,v,seq,BI_id\nU,{TS},1,b,,\n")
    assert "AddColumnName" in world.merge()["t"].note
    assert world.rows("t") == [(1, "a")]
