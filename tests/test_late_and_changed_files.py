"""What arrives late, grows, is copied or vanishes stops its table with a message, or changes nothing; no row gets lost silently."""

import os
import shutil
import socket

import pytest

from frazil_old.cli.check import look
from frazil_old.config.settings import FullLoadSettings, OperateSettings
from frazil_old.flows.plan import plan
from helpers import FILE1, FILE2, FILE3, D, I, U, World
from lake_reader import lake_rows

pytestmark = pytest.mark.spark
EARLY, NOON, LATE = "2024-01-01 08:00:00", "2024-01-01 09:59:00", "2024-01-01 11:00:00"


@pytest.fixture
def opened(new_world):
    def make(*tables: str, **settings) -> World:
        world = new_world(**settings)
        for name in tables:
            world.table(name).load(name, (1, "a"), (2, "b"))
        return world.loaded()

    return make


def rows(world: World, table: str) -> list[tuple]:
    return lake_rows(world.catalog_options, f"{world.space}.{table}")


def notes(world: World, **settings) -> dict[str, str]:
    """Merge, insist that every table stops, and return what each says."""
    done = world.merge(**settings)
    assert all(r.failed for r in done.values()), {t: (r.status, r.note) for t, r in done.items()}
    return {t: r.note for t, r in done.items()}


def file(world: World, table: str, name: str):
    return world.root / "source/public" / table / name


def everywhere(world: World) -> dict[str, str]:
    """What plan and check say of each table, in one text each."""
    said = {r["table"].split(".")[1]: r["decision"] for r in plan(world.book(FullLoadSettings))}
    for line in look(world.book(OperateSettings).settings)[0]:
        table = line.split(":")[0].removeprefix("public.")
        if table in said:
            said[table] += f" CHECK {line}"
    return said


LATE_NAMES = {
    "hours": ("20240101-120000000.csv", "20240101-100000000.csv"),
    "days": ("20240104-120000000.csv", "20240101-110000000.csv"),
    "folder": ("2024/01/05/20240105-120000000.csv", "2024/01/03/20240103-110000000.csv"),
}


def test_a_file_before_the_position_that_was_never_applied_stops_its_table_however_old_its_name_is(opened):
    world = opened(*LATE_NAMES, "fine")
    world.s3["DatePartitionEnabled"] = True
    for table, (last, _) in LATE_NAMES.items():
        world.changes(table, U(1, "new", ts=NOON), name=last)
    world.changes("fine", U(1, "new")).merged()
    for table, (_, late) in LATE_NAMES.items():
        world.changes(table, U(1, "old", ts=EARLY), I(3, "late", ts=EARLY), name=late)
        os.utime(file(world, table, late), (1.7e9, 1.7e9))  # copied with its time
    world.changes("fine", I(3, "c"), name=FILE2)
    done = world.merge()
    said = everywhere(world)
    for table, (_, late) in LATE_NAMES.items():
        note = done[table].note
        assert done[table].failed and late in note and note.index("replay") < note.index("late_files=after"), note
        assert EARLY in note and "arrived late" in note
        assert late in said[table].split("CHECK")[0] and late in said[table].split("CHECK")[1], said[table]
        assert rows(world, table) == [(1, "new"), (2, "b")]
    assert done["fine"].status == "merged" and not said["fine"]
    assert all("so the file arrived late" in world.merge(late_files="after")[t].note for t in LATE_NAMES), (
        "commit times contradict"
    )
    assert {r.status for r in world.full_load(on_changed_load="replay").values()} == {"replayed"}
    world.merged()
    assert all(rows(world, t) == [(1, "new"), (2, "b"), (3, "late")] for t in LATE_NAMES)


def test_after_the_clock_went_back_files_are_applied_in_the_order_in_which_dms_wrote_them_and_so_does_a_replay(opened):
    world = opened("t")
    first, second, last = "20240101-100000000.csv", "20240101-110000000.csv", "20240101-130000000.csv"
    world.changes("t", U(1, "noon", ts=NOON), name="20240101-120000000.csv").merged()
    world.changes("t", U(1, "later", ts=LATE), I(3, "c", ts=LATE), name=first)
    (note,) = notes(world).values()
    assert "clock went back" in note and LATE in note
    world.merged(late_files="after")
    assert rows(world, "t") == [(1, "later"), (2, "b"), (3, "c")]
    assert world.merge()["t"].status == "unchanged"
    world.changes("t", D(3, ts=LATE), name=second).changes("t", I(4, "d", ts=LATE), name=last)
    assert second in notes(world)["t"]
    world.merged(late_files="after")
    assert rows(world, "t") == [(1, "later"), (2, "b"), (4, "d")]
    assert world.full_load(on_changed_load="replay")["t"].status == "replayed"
    world.merged()
    assert rows(world, "t") == [(1, "later"), (2, "b"), (4, "d")]


