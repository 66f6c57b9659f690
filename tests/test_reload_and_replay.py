"""Load files that changed, came late or were loaded again: refused, reloaded, or replayed with all changes."""

import pytest

from frazil_old.cli import main
from frazil_old.config.settings import FullLoadSettings
from frazil_old.flows.plan import plan
from helpers import FILE1, FILE2, FILE3, LOAD1, D, I, U

pytestmark = pytest.mark.spark


def test_a_load_written_again_is_refused_until_told_to_reload(loaded):
    loaded.changes("t", I(4, "d")).merged()
    loaded.load("t", (1, "x"), (4, "y"))
    result = loaded.full_load()["t"]
    assert result.failed and "load files are not those that were applied" in result.note
    assert len(loaded.rows("t")) == 4
    assert loaded.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert loaded.rows("t") == [(1, "x"), (4, "y")]
    loaded.changes("t", U(1, "z"), name=FILE2).merged()
    assert loaded.rows("t") == [(1, "z"), (4, "y")]


def test_load_files_that_changed_are_named_to_whoever_asks(loaded, monkeypatch, capsys):
    loaded.environment(monkeypatch)

    def checked() -> list[str]:
        main(["check", "--env", "w"])
        return [line for line in capsys.readouterr().err.splitlines() if line.startswith("public.t: ")]

    assert checked() == []
    loaded.load("t", (1, "x")).load("t", (9, "y"), name="LOAD00000002.csv")
    says = "public.t: the load files are not those that were applied (1 then, 2 now; new: t/LOAD00000002.csv; written again: t/LOAD00000001.csv)"
    assert loaded.full_load()["t"].note.startswith(says)
    (line,) = checked()
    assert line.startswith(f"{says}; cure: ") and "on_changed_load=reload" in line
    (row,) = plan(loaded.book(FullLoadSettings))
    assert row["decision"].startswith(says)
    loaded.full_load(on_changed_load="reload")
    assert checked() == []
    (loaded.root / "source/public/t/LOAD00000001.csv").unlink()
    assert "(2 then, 1 now; no longer there: t/LOAD00000001.csv)" in loaded.full_load()["t"].note
    loaded.spark.sql(f"ALTER TABLE {loaded.name('t')} UNSET TBLPROPERTIES ('frazil.load')")  # loaded by an older Frazil
    assert "(2 then, 1 now)" in loaded.full_load()["t"].note


def test_more_load_files_after_the_load_are_refused_too(loaded):
    loaded.load("t", (4, "d"), name="LOAD00000002.csv")
    assert loaded.full_load()["t"].failed
    assert loaded.full_load(on_changed_load="reload", old_load_files="accept")["t"].counts["rows"] == 4
    assert len(loaded.rows("t")) == 4


def test_a_reload_cures_a_late_and_a_rewritten_object(loaded):
    loaded.changes("t", U(1, "A"), name=FILE2).merged()
    loaded.changes("t", U(1, "rewritten"), D(2), name=FILE2).changes("t", U(3, "late"), name=FILE1)
    assert loaded.merge()["t"].failed
    loaded.load("t", (1, "rewritten"), (3, "late"), (5, "new"))
    loaded.full_load(on_changed_load="reload")
    loaded.changes("t", U(5, "e"), name=FILE3).merged()
    assert loaded.rows("t") == [(1, "rewritten"), (3, "late"), (5, "e")]


def test_changes_after_a_new_load_wait_for_it(loaded):
    loaded.load("t", (1, "x")).changes("t", I(4, "d"))
    result = loaded.merge()["t"]
    assert (result.status, "run 01_full_load" in result.note) == ("waiting", True)
    loaded.full_load(on_changed_load="reload")
    loaded.merged()
    assert loaded.rows("t") == [(1, "x"), (4, "d")]


NOON, LATER = "2024-01-01 12:00:00.000000", "2024-01-01 12:00:01.000000"


@pytest.mark.parametrize("is_first", [True, False], ids=["load", "reload"])
def test_pending_changes_from_before_a_load_do_not_bring_truncated_rows_back(new_world, is_first):
    world = new_world().table("t").load("t", (1, "a"))
    if not is_first:
        world.loaded()
    world.changes("t", I(2, "b"), name=FILE1).changes("t", U(1, "c"), I(3, "c"), name=FILE2)
    # TRUNCATE, of which DMS writes nothing, and another load
    world.write("t", "LOAD00000001.csv", f"{NOON},4,d,,\n{LATER},5,e,,\n")
    world.changes("t", U(5, "f", ts=LATER), name="20240101-120100000.csv")
    world.setup()
    assert world.full_load(on_changed_load="reload")["t"].status == ("loaded" if is_first else "reloaded")
    assert any("2 change files" in line and "in the load" in line for line in world.said)
    assert world.merged().rows("t") == [(4, "d"), (5, "f")]
    assert world.merge()["t"].status == "unchanged"


