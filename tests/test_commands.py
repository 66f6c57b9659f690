"""The command: what it refuses before anything starts, what it tells people and programs, its exit codes, and what it removes."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dms_writer import FILE1, FILE2, I, U
from world import World, house

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
OK, FAILED, WRONG, BREACH, NOTHING = 0, 1, 2, 6, 10
KEPT = ("run", "runs", "plan", "check", "peek", "init", "doctor", "down", "schema")
"""The commands that stay."""


@pytest.fixture(scope="module")
def place(spark, catalog_options, tmp_path_factory):
    """A world of two tables with a lake of its own: all is applied, and two rows of one table wait."""
    root = tmp_path_factory.mktemp("commands")
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{root}/lake/catalog.db", "warehouse": f"{root}/lake/files"}
    w = World(root / "w", "app", lake, catalog="commanded", on_bad_rows="quarantine", metrics_file="frazil-of-w.prom")
    w.table("t", "id INT8", "n INT4").table("u")
    w.source.load("t", (1, 1))
    w.source.load("u", (1, "a"))
    w.loaded()
    w.source.changes("t", I(2, "x"), I(3, "y"), I(4, 4))
    w.merged()
    yield w
    house().forget()


def metrics(w) -> dict[tuple[str, ...], float]:
    """Return the samples of the file for Prometheus: a name and the values of its labels but the environment's."""
    families = text_string_to_metric_families((w.root / "frazil-of-w.prom").read_text())
    found = [s for family in families for s in family.samples]
    return {(s.name, *(v for k, v in s.labels.items() if k != "env")): s.value for s in found}


def test_help_names_each_command_and_a_wrong_one_the_nearest(place):
    code, told = place.command()
    assert code == WRONG and [c for c in KEPT if not re.search(rf"\b{c}\b", told)] == []
    code, told = place.command("pln")
    assert code == WRONG and "'plan'" in told
    code, told = place.command("check", "--env", "ww")
    assert code == WRONG and "'w'" in told


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("02_cdc_murge",), "'02_cdc_merge'"),
        (("02", "-p", "max_batch_mbs", "5"), "'max_batch_mb'"),
        (("02", "-p", "max_batch_mb", "much"), "max_batch_mb: 'much'"),
        (("02", "-p", "tables", "public.t"), "[public.t]"),
        (("02", "-p", "tables", "[public.tt]"), "'public.t'"),
    ],
    ids=["notebook", "parameter", "value", "no list", "table"],
)
def test_a_wrong_run_is_refused_before_anything_starts_with_what_is_nearest(place, argv, says):
    code, told = place.command("run", *argv)
    assert code == WRONG and says in told and "Traceback" not in told
    assert not [f for f in place.files_kept() if f.endswith(".ipynb")]


def test_a_run_with_nothing_to_do_says_which_rows_wait(place):
    code, told = place.command("run", "02_cdc_merge")
    assert code == NOTHING and re.search(r"2 rows.*public\.t\b", told) and "public.u" not in told


def test_runs_and_breaches_are_told_to_programs(place):
    place.command("run", "02", "-p", "max_batch_mb", "much")
    code, told = place.command("runs", "--json")
    newest = json.loads(told)[0]
    assert code == OK and (newest["notebook"], newest["outcome"]) == ("02_cdc_merge", "wrong parameters")
    assert place.command("runs")[1].count("wrong parameters") >= 1
    code, told = place.command("check", "--json")
    assert code == BREACH and [line for line in json.loads(told)["breaches"] if "02_cdc_merge" in line]


def test_a_check_names_what_is_late_and_writes_metrics_that_everybody_may_read(place):
    file = place.root / "frazil-of-w.prom"
    file.write_text("old")
    place.source.changes("u", U(1, "b"), name=FILE2)
    with open(file) as reader:
        code, told = place.command("check")
        assert reader.read() == "old", "it was written in place"
    assert code == BREACH and re.search(r"public\.u: 1 file pending", told)
    found = metrics(place)
    wanted = {"records": 2, "pending_files": 0, "data_files": 2, "delete_files": 0, "snapshots": 3}
    assert {n: found[f"frazil_table_{n}", "public.t"] for n in wanted} == wanted
    assert found["frazil_table_pending_files", "public.u"] == 1 and found["frazil_table_lag_seconds", "public.u"] > 1e6
    assert found["frazil_quarantine_waiting_rows", "public.t"] == 2
    assert found[("frazil_breached_limits",)] == len(told.splitlines())
    assert found["frazil_last_run_exit_code", "02_cdc_merge"] in (WRONG, NOTHING)
    assert stat.S_IMODE(file.stat().st_mode) & 0o444 == 0o444 and len([*place.root.glob("frazil-of-w.prom*")]) == 1
    place.source.path("u", FILE2).unlink()


def test_a_metrics_file_that_cannot_be_written_is_a_line_and_changes_no_exit_code(place):
    before = place.command("check")
    place.settings["metrics_file"] = "no/such/folder.prom"
    code, told = place.command("check")
    place.settings["metrics_file"] = "frazil-of-w.prom"
    assert code == before[0] and len(told.splitlines()) == len(before[1].splitlines()) + 1 and "no/such" in told


def test_what_cannot_be_looked_at_is_named_in_a_line(place):
    spec, catalog = place.root / "specs/u.yml", Path(place.lake["uri"].removeprefix("jdbc:sqlite:"))
    kept = spec.read_text()
    spec.write_text("nonsense: 1\n")
    code, told = place.command("check")
    spec.write_text(kept)
    assert code == WRONG and str(spec) in told and "Traceback" not in told
    shutil.move(catalog, aside := catalog.with_name("aside"))
    catalog.write_text("junk")
    code, told = place.command("check")
    shutil.move(aside, catalog)
    assert code == BREACH and told.startswith("lake: ") and "Traceback" not in told


def test_the_doctor_finds_all_that_a_run_needs_and_names_what_is_missing(place):
    kept = {*place.root.rglob("*")}
    code, told = place.command("doctor")
    assert code == OK and "✘" not in told, told
    assert [
        w for w in ("Python", "Java", "parameters", "source", "catalog", "warehouse", "runs") if w not in told
    ] == []
    assert [f for f in {*place.root.rglob("*")} - kept if "runs" not in f.parts] == []
    code, told = place.command("doctor", JAVA_HOME="/nowhere")
    assert code == FAILED and "✘ Java" in told and "openjdk-17" in told
    code, told = place.command("doctor", "--env", "ww")
    assert code == FAILED and "'w'" in told and "catalog" not in told


def test_down_removes_exactly_what_it_listed(place):
    """Last with this world: the lake is gone then."""
    other = Path(place.lake["warehouse"]) / "other/kept.txt"
    other.parent.mkdir(parents=True)
    other.write_text("not ours")
    assert place.command("down", "--yes")[0] == FAILED, "nothing was listed yet"
    code, told = place.command("down", "--json")
    listed = json.loads(told)
    assert code == OK and not listed["deleted"] and "app.t" in told and place.rows("t")
    stray = Path(sorted(listed["files"])[0]).parent / "later.txt"
    stray.write_text("came after the list")
    assert place.command("down", "--yes")[0] == FAILED and place.rows("t")
    stray.unlink()
    before = {str(f) for f in place.root.parent.rglob("*") if f.is_file() and "runs" not in f.parts}
    assert place.command("down", "--yes")[0] == OK
    after = {str(f) for f in place.root.parent.rglob("*") if f.is_file() and "runs" not in f.parts}
    assert before - after == set(listed["files"]) and other.read_text() == "not ours"
    assert not place.exists("t") and os.path.exists(place.source.path("t", FILE1))
