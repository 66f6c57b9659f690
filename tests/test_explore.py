"""Exploring: where a row comes from; nothing is written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dms_writer import FILE1, FILE2, FILE3, D, I, U, file_name
from world import Refused

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
FILE4 = file_name(3)


@pytest.fixture(scope="module")
def told(shared_world):
    """A world of a table and its five commits: the load and four files."""
    w = shared_world("explored")
    w.table("t").source.load("t", (1, "a"), (2, "b"), (3, "c"))
    w.source.changes("t", U(1, "a2"), D(2), name=FILE1)
    w.source.changes("t", I(2, "b again"), U(3, "c2"), name=FILE2)
    w.source.changes("t", U(1, "a3"), U(1, "a4"), name=FILE3)
    w.source.changes("t", U(10, None, was=3), name=FILE4)
    return w.loaded().merged(max_batch_files=1)


def test_a_row_tells_from_which_rows_of_which_file_it_came(told):
    newest, moved = told.find("t", 1)[0], told.find("t", 10)[0]
    assert (newest["values"]["v"], newest["origin"]) == ("a4", [(FILE3, 1, "U"), (FILE3, 2, "U")])
    assert (moved["values"]["v"], moved["origin"]) == (None, [(FILE4, 1, "U")])
    assert told.find("t", 3) == [] == told.find("t", 99)


def test_a_row_keeps_its_origin_through_compaction_and_columns_that_are_renamed(open_world):
    w = open_world().table("t")
    w.source.load("t", (1, "a"), (2, "b"))
    w.source.changes("t", U(1, "b"))
    w.source.changes("t", U(1, "c"), D(2), name=FILE2)
    w.loaded().merged(max_batch_files=1)
    w.call("rewrite_data_files", "t", "options => map('rewrite-all', 'true')")
    w.merged()
    assert [(e["values"]["v"], e["origin"]) for e in w.find("t", 1)] == [("c", [(FILE2, 1, "U")])]
    for column, name in zip(w.specs["t"]["columns"], ("number", "word"), strict=True):
        column |= {"name": name, "renamed_from": column["name"]}
    w.declare("t", key=["number"]).source.changes("t", U(1, "z"), name=FILE3)
    w.setup(), w.merged()
    assert [(e["values"]["word"], e["origin"]) for e in w.find("t", 1)] == [("z", [(FILE3, 1, "U")])]


@pytest.mark.parametrize(
    ("ask", "says"),
    [(lambda w: w.find("tt", 1), "'public.t'"), (lambda w: w.find("t", 1, 2), "give id, in this order")],
)
def test_a_question_without_an_answer_says_so(told, ask, says):
    with pytest.raises(Refused, match=says):
        ask(told)


def test_an_empty_table_and_files_that_were_cleared_away_stop_nothing(open_world):
    w = open_world().table("t").table("empty")
    w.source.load("t", (1, "x"))
    w.source.changes("t", U(1, "y"))
    w.loaded().merged()
    assert w.find("empty", 1) == [] and w.find("t", 9) == []
    w.source.path("t", FILE1).unlink()
    newest = w.find("t", 1)[0]
    assert newest["values"] == {"v": "y"} and "are gone" in newest["origin"]


def test_nothing_is_written(told, catalog_options):
    def fingerprint() -> dict[str, str]:
        files = [f for f in Path(catalog_options["warehouse"]).parent.rglob("*") if f.is_file()]
        return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    before = fingerprint()
    told.find("t", 1), told.plan(), told.lateness()
    assert fingerprint() == before
