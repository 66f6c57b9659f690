"""Random histories of the Iceberg room, with others in between: what each engine reads is a replay, row ids included."""

from __future__ import annotations

import random
from datetime import date

import pyarrow as pa
import pytest

from frazil.core.changes import Changes
from frazil.core.latest import latest
from frazil.iceberg import commits, compaction
from frazil.iceberg.key_segments import Segments
from frazil.iceberg.locate import scan_files
from frazil.iceberg.row_delta import write_batch, write_rows
from frazil.iceberg.stored_values import NoStoredRowError
from unit.iceberg_world import Kept, replace_position

pytestmark = pytest.mark.spark
KEYS = [("bigint",), ("int", "int"), ("string",), ("string", "int"), ("decimal(12,2)",), ("date",), ("timestamp_ntz",), ("double",), ("bigint", "string", "date")]  # fmt: skip


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize("kinds", KEYS, ids="-".join)
def test_batches_end_as_their_replay(lake, kinds, version):
    number = KEYS.index(kinds)
    by = ["", "region", "day(day), bucket(4, n)"][number % 3]
    w = Kept(lake, f"h{number}_v{version}", *kinds, partitioned=by, version=version)
    for n in range(6):
        if n == 5:
            w.segments = scan_files
        w.apply_random(200, 80)
        if n in (1, 3):
            w.check()  # also that rows keep their ids from now on
    w.check()
    w.apply({}, [*w.rows][:10])
    w.check()


@pytest.mark.parametrize("version", [3, 2])
def test_batches_between_the_work_of_others_end_as_their_replay(lake, version):
    w, dice = Kept(lake, f"others_v{version}", "bigint", partitioned="region", version=version), random.Random(version)
    w.sql("alter table {t} set tblproperties ('write.delete.granularity' = 'partition')")

    def deleted() -> None:
        w.sql("delete from {t} where n % 7 = 0")
        w.rows = {k: v for k, v in w.rows.items() if v[2] % 7}

    def inserted() -> None:
        key = (10**9 + w.number,)
        w.number += 1
        w.sql(f"insert into {{t}} values ({key[0]}, 'us', date '2024-01-01', {w.number}, 'other')")
        w.rows[key] = ("us", date(2024, 1, 1), w.number, "other")

    others = [
        deleted, inserted, lambda: w.call("rewrite_data_files", ", options => map('rewrite-all', 'true')"), lambda: w.call("rewrite_manifests"),
        lambda: w.sql("alter table {t} set tblproperties ('x' = '1')"), lambda: setattr(w, "table", w.opened()), lambda: setattr(w, "segments", Segments()),
    ]  # fmt: skip
    for _ in range(12):
        w.apply_random(200, 60)
        dice.choice(others)()
        w.table.refresh()
    w.apply_random(200, 60)
    w.check()


def test_on_v2_many_files_that_lose_rows_get_one_delete_file_for_each_partition(lake):
    w = Kept(lake, "many", "bigint", partitioned="region", version=2)
    for _ in range(14):
        w.apply_random(2000, 150)
    before = w.table.location
    w.apply_random(2000, 1500)
    deletes = {d.path for f in w.table.live_files.values() for d in f.deletes if not d.of}
    assert w.table.location != before and 1 <= len(deletes) <= 3 * 14
    for _ in range(3):
        w.apply_random(2000, 300)
    w.check()
    assert compaction.compact(w.table, 1 << 20, 4, waits=False)["groups"] == 3
    assert compaction.plan(w.table, 1 << 20) == []  # the delete files of before are not theirs
    w.apply_random(2000, 1500)
    w.apply_random(2000, 1500)
    new, gone = w.changes(2000, 300)
    planned, batch = w.table.position, w.latest(new, gone)
    first = commits.written(w.table, write_batch(w.table, w.segments, batch))
    w.sql("alter table {t} set tblproperties ('format-version' = '3')")  # between write and commit
    commits.commit(w.table, first, lambda: write_batch(w.table, w.segments, batch), planned, replace_position(planned))
    w.replay(new, gone)
    w.apply_random(2000, 300)
    w.check()


def test_on_v2_new_deletes_of_a_file_join_those_that_stay(lake):
    w = Kept(lake, "join", "bigint", partitioned="bucket(16, k0)", version=2)
    rows, _ = w.changes(400, 400)
    w.apply(rows, [])
    for part in ([*rows][:150], [*rows][150:]):  # more files than `MANY`, each alone in its partition
        w.apply({key: rows[key] for key in part}, [])
    w.check()


@pytest.mark.parametrize("version", [3, 2])
def test_rows_that_lack_values_take_the_stored_ones_also_under_a_new_key(lake, version):
    w = Kept(lake, f"partial_v{version}", "bigint", version=version)
    for _ in range(4):
        w.apply_random(100, 60)
    old, other, third, *_ = [*w.rows]
    rows = {old: ("us", None, None, "new"), (77,): (None, None, None, None), third: ("eu", None, 5, None)}
    batch = changes(w, rows, {"n": [True, True, False], "v": [False, True, True], "region": [False, True, False]}, [None, other[0], None])  # fmt: skip
    w.commit(latest(batch, w.key))
    stored = {key: w.rows[key] for key in (old, other, third)}
    w.replay({old: ("us", None, stored[old][2], "new"), (77,): (stored[other][0], None, *stored[other][2:]), third: ("eu", None, 5, stored[third][3])}, [other])  # fmt: skip
    w.check()
    lost = changes(
        w, {(10**12,): (None, None, None, "x"), old: (None, None, None, "y")}, {"n": [True, True]}, [None, None]
    )
    with pytest.raises(NoStoredRowError) as error:
        w.commit(latest(lost, w.key))
    assert error.value.places.tolist() == [0]
    w.check()


def changes(w: Kept, rows: dict, absent: dict[str, list[bool]], before: list) -> Changes:
    """Return updates of which some lack columns, and some had another key before."""
    made = w.changes_of(rows, [])
    facts = {"before k0": pa.array(before, pa.int64()), **{f"absent {name}": lacks for name, lacks in absent.items()}}
    return Changes(made.rows, pa.table({"op": made.facts["op"], **facts}), made.bad)


@pytest.mark.parametrize("version", [3, 2])
def test_a_load_replaces_all_rows_and_an_append_adds_some(lake, version):
    w = Kept(lake, f"load_v{version}", "bigint", partitioned="region", version=version)
    for kind in ("append", "append", "replace"):
        new, _ = w.changes(1000, 300)
        new = {k: v for k, v in new.items() if kind == "replace" or k not in w.rows}
        parts = [w.changes_of(dict(list(new.items())[i::2]), []).rows for i in (0, 1)]
        w.commit_change(lambda kind=kind, parts=parts: write_rows(w.table, kind, parts))
        w.rows, w.ids = ({} if kind == "replace" else w.rows) | new, {}
        w.check()
    w.apply_random(1000, 300)
    w.check()
