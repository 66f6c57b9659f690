"""Messages of a Kinesis target: shards read in executors, split and merged, throttled, expired; nothing lost or doubled."""

from __future__ import annotations

import itertools
import json
import re
import time
from datetime import UTC, datetime

import pytest

from frazil_old.flows import quarantine_replay
from stream_world import KinesisWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def new_stream(kinesis, spark, catalog_options, tmp_path):
    def make(shards: int = 1) -> KinesisWorld:
        return KinesisWorld(kinesis, tmp_path / "w", f"kin{next(_numbers)}", catalog_options, shards=shards)

    return make


@pytest.fixture
def reads(monkeypatch):
    """Let a `hook(number of the call)` run before each call that reads records from now on."""
    from moto.kinesis.models import KinesisBackend

    calls, hooks, real = itertools.count(1), [], KinesisBackend.get_records

    def get_records(self, *arguments, **named):
        for hook in hooks:
            hook(next(calls))
        return real(self, *arguments, **named)

    monkeypatch.setattr(KinesisBackend, "get_records", get_records)
    return hooks


def test_loads_and_changes_of_several_shards_and_tables(new_stream):
    w = new_stream(shards=3).table("t").table("u")
    for n in range(6):
        w.message("load", partition=n % 3, table="tu"[n % 2], id=n, v="a")
    w.loaded()
    for n in range(6):
        w.message("update", partition=n % 2, table="tu"[n % 2], id=n, v="b")
    w.message("insert", table="other", id=1).message("delete", id=0).message("update", was={"id": 2}, id=20, v="c")
    assert w.merged().rows("t") == [(20, "c"), (4, "b")]
    assert w.rows("u") == [(1, "b"), (3, "b"), (5, "b")]
    assert any("public.other (1)" in line for line in w.said)
    assert {r.status for r in w.merge().values()} == {"unchanged"}


def test_a_bad_message_that_stops_its_table_is_named_with_its_shard_and_number(new_stream):
    w = new_stream().table("t").loaded().message("insert", id="x", v="a")
    failed = w.merge()["t"]
    assert failed.failed and re.search(
        rf"{w.stream}/shardId-0+ offset \d+: column 'id': 'x' does not fit", failed.note
    ), failed.note


@pytest.mark.slow
def test_rows_set_aside_are_replayed_in_the_order_of_their_shard(new_stream):
    w, big = new_stream(shards=2).table("t", "id INT8", "n INT4").loaded(), 3_000_000_000
    aside = {"on_bad_rows": "quarantine", "ops_namespace": f"{w.space}_ops"}
    for n in (1, big, 2, big + 1, big + 2):
        w.message("update", id=1, n=n).message("update", partition=1, id=2, n=n % 10 if n > big else n)
    w.message("update", id=3, n=big)
    assert w.merged(**aside).rows("t") == [(1, 2), (2, 2)]
    rows = w.spark.sql(f"select row_no, path, status from lake.{w.space}_ops.quarantine").collect()
    assert {r.path.rsplit("/", 1)[1] for r in rows} == {s["ShardId"] for s in w.shards()}
    assert all(len(r.row_no) > 40 for r in rows)
    w.table("t", "id INT8", "n INT8")
    (done,) = quarantine_replay.run(w.book(quarantine="replay", **aside))
    assert done.counts == {"replayed": 3}, done.note  # two of key 1, whose later one stands; that of key 2 was obsolete
    assert w.rows("t") == [(1, big + 2), (2, 2), (3, big)]
    assert w.merge(**aside)["t"].status == "unchanged"


@pytest.mark.slow
def test_a_message_of_a_table_that_keeps_every_change_is_replayed(new_stream):
    w = new_stream()
    aside = {"on_bad_rows": "quarantine", "ops_namespace": f"{w.space}_ops"}
    spec = w.table("t", "id INT8", "n INT4").specs["t"]
    spec |= {"key": [], "without_key": "append"}
    w.table_file("t").loaded()
    w.message("insert", id=1, n=1).message("insert", id=2, n=3_000_000_000).merged(**aside)
    spec["columns"][1]["type"] = "INT8"
    w.table_file("t")
    number = "49590338271490256608559692538361571095921575989136588898"  # as AWS counts, unlike moto
    w.spark.sql(f"UPDATE lake.{w.space}_ops.quarantine SET row_no = '{number}'")
    (done,) = quarantine_replay.run(w.book(quarantine="replay", **aside))
    assert done.counts == {"replayed": 1}, done.note
    assert [(r[0], r[1], r[6]) for r in w.rows("t")] == [(1, 1, 1), (2, 3_000_000_000, None)]


