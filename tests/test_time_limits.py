"""The first and the last value of each time type: as key and as value, in both lanes, and wherever rows are shown."""

import ast
import datetime as dt
import html
import re
from pathlib import Path

import nbformat
import pytest

from frazil_old.config.settings import ExploreSettings
from frazil_old.flows import explore, row_history
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, I, World
from lake_reader import lake_rows

pytestmark = pytest.mark.spark

KINDS = {"d": "DATE", "n": "DATETIME", "u": "DATETIME", "t": "TIME"}
FIRST = {"d": "0001-01-01", "n": "0001-01-01 00:00:00", "u": "0001-01-01 00:00:00", "t": "00:00:00"}
LAST = {"d": "9999-12-31", "n": "9999-12-31 23:59:59.999999", "u": "9999-12-31 23:59:59.999999", "t": "23:59:59.999999"}
UTC = dt.UTC
IN_LAKE = {
    FIRST["d"]: dt.date.min, LAST["d"]: dt.date.max, FIRST["t"]: FIRST["t"], LAST["t"]: LAST["t"],
    FIRST["n"]: dt.datetime.min, LAST["n"]: dt.datetime.max,
}  # fmt: skip


def in_lake(key: str, *texts: str) -> tuple:
    """Return a row as PyIceberg has it: an instant has its zone."""
    kinds = (key, *KINDS)
    return tuple(IN_LAKE[t].replace(tzinfo=UTC) if k == "u" else IN_LAKE[t] for k, t in zip(kinds, texts, strict=True))


@pytest.fixture(scope="module")
def world(spark, catalog_options, tmp_path_factory):
    """For each time type a table with that key: loaded, then by a MERGE and by a row delta each row gets the other row's values."""
    w = World(tmp_path_factory.mktemp("limits") / "w", "limits", catalog_options)
    w.rules = {"rules": []}
    for key in KINDS:
        w.table(key, f"k {KINDS[key]}", *[f"{n} {kind}" for n, kind in KINDS.items()], key="k", utc=("u", *("k" * (key == "u"))))  # fmt: skip
        rows = {FIRST[key]: ",".join(FIRST.values()), LAST[key]: ",".join(LAST.values())}
        swapped = dict(zip(rows, reversed(rows.values()), strict=True))
        w.write(key, LOAD1, "".join(f"{ONE_COMMIT},{k},{values}\n" for k, values in rows.items()))
        w.write(key, FILE1, "".join(f"U,{ONE_COMMIT},{k},{values}\n" for k, values in swapped.items()))
        w.write(key, FILE2, "".join(f"U,{ONE_COMMIT},{k},{values}\n" for k, values in rows.items()))
    w.loaded()
    for lane in ("merge", "rowdelta"):
        w.merged(lane=lane, max_batch_files=1, max_batches=1)
    return w


@pytest.mark.parametrize("key", KINDS)
def test_the_first_and_last_value_are_kept_as_key_and_as_value_in_both_lanes(world, catalog_options, key):
    wanted = [in_lake(key, FIRST[key], *FIRST.values()), in_lake(key, LAST[key], *LAST.values())]
    assert lake_rows(catalog_options, f"limits.{key}") == sorted(wanted, key=repr)
    assert [s.summary().get("frazil.lane") for s in world.history(key)][:2] == ["rowdelta", "merge"]


@pytest.mark.parametrize("key", KINDS)
def test_the_first_rows_of_a_table_are_shown(world, key):
    shown = world.book().first_rows(f"public.{key}")
    assert [tuple(r.values()) for r in shown] == [(s[key], *s.values()) for s in (FIRST, LAST)]


