"""What a notebook shows: a verdict that is right at a glance, and figures without a wrong digit."""

import logging
from decimal import Decimal

import pytest

from frazil_old.errors import FrazilError, Message
from frazil_old.report import notebook_output
from frazil_old.report.notebook_output import Grid
from frazil_old.results import TableResult

LOST = Message("2 bad rows\n  a.csv row 2: 'x' does not fit INT4\n  cure: correct the file")


def of(*statuses: str, **counts: int) -> list[TableResult]:
    return [TableResult(f"shop.t{n}", s, LOST if s == "failed" else "", 1.0, dict(counts)) for n, s in enumerate(statuses)]  # fmt: skip


@pytest.mark.parametrize(
    ("card", "head"),
    [
        (notebook_output.results(of("merged", "unchanged", "failed", changes=5)), "✘ 1 table failed; 1 table merged; 1 table unchanged; 15 changes"),
        (notebook_output.results(of("merged", "waiting")), "! 1 table waiting; 1 table merged"),
        (notebook_output.results(of("unchanged", "unchanged")), "· 2 tables unchanged"),
        (notebook_output.results([]), "· no tables"),
        (notebook_output.plan([{"table": "a", "action": "stops", "decision": "say how"}]), "✘ 1 table needs you to decide or correct something"),
        (notebook_output.compared(of("equal", "equal", source_rows=1000, differing_rows=0)), "✔ equal: 2 tables, 2,000 rows"),
        (notebook_output.compared(of("differs", source_rows=9, differing_rows=3)), "✘ 3 rows differ, in shop.t0"),
    ],
)  # fmt: skip
def test_the_first_line_is_the_verdict(card, head):
    assert repr(card).splitlines()[0] == head and head[2:] in card._repr_html_()


def test_a_problem_of_the_user_is_two_lines_and_its_trace_is_in_the_log(caplog):
    log = logging.getLogger("frazil")
    propagated, log.propagate = log.propagate, True
    try:
        raise FrazilError("no such thing", "name another")
    except FrazilError as e:
        assert e._render_traceback_() == ["FrazilError: no such thing\n  cure: name another"]
    finally:
        log.propagate = propagated
    assert "Traceback" in caplog.text


def test_figures_have_separators_equal_decimals_and_units_and_all_their_digits():
    rows = [{"table": "a", "rows": 12_345, "seconds": 10.51, "waiting_s": 187.8, "deleted_share": 0.0112, "usd": Decimal("1.5")},
            {"table": "b", "rows": None, "seconds": 10.5, "waiting_s": 0.35, "deleted_share": 0.0, "usd": Decimal("0.25")}]  # fmt: skip
    assert repr(Grid(rows)).splitlines() == [
        "table    rows  seconds  waiting  deleted   usd",
        "a      12,345    10.51  3.1 min    1.1 %  1.50",
        "b           –    10.50   0.35 s    0.0 %  0.25",
    ]
    assert "8,434,234,234,234,234,567" in repr(Grid([{"id": 8_434_234_234_234_234_567}]))
    assert "<b>" not in Grid([{"<b>": "<b>"}])._repr_html_().replace("<b>table", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(4309, "4309"), (0.23999999463558197, "0.24"), (0.1 + 0.2, "0.30000000000000004"), (float("inf"), "inf"), (True, "true"),
     (None, "–"), (b"\x00\xff", "0x00ff"), (Decimal("1.50"), "1.50")],
)  # fmt: skip
def test_rows_of_a_table_show_each_value_as_a_query_needs_it(value, text):
    assert repr(notebook_output.Rows([{"order_s": value}])).split() == ["order_s", text]
