"""Attacks on a table's files: sort orders, partitions and columns of other writers, orphans, rows that wait, and what grows."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import table_reader
from dms_writer import COMMITTED, FILE2, D, I, U, file_name

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
BIG = 3_000_000_000
NOT_LOGGED = "?not logged?"
PARTIAL = {"UseCsvNoSupValue": True, "CsvNoSupValue": NOT_LOGGED, "CsvNullValue": "NULL"}


FOREIGN = {
    "sorted": ["ALTER TABLE {t} WRITE ORDERED BY v DESC"],
    "parted": ["ALTER TABLE {t} ADD COLUMN region STRING", "ALTER TABLE {t} ADD PARTITION FIELD region"],
    "columns": ["ALTER TABLE {t} ADD COLUMN note STRING", "UPDATE {t} SET note = 'kept' WHERE id < 9"],
    "altered": ["ALTER TABLE {t} SET TBLPROPERTIES ('write.parquet.compression-codec' = 'gzip')"],
    "long": [],
}
LATER = {
    "parted": ["ALTER TABLE {t} DROP PARTITION FIELD region", "ALTER TABLE {t} DROP COLUMN region"],
    "altered": ["ALTER TABLE {t} SET TBLPROPERTIES ('write.parquet.compression-codec' = 'zstd')"],
}
MEANWHILE = {"altered": [f"ALTER TABLE {{t}} SET TBLPROPERTIES ('note' = '{number}')" for number in range(12)]}


@pytest.fixture(scope="module")
def shared(shared_world):
    """A world whose tables have the same rows and batches, while another writer changes each in its own way."""
    w = shared_world("foreign")
    for table in FOREIGN:
        w.table(table, "id INT8", "v NCLOB").source.load(table, *[(n, text(table, f"{99 - n}")) for n in range(20)])
    by_another(w.loaded(), FOREIGN)
    w.declare("parted", changes={"gone": "keep"})
    for table in FOREIGN:
        updates = [U(n, text(table, f"z{n % 3}")) for n in range(5)]
        w.source.changes(table, *updates, *[I(n, text(table, f"y{n}")) for n in range(30, 36)], D(19))
    w.first, w.between = w.merge(), w.rows("columns")
    w.declare("columns", changes={"gone": "keep"})
    by_another(w, LATER)
    for number, table in itertools.product((1, 2), FOREIGN):
        updates = [U(n, text(table, f"q{number}{n}")) for n in range(3)]
        w.source.changes(table, *updates, I(100 + number, text(table, "new")), D(30 + number), name=file_name(number))
    other = threading.Thread(target=by_another, args=(w, MEANWHILE))
    other.start()
    w.merge(max_batch_files=1)
    other.join()
    w.before = {t: rows_of(w.merged(), t) for t in FOREIGN}
    w.maintained = w.maintain()
    return w


def text(table: str, value: str) -> str:
    """Return a text of a table; those of one table have 100 KB."""
    return value + value[-1] * (100_000 if table == "long" else 0)


def by_another(w, statements: dict[str, list[str]]) -> None:
    """Run statements on tables as another writer."""
    for table, lines in statements.items():
        for line in lines:
            w.sql(line, table)


def rows_of(w, table: str) -> list[tuple]:
    """Return a table's rows. DuckDB ends the process where files have a partition of a column that was dropped."""
    if table != "parted":
        return w.rows(table)
    found = table_reader.tuples(table_reader.table(w.lake, f"{w.space}.{table}").scan().to_arrow())
    assert found == sorted(map(tuple, w.sql("SELECT * FROM {t}", table)), key=repr)
    return found


def wanted(table: str) -> list[tuple]:
    """Return the rows that all batches end with."""
    rows = {n: f"{99 - n}" for n in range(19)} | {n: f"y{n}" for n in (30, 33, 34, 35)} | {101: "new", 102: "new"}
    rows |= {n: f"z{n % 3}" for n in range(5)} | {n: f"q2{n}" for n in range(3)}
    return sorted(((key, text(table, value)) for key, value in rows.items()), key=repr)


