"""Circumstances of a lake: two at once, damaged metadata, wrong clocks, a busy catalog, files of others, many deleted rows."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dms_writer import FILE1, FILE2, FILE3, D, I, U, file_name

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]


def own_lake(folder: Path, **more) -> dict[str, str]:
    """Return the options of a catalog in a folder of its own."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/files", **more}


def path(address: str) -> Path:
    return Path(address.removeprefix("file:"))


def test_two_lakes_whose_catalogs_have_one_name_never_meet(open_world, tmp_path):
    """A process has one of them; a second one is refused there, and both are untouched."""
    dev, prod = (open_world(own_lake(tmp_path / n, **more), catalog="two") for n, more in {"dev": {}, "prod": {"table-default.owner": "p"}}.items())  # fmt: skip
    for w, name in ((dev, "dev"), (prod, "prod")):
        w.space = "app"
        w.table("t").source.load("t", (1, name), (2, name))
    dev.loaded()
    assert prod.setup()["t"].code == "session" and not (tmp_path / "prod").exists()
    assert prod.process("setup").results()["t"].status == "created"
    assert prod.load()["t"].code == "session" and prod.rows("t") == []
    dev.source.changes("t", U(1, "dev changed"))
    assert dev.merged().rows("t") == [(1, "dev changed"), (2, "dev")]


def test_an_environment_that_names_no_lake_does_not_take_the_one_of_another(open_world, spark):
    w = open_world().table("t")
    w.source.load("t", (9, "whose?"))
    w.lake = {}
    assert w.setup()["t"].code == "session"
    assert not spark.sql(f"SHOW NAMESPACES IN {w.catalog} LIKE '{w.space}*'").collect()


LOCKER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
print("ready", flush=True)
while True:
    db.execute("BEGIN IMMEDIATE"); time.sleep(0.25); db.execute("COMMIT"); time.sleep(0.02)
