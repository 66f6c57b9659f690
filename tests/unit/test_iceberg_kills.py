"""What the Iceberg room promises when processes are killed, beside Spark's tasks, and compared with MERGE INTO."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from obstore.store import LocalStore

import table_reader
from frazil.dms import side_files
from frazil.engine import tasks
from frazil.iceberg import compaction, locate, upkeep
from frazil.iceberg.key_segments import Segments
from frazil.settings import memory
from unit.iceberg_world import Kept

pytestmark = pytest.mark.spark
INGESTING = """
import sys
from pathlib import Path
from unit.iceberg_world import Kept, Lake
from frazil.engine import tasks
from frazil.iceberg import compaction
w = Kept(Lake(Path(sys.argv[1])), sys.argv[2], "bigint")
while True:
    batch = w.table.position.batch
    w.random.seed(batch)
    w.number = batch * 1000
    w.apply_random(2000, 300)
    print(batch + 1, flush=True)
    if batch % 3 == 2:
        compaction.compact(w.table, 1 << 20, 2, waits=False)
"""


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.torture)])
def test_after_kills_anywhere_each_batch_is_there_once(lake, kills):
    w = Kept(lake, f"kills_{kills}", "bigint")
    for number in range(kills):
        command = [sys.executable, "-c", INGESTING, str(Path(lake.warehouse).parent), f"kills_{kills}"]
        folder = Path(__file__).parents[1]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
        ) as process:
            done = w.opened().position.batch
            while int(next(line for line in process.stdout if line.strip().isdecimal())) < done + 2 + number % 2:
                pass
            time.sleep(number * 0.37 % 1)
            os.killpg(process.pid, signal.SIGKILL)  # with its JVM
    w.table.refresh()
    for batch in range(w.table.position.batch):
        w.random.seed(batch)
        w.number = batch * 1000
        w.replay(*w.changes(2000, 300))
    w.segments = Segments()
    w.check()
    w.apply_random(2000, 300)
    w.check()


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


def test_orphans_go_and_what_a_position_names_lies_elsewhere(lake, tmp_path):  # A4, A8
    w = Kept(lake, "orphans", "bigint")
    w.apply_random()
    file = side_files.store(LocalStore(str(tmp_path)), w.name, w.latest({(1,): (None, None, 1, "x")}, []).rows)
    left = Path(w.table.metadata.location.removeprefix("file:")) / "data/left.parquet"
    left.write_bytes(b"x")
    for path in [*left.parent.parent.rglob("*"), *tmp_path.rglob("*")]:
        os.utime(path, (1, 1))
    assert [Path(path).name for path in upkeep.remove_orphans(w.table, 3)] == ["left.parquet"]
    w.call("remove_orphan_files")
    assert len(side_files.stored(LocalStore(str(tmp_path)), file)) == 1
    w.apply_random()
    w.check()
