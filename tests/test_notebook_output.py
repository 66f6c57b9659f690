"""What a notebook shows: a verdict that is right at a glance, in text and in HTML."""

import logging
import os
import re
import shutil
import subprocess
import sys
import time
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from frazil_old.errors import FrazilError, Message, counted
from frazil_old.report import notebook_output, runs
from frazil_old.report.notebook_output import Grid
from frazil_old.results import TableResult, TablesFailedError

HOSTILE = "<script>&\"'</td>{{ 7 * 7 }}<style>"
LIB = Path(__file__).parent.parent / "lib"
LOST = Message("2 bad rows\n  a.csv row 2: 'x' does not fit INT4\n  cure: correct the file")


def of(*statuses: str, **counts: int) -> list[TableResult]:
    return [
        TableResult(f"shop.t{n}", s, LOST if s == "failed" else "", 1.0, dict(counts)) for n, s in enumerate(statuses)
    ]


@pytest.mark.parametrize(
    ("card", "head"),
    [
        (notebook_output.results(of("merged", "unchanged", "failed", changes=5)), "✘ 1 table failed; 1 table merged; 1 table unchanged; 15 changes"),
        (notebook_output.results(of("merged", "waiting")), "! 1 table waiting; 1 table merged"),
        (notebook_output.results(of("unchanged", "unchanged")), "· 2 tables unchanged"),
        (notebook_output.results([]), "· no tables"),
        (notebook_output.plan([{"table": "a", "action": "apply changes", "mb": 1.25}, {"table": "b", "action": "nothing new"}]),
         "✔ 1 table to apply changes; 1 table with nothing to do; 1.2 MB to read"),
        (notebook_output.plan([{"table": "a", "action": "stops", "decision": "say how"}]), "✘ 1 table needs you to decide or correct something"),
        (notebook_output.plan([{"table": "a", "action": "waiting until the full load is applied"}]), "! 1 table waiting"),
        (notebook_output.plan([{"table": "a", "action": "nothing new", "impossible": "x"}]), "! 1 table with nothing to do"),
        (notebook_output.plan([]), "· nothing to do"),
        (notebook_output.compared(of("equal", "equal", source_rows=1000, differing_rows=0)), "✔ equal: 2 tables, 2,000 rows"),
        (notebook_output.compared(of("differs", source_rows=9, differing_rows=3)), "✘ 3 rows differ, in shop.t0"),
        (notebook_output.compared([]), "· not compared with the source: see check_source"),
        (notebook_output.health([{"table": "a", "rows": 7, "data_files": 2, "mb": 0.5, "health": "compact"}]),
         "! 1 table with 7 rows in 2 files (0.5 MB); 1 table needs maintenance"),
    ],
)  # fmt: skip
def test_the_first_line_is_the_verdict(card, head):
    assert repr(card).splitlines()[0] == head
    assert head[2:] in card._repr_html_()


def test_what_needs_somebody_stands_out_and_a_text_of_several_lines_stays_in_its_column():
    card = notebook_output.results(of("merged", "failed"), "table", "status", "note")
    lines = repr(card).splitlines()
    assert [line[0] for line in lines] == ["✘", " ", " ", "✘", " ", " "]
    column = lines[3].index("2 bad rows")
    assert lines[4].index("a.csv") == lines[5].index("cure:") == column + 2
    assert card._repr_html_().count("box-shadow") == 1


def test_a_problem_of_the_user_is_two_lines_and_its_trace_is_in_the_log(caplog):
    log = logging.getLogger("frazil")
    propagated, log.propagate = log.propagate, True
    try:
        try:
            raise FrazilError("no such thing", "name another")
        except FrazilError as e:
            for _ in range(2):  # IPython asks twice
                assert e._render_traceback_() == ["FrazilError: no such thing\n  cure: name another"]
    finally:
        log.propagate = propagated
    assert len({id(r) for r in caplog.records}) == 1  # pytest hears it twice where an earlier test stopped its way up
    assert "Traceback" in caplog.text and "test_notebook_output.py" in caplog.text


