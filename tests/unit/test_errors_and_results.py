"""Errors with stable codes and safe texts; results, their outcome and exit code; tables and records of runs."""

from __future__ import annotations

import json
import pickle
import re

import pandas as pd
import pytest

import pages
from frazil.errors import FrazilError, many, nearest
from frazil.report import run_record, tables
from frazil.results import EXIT_CODES, Result, Results, TablesFailedError


def test_an_error_shows_problem_code_details_and_cure():
    error = TablesFailedError("two failed", "mend them", ["a: x", "b: y\n\x1b[31m"])
    assert str(error) == "two failed [tables-failed]\n  a: x\n  b: y\\n\\x1b[31m\n  cure: mend them"
    assert error._render_traceback_() == [str(error)]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_each_error_has_a_code_of_its_own_and_a_meaning():
    found = pages.error_classes()
    assert len({c.code for c in found}) == len(found) >= 7
    assert [c.__name__ for c in found if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c.code)] == []
    assert [
        c.__name__ for c in found if not c.__doc__ or c.__doc__.count(".") < 2 or not c.__name__.endswith("Error")
    ] == []


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_is_the_one_that_the_classes_give(name):
    assert (pages.DOCS / name).read_text() == pages.PAGES[name](), "run `make pages`"


def test_the_nearest_name_is_named_else_all():
    assert nearest("ordrs", ["orders", "items"]) == "write 'orders'"
    assert nearest("zzz", ["orders", "items"]) == "write one of: items, orders"
    assert (many(1, "row"), many(1200, "row")) == ("1 row", "1,200 rows")


FAILED = Result("b", "failed", "broken", "x")
WAITS = Result("c", "failed", "decide", "y", decision=True)
DONE = Result("a", "merged", counts={"rows": 5, "files": 1}, seconds=1.234)


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        ([DONE, Result("z", "unchanged")], "ok"),
        ([DONE, FAILED], "some failed"),
        ([FAILED], "failed"),
        ([FAILED, WAITS], "failed"),
        ([DONE, WAITS], "decision"),
        ([DONE, Result("d", "waiting")], "decision"),
        ([DONE, Result("d", "differs")], "decision"),
        ([DONE, Result("d", "skipped")], "skipped"),
        ([Result("d", "unchanged"), Result("e", "stopped")], "nothing"),
        ([], "nothing"),
    ],
)
def test_the_outcome_of_tables_is_their_worst(results, outcome):
    assert Results(results).outcome == outcome and outcome in EXIT_CODES


def test_results_are_data_and_show_themselves():
    results = Results([Result("z", "unchanged"), DONE, FAILED])
    assert (results.busiest, Results([Result("z", "exists"), Result("y", "exists")]).busiest, Results().busiest) == ("a", "y", None)  # fmt: skip
    table = results.to_pandas()
    assert table.set_index("table").loc["a", ["rows", "files", "seconds"]].tolist() == [5, 1, 1.2]
    assert table.set_index("table").loc["z", "rows"] == 0
    assert "broken" in repr(results) and "<table" in results._repr_html_() and tables.BAD in results._repr_html_()
    assert tables.BAD not in Results([DONE])._repr_html_()


def test_failed_tables_are_raised_with_every_cause():
    Results([DONE]).raise_if_failed()
    with pytest.raises(TablesFailedError) as raised:
        Results([DONE, FAILED, WAITS]).raise_if_failed()
    assert [w for w in ("2 of 3 tables failed", "b: broken", "c: decide") if w not in str(raised.value)] == []


def test_an_error_becomes_the_result_of_its_table():
    class NeedsDecisionError(FrazilError, code="needs-decision", decision=True):
        """Test. Test."""

    result = Result.of_error("t", NeedsDecisionError("p", "c"))
    assert (result.failed, result.code, result.decision) == (True, "needs-decision", True) and "cure: c" in result.note
    raw = Result.of_error("t", ZeroDivisionError("by\nzero"))
    assert (raw.code, raw.note, raw.decision) == ("ZeroDivisionError", "by\\nzero", False)


def test_figures_are_shown_with_units_and_values_are_escaped():
    shown = [tables.figure(*f) for f in ((1234567,), (0.5, "deleted_share"), (75, "lag_s"), (None,), (float("nan"),), (True,), (1.5,), (9876.54321,), (2.0,))]  # fmt: skip
    assert shown == ["1,234,567", "50.0 %", "1 min 15 s", "–", "–", "yes", "1.5", "9,876.543", "2"]
    assert [tables.span(s) for s in (0.0123, 60, 3725, 90000, float("inf"))] == [
        "0.0123 s",
        "1 min",
        "1 h 2 min",
        "1 d 1 h",
        "inf s",
    ]
    assert tables.figure(pd.NA) == "–"
    html = tables.html(pd.DataFrame([{"<b>": "<script>", "n": 1}]))
    assert "<script>" not in html and "&lt;script&gt;" in html and "<b>" not in html
    assert tables.text(pd.DataFrame()) == "(nothing)" and "\\x1b" in tables.text(pd.DataFrame([{"a": "\x1b[31m"}]))


def test_a_run_is_recorded_when_it_begins_and_when_it_ends(tmp_path, monkeypatch):
    monkeypatch.delenv(run_record.FOLDER_VARIABLE, raising=False)
    folder = run_record.run_folder(str(tmp_path), "prod", "02_cdc_merge")
    record = run_record.RunRecord("02_cdc_merge", "prod")
    record.write(folder)
    file = next(tmp_path.glob("prod/02_cdc_merge-*/run.json"))
    assert run_record.read(file) == record and record.outcome == "running"
    record.end(Results([DONE, WAITS]))
    record.write(folder)
    again = run_record.read(file)
    assert (again.outcome, again.exit_code, again.tables[1]["code"]) == ("decision", 4, "y")
    assert json.loads(file.read_text())["tables"][0]["counts"] == {"rows": 5, "files": 1}
    record.end(Results([DONE, WAITS]), error="a cell failed")
    assert (record.outcome, record.exit_code) == ("failed", 1)
    assert sorted(p.name for p in file.parent.iterdir()) == ["run.json"]
    file.write_text("{")
    assert run_record.read(file) is None
    monkeypatch.setenv(run_record.FOLDER_VARIABLE, "/given")
    assert run_record.run_folder("r", "e", "n") == "/given"
