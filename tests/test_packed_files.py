"""A batch is as large as its rows: what packed files hold decides the lane, and a limit of Spark is no damaged file."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil_old.lake import lane_choice
from helpers import FILE1, FILE2, FILE3, LOAD1, U, slow
from lake_reader import lake_rows

pytestmark = pytest.mark.spark
ROWS, TEXT, TS = 20_000, "x" * 90, "2024-01-01 09:59:00.000000"


FORMS = {"gz": {"CompressionType": "GZIP"}, "parquet": {"DataFormat": "parquet"}}


def packed(world, form: str, name: str, rows: range, text: str) -> int:
    """Write a packed file of the table `t`, and return how large it is."""
    load, folder = name.startswith("LOAD"), world.root / "source/public/t"
    folder.mkdir(exist_ok=True)
    if form == "gz":
        file = folder / f"{name}.gz"
        file.write_bytes(gzip.compress("".join(f"{'' if load else 'U,'}{TS},{i},{text}\n" for i in rows).encode()))
    else:
        file, times = (
            folder / name.replace(".csv", ".parquet"),
            pa.array([1704103140000000] * len(rows), pa.timestamp("us")),
        )
        columns = {"ts": times, "id": pa.array(rows, pa.int64()), "v": [text] * len(rows)}
        pq.write_table(pa.table(columns if load else {"Op": ["U"] * len(rows), **columns}), file)
    return file.stat().st_size


def lane_of(world) -> tuple[str, str]:
    summary = world.history("t")[0].summary()
    return summary["frazil.lane"], summary["frazil.lane-reason"]


@pytest.mark.parametrize("form", ["gz", slow("parquet")])
def test_a_packed_batch_of_many_rows_goes_by_scan_and_a_small_one_by_index(new_world, monkeypatch, form):
    """Two megabytes lie in some ten kilobytes or twice that; the driver takes at most one."""
    monkeypatch.setattr(lane_choice, "MOST_MB", 1)
    world = new_world(**FORMS[form]).table("t")
    world.rules = {"rules": []}
    packed(world, form, LOAD1, range(ROWS), "a")
    world.loaded()
    assert packed(world, form, FILE1, range(ROWS), TEXT) < 200_000
    world.merged(lane="rowdelta")
    assert lane_of(world)[0] == "scan" and "too many for" in lane_of(world)[1] and "unpacked" in lane_of(world)[1]
    assert [said for said in world.said if "row delta by scan" in said and "too many for" in said]
    target = f"{world.space}.t"
    assert lake_rows(world.catalog_options, target) == sorted(((i, TEXT) for i in range(ROWS)), key=repr)
    packed(world, form, FILE2, range(100), "b")
    world.merged(lane="rowdelta")
    assert lane_of(world)[0] == "rowdelta" and lake_rows(world.catalog_options, target).count((99, "b")) == 1
    packed(world, form, FILE3, range(ROWS), "c")
    world.merged(lane="auto")
    assert lake_rows(world.catalog_options, target) == sorted(((i, "c") for i in range(ROWS)), key=repr)


def test_rows_beyond_sparks_limit_for_results_go_by_scan_and_no_file_is_called_damaged(world, monkeypatch):
    from frazil_old.engine import large_batch, small_batch

    def too_large(rows):
        raise RuntimeError("Job aborted due to stage failure: Total size of serialized results of 1 tasks (2 GiB) is bigger than spark.driver.maxResultSize")  # fmt: skip

    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b"), name=FILE3)
    with monkeypatch.context() as patch:
        patch.setattr(small_batch, "MOST_MB", 0)  # so that it is read in Spark's tasks
        patch.setattr(large_batch, "collect_arrow", too_large)
        world.merged(lane="rowdelta")
    assert lake_rows(world.catalog_options, f"{world.space}.t") == [(1, "b")]
    assert lane_of(world) == ("scan", "its rows are more than spark.driver.maxResultSize")
    assert json.loads(world.history("t")[0].summary()["frazil.counts"])["changes"] == 1