@pytest.mark.parametrize("table", ["sorted", "parted", "altered", "long"])  # B1, B5, B12, B4
def test_what_another_writer_changes_about_a_table_makes_no_batch_and_no_compaction_wrong(shared, table):
    assert shared.first[table].status == "merged", shared.first[table]
    assert shared.before[table] == wanted(table)
    assert shared.maintained[table].status == "maintained"
    assert rows_of(shared, table) == wanted(table)


def test_a_column_of_another_writer_stops_its_table_or_keeps_its_values(shared):  # B6
    before, first = shared.between, shared.first["columns"]
    if first.failed:
        assert first.names("note") and (0, "99", "kept") in before and (30, "y30", None) not in before
    else:
        assert (0, "z0", "kept") in before and (30, "y30", None) in before
    assert shared.rows("columns") == [(key, v, "kept" if key < 9 else None) for key, v in wanted("columns")]


def test_rows_that_wait_outlive_the_removal_of_orphans_by_others(open_world):  # A4
    w = open_world(on_bad_rows="quarantine").table("t", "id INT8", "n INT4")
    w.source.load("t", *[(n, n) for n in range(1, 5)])
    w.loaded()
    w.source.changes("t", U(1, BIG), U(2, BIG + 1), I(5, BIG), U(3, 3))
    assert w.merged().rows("t") == [(n, n) for n in range(1, 5)]
    assert [r["row"] for r in w.quarantine("t")] == [1, 2, 3]
    for file in Path(w.metadata("t").location.removeprefix("file:")).rglob("*"):
        os.utime(file, (1, 1))
    w.call("remove_orphan_files")
    w.column("t", "n", type="INT8").setup()
    result = w.decide("t", replay=True)
    assert result.status == "replayed" and result.counts["replayed"] == 3, result
    assert w.rows("t") == [(1, BIG), (2, BIG + 1), (3, 3), (4, 4), (5, BIG)] and w.quarantine("t") == []


def test_a_partial_change_that_does_not_fit_loses_no_column_to_a_later_one(open_world):  # A7
    w = open_world(target=PARTIAL, on_bad_rows="quarantine").table("t", "id INT8", "v WSTRING(9)", "n INT4")
    w.source.load("t", *[(n, "a", n) for n in range(1, 5)])
    w.loaded()
    w.source.changes("t", *[U(n, NOT_LOGGED, BIG) for n in (1, 2, 3)], U(4, "b", NOT_LOGGED))
    assert w.merge()["t"].status == "merged"
    w.source.changes("t", U(1, "new", NOT_LOGGED), U(2, "whole", 22), D(3), name=FILE2)
    w.merge()
    w.column("t", "n", type="INT8").setup()
    w.decide("t", replay=True)
    assert w.merged().rows("t") == [(1, "new", BIG), (2, "whole", 22), (4, "b", 4)] and w.quarantine("t") == []


def test_a_partial_change_of_a_row_that_is_not_there_is_a_bad_row(open_world):  # A7
    w = open_world(target=PARTIAL, on_bad_rows="quarantine").table("t", "id INT8", "v WSTRING(9)", "n INT4")
    w.source.load("t", (1, "a", 1))
    w.loaded()
    w.source.changes("t", U(1, "b", NOT_LOGGED), U(99, "x", NOT_LOGGED))
    assert w.merged().rows("t") == [(1, "b", 1)] and [r["row"] for r in w.quarantine("t")] == [2]


def test_a_row_that_was_deleted_gives_no_value_to_the_row_that_is_inserted_after_it(open_world):
    w = open_world(target=PARTIAL, on_bad_rows="quarantine").table("t", "id INT8", "v WSTRING(9)", "n INT4")
    w.source.load("t", (1, "a", 1), (2, "b", 2))
    w.loaded()
    w.source.changes("t", D(1), I(1, "new", NOT_LOGGED), D(2), I(2, "whole", 22), U(2, "again", NOT_LOGGED))
    w.merge()
    assert w.rows("t") == [(2, "again", 22)]