def test_a_replay_that_ends_with_a_file_of_an_earlier_name_applies_it_last_too(opened):
    world = opened("t")
    world.changes("t", U(1, "noon", ts=NOON), name=FILE2).merged()
    world.changes("t", U(1, "later", ts=LATE), name=FILE1).merged(late_files="after")
    assert world.full_load(on_changed_load="replay")["t"].status == "replayed"
    world.merged().merged()
    assert rows(world, "t") == [(1, "later"), (2, "b")]


def test_a_replay_misses_a_file_that_came_late_and_is_gone(opened):
    world = opened("t")
    world.changes("t", U(1, "noon", ts=NOON), name=FILE2).merged()
    world.changes("t", U(1, "later", ts=LATE), name=FILE1).merged(late_files="after")
    world.full_load(on_changed_load="replay")
    world.merged(max_batches=1)
    file(world, "t", FILE1).unlink()
    assert FILE1 in notes(world)["t"]


def test_a_replay_is_refused_when_the_order_of_files_that_came_late_is_lost(opened):
    world = opened("t")
    world.changes("t", U(1, "noon", ts=NOON), name=FILE2).merged()
    world.changes("t", U(1, "later", ts=LATE), name=FILE1).merged(late_files="after")
    for i in range(65):
        world.changes("t", I(100 + i, "x"), name=f"20240101-11{i // 60:02}{i % 60:02}000.csv")
    world.merged()
    place = world.iceberg("t").location().removeprefix("file:")
    (segment,) = (world.root / place / "_frazil").glob("applied-*")
    segment.unlink()
    world.changes("t", I(999, "z"), name="20240101-120000000.csv").merged()
    assert FILE1 in world.full_load(on_changed_load="replay")["t"].note
    assert (1, "later") in rows(world, "t")


@pytest.mark.parametrize("gone", [["LOAD00000001.csv"], ["LOAD00000001.csv", "LOAD00000002.csv"]])
def test_a_replay_that_lacks_a_load_file_is_refused(new_world, gone):
    world = new_world()
    world.table("t").load("t", (1, "a")).load("t", (2, "b"), name="LOAD00000002.csv").loaded()
    world.changes("t", U(1, "x")).merged()
    for name in gone:
        file(world, "t", name).unlink()
    (planned,) = plan(world.book(FullLoadSettings, on_changed_load="replay"))
    done = world.full_load(on_changed_load="replay")["t"]
    assert done.failed and "2 were applied" in done.note and all(name in done.note for name in gone), done.note
    assert "2 were applied" in planned["decision"] and rows(world, "t") == [(1, "x"), (2, "b")]


def test_an_applied_file_that_grew_is_named_with_both_sizes_however_old_it_is(opened):
    grown = {"newest": FILE3, "before": FILE2, "old": FILE1.replace("-10", "-07")}
    world = opened(*grown, "fine")
    for table in (*grown, "fine"):
        for i, name in enumerate((grown["old"], FILE2, FILE3)):
            world.changes(table, I(10 + i, "x"), name=name)
    world.merged()
    for table, name in grown.items():
        with file(world, table, name).open("a") as f:
            f.write(file(world, table, name).read_text().replace(",1", ",2", 1).replace("x", "more"))
    done = world.merge()
    said = everywhere(world)
    for table, name in grown.items():
        size = file(world, table, name).stat().st_size
        assert done[table].failed and name in done[table].note and f"{size} now" in done[table].note, done[table].note
        assert " then, " in done[table].note and done[table].note.index("replay") < done[table].note.index("reload")
        assert all(name in half for half in said[table].split("CHECK")) and "CHECK" in said[table]
    assert done["fine"].status == "unchanged"
    world.full_load(on_changed_load="replay")
    world.merged()
    assert all("more" in [v for _, v in rows(world, t)] for t in grown)


def test_files_that_have_only_another_time_are_not_new(opened):
    world = opened("t", "load_byte", "change_byte")
    for table in ("t", "load_byte", "change_byte"):
        world.changes(table, U(1, "x")).changes(table, I(3, "c"), name=FILE2)
    world.merged()
    for f in world.root.glob("source/public/*/*.csv"):
        shutil.copy(f, f"{f}.new")
        os.replace(f"{f}.new", f)
    file(world, "load_byte", "LOAD00000001.csv").write_text(
        file(world, "load_byte", "LOAD00000001.csv").read_text().replace(",b", ",B")
    )
    file(world, "change_byte", FILE1).write_text(file(world, "change_byte", FILE1).read_text().replace(",x", ",y"))
    for policy in ("refuse", "reload"):
        loads = world.full_load(tables=["public.t", "public.change_byte"], on_changed_load=policy)
        assert {r.status for r in loads.values()} == {"unchanged"}, policy
    load = world.full_load(tables=["public.load_byte"])["load_byte"]
    assert load.failed and "LOAD00000001.csv" in load.note, load.note
    assert (
        load.note.index("replay") < load.note.index("reload")
        and f"discards all changes applied up to {FILE2}" in load.note
    )
    done = world.merge()
    assert done["t"].status == "unchanged" and rows(world, "t") == [(1, "x"), (2, "b"), (3, "c")]
    assert (
        done["change_byte"].failed
        and FILE1 in done["change_byte"].note
        and FILE2 not in done["change_byte"].note.split("cure")[0]
    )
    said = everywhere(world)
    assert not said["t"] and FILE1 in said["change_byte"] and "LOAD00000001.csv" in said["load_byte"]