class Elements(HTMLParser):
    """The names of all elements of a page, its texts, and its attributes' values."""

    def __init__(self, page: str):
        super().__init__()
        self.names, self.texts, self.values = set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.values += [value for _, value in attrs]

    def handle_data(self, data):
        self.texts.append(data)


def hostile_run(folder: Path) -> Path:
    """Return the page of runs whose names and causes are all hostile."""
    run = folder / "<b>&\"'{{ 7 * 7 }}" / 'r<i>"1'
    run.mkdir(parents=True)
    (run / "a.<u>").write_text("")
    runs.write(run, notebook=HOSTILE, outcome="failed", cause=HOSTILE, began=1.0, pid=1)
    return runs.write_index(run.parent)


def test_no_text_of_a_run_becomes_markup_on_the_page_of_runs(tmp_path):
    file = hostile_run(tmp_path)
    page = Elements(file.read_text(encoding="utf-8"))
    assert page.names <= {"html", "head", "meta", "title", "style", "body", "h1", "div", "table", "tr", "th", "td", "a"}
    assert page.texts.count(HOSTILE) == 2 and f"Runs of {file.parent.name}" in page.texts
    assert "r%3Ci%3E%221/a.%3Cu%3E" in page.values


def test_the_page_of_runs_shows_each_outcome_in_its_colour_with_its_files(tmp_path):
    for n, outcome in enumerate(("ok", "failed", "nothing to do")):
        (folder := tmp_path / f"r{n}").mkdir()
        (folder / "run.log").write_text("")
        more = {"worst_lag_s": 1.25, "rows": 5000} if n == 2 else {"rows": n and None}
        runs.write(folder, notebook="02_cdc_merge", outcome=outcome, began=1e9 + n, pid=1, seconds=1234.56, **more)
    page = runs.write_index(tmp_path).read_text()
    assert re.findall(r'<tr class="(\w*)">', page) == ["still", "bad", ""], "newest first"
    assert re.findall(r'class="n">([^<]*)<', page)[:4] == ["10", "1,234.6", "5,000", "1.2"]
    assert page.count(">log</a>") == 3 and 'href="r1/run.log"' in page and "Content-Security-Policy" in page


def test_the_page_of_an_executed_notebook_runs_and_loads_nothing(tmp_path):
    cell = nbformat.v4.new_code_cell(
        "1", outputs=[nbformat.v4.new_output("display_data", {"text/html": "<p>shown</p>"})]
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "n.ipynb")
    page = runs.as_page(tmp_path / "n.ipynb").read_text(encoding="utf-8")
    assert 'media="(prefers-color-scheme:dark)"' in page and "--jp-layout-color0: #111" in page
    assert "<p>shown</p>" in page and "default-src 'none'" in page and not re.search("<script|MathJax", page)


def test_a_wheel_has_the_templates(tmp_path):
    """`build_py` copies what a wheel holds; the pages then come from there."""
    pytest.importorskip("setuptools")
    shutil.copytree(LIB, tmp_path / "lib", ignore=shutil.ignore_patterns("*.egg-info", "build", "docs", "__pycache__"))
    command = "from setuptools import setup; setup(script_args=['-q', 'build_py', '-d', '../installed'])"
    subprocess.run([sys.executable, "-c", command], cwd=tmp_path / "lib", check=True, capture_output=True)
    templates = {f.relative_to(LIB) for f in LIB.rglob("*.j2")}
    assert templates and templates == {
        f.relative_to(tmp_path / "installed") for f in (tmp_path / "installed").rglob("*.j2")
    }
    code = "import frazil_demo.report\nfrom frazil_old.report.notebook_output import Grid\nprint(frazil_demo.__file__, Grid([{'a': 1}])._repr_html_())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")})  # fmt: skip
    assert str(tmp_path / "installed") in ran.stdout and "<table>" in ran.stdout, ran.stderr


