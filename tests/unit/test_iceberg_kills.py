"""What the Iceberg room promises when processes are killed, beside Spark's tasks, and compared with MERGE INTO."""

from __future__ import annotations

import pytest

import table_reader
from frazil.engine import tasks
from frazil.iceberg import compaction, locate
from frazil.settings import memory
from unit.iceberg_world import Kept

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("version", [3, 2])
def test_a_batch_ends_as_merge_into_ends_on_a_copy(lake, version):
    w = Kept(lake, f"oracle_v{version}", "bigint", "string", partitioned="region", version=version)
    w.apply_random(300, 200)
    w.sql("create table {t}_merged using iceberg as select * from {t}")
    for _ in range(3):
        new, gone = w.changes(300, 120)
        batch = w.changes_of(new, gone)
        rows = batch.rows.append_column("op", batch.facts["op"])
        lake.session.createDataFrame(rows).createOrReplaceTempView("batch")
        w.sql("""merge into {t}_merged t using batch s on t.k0 = s.k0 and t.k1 = s.k1
            when matched and s.op = 'D' then delete when matched then update set *
            when not matched and s.op != 'D' then insert *""")
        w.apply(new, gone)
    w.check()
    merged, ours = (sorted(table_reader.rows(lake.options, w.name + end), key=repr) for end in ("_merged", ""))
    assert merged == ours


@pytest.mark.parametrize("version", [3, 2])
def test_scans_and_rewrites_run_in_tasks_that_own_whole_files(lake, version, monkeypatch):
    w = Kept(lake, f"tasks_v{version}", "string", partitioned="region", version=version)
    w.segments = locate.scan_files
    for border in ("MANY_ROWS", "LARGE"):
        monkeypatch.setattr(tasks, border, 1)
    by_tasks = tasks.Tasks(lambda: lake.session.sparkContext, memory.budget(1 << 30))
    for _ in range(3):
        w.apply_random(300, 100)
    budget = 30 * sum(f.rows for f in w.table.live_files.values())
    assert [locate.wants_segments(w.table, lasts, bytes_) for lasts in (True, False) for bytes_ in (budget, budget - 1)] == [True, *[False] * 3]  # fmt: skip
    batch = w.latest(*w.changes(300, 100))
    alone = locate.locate(w.table, locate.scan_files, batch.keys)
    found = locate.locate(w.table, by_tasks.scan, batch.keys)
    assert [(f.file, [*f.n], [*f.position], [*f.row_id]) for f in found] == [(f.file, [*f.n], [*f.position], [*f.row_id]) for f in alone]  # fmt: skip
    done = compaction.compact(w.table, 1 << 20, 4, by_tasks.rewrite, waits=False)
    assert done["files"] > done["groups"] >= 3
    w.check()