def test_a_name_in_the_future_stops_its_table_before_and_after_it_was_applied(opened):
    world, future = opened("before", "after"), "20990101-000000000.csv"
    world.changes("after", I(3, "c")).merged()
    world.changes("after", I(9, "future"), name=future)
    stored = (
        world.iceberg("after").properties().get("frazil.position").replace(FILE1, future)
    )  # as an older Frazil left it
    world.spark.sql(f"ALTER TABLE {world.name('after')} SET TBLPROPERTIES ('frazil.position' = '{stored}')")
    for table in ("before", "after"):
        world.changes(table, U(1, "real"), name="20260101-000000000.csv")
    world.changes("before", I(9, "future"), name=future)
    said, planned = notes(world), everywhere(world)
    for table in ("before", "after"):
        assert future in said[table] and planned[table].count(future) >= 2, planned
    assert "1 change file" in said["after"] and "FILE1" not in said["after"] and FILE1 in said["after"]
    statement = said["after"][said["after"].index("ALTER TABLE") :].split(", and move")[0]
    world.spark.sql(statement)
    for table in ("before", "after"):
        file(world, table, future).unlink()
    world.merged()
    assert (rows(world, "before")[0], rows(world, "after")[0]) == ((1, "real"), (1, "real"))
    assert (3, "c") in rows(world, "after")


def test_a_file_that_an_earlier_run_saw_and_left_is_missed_too(opened):
    world = opened("t")
    world.changes("t", I(3, "c")).changes("t", I(4, "d"), name=FILE2).changes("t", I(5, "e"), name=FILE3)
    world.merge(max_batch_files=1, max_batches=1)
    file(world, "t", FILE2).unlink()
    assert FILE2 in notes(world)["t"] and rows(world, "t") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_late_file_that_an_earlier_batch_left_is_missed_until_it_is_back_or_given_up(opened):
    world, second = opened("t"), FILE1.replace("000.csv", "500.csv")
    world.changes("t", I(3, "c", ts=NOON), name=FILE3).merged()
    world.changes("t", I(4, "d", ts=LATE), name=FILE1).changes("t", I(5, "e", ts=LATE), name=second)
    world.merge(late_files="after", max_batch_files=1, max_batches=1)
    text = file(world, "t", second).read_text()
    file(world, "t", second).unlink()
    assert second in notes(world)["t"] and second in everywhere(world)["t"]
    assert world.merge(go_on_without=[second])["t"].status == "unchanged" == world.merge()["t"].status
    file(world, "t", second).write_text(text)
    world.merged(late_files="after")
    assert rows(world, "t")[2:] == [(3, "c"), (4, "d"), (5, "e")]
    assert world.merge()["t"].status == "unchanged"


def test_only_regular_files_with_possible_names_are_read(opened, tmp_path):
    odd = "20240101-110000000.csv"
    tables = ("pipe", "socket", "link", "folder", "month", "day", "hour", "fine")
    world = opened("fine").changes("fine", I(3, "c"))
    for table in tables[:-1]:
        world.table(table).changes(table, I(3, "c"))
    world.setup()
    os.mkfifo(file(world, "pipe", odd))
    here = os.getcwd()
    os.chdir(file(world, "socket", ""))  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("LOAD00000002.csv")
    os.chdir(here)
    file(world, "link", odd).symlink_to(tmp_path / "nothing")
    file(world, "folder", odd).mkdir()
    wrong = {
        "month": "20241301-000000000.csv",
        "day": "20240230-000000000.csv.gz",
        "hour": "20240101-240000000.parquet",
    }
    for table, name in wrong.items():
        file(world, table, name).write_text("x")
    done, said = world.merge(), everywhere(world)
    for table in tables[:-1]:
        name = wrong.get(table) or ("LOAD00000002.csv" if table == "socket" else odd)
        assert done[table].failed and name in done[table].note, (table, done[table].note)
        assert said[table].count(name) >= 2, (table, said[table])
    assert all("does not write such names" in done[t].note for t in wrong)
    assert done["fine"].status == "merged" and rows(world, "fine")[2] == (3, "c")


