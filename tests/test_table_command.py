"""`frazil table`: pause, resume, reload and drop one table."""

from __future__ import annotations

import json

import pytest

from frazil_old import exit_codes
from frazil_old.cli import run
from frazil_old.cli.commands import main
from frazil_old.config.settings import LatencySettings, OperateSettings
from frazil_old.flows import lag, ledger, pending_work
from frazil_old.flows.plan import plan
from frazil_old.report.latency import Analysis
from helpers import FILE1, U

pytestmark = pytest.mark.spark
LOAD2 = "LOAD00000002.csv"


@pytest.fixture
def two(world, monkeypatch):
    """Two loaded tables, each with a pending change, as an environment that the command finds."""
    for name in ("a", "b"):
        world.table(name).load(name, (1, "x"))
    world.loaded()
    for name in ("a", "b"):
        world.changes(name, U(1, "y"), name=FILE1)
    world.environment(monkeypatch)
    return world


def test_a_paused_table_stays_as_it_is_until_it_is_resumed(two, capsys):
    assert main(["table", "pause", "public.a", "--env", "w", "--why", "rows are corrected"]) == exit_codes.OK
    said = capsys.readouterr().out
    assert "public.a: paused since 20" in said and "rows are corrected" in said
    (planned,) = [r for r in plan(two.book()) if r["table"] == "public.a"]
    assert planned["action"] == "paused" and planned["notes"].startswith("since 20")
    assert planned["notes"].endswith("frazil table resume public.a --env ENV")
    done = two.merge()
    assert (done["a"].status, done["b"].status) == ("paused", "merged")
    assert "rows are corrected" in done["a"].note
    assert two.full_load()["a"].status == "paused"
    assert (two.rows("a"), two.rows("b")) == ([(1, "x")], [(1, "y")])

    assert main(["table", "resume", "public.a", "--env", "w"]) == exit_codes.OK
    assert two.merge()["a"].status == "merged" and two.rows("a") == [(1, "y")]
    assert main(["table", "resume", "public.a", "--env", "w"]) == exit_codes.NOTHING


def test_a_paused_table_is_not_late_and_is_named(two, capsys, monkeypatch):
    main(["table", "pause", "public.a", "--env", "w"])
    rows = {r["table"]: r for r in lag.per_table(two.book(OperateSettings))}
    assert rows["public.a"]["pending"] is None and rows["public.a"]["paused"].startswith("since 20")
    assert rows["public.b"]["pending"] == 1
    capsys.readouterr()
    main(["check", "--env", "w", "--json"])
    facts = json.loads(capsys.readouterr().out)
    main(["check", "--env", "w"])
    assert capsys.readouterr().out.startswith("public.a: paused since 20")
    assert facts["paused"].keys() == {"public.a"}
    assert {b.split(":")[0] for b in facts["breaches"]} & {"public.a", "public.b"} == {"public.b"}

    book = two.book(LatencySettings)
    assert {r["table"]: r["state"] for r in lag.fresh_now(book, Analysis(ledger.commits(book, 0)))} == {
        "public.a": "paused",
        "public.b": "late",
    }


def test_a_run_with_only_paused_tables_pending_need_not_start_spark(two, monkeypatch):
    main(["table", "pause", "public.a", "--env", "w"])
    two.merged()
    monkeypatch.setattr(pending_work, "_spark_is_there", lambda: False)
    still = pending_work.nothing_pending(two.book())
    assert {t: f["status"] for t, f in still.items()} == {"public.a": "paused", "public.b": "unchanged"}
    assert {t: r.status for t, r in two.merge().items()} == {"a": "paused", "b": "unchanged"}


def test_a_second_pause_keeps_the_first_reason(two, capsys):
    main(["table", "pause", "public.a", "--env", "w"])
    main(["table", "pause", "public.a", "--env", "w", "--why", "first"])
    main(["table", "pause", "public.a", "--env", "w", "--why", "second"])
    assert two.properties("a", "frazil.paused")[0].endswith(": first")


def test_a_table_that_does_not_exist_is_not_paused(world, monkeypatch, capsys):
    world.table("a").environment(monkeypatch)
    assert main(["table", "pause", "public.a", "--env", "w"]) == exit_codes.FAILED
    assert "does not exist" in capsys.readouterr().err
    assert main(["table", "pause", "public.z", "--env", "w"]) == exit_codes.WRONG
    assert "no table 'public.z'" in capsys.readouterr().err


def test_reload_shows_what_is_replaced_and_then_replaces_it(two, capsys, monkeypatch):
    two.merged()
    assert main(["table", "reload", "public.a", "--env", "w"]) == exit_codes.NOTHING
    said = capsys.readouterr().out
    assert (
        "aws dms reload-tables --replication-task-arn TASK_ARN --tables-to-reload SchemaName=public,TableName=a" in said
    )

    two.load("a", (1, "z"), (2, "new"))
    assert main(["table", "reload", "public.a", "--env", "w"]) == exit_codes.OK
    said = capsys.readouterr().out
    assert "public.a: reload" in said and "1 file" in said and "--yes" in said
    assert two.rows("a") == [(1, "y")]

    ran = []
    monkeypatch.setattr(run, "main", lambda options: ran.append(options) or exit_codes.OK)
    assert main(["table", "reload", "public.a", "--env", "w", "--yes"]) == exit_codes.OK
    (options,) = ran
    book, given = run.validated("full_load", "w", options.p)
    assert (options.notebook, given["on_changed_load"], list(book.specs)) == ("01_full_load", "reload", ["public.a"])
    assert run.find_notebook(options.notebook, OperateSettings())[1] == "full_load"


def test_drop_lists_a_table_and_then_deletes_only_it(two, capsys):
    assert main(["table", "drop", "public.a", "--env", "w"]) == exit_codes.OK
    said = capsys.readouterr().out
    assert "frazil table drop public.a --env w --yes deletes exactly these" in said and two.rows("a")
    assert main(["table", "drop", "public.a", "--env", "w", "--yes"]) == exit_codes.OK
    assert not two.spark.catalog.tableExists(two.name("a")) and two.rows("b") == [(1, "x")]
