"""How `auto` chooses the lane of a batch: by expected seconds, then by measured ones; without Spark."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.lake.lane_choice import BatchToWrite, Costs, Lanes
from helpers import spec_of

SPEC = parse_spec(spec_of("s.t", "id INT8", "v STRING(9)"))
SPARK = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))


def lanes(tmp_path: Path, rows: int, **more) -> Lanes:
    made = Lanes(SPARK, tmp_path, **more)
    made.costs["t"] = Costs(rows, index="none")
    return made


def committed(lane: str, rows: int) -> dict[str, str]:
    return {"frazil.lane": lane, "frazil.lane-reason": "because", "total-records": str(rows)}


@pytest.mark.parametrize(
    ("rows", "megabytes", "lasting", "expected"),
    [
        (1_000, 0.1, False, "merge"),  # an index would cost more than it saves in one pass
        (50_000_000, 0.5, False, "scan"),  # nor is a MERGE good for a very large table …
        (50_000_000, 0.5, True, "rowdelta"),  # … where an index pays in a run that lasts
        (1_000, 0.1, True, "rowdelta"),
        (1_000_000, 60, True, "scan"),  # the driver is slower than tasks that write much
        (50_000_000, 65, True, "scan"),  # above MOST_MB
    ],
)
def test_what_is_expected_to_be_faster_is_taken(tmp_path, rows, megabytes, lasting, expected):
    lane, why = lanes(tmp_path, rows, lasting=lasting).expect("t", SPEC, BatchToWrite(megabytes))
    assert lane == expected
    assert "about" in why or "too many for a row delta by index" in why


def test_an_index_that_is_there_need_not_be_built(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/manifest.json").touch()
    assert lanes(tmp_path, 50_000_000).expect("t", SPEC, BatchToWrite(0.5))[0] == "rowdelta"


def test_measured_seconds_turn_the_choice(tmp_path):
    made = lanes(tmp_path, 5_000_000, lasting=True)
    made.open["t"] = SimpleNamespace(locator=SimpleNamespace(index=None))
    assert made.expect("t", SPEC, BatchToWrite(0.5))[0] == "rowdelta"
    for _ in range(9):
        made.note("t", committed("merge", 5_000_000), 0.5, 0.3)
        made.note("t", committed("rowdelta", 5_000_000), 0.5, 9.0)
        made.note("t", committed("rowdelta", 5_000_000), 0.5, 2.0)
        made.note("t", committed("scan", 5_000_000), 0.5, 1.5)
    lane, why = made.expect("t", SPEC, BatchToWrite(0.5))
    assert lane == "merge" and why == "about 0.3 s, a row delta by scan 1.5 s, a row delta 2.0 s", why


def test_a_change_of_lane_is_said_once(tmp_path):
    made = lanes(tmp_path, 5_000)
    said = [made.note("t", committed("merge", 5_000), 0.1, 1.0) for _ in range(3)]
    assert said == ["MERGE (because)", "", ""]


def test_what_only_a_merge_can_write(tmp_path):
    made = lanes(tmp_path, 50_000_000, mode="rowdelta")
    assert made.expect("t", SPEC, BatchToWrite(0.5)) == ("rowdelta", "set")
    assert made.expect("t", SPEC, BatchToWrite(0.5, partial=True)) == ("merge", "rows that do not carry every column")
    without = parse_spec({k: v for k, v in spec_of("s.t", "id INT8").items() if k != "key"} | {"without_key": "append"})
    assert made.expect("t", without, BatchToWrite(0.5))[0] == "merge"


def test_keys_that_only_spark_can_number_go_by_scan(tmp_path):
    reals = parse_spec(spec_of("s.t", "id REAL8", "v STRING(9)"))
    lane, why = lanes(tmp_path, 1_000, lasting=True).expect("t", reals, BatchToWrite(0.1))
    assert lane == "scan" and why.startswith("only Spark can number its keys")


def test_what_the_driver_may_not_collect_goes_by_scan(tmp_path):
    batch = BatchToWrite(0.1, why_large="its rows are too many")
    assert lanes(tmp_path, 1_000, lasting=True).expect("t", SPEC, batch) == ("scan", "its rows are too many")
