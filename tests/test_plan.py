"""The plan before a run: what it says of each table, that it changes nothing, and what strictness stops."""

import json

import pytest
import yaml

from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import FullLoadSettings
from frazil_old.flows.plan import DecisionNeededError, plan, require_no_decision
from helpers import FILE1, FILE2, LOAD1, I, U
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark


def planned(world, **settings):
    rows = plan(world.book(FullLoadSettings, **settings))
    return {r["table"].split(".")[1]: r for r in rows}


def test_a_plan_tells_what_a_run_would_do_and_changes_nothing(world):
    world.table("t").load("t", (1, "a")).changes("t", I(2, "b"), name=FILE1)
    new = planned(world)["t"]
    assert (new["action"], new["load"], new["changes"]) == ("create, then load, then apply changes", 1, 1)
    assert (new["key"], new["lane"], new["format"], new["deletes"]) == ("id", "merge", 3, "deletion vectors")
    assert not world.spark.catalog.tableExists(world.name("t"))
    assert planned(world, query_engines=["trino"])["t"]["deletes"] == "position deletes"
    world.loaded()
    head = world.head("t")
    row = planned(world)["t"]
    assert (row["action"], row["load"], row["changes"], row["decision"]) == ("apply changes", 0, 1, "")
    assert world.head("t") == head
    world.merged()
    assert planned(world)["t"]["action"] == "nothing new"


def test_strictness_names_every_table_that_needs_a_decision(new_world):
    w = new_world(AddColumnName=True).table("keyless", key=()).table("wide").table("again").table("late").table("fine")
    w.load("again", (1, "a")).load("late", (1, "a")).load("wide", (1, "a"))
    w.setup(), w.full_load()
    w.changes("late", U(1, "b"), name=FILE2).merge()
    w.write("again", LOAD1, "ts,id,v,seq,BI_id\n2024-01-01 09:59:00.000000,1,zzz,,\n")
    w.write("wide", FILE1, "Op,ts,id,v,more,seq,BI_id\nI,2024-01-01 09:59:00.000000,2,b,c,,\n")
    w.changes("late", U(1, "c"), name=FILE1)
    rows = planned(w)
    said = {t: r["decision"] for t, r in rows.items() if r["decision"]}
    assert set(said) == {"keyless", "wide", "again", "late"}
    assert "has no key" in said["keyless"] and "unknown column 'more'" in said["wide"]
    assert "on_changed_load" in said["again"] and "arrived late" in said["late"]
    with pytest.raises(DecisionNeededError, match="4 of 5 tables need a decision"):
        require_no_decision(list(rows.values()))
    require_no_decision([rows["fine"]])
    reload = plan(w.book(FullLoadSettings, tables=["public.again"]), on_changed_load="reload")[0]
    assert (reload["action"], reload["decision"]) == ("reload", "")


def test_a_plan_says_what_the_settings_make_impossible(world):
    world.rules = {"rules": []}
    world.table("t").load("t", (1, "a"))
    assert "an update that changes a key has the new key only: the old row stays" in planned(world)["t"]["impossible"]


def test_a_plan_says_where_files_contradict_the_settings(new_world):
    w = new_world(AddColumnName=True).table("t").write("t", LOAD1, "I,2024-01-01 00:00:00.000000,1,a\n")
    row = planned(w)["t"]
    assert row["action"] == "stops" and "AddColumnName is true, but" in row["decision"] and LOAD1 in row["decision"]


def test_a_file_without_the_old_key_that_the_rules_mean_is_named(new_world):
    w = new_world(AddColumnName=True).table("t").table("log", key=()).load("t", (1, "a"))
    w.specs["log"]["without_key"] = "append"
    (w.root / "specs/log.yml").write_text(yaml.safe_dump(w.specs["log"]))
    w.write("t", FILE1, "Op,ts,id,v,seq\nI,2024-01-01 09:59:00.000000,2,b,\n")
    assert f"no old value of id in {w.root}/source/public/t/{FILE1} line 1" in planned(w)["t"]["impossible"]
    w.changes("t", U(1, "b"), name=FILE2)
    assert "old" not in planned(w)["t"]["impossible"], "the newest file has it"
    w.rules = {"rules": []}
    assert "changes a key" not in planned(w)["log"]["impossible"], "every change is a row there"


def test_the_seconds_are_estimated_from_the_commits_there_were(world):
    world.table("t").load("t", (1, "a")).changes("t", I(2, "b"), name=FILE1)
    assert planned(world)["t"]["about_s"] is None
    took = world.loaded().merged().history("t")[0]
    began = json.loads(took.summary()["frazil.latency"])["picked_up"]
    world.changes("t", I(3, "c"), name=FILE2)
    lasted = (took.timestampMillis() - began) / 1000
    assert planned(world)["t"]["about_s"] == pytest.approx(lasted, abs=0.06)
    world.changes("t", *(I(n, "c") for n in range(4, 30)), name=FILE2)
    assert planned(world)["t"]["about_s"] == pytest.approx(lasted, abs=0.06), "small is small, if 26 times as large"


def test_the_command_prints_the_plan_and_with_strict_fails_where_a_decision_is_needed(world, monkeypatch, capsys):
    world.table("fine").load("fine", (1, "a"))
    world.environment(monkeypatch)
    assert main(["plan", "--env", "w", "--strict"]) == exit_codes.OK
    assert "create, then load" in capsys.readouterr().out
    world.table("keyless", key=())
    assert main(["plan", "--env", "w"]) == exit_codes.OK
    assert main(["plan", "--env", "w", "--strict"]) == exit_codes.DECISION
    told = capsys.readouterr()
    assert "public.keyless: decision: " in told.out and "1 of 2 tables need a decision" in told.err
    assert not world.spark.catalog.tableExists(world.name("fine"))


@pytest.mark.slow
def test_a_stream_is_planned_like_files(kafka, catalog_options, tmp_path, spark):
    w = KafkaWorld(kafka, tmp_path / "w", "plan_stream", catalog_options).table("t").message("load", id=1, v="a")
    new = planned(w)["t"]
    assert (new["action"], new["changes"], new["format"]) == ("create, then load once that is complete", 1, 3)
    w.loaded().message("insert", id=2, v="b").message("insert", table="x", id=3, v="c")
    w.table("t", "id INT8", "v WSTRING(99)", "w INT4").table("keyless", key=())
    head, rows = w.head("t"), planned(w)
    told = [rows["t"][k] for k in ("action", "changes", "position", "schema", "order", "decision")]
    assert told == ["apply changes", 3, "plan_stream/0: 0", "add w int", "partition, then place in it", ""]
    assert "no commit time" in rows["t"]["impossible"] and "has no key" in rows["keyless"]["decision"]
    assert w.head("t") == head and "w" not in w.spark.table(w.name("t")).columns
    assert w.merge()["t"].status == "merged"
    assert planned(w)["t"]["action"] == "nothing new"