@pytest.fixture(scope="module")
def beside(shared_world):
    """Two processes that apply the same files at the same time; one also reads a wide table that is almost empty."""
    w = shared_world("beside", on_bad_rows="quarantine")
    w.table("t", "id INT8", "n INT4").table("wide", "id INT8", *[f"c{n} WSTRING(50)" for n in range(300)])
    w.source.load("t", *[(n, n) for n in range(9)])
    w.source.load("wide", (0, *["x"] * 300))
    w.loaded()
    for number in range(2):
        w.source.write("wide", file_name(number), "".join(sparse(n) for n in range(20_000 * number, 20_000 * number + 20_000)))  # fmt: skip
    run = w.process("merge", run_for_s=120.0, idle_s=6.0, trigger_s=0.1)
    peak = wait_for(run.pid, lambda: w.batches("wide") > 1)
    for number in range(8):
        w.source.changes("t", U(number, BIG + number), I(20 + number, 7), name=file_name(number))
        w.merge(tables=["t"])
    return SimpleNamespace(world=w, results=run.results(), peak=peak)


def sparse(number: int) -> str:
    """Return a line of a change file with three values in 300 columns."""
    row = [""] * 300
    for place in range(3):
        row[(number * 7 + place * 90) % 300] = f"v{number}"
    return f"I,{COMMITTED},{number + 1},{','.join(row)},,\n"


def wait_for(pid: int, is_done) -> int:
    """Wait until something is so, at most two minutes; return the most memory that a process had, in MB."""
    until = time.monotonic() + 120
    while not is_done() and time.monotonic() < until:
        time.sleep(0.2)
    assert is_done(), "not in two minutes"
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) >> 10


@pytest.mark.slow
def test_two_processes_set_each_bad_row_aside_once(beside):  # B2
    w = beside.world
    assert not [r for r in beside.results.values() if r.failed]
    rows = [(n, n) for n in range(9)] + [(20 + n, 7) for n in range(8)]
    assert w.merged().rows("t") == sorted(rows, key=repr)
    assert [(r["file"], r["row"]) for r in w.quarantine("t")] == [(file_name(n), 1) for n in range(8)]
    w.column("t", "n", type="INT8").setup()
    assert w.decide("t", replay=True).counts["replayed"] == 8
    assert w.rows("t") == sorted([(n, BIG + n) for n in range(8)] + rows[8:], key=repr)


@pytest.mark.slow
def test_a_wide_table_that_is_almost_empty_fits_into_memory(beside):  # A9
    filled = 1 + sum((number * 7 + place * 90) % 300 == 0 for number in range(40_000) for place in range(3))
    found = beside.world.sql("SELECT count(*), count(DISTINCT id), count(c0) FROM {t}", "wide")
    assert tuple(found[0]) == (40_001, 40_001, filled)
    assert beside.peak < 800, f"{beside.peak} MB"


def test_a_load_of_a_thousand_files_is_one_commit_with_all_rows(open_world):  # B15
    w = open_world().table("t")
    for number in range(1000):
        w.source.load("t", (number, "a"), name=f"LOAD{number + 1:08d}.csv")
    assert w.loaded().batches("t") == 1
    assert sorted(w.rows("t")) == [(n, "a") for n in range(1000)]


def test_metadata_grow_by_the_same_with_each_commit_and_shrink_with_maintenance(open_world):  # A11
    w, sizes = open_world().table("t"), []
    w.source.load("t", *[(n, "a") for n in range(10)])
    w.loaded()

    def size() -> int:
        return Path(table_reader.metadata_file(w.lake, f"{w.space}.t").removeprefix("file:")).stat().st_size

    for number in range(30):
        w.source.changes("t", U(number % 10, f"v{number}"), name=file_name(number))
        if number % 10 == 9:
            w.merged(max_batch_files=1)
            sizes.append(size())
    assert w.batches("t") == 31
    assert sizes[2] - sizes[1] < min(1.2 * (sizes[1] - sizes[0]), 40_000), sizes
    w.maintain()
    assert size() < sizes[2] / 2, (sizes, size())
