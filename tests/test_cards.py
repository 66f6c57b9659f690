"""What a notebook shows: a verdict that is right at a glance, in text and in HTML."""

import logging

import pytest

from frazil.errors import FrazilError, Message
from frazil.flows.workbook import TableResult
from frazil.observe import cards, progress
from frazil.observe.board import Board

LOST = Message("2 bad row(s)\n  a.csv row 2: 'x' does not fit INT4\n  cure: correct the file")


def of(*statuses: str, **counts: int) -> list[TableResult]:
    return [
        TableResult(f"shop.t{n}", s, LOST if s == "failed" else "", 1.0, dict(counts)) for n, s in enumerate(statuses)
    ]


@pytest.mark.parametrize(
    ("card", "head"),
    [
        (cards.results(of("merged", "unchanged", "failed", changes=5)), "✘ 1 table failed; 1 table merged; 1 table unchanged; 15 changes"),
        (cards.results(of("merged", "held")), "! 1 table held; 1 table merged"),
        (cards.results(of("unchanged", "unchanged")), "· 2 tables unchanged"),
        (cards.results([]), "· no tables"),
        (cards.plan([{"table": "a", "action": "apply changes", "mb": 1.25}, {"table": "b", "action": "nothing new"}]),
         "✔ 1 table to apply changes; 1 table with nothing to do; 1.2 MB to read"),
        (cards.plan([{"table": "a", "action": "stops", "decision": "say how"}]), "✘ 1 table needs you to decide or mend something"),
        (cards.plan([{"table": "a", "action": "held until the full load is applied"}]), "! 1 table held"),
        (cards.plan([{"table": "a", "action": "nothing new", "impossible": "x"}]), "! 1 table with nothing to do"),
        (cards.plan([]), "· nothing to do"),
        (cards.compared(of("equal", "equal", source_rows=1000, differing_rows=0)), "✔ equal: 2 tables, 2,000 rows"),
        (cards.compared(of("differs", source_rows=9, differing_rows=3)), "✘ 3 row(s) differ, in shop.t0"),
        (cards.compared([]), "· not compared with the source: see check_source"),
        (cards.health([{"table": "a", "rows": 7, "data_files": 2, "mb": 0.5, "health": "compact"}]),
         "! 1 table with 7 rows in 2 files (0.5 MB); 1 table needs maintenance"),
    ],
)  # fmt: skip
def test_the_first_line_is_the_verdict(card, head):
    assert repr(card).splitlines()[0] == head
    assert head[2:] in card._repr_html_()


def test_what_needs_somebody_stands_out_and_a_text_of_several_lines_stays_in_its_column():
    card = cards.results(of("merged", "failed"), "table", "status", "note")
    lines = repr(card).splitlines()
    assert [line[0] for line in lines] == ["✘", " ", " ", "✘", " ", " "]
    column = lines[3].index("2 bad row(s)")
    assert lines[4].index("a.csv") == lines[5].index("cure:") == column + 2
    assert card._repr_html_().count("box-shadow") == 1
    assert "<script>" not in cards.results([TableResult("<script>", "failed", "<script>")])._repr_html_()


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
    assert "Traceback" in caplog.text and "test_cards.py" in caplog.text


def test_bars_are_for_those_who_watch(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert not progress.watched()
    monkeypatch.setenv("JPY_SESSION_NAME", "02_cdc_merge.ipynb")
    assert not progress.watched()  # no kernel here
    said = []
    Board(said.append).set("shop.t0", "5 changes/s", important=True)
    assert said == ["shop.t0: 5 changes/s"]
    bars = progress.Bars()
    bars.tasks = {"shop.t0": (3, 8)}
    assert repr(bars) == "shop.t0: 3 of 8 tasks done" and 'value="3" max="8"' in bars._repr_html_()
