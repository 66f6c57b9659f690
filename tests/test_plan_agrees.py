"""`frazil plan` says what the next run of each notebook does, once for each setting, and what nobody takes."""

import re
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from frazil_old import exit_codes
from frazil_old.cli import check, main
from frazil_old.config.settings import OperateSettings, resolve
from frazil_old.flows import cdc, full_load
from frazil_old.flows.workbook import Workbook
from helpers import FILE1, FILE2, FILE3, LOAD1, ONE_COMMIT, I
from lake_reader import lake_rows, lake_table

pytestmark = pytest.mark.spark
HEAD = "Op,ts,id,v,more,seq,BI_id\n"
NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def _environment(w, monkeypatch, **sections):
    file = w.environment(monkeypatch) / "w.yml"
    known = yaml.safe_load(file.read_text())
    known["common"]["ops_namespace"] = f"{w.space}_ops"
    file.write_text(yaml.safe_dump(known | sections))


def _plan(capsys) -> tuple[dict[str, dict[str, str]], str]:
    """Run `frazil plan`; return its table by source table, and all that it says. Columns are two blanks apart in every line."""
    assert main(["plan", "--env", "w", "--wide"]) == exit_codes.OK
    out = capsys.readouterr().out.partition("\n")[2]
    grid = list(takewhile(lambda line: not re.search(": (impossible|decision): |has data and no spec|^format: ", line), out.splitlines()))  # fmt: skip
    wide = [line.ljust(max(map(len, grid))) for line in grid]
    blank = "".join(" " if all(line[i] == " " for line in wide) else "x" for i in range(len(wide[0])))
    spans = [m.span() for m in re.finditer(r"x(?: ?x)*", blank)]
    head, *rows = [[line[a:b].strip() for a, b in spans] for line in wide]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}, out


def _run(flow, notebook):
    return {r.table.removeprefix("public."): r for r in flow.run(Workbook(resolve(notebook, {"env": "w"}).settings, lambda text: None))}  # fmt: skip


def test_the_plan_and_the_next_runs_agree_in_every_setting(new_world, monkeypatch, capsys, catalog_options):
    w = new_world(AddColumnName=True).table("t").table("wider").table("again")
    for t in ("t", "wider", "again"):
        w.load(t, (1, "a"))
    w.loaded()
    for file, n in ((FILE1, 2), (FILE2, 3), (FILE3, 4)):
        w.changes("t", I(n, "b"), name=file)
    w.write("wider", FILE1, HEAD + "I,2024-01-01 09:59:00.000000,2,b,c,,\n")
    w.load("again", (1, "a"), (9, "z"))
    _environment(
        w, monkeypatch, full_load={"on_changed_load": "reload"},
        cdc_merge={"lane": "rowdelta", "max_batch_files": 1, "max_batches": 2, "changes": {"new": "add"}},
    )  # fmt: skip
    rows, out = _plan(capsys)
    t = rows["public.t"]
    assert (t["changes"], t["batches"], t["left"], t["lane"].split(":")[0]) == ("2", "2", "1", "rowdelta")
    assert rows["public.again"]["action"] == "reload" and "add more" in rows["public.wider"]["schema"]
    assert "decision" not in out

    assert _run(full_load, "full_load")["again"].status == "reloaded"
    done = _run(cdc, "cdc_merge")
    assert (done["t"].counts["batches"], done["t"].counts["files"]) == (2, 2)
    newest = lake_table(catalog_options, f"{w.space}.t").current_snapshot().summary.additional_properties
    assert newest["frazil.lane"] == "rowdelta"
    assert lake_rows(catalog_options, f"{w.space}.wider") == [(1, "a", None), (2, "b", "c")]


def test_a_batch_ends_in_the_plan_too_where_columns_change(new_world, monkeypatch, capsys):
    w = new_world(AddColumnName=True).table("t").load("t", (1, "a")).loaded()
    for n in range(2, 9):
        head, more = (HEAD, "c,") if n > 4 else (HEAD.replace("more,", ""), "")
        w.write("t", f"20240101-10000000{n}.csv", f"{head}I,{ONE_COMMIT},{n},b,{more},\n")
    _environment(w, monkeypatch, cdc_merge={"changes": {"new": "add"}})
    assert _plan(capsys)[0]["public.t"]["batches"] == "2"
    assert _run(cdc, "cdc_merge")["t"].counts["batches"] == 2


def test_what_one_setting_does_to_many_tables_is_one_line_and_data_without_a_spec_is_named(world, monkeypatch, capsys):
    world.rules = {"rules": []}
    tables = [f"t{n}" for n in range(12)]
    for t in tables:
        world.table(t)
    world.load("t0", (1, "a"))
    world.write("stray", LOAD1, "x\n").write("deep/2024", LOAD1, "x\n").write("notes", "readme.txt", "x")
    _environment(world, monkeypatch)
    lines = _plan(capsys)[1].splitlines()
    (line,) = [text for text in lines if "add-before-image-columns" in text]
    assert all(f"public.{t}" in line for t in tables)
    for told in (lines, check.look(resolve("operate", {"env": "w"}).settings)[0]):
        assert [text.split(":")[0] for text in told if "spec" in text and "public.t" not in text] == ["public.deep", "public.stray"]  # fmt: skip
    _environment(world, monkeypatch, operate={"without_spec": ["public.%"]}, cdc_merge={"without_spec": ["public.%"]})
    assert not [text for text in _plan(capsys)[1].splitlines() if "stray" in text]
    assert not [text for text in check.look(world.book(OperateSettings, without_spec=["public.s%", "public.deep"]).settings)[0] if "stray" in text]  # fmt: skip


@pytest.mark.notebooks
@pytest.mark.slow
def test_a_run_with_nothing_to_do_says_which_rows_wait(world, monkeypatch, capsys):
    world.given = {"on_bad_rows": "quarantine", "ops_namespace": f"{world.space}_ops"}
    world.table("t", "id INT8", "n INT4").table("u").load("t", (1, 1)).loaded()
    world.changes("t", I(2, "x"), I(3, "y")).merged()
    _environment(world, monkeypatch)
    (world.root / "notebooks").symlink_to(NOTEBOOKS)
    assert main(["run", "02_cdc_merge", "--env", "w"]) == exit_codes.NOTHING
    told = capsys.readouterr().out
    assert "2 rows of public.t" in told and "public.u" not in told
