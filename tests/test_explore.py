"""Exploring: the history of a key, what differs, how the source was at a time; nothing is written."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from dms_writer import FILE1, FILE2, FILE3, LOAD, D, I, U
from frazil_old.config.settings import ExploreSettings, MaintenanceSettings, ParameterError
from frazil_old.config.timestamps import clock
from frazil_old.flows import explore, quarantine_counts, row_history
from frazil_old.flows.explore import ExploreError
from frazil_old.lake import table_history

pytestmark = pytest.mark.spark
FOUR = "20240101-100300000.csv"


def at(clock: str) -> str:
    return f"2024-01-01 {clock}.000000"


@pytest.fixture(scope="module")
def module_world(spark, catalog_options, tmp_path_factory):
    """Two tables, five commits of `t`: the load and four files, each of which says when the source committed."""
    from helpers import World

    w = World(tmp_path_factory.mktemp("explore") / "w", "explored", catalog_options)
    w.table("t").load("t", (1, "a"), (2, "b"), (3, "c")).table("u").load("u", (1, "x"))
    w.changes("t", U(1, "a2", ts=at("09:58:00")), D(2, ts=at("09:59:00")), name=FILE1)
    w.changes("t", I(2, "b again", ts=at("10:00:30")), U(3, "c2", ts=at("10:00:40")), name=FILE2)
    w.changes("t", U(1, "a3", ts=at("10:01:10")), U(1, "a4", ts=at("10:01:20")), name=FILE3)
    w.changes("t", U(10, None, was=3, ts=at("10:02:30")), name=FOUR)
    w.changes("u", U(1, "y", ts=at("10:00:50")), name=FILE2)
    w.loaded()
    for _ in range(4):
        w.merged(max_batches=1, max_batch_files=1)
    return w


@pytest.fixture
def book(module_world):
    return module_world.book(ExploreSettings)


def test_a_key_tells_what_it_went_through(book):
    events = row_history.key_history(book, "public.t", ["2"])
    assert [(e["operation"], e.get("v")) for e in events] == [("insert", "b again"), ("delete", None), ("load", "b")]
    assert events[0]["files"] == f"after {FILE1} to {FILE2}"
    assert events[0]["source_commit"] == "2024-01-01 10:00:30.000 … 2024-01-01 10:00:40.000"
    assert [(e["operation"], e["v"]) for e in row_history.key_history(book, "public.t", ["1"])] == [
        ("update", "a4"), ("update", "a2"), ("load", "a"),
    ]  # fmt: skip
    assert [e["operation"] for e in row_history.key_history(book, "public.t", ["3"])] == ["delete", "update", "load"]
    assert row_history.key_history(book, "public.t", ["99"]) == []


def test_a_history_shows_each_changed_value_old_and_new(book):
    events = row_history.key_history(book, "public.t", ["1"])
    changed = row_history.changed_values(events)
    assert [(c["operation"], c["column"], c.get("before"), c.get("after")) for c in changed] == [
        ("update", "v", "a2", "a4"), ("update", "v", "a", "a2"), ("load", "(whole row)", None, None),
    ]  # fmt: skip
    assert row_history.caption("public.t", ["1"], events).startswith(
        "Key 1 of public.t: 3 events, the newest committed "
    )
    gone = row_history.key_history(book, "public.t", ["3"])
    assert row_history.changed_values(gone)[0]["operation"] == "delete"
    assert row_history.caption("public.t", ["3"], gone).endswith("It is deleted now.")


def test_the_rows_of_the_source_that_made_a_key_are_found(book):
    found = row_history.origin(book, "public.t", ["1"])
    assert [(r["file"], r["row"], r["operation"], r["v"], r["source_commit"]) for r in found] == [
        (FILE3, 1, "U", "a3", at("10:01:10")), (FILE3, 2, "U", "a4", at("10:01:20")),
    ]  # fmt: skip
    (gone,) = row_history.origin(book, "public.t", ["3"])
    assert (gone["id"], gone["file"], gone["key_change"]) == (10, FOUR, "3 → 10")
    assert not any("key_change" in r for r in found)
    load = row_history.key_history(book, "public.t", ["3"])[-1]
    assert row_history.origin(book, "public.t", ["3"], load["snapshot"])[0]["row"] == 3


def test_a_key_keeps_its_history_through_compaction(new_world):
    w = new_world().table("t").load("t", (1, "a"), (2, "b"))
    w.changes("t", U(1, "b"), name=FILE1).changes("t", U(1, "c"), D(2), name=FILE2)
    w.loaded()
    w.merged(max_batches=1, max_batch_files=1)
    w.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")
    w.merged()
    w.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")
    told = [(e["operation"], e.get("v")) for e in row_history.key_history(w.book(ExploreSettings), "public.t", ["1"])]
    assert told == [("update", "c"), ("update", "b"), ("load", "a")]
    assert [e["operation"] for e in row_history.key_history(w.book(ExploreSettings), "public.t", ["2"])] == [
        "delete",
        "load",
    ]


def test_two_states_are_compared(book, module_world):
    first, *_, last = table_history.lineage(book.spark, module_world.name("t"))[1:]
    found = explore.difference(book, "public.t", first.id, last.id)
    assert found.counts == {"inserted": 1, "updated": 2, "deleted": 1}
    assert {(r["change"], r["id"], r["before"], r["after"]) for r in found.sample} == {
        ("inserted", 10, None, ""), ("deleted", 3, "v=c", None), ("updated", 1, "a", "a4"), ("updated", 2, "b", "b again"),
    }  # fmt: skip
    by_time = explore.difference(book, "public.t", clock(first.committed_ms), "newest")
    assert by_time.counts == found.counts
    with pytest.raises(ExploreError, match="by the lake's clock"):
        explore.state(book, "public.t", "2024-01-01 10:02")


def test_a_key_may_have_the_name_that_a_difference_uses(new_world):
    w = new_world().table("t", "change INT8", "v WSTRING(9)", key="change").load("t", (1, "a")).loaded()
    w.changes("t", U(1, "A")).merged()
    (line,) = explore.difference(w.book(ExploreSettings), "public.t", "recent", "newest").sample
    assert line == {"change": "updated", "change (column)": 1, "column": "v", "before": "a", "after": "A"}


def test_states_of_a_table_without_a_key_are_compared_after_a_column_was_added(new_world):
    w = new_world()
    w.rules = {"rules": []}
    w.table("t", key=[])
    w.specs["t"]["without_key"] = "multiset"
    w.table_file("t").load("t", (1, "a")).loaded()
    w.changes("t", I(2, "b")).merged()
    w.specs["t"]["columns"].append({"name": "w", "type": "INT4"})
    w.table_file("t")
    w.spark.sql(f"ALTER TABLE {w.name('t')} ADD COLUMN w int")
    w.spark.sql(f"INSERT INTO {w.name('t')} (id, v, w) VALUES (7, 'x', 1)")
    found = explore.difference(w.book(ExploreSettings), "public.t", "recent", "newest")
    assert found.counts == {"inserted": 2, "updated": 0, "deleted": 0}


def test_a_renamed_column_is_the_same_column_before(new_world):
    w = new_world().table("t").load("t", (1, "a"), (2, "b")).loaded()
    w.changes("t", U(1, "A"), U(2, "B"), name=FILE1).merged()
    w.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")
    for column, name in zip(w.specs["t"]["columns"], ("number", "word"), strict=True):
        column |= {"name": name, "renamed_from": column["name"]}
    w.specs["t"]["key"] = ["number"]
    w.table_file("t").changes("t", U(1, "z"), name=FILE2).merged()
    book = w.book(ExploreSettings)
    found = explore.difference(book, "public.t", "recent", "newest")
    assert {(r["change"], r["number"], r["column"], r["before"], r["after"]) for r in found.sample} == {
        ("updated", 1, "word", "a", "z"), ("updated", 2, "word", "b", "B"),
    }  # fmt: skip
    changed = row_history.changed_values(row_history.key_history(book, "public.t", ["1"]))
    assert [(c["operation"], c["column"], c.get("before"), c.get("after")) for c in changed] == [
        ("update", "word", "A", "z"), ("update", "word", "a", "A"), ("load", "(whole row)", None, None),
    ]  # fmt: skip


def test_without_commit_times_a_file_of_another_time_zone_bounds_them_by_its_zone(new_world):
    zone = "America/Bogota"
    w = new_world(DatePartitionEnabled=True, DatePartitionTimezone=zone, TimestampColumnName="")
    w.rules = {"rules": []}
    w.table("t").write("t", LOAD, "1,a\n").loaded()
    written = datetime(2024, 1, 1, 10, tzinfo=UTC).astimezone(ZoneInfo(zone))
    w.write("t", f"{written:%Y/%m/%d/%Y%m%d-%H%M%S000}.csv", "U,1,b\n").merged()
    (row,) = explore.as_of(w.book(ExploreSettings)).rows
    assert (row["holds_to"], row["known_by"]) == ("2024-01-01 10:00:00.000", "file names")


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda b: row_history.key_history(b, "public.tt", ["1"]), "did you mean 'public.t'"),
        (lambda b: row_history.key_history(b, "public.t", ["1", "2"]), "give id, in this order"),
        (lambda b: explore.difference(b, "public.t", "yesterday", "newest"), "'yesterday' is no time"),
        (lambda b: explore.state(b, "public.t", 123456789012345678), "is not kept"),
        (lambda b: row_history.origin(b, "public.t", ["99"]), "no kept snapshot of a batch"),
    ],
)
def test_a_question_without_an_answer_says_so(book, ask, says):
    with pytest.raises((ExploreError, ParameterError), match=says):
        ask(book)


def test_an_empty_table_and_files_that_were_cleared_away_do_not_stop_the_notebook(new_world):
    w = new_world().table("a").table("b").load("b", (1, "x")).changes("b", U(1, "y"), name=FILE1)
    w.loaded().merged()
    book = w.book(ExploreSettings)
    overview = explore.tables(book, MaintenanceSettings())
    assert [row["rows"] for row in overview] == [0, 1] and explore.first_table(overview) == "public.b"
    assert explore.first_table(overview[:1]) == "public.a"
    assert explore.as_of(book, "2024-01-01 09:00", "public.a").table("public.a").count() == 0
    events = row_history.key_history(book, "public.b", ["1"])
    assert [r["v"] for r in row_history.newest_origin(book, "public.b", ["1"], events)] == ["y"]
    (w.root / "source/public/b" / FILE1).unlink()
    (told,) = row_history.newest_origin(book, "public.b", ["1"], events)
    assert "are gone" in told["cannot be shown"]
    assert row_history.newest_origin(book, "public.b", ["9"], row_history.key_history(book, "public.b", ["9"])) == []
    with pytest.raises(ExploreError, match="no table has rows to look at"):
        explore.first_table([{"table": "public.a", "action": "cannot: it does not exist"}])


def fingerprint(folder: Path) -> dict[str, str]:
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.rglob("*") if f.is_file()}


def test_nothing_is_written(book, module_world, catalog_options):
    lake = Path(catalog_options["warehouse"]).parent
    before = fingerprint(lake)
    explore.tables(book, MaintenanceSettings())
    row_history.key_history(book, "public.t", row_history.first_key(book, "public.t"))
    row_history.origin(book, "public.t", ["1"])
    explore.difference(book, "public.t", "oldest", "newest")
    explore.as_of(book, "2024-01-01 10:01").table("public.t").collect()
    quarantine_counts.rows_by_status(book)
    assert fingerprint(lake) == before