@pytest.mark.parametrize("key", KINDS)
def test_the_history_and_the_differences_of_such_a_key_are_shown(world, key):
    book, source = world.book(ExploreSettings), f"public.{key}"
    assert row_history.first_key(book, source) in ([FIRST[key]], [LAST[key]])
    events = row_history.key_history(book, source, [FIRST[key]])
    assert [(e["operation"], e["d"], e["n"], e["u"]) for e in events] == [
        (word, *[s[c] for c in "dnu"]) for word, s in (("update", FIRST), ("update", LAST), ("load", FIRST))
    ]
    (row,) = row_history.origin(book, source, [FIRST[key]])
    assert (row["file"], row["row"], row["u"], row["source_commit"]) == (FILE2, 1, FIRST["u"], ONE_COMMIT)
    found = explore.difference(book, source, events[1]["snapshot"], "newest")
    assert found.counts == {"inserted": 0, "updated": 2, "deleted": 0}
    assert {(r["k"], r["before"], r["after"]) for r in found.sample if r["column"] == "u"} == {
        (FIRST[key], LAST["u"], FIRST["u"]),
        (LAST[key], FIRST["u"], LAST["u"]),
    }


def shown_by_notebook(name: str, env: str, **parameters) -> str:
    """Run a notebook's code cells in this process and return all that they show, as plain text."""
    file = next((Path(__file__).parent.parent / "notebooks").glob(f"{name}*.ipynb"))
    cells = [c for c in nbformat.read(file, as_version=4).cells if c.cell_type == "code"]
    names, shown = {"__name__": "__main__"}, []
    for cell in cells:
        body = ast.parse(cell.source)
        last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
        exec(compile(body, file.name, "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            names |= {"env": env, **parameters}
        if last:
            value = eval(compile(ast.Expression(last.value), file.name, "eval"), names)
            made = getattr(value, "_repr_html_", value.__repr__)()
            shown.append(html.unescape(re.sub("<[^>]+>", " ", made)))
    return "\n".join(shown)


@pytest.mark.slow
def test_the_explore_notebook_shows_a_table_whose_key_is_the_first_instant(world, monkeypatch):
    world.environment(monkeypatch)
    shown = shown_by_notebook("05", "w", table="public.u", key=[FIRST["u"]])
    for text in (FIRST["d"], LAST["d"], FIRST["u"], LAST["u"]):
        assert text in shown


def test_a_duplicate_key_at_the_limit_is_named(new_world):
    w = new_world()
    w.rules = {"rules": []}
    w.table("twice", "id DATETIME", "v INT4", utc=("id",))
    w.write("twice", LOAD1, f"{ONE_COMMIT},{FIRST['u']},1\n{ONE_COMMIT},{FIRST['u']},2\n").setup()
    assert f"id={FIRST['u']} is 2 times" in w.full_load()["twice"].note


YEARS = {"born": "12024-01-01 00:00:00.000000", "died": "-4712-01-01 00:00:00.000000", "day": "0000-01-01"}
GOOD = {"born": "2024-01-01 00:00:00", "died": "2024-01-01 00:00:00", "day": "2024-01-01"}


def test_a_year_that_no_time_type_has_is_named_with_file_row_column_and_value(new_world):
    w = new_world(AddColumnName=True, IncludeOpForFullLoad=True)
    w.rules = {"rules": []}
    for table in ("loaded", "changed"):
        w.table(table, "id INT8", "born DATETIME", "died DATETIME", "day DATE", utc=("died",))
    bad = [(n, *(GOOD | {column: text}).values()) for n, (column, text) in enumerate(YEARS.items(), 2)]
    w.load("loaded", (1, *GOOD.values()), *bad).load("changed", (1, *GOOD.values())).setup()
    results = w.full_load()
    assert results["changed"].status == "loaded"
    w.changes("changed", I(9, *GOOD.values()), name=FILE1).changes("changed", *[I(*row) for row in bad], name=FILE2)
    for file, first, note in (
        (LOAD1, 2, results["loaded"].note),
        (FILE2, 1, w.merge(tables=["public.changed"])["changed"].note),
    ):
        for row, (column, text) in enumerate(YEARS.items(), first):
            assert re.search(rf"{file} row {row}: column '{column}': '{re.escape(text)}'", note), note