def test_load_files_that_were_only_copied_late_lose_no_change_with_replay(world):
    world.table("t").load("t", (1, "a")).loaded().changes("t", U(1, "b"), U(2, "new"), I(3, "c")).merged()
    world.load("t", (2, "old"), name="LOAD00000002.csv")
    assert "2 now" in world.full_load()["t"].note
    assert world.full_load(on_changed_load="replay")["t"].counts["rows"] == 2
    world.merged()
    assert world.rows("t") == [(1, "b"), (2, "new"), (3, "c")]


def test_a_replay_is_refused_where_change_files_that_were_applied_are_gone(world):
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    world.changes("t", D(2), name=FILE1).changes("t", I(3, "c"), name=FILE2).merged()
    world.changes("t", U(1, "late"), name=FILE1.replace("000.csv", "001.csv"))
    assert "on_changed_load=replay" in world.merge()["t"].note
    next(world.root.rglob(FILE1)).unlink()
    refused = world.full_load(on_changed_load="replay")["t"]
    assert refused.failed and FILE1 in refused.note and "a replay needs all" in refused.note
    assert world.rows("t") == [(1, "a"), (3, "c")]


def test_a_replay_stops_where_a_file_that_it_owes_is_gone_before_it_is_met_again(world):
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    world.changes("t", D(2), name=FILE1).changes("t", I(3, "c"), name=FILE2).merged()
    assert world.full_load(on_changed_load="replay")["t"].status == "replayed"
    kept = world.position("t")
    assert (kept["version"], kept["owed"]) == (4, [FILE1, FILE2])
    gone = next(world.root.rglob(FILE2))
    text = gone.read_text()
    gone.unlink()
    world.merge(max_batches=1)  # not even the first file is applied
    refused = world.merge()["t"]
    assert refused.failed and FILE2 in refused.note and "a replay needs all" in refused.note
    assert world.rows("t") == [(1, "a"), (2, "b")]
    gone.write_text(text)
    assert world.merged(max_batch_files=1).rows("t") == [(1, "a"), (3, "c")]
    assert (world.position("t")["version"], world.position("t")["last"]) == (1, FILE2)


def test_a_load_that_takes_the_place_of_a_replay_owes_nothing(world):
    world.table("t").load("t", (1, "a"), (2, "b")).loaded()
    world.changes("t", D(2), name=FILE1).changes("t", I(3, "c"), name=FILE2).merged()
    world.full_load(on_changed_load="replay")
    next(world.root.rglob(FILE2)).unlink()
    world.load("t", (1, "a"), (3, "c"), (4, "d"))
    assert world.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert world.merge()["t"].status == "unchanged"
    assert world.rows("t") == [(1, "a"), (3, "c"), (4, "d")]


def test_a_change_file_that_came_late_takes_its_place_with_replay(world):
    world.table("t").load("t", (1, "a")).loaded().changes("t", U(1, "c"), name=FILE2).merged()
    world.changes("t", U(1, "b"), I(2, "x"), name=FILE1)
    assert "arrived late" in world.merge()["t"].note
    world.full_load(on_changed_load="replay")
    world.merged()
    assert world.rows("t") == [(1, "c"), (2, "x")]


def test_a_replay_after_a_reload_leaves_out_changes_from_before_that_load(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", I(2, "b"), U(1, "c"), name=FILE1).merged()
    # TRUNCATE, of which DMS writes nothing, and another load
    world.write("t", LOAD1, f"{NOON},1,d,,\n")
    assert world.full_load(on_changed_load="reload")["t"].status == "reloaded"
    world.changes("t", I(5, "e", ts=LATER), name="20240101-120200000.csv").merged()
    world.changes("t", U(1, "f", ts=LATER), name="20240101-120100000.csv")
    assert "on_changed_load=replay" in world.merge()["t"].note
    assert world.full_load(on_changed_load="replay")["t"].status == "replayed"
    world.merged()
    assert world.rows("t") == [(1, "f"), (5, "e")] and world.merge()["t"].status == "unchanged"
    world.changes("t", U(1, "older"), name=FILE2)  # late, and of before the load
    assert "on_changed_load=replay" in world.merge()["t"].note
    world.full_load(on_changed_load="replay")
    assert world.merged().rows("t") == [(1, "f"), (5, "e")]


def test_a_replay_after_a_reload_is_refused_where_no_times_show_what_the_load_has(new_world):
    world = new_world(TimestampColumnName="").table("t").write("t", LOAD1, "1,a,,\n").loaded()
    world.write("t", FILE1, "I,2,b,,\n").merged().write("t", LOAD1, "1,d,,\n")
    world.full_load(on_changed_load="reload")
    world.write("t", FILE3, "I,5,e,,\n").merged().write("t", FILE2, "U,1,late,,\n")
    assert "on_changed_load=replay" in world.merge()["t"].note
    refused = world.full_load(on_changed_load="replay")["t"]
    assert refused.failed and FILE1 in refused.note and "over that load's newer rows" in refused.note
    world.write("t", LOAD1, "1,late,,\n5,e,,\n")
    assert world.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert world.merge()["t"].status == "unchanged" and world.rows("t") == [(1, "late"), (5, "e")]