def test_figures_have_separators_equal_decimals_and_units():
    rows = [{"table": "a", "rows": 12_345, "seconds": 10.51, "waiting_s": 187.8, "deleted_share": 0.0112},
            {"table": "b", "rows": None, "seconds": 10.5, "waiting_s": 0.35, "deleted_share": 0.0}]  # fmt: skip
    assert repr(Grid(rows)).splitlines() == [
        "table    rows  seconds  waiting  deleted",
        "a      12,345    10.51  3.1 min    1.1 %",
        "b           –    10.50   0.35 s    0.0 %",
    ]


def test_no_digit_of_a_large_integer_or_a_decimal_is_rounded_away():
    rows = [{"id": 8_434_234_234_234_234_567, "usd": Decimal("1.5")}, {"id": 7, "usd": Decimal("0.25")}]
    assert repr(Grid(rows)).splitlines()[1:] == ["8,434,234,234,234,234,567  1.50", f"{'7':>25}  0.25"]


def test_a_rate_is_a_number_and_no_duration():
    grid = Grid([{"mb_per_s": 23.6}])
    assert repr(grid).split() == ["mb_per_s", "23.6"] and "MB per s" in grid._repr_html_()


@pytest.mark.parametrize(
    ("value", "text"),
    [(4309, "4309"), (2026, "2026"), (0.23999999463558197, "0.24"), (12.300000190734863, "12.3"), (0.1 + 0.2, "0.30000000000000004"),
     (16777216.0, "16777216"), (float("inf"), "inf"), (1.7976931348623157e308, "1.7976931348623157e+308"), (True, "true"), (None, "–"),
     (b"\x00\xff", "0x00ff"), (bytes(17), "0x" + "00" * 16 + "…"), (Decimal("1.50"), "1.50")],
)  # fmt: skip
def test_rows_of_a_table_show_each_value_as_a_query_needs_it(value, text):
    assert repr(notebook_output.Rows([{"order_s": value}])).split() == ["order_s", text]


def test_a_run_that_papermill_started_is_listed_and_checked_and_that_of_frazil_run_is_recorded_once(
    tmp_path, monkeypatch
):
    book = SimpleNamespace(folder=tmp_path, settings=SimpleNamespace(env="prod"), opened=time.time() - 3)
    monkeypatch.delenv(runs.STARTED, raising=False)
    notebook_output.finish("cdc_merge", [TableResult("t", "merged", counts={"changes": 7})], book, compared=[])
    (run,) = runs.read(tmp_path)
    assert (run["notebook"], run["outcome"], run["rows"], run["env"]) == ("02_cdc_merge", "ok", 7, "prod")
    assert 2.9 < run["seconds"] < 60 and "02_cdc_merge" in (tmp_path / "index.html").read_text()
    with pytest.raises(TablesFailedError):
        notebook_output.finish("cdc_merge", [TableResult("t", "failed", "gone")], book)
    assert runs.read(tmp_path)[0]["outcome"] == "failed"
    monkeypatch.setenv(runs.STARTED, str(tmp_path))
    notebook_output.finish("cdc_merge", [TableResult("t", "unchanged")], book)
    assert len(runs.read(tmp_path)) == 2


def test_numbers_of_parameters_are_written_as_they_are_set():
    texts = {3: "3", 0.025: "0.025", 60.0: "60", 1_234_567: "1234567", 0.1234567: "0.1234567"}
    rows = [{"parameter": "a", "value": value, "from": "x"} for value in texts]
    shown = notebook_output.Parameters(rows)._repr_html_()
    assert all(f">{text}<" in shown for text in texts.values()) and "3.000" not in shown


@pytest.mark.parametrize(("count", "text"), [(1, "1 file group"), (2, "2 file groups"), (0.5, "0.5 file groups")])
def test_a_count_of_one_is_in_the_singular(count, text):
    assert counted(count, "file_groups") == text