@pytest.mark.slow
def test_parents_are_read_before_their_children(new_stream):
    w = new_stream().table("t").loaded()
    last = {}

    def write(key: int, value: str, partition: int):
        w.message("update", partition=partition, id=key, v=value)
        last[key] = value

    for generation, reshard in enumerate([w.split, w.join, w.split, lambda: None]):
        for key in range(4):
            # A key stays where its hash is: in the left half, or in the right one.
            write(key, f"g{generation}", 0 if len(w.shards()) == 1 else key % 2)
        reshard()
    assert w.merged(max_batch_messages=3).rows("t") == sorted(last.items(), key=repr)
    w.split(1)
    for key in range(4):
        write(key, "end", [0, 1][key % 2])
    assert w.merged().rows("t") == sorted(last.items(), key=repr)
    assert w.merge()["t"].status == "unchanged"


def test_a_shard_that_is_closed_while_it_is_read_loses_nothing(new_stream, reads):
    w = new_stream().table("t").loaded()
    for key in range(5):
        w.message("insert", id=key, v="a")

    def split_at_the_second_call(number):
        if number == 2:
            w.message("insert", id=5, v="late")
            w.split()
            w.message("update", partition=1, id=0, v="of a child")

    reads.append(split_at_the_second_call)
    w.merged(max_batch_messages=3)
    assert w.merged().rows("t") == [(0, "of a child"), *[(k, "a") for k in range(1, 5)], (5, "late")]


def test_throttled_calls_are_tried_again(new_stream, reads):
    from moto.core.exceptions import JsonRESTError

    w, refused = new_stream().table("t").loaded().message("insert", id=1, v="a"), []

    def throttle(number):
        if number <= 3:
            refused.append(number)
            raise JsonRESTError("ProvisionedThroughputExceededException", "Rate exceeded for shard")

    reads.append(throttle)
    assert w.merged().rows("t") == [(1, "a")]
    assert refused == [1, 2, 3]


@pytest.mark.parametrize("where", ["earliest", "latest", "time", "places"])
def test_where_a_table_begins(new_stream, where):
    w = new_stream().table("t").message("insert", id=1, v="before")
    time.sleep(0.05)
    moment = time.time()
    time.sleep(0.05)
    shard = w.shards()[0]["ShardId"]
    told = {"time": f"{time.strftime('%FT%T', time.gmtime(moment))}.{int(moment % 1 * 1000):03}Z", "places": json.dumps({f"{w.stream}/{shard}": 2})}  # fmt: skip
    if where != "latest":
        w.message("insert", id=2, v="after")
    w.setup()
    status = w.full_load(stream_start=told.get(where, where))["t"].status
    assert status == ("empty" if where == "latest" else "loaded")
    w.message("insert", id=3, v="later")
    assert [r[0] for r in w.merged().rows("t")] == {"earliest": [1, 2, 3], "latest": [3]}.get(where, [2, 3])


def test_a_table_that_begins_at_a_time_beside_an_older_one_takes_no_load_from_before(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a").message("load", table="u", id=1, v="old").loaded()
    time.sleep(1.1)
    at = datetime.now(UTC).isoformat()
    w.table("u").message("insert", table="u", id=2, v="b").message("insert", id=2, v="b")
    w.setup()
    assert w.full_load(stream_start=at, load_complete_when="changes")["u"].status == "loaded"
    w.merged()
    assert w.rows("u") == [(2, "b")] and sorted(w.rows("t")) == [(1, "a"), (2, "b")]


def test_a_run_ends_when_no_message_came_for_a_while(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a").loaded().message("insert", id=2, v="b")
    began = time.monotonic()
    assert w.merge(run_for_s=90, trigger_s=0.5, idle_s=5.0)["t"].counts["batches"] == 1
    assert 5.0 <= time.monotonic() - began < 60 and w.rows("t") == [(1, "a"), (2, "b")]


@pytest.mark.slow
def test_a_stream_that_is_made_anew_is_an_error(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a").loaded().message("insert", id=2, v="b").merged()
    w.client.delete_stream(StreamName=w.stream)
    time.sleep(1.1)
    w.client.create_stream(StreamName=w.stream, ShardCount=1)
    w.message("load", id=9, v="z").message("insert", id=10, v="y")
    failed = w.merge()["t"]
    assert failed.failed and failed.decision and f"{w.stream} was created again" in failed.note
    assert w.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert sorted(w.merged().rows("t")) == [(9, "z"), (10, "y")]


def test_a_stream_that_is_not_there_is_named(new_stream):
    w = new_stream().table("t")
    w.setup()
    w.source += "x"
    with pytest.raises(Exception, match=f"no stream '{w.stream}x'"):
        w.merge()
