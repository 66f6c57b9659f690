"""The first and the last instant wherever the explore notebook shows rows. `cases/values.yml` has them as keys and as values."""

import pytest

from dms_writer import FILE1, FILE2, U
from frazil_old.config.settings import ExploreSettings
from frazil_old.flows import explore, row_history

pytestmark = pytest.mark.spark
FIRST = {"d": "0001-01-01", "n": "0001-01-01 00:00:00", "u": "0001-01-01 00:00:00", "t": "00:00:00"}
LAST = {"d": "9999-12-31", "n": "9999-12-31 23:59:59.999999", "u": "9999-12-31 23:59:59.999999", "t": "23:59:59.999999"}


def test_the_history_and_the_differences_of_a_key_at_the_limit_are_shown(world):
    kinds = {"k": "DATETIME", "d": "DATE", "n": "DATETIME", "u": "DATETIME", "t": "TIME"}
    world.table("t", *[f"{n} {kind}" for n, kind in kinds.items()], key="k", utc=("k", "u"))
    rows = [(s["u"], *s.values()) for s in (FIRST, LAST)]
    world.load("t", *rows).loaded()
    world.changes("t", U(FIRST["u"], *LAST.values()), U(LAST["u"], *FIRST.values()), name=FILE1)
    world.changes("t", *[U(*row) for row in rows], name=FILE2).merged(max_batch_files=1)
    book = world.book(ExploreSettings)
    assert [tuple(r.values()) for r in book.first_rows("public.t")] == rows
    events = row_history.key_history(book, "public.t", [FIRST["u"]])
    assert [(e["operation"], e["u"]) for e in events] == [
        ("update", FIRST["u"]),
        ("update", LAST["u"]),
        ("load", FIRST["u"]),
    ]
    (row,) = row_history.origin(book, "public.t", [FIRST["u"]])
    assert (row["file"], row["row"], row["u"]) == (FILE2, 1, FIRST["u"])
    found = explore.difference(book, "public.t", events[1]["snapshot"], "newest")
    assert found.counts == {"inserted": 0, "updated": 2, "deleted": 0}
    changed = {(r["k"], r["before"], r["after"]) for r in found.sample if r["column"] == "u"}
    assert changed == {(FIRST["u"], LAST["u"], FIRST["u"]), (LAST["u"], FIRST["u"], LAST["u"])}