"""


def test_a_catalog_in_a_file_is_shared_with_processes_that_write_to_it(open_world):
    """Of a SQLite file one connection may write at a time: another one does, for most of the time, and then it is free."""
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    file = w.loaded().lake["uri"].removeprefix("jdbc:sqlite:")
    other = subprocess.Popen([sys.executable, "-c", LOCKER, file], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "ready\n"
        for n, name in enumerate((FILE1, FILE2)):
            w.source.changes("t", U(1, name), I(10 + n, "new"), name=name)
            w.merged()
            assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert w.rows("t") == [(1, FILE2), (10, "new"), (11, "new")]
    with sqlite3.connect(file, timeout=1, isolation_level=None) as free:
        free.execute("BEGIN EXCLUSIVE")
        free.execute("ROLLBACK")


DAMAGE = {
    "metadata_cut": lambda file: file.write_bytes(file.read_bytes()[:200]),
    "metadata_gone": lambda file: file.unlink(),
    "list_cut": lambda file: file.write_bytes(file.read_bytes()[:40]),
    "list_empty": lambda file: file.write_bytes(b""),
    "list_gone": lambda file: file.unlink(),
}


def test_damaged_metadata_are_named_and_other_tables_go_on(open_world):
    w, files, kept = open_world(), {}, {}
    for table in (*DAMAGE, "fine"):
        w.table(table).source.load(table, (1, "a"), (2, "b"))
        w.source.changes(table, U(1, "A"))
    w.loaded().merged()
    for table, harm in DAMAGE.items():
        found = w.metadata_file(table) if table[0] == "m" else w.history(table)[0].manifest_list
        files[table] = path(found)
        kept[table] = files[table].read_bytes()
        harm(files[table])
    for table in w.specs:
        w.source.changes(table, I(3, "c"), name=FILE2)
    w.new_process()
    done, planned, late = w.merge(), w.plan(), w.lateness()
    assert done["fine"].status == "merged"
    for table, file in files.items():
        assert done[table].code == planned[table]["code"] == late[table]["code"] == "metadata-damaged", table
        assert done[table].names(file.name), table
        file.write_bytes(kept[table])
    w.new_process().merged()
    assert {t: w.rows(t) for t in w.specs} == {t: [(1, "A"), (2, "b"), (3, "c")] for t in w.specs}


def test_maintenance_of_a_table_with_damaged_metadata_fails_alone(open_world):
    w = open_world()
    for table in ("t", "fine"):
        w.table(table).source.load(table, (1, "a"))
    file = path(w.loaded().metadata_file("t"))
    file.write_bytes(file.read_bytes()[:200])
    done = w.new_process().maintain()
    assert done["t"].failed and done["t"].names(file.name) and not done["fine"].failed


def test_a_run_whose_clock_is_behind_stops_before_any_write(open_world, monkeypatch):
    w = open_world().table("t").table("new")
    for table in w.specs:
        w.source.load(table, (1, "a"))
    w.setup(), w.load(tables=["t"])
    w.source.changes("t", U(1, "b"))
    w.merged(tables=["t"])
    w.source.changes("t", U(1, "c"), name=FILE2)
    before, real = [w.metadata_file(t) for t in w.specs], time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() - 3600)
        for verb in ("load", "merge", "maintain", "setup"):
            assert {r.code for r in w.do(verb).values()} == {"clock-wrong"}, verb
    assert [w.metadata_file(t) for t in w.specs] == before
    monkeypatch.setattr(time, "time", lambda: real() - 50)
    assert w.merge()["t"].status == "merged" and w.rows("t") == [(1, "c")]


def test_orphan_removal_leaves_files_that_others_use(open_world):
    w = open_world().table("outer").table("shared").table("own")
    for table in w.specs:
        w.source.load(table, (1, "a"))
    w.loaded()
    w.session.sql(f"CREATE NAMESPACE {w.name('outer')}")
    w.session.sql(f"CREATE TABLE {w.name('outer')}.inner USING iceberg AS SELECT 1 AS id, 'i' AS v")
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'false')", "shared")
    stray = path(w.metadata("own").location) / "data/stray.parquet"
    stray.write_bytes(b"of a run that was killed")
    ten_days_ago = time.time() - 10 * 86_400
    for file in Path(w.lake["warehouse"], w.space).rglob("*"):
        os.utime(file, (ten_days_ago, ten_days_ago))
    done = w.maintain(orphan_days=3.0)
    assert done["outer"].status == "maintained" and done["shared"].names("gc.enabled")
    assert not stray.exists(), "what no table names is gone"
    assert w.session.table(f"{w.name('outer')}.inner").collect() == [(1, "i")] and w.rows("shared") == [(1, "a")]


def test_small_files_that_are_each_alone_in_their_partition_are_not_compacted(open_world):
    w, limits = open_world().table("t", partition=["v"]), {"max_small_files": 5, "max_deleted_share": 0.6, "keep_hours": 24.0}  # fmt: skip
    w.source.load("t", *[(n, str(n)) for n in range(8)])
    before = w.loaded().history("t")[0].snapshot_id
    w.maintain(**limits)
    assert w.history("t")[0].snapshot_id == before
    w.sql("INSERT INTO {t} VALUES (9, '3')")
    assert w.maintain(**limits)["t"].status == "maintained"
    assert w.sql("SELECT count(*) FROM {t}.files WHERE content = 0")[0][0] == 8


def test_thousands_of_deleted_rows_of_a_file_stay_deleted_over_batches(open_world):
    """So many positions of one file are stored as bits, and no longer as a list."""
    w, count, each = open_world().table("t"), 60_000, 3_000
    rows = dict.fromkeys(range(count), "a")
    w.source.load("t", *rows.items())
    w.loaded()
    for number in range(4):
        keys = [i * 7919 % count for i in range(number * each, (number + 1) * each)]
        w.source.changes("t", *[D(k) if k % 10 == 0 else U(k, f"b{number}") for k in keys], name=file_name(number))
        rows |= dict.fromkeys(keys, f"b{number}")
        for k in keys:
            rows.pop(k) if k % 10 == 0 else None
    w.merged(max_batch_files=1)
    assert sorted(w.rows("t")) == sorted(rows.items()) and w.batches("t") == 5


def test_a_table_that_becomes_v3_keeps_its_row_ids_from_its_next_commit_on(open_world):
    w = open_world(format_version=2).table("t")
    w.source.load("t", *[(n, "a") for n in range(9)])
    w.loaded()
    w.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    ids = []
    for number in range(3):
        w.source.changes("t", U(number, "b"), U(8, f"c{number}"), name=file_name(number))
        ids.append(w.merged().row_ids("t"))
    assert ids[1] == ids[0] == ids[2] and len({*ids[0].values()}) == 9


def test_the_limit_of_batches_holds_for_the_whole_run(open_world):
    w = open_world().table("t")
    w.source.load("t", (1, "a"))
    w.loaded()
    for name in (FILE1, FILE2, FILE3):
        w.source.changes("t", U(1, name), name=name)
    done = w.merge(max_batches=2, max_batch_files=1, run_for_s=0.5, trigger_s=0.1)["t"]
    assert (done.counts["batches"], w.rows("t")) == (2, [(1, FILE2)])


CONTROL = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029", "\u202e"]
"""What a terminal, or who reads a log, takes as more than a character of a value."""
EVIL, ODD = "a" + "".join(CONTROL) + "z\nFORGED line", "\x1b[2J\x1b]0;x\x07\u202e\x9b"


def test_no_value_key_name_or_path_brings_a_control_character_into_what_is_said(open_world):
    w = open_world(target={"CsvNullValue": "NULL"})
    w.table("t", "id INT8", "n INT4").source.load("t", (1, 1))
    w.source.changes("t", I(2, EVIL))
    w.source.write("t", f"{EVIL.replace('/', '').replace(chr(0), '')}.csv", "")
    w.table("twice", "id WSTRING(200)", "v INT4").source.load("twice", (EVIL, 1), (EVIL, 2))
    w.table("column", "id INT8", f"c{ODD} INT4").source.load("column", (1, EVIL))
    w.table(f"name{ODD}").source.load(f"name{ODD}", (1, "a"))
    results = [*w.setup().items(), *w.load().items(), *w.merge().items()]
    assert {"t", "twice", "column"} <= {t for t, r in results if r.failed}
    told = [*(r.note for _, r in results), *w.said, *(raw.decode() for n, raw in w.files_kept().items() if n.endswith(".log"))]  # fmt: skip
    assert any("\\x1b" in text for text in told)
    for text in told:
        assert not [c for c in CONTROL if c in text.replace("\n", "")] and "\nFORGED" not in text, text