def test_a_damaged_position_is_restored_by_the_statement_that_the_message_has(opened):
    world = opened("t").changes("t", I(3, "c")).merged()
    name, good = world.name("t"), world.iceberg("t").properties().get("frazil.position")
    lacks, newer = good.replace('"last":', '"least":'), good.replace('"version":1', '"version":99')
    for text in ("garbage", "{}", "[]", "", lacks, newer, None):
        change = "UNSET TBLPROPERTIES ('frazil.position')"
        if text is not None:
            change = f"SET TBLPROPERTIES ('frazil.position' = '{text}')"
        world.spark.sql(f"ALTER TABLE {name} {change}")
        said = notes(world)["t"]
        assert name in said and "frazil.position" in said, said
        if text in ("garbage", None):
            assert everywhere(world)["t"].count(name) >= 2, everywhere(world)
            assert "ALTER TABLE" in world.setup()["t"].note or text
        world.spark.sql(said[said.index("ALTER TABLE") :])
        assert world.merge()["t"].status == "unchanged"
    assert rows(world, "t") == [(1, "a"), (2, "b"), (3, "c")]


def test_load_files_of_two_ages_are_one_load_only_if_somebody_says_so(opened):
    world = opened("reload")
    second = "LOAD00000002.csv"
    world.load("reload", (3, "c"), (4, "d"), name=second).full_load(on_changed_load="reload", old_load_files="accept")
    assert len(rows(world, "reload")) == 4
    world.load("reload", (1, "A"), (2, "B"))
    world.table("first").load("first", (1, "a")).load("first", (2, "old"), name=f"p1/{second}")
    world.changes("first", I(3, "c"), name="20260101-000000000.csv").setup()
    os.utime(file(world, "first", f"p1/{second}"), (1.7e9, 1.7e9))
    os.utime(file(world, "first", "20260101-000000000.csv"), (1.78e9, 1.78e9))
    done = world.full_load(on_changed_load="reload")
    for table in ("reload", "first"):
        assert done[table].failed and second in done[table].note and "UTC" in done[table].note, done[table].note
        assert "LOAD00000001.csv" not in done[table].note and "old_load_files" in done[table].note
    assert (
        second
        in {r["table"]: r["decision"] for r in plan(world.book(FullLoadSettings, on_changed_load="reload"))}[
            "public.first"
        ]
    )
    assert len(rows(world, "reload")) == 4 and rows(world, "first") == []
    file(world, "reload", second).unlink()
    assert world.full_load(on_changed_load="reload", tables=["public.reload"])["reload"].status == "reloaded"
    assert rows(world, "reload") == [(1, "A"), (2, "B")]
    assert world.full_load(tables=["public.first"], old_load_files="accept")["first"].status == "loaded"


def test_the_record_is_a_cache_and_grows_into_segments(opened):
    world = opened("t")
    names = [f"20240101-{i // 60:02}{i % 60:02}00000.csv" for i in range(150)]
    for i, name in enumerate(names):
        world.changes("t", I(100 + i, "x"), name=name)
    world.merged(max_batch_files=60)
    assert world.merge()["t"].status == "unchanged"
    world.changes("t", I(999, "late"), name="20231231-000000000.csv")
    assert "20231231" in notes(world)["t"]
    file(world, "t", "20231231-000000000.csv").unlink()
    place = world.iceberg("t").location().removeprefix("file:")
    segments = list((world.root / place / "_frazil").glob("applied-*"))
    assert segments
    for f in segments:
        f.unlink()
    assert world.merge()["t"].status == "unchanged", "what the segments knew is taken from the folder"
    world.changes("t", I(998, "z"), name=FILE3.replace("-10", "-20")).merged()
    world.changes("t", I(999, "late"), name="20231231-000000000.csv")
    assert "20231231" in notes(world)["t"]


def test_a_file_that_stopped_its_table_is_missed_if_somebody_takes_it_away(opened):
    world = opened("bad", "cut", "wide", "mended")
    world.changes("bad", U(1, "b"), U("x", "b"), name=FILE1).changes("mended", U("x", "b"), name=FILE1)
    world.write("cut", FILE1, f"U,{NOON},1,b").write("wide", FILE1, f"U,{NOON},1,b,5,6,7\n")
    notes(world)
    for name in ("bad", "cut", "wide"):
        file(world, name, FILE1).unlink()
        world.changes(name, I(3, "c"), name=FILE2)
    world.changes("mended", U(1, "b"), name=FILE1)
    done = world.merge()
    assert done["mended"].status == "merged" and rows(world, "mended") == [(1, "b"), (2, "b")]
    for name in ("bad", "cut", "wide"):
        assert done[name].failed and FILE1 in done[name].note and "go_on_without" in done[name].note, done[name].note
    world.merged(go_on_without=[FILE1])
    assert rows(world, "bad") == [(1, "a"), (2, "b"), (3, "c")]
