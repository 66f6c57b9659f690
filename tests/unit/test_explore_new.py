"""What the acceptance tests of exploring leave out: format v2, rows, and SQL."""

from __future__ import annotations

import pytest

import new_house
from dms_writer import FILE2, D, I, U


@pytest.mark.spark
def test_format_v2_keeps_history_through_a_compaction_and_names_of_the_source_are_known_to_sql(open_world):
    w = open_world(format_version=2).table("t")
    w.source.load("t", (1, "a"), (2, "b"))
    w.source.changes("t", U(1, "b"))
    w.source.changes("t", D(2), I(3, "c"), name=FILE2)
    w.loaded().merged(max_batch_files=1)
    w.call("rewrite_data_files", "t", "options => map('rewrite-all', 'true')")
    assert [e["did"] for e in w.find("t", 1)] == ["update", "load"]
    assert [e["did"] for e in w.find("t", 2)] == ["delete", "load"] and w.find("t") != []
    lake = new_house.opened(w, {})
    (table,) = lake
    assert table.head(2).shape == (2, 2) and table.history(2).kind.tolist()[0] == "replace"
    found = lake.sql("select 'public.t' as x, public.t.* from public.t order by id").collect()
    assert [tuple(row) for row in found] == [("public.t", 1, "b"), ("public.t", 3, "c")]
    first = table.history(99).snapshot.iloc[-2]
    assert sorted(map(tuple, table.rows(at=first).collect())) == [(1, "a"), (2, "b")]
    assert table.diff(table.history(1).snapshot[0]).empty
