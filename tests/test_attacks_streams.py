"""Attacks on what a stream says of order and time: changes spread by key, times that are equal or far ahead, a topic that is made anew."""

from __future__ import annotations

import random

import pytest

from dms_streams import Topic
from dms_writer import STAMP, I, U, data_message

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
FAR = ("2999-01-01T00:00:00Z", 32_472_144_000_000)  # as DMS writes a time, and as a broker has it


def message(operation: str, table: str, row: dict, stamp: str = STAMP) -> str:
    """Return a change as DMS writes it where it spreads changes by the primary key."""
    return data_message(
        operation, table, row, timestamp=stamp, commit_timestamp=stamp, partition_key_type="primary-key"
    )


def followed(open_world, kafka) -> tuple:
    """Return a world whose table was loaded from a topic of one partition and changed once, and the topic."""
    w = open_world().table("t")
    s = Topic(w, kafka)
    s.load("t", (1, "a"), (2, "b"))
    w.loaded()
    s.changes("t", U(1, "x"))
    w.merged()
    return w, s


def test_changes_that_are_spread_by_key_end_as_a_replay_although_all_have_one_time(open_world, kafka):  # B10
    w = open_world().table("t")
    s, rng, model = Topic(w, kafka, partitions=2), random.Random(7), dict.fromkeys(range(6), "a")
    s.load("t", *model.items())
    w.loaded()
    for n in range(90):
        key, operation = rng.randrange(9), rng.choice(["update", "update", "insert", "delete"])
        s.send(message(operation, "t", {"id": key, "v": f"v{n}"}), key % 2)
        if operation == "delete":
            model.pop(key, None)
        else:
            model[key] = f"v{n}"
        if n % 30 == 29:
            assert w.merged().rows("t") == sorted(model.items())


def test_a_message_from_the_far_future_holds_nothing_up(open_world, kafka):  # B9
    w = open_world().table("t")
    s = Topic(w, kafka, partitions=2)
    s.load("t", *[(n, "a") for n in range(4)])
    w.loaded()
    s.send(message("update", "t", {"id": 0, "v": "far"}, FAR[0]), 0, at_ms=FAR[1])
    for key in (0, 1, 2):
        s.send(message("update", "t", {"id": key, "v": "now"}), key % 2)
    assert w.merged().rows("t") == [(0, "now"), (1, "now"), (2, "now"), (3, "a")]
    s.send(message("insert", "t", {"id": 5, "v": "next"}), 1)
    assert w.merged().rows("t") == [(0, "now"), (1, "now"), (2, "now"), (3, "a"), (5, "next")]


def test_a_topic_that_is_made_anew_stops_its_tables_however_many_messages_it_has(open_world, kafka):  # A6
    w, s = followed(open_world, kafka)
    admin = kafka.admin()
    admin.delete_topics([s.name])[s.name].result(30)
    kafka.create_topic(s.name, 1)
    for count in (0, 1, 9):
        s.changes("t", *[I(10 + n, "new") for n in range(count)])
        result = w.new_process().merge()["t"]
        assert (result.status, result.code) == ("failed", "stream-replaced") and result.decision, result
        assert w.rows("t") == [(1, "x"), (2, "b")]


def test_late_load_records_come_before_changes_however_small_a_pass_is(open_world, kafka):
    w = open_world(load_complete_when="changes", max_batch_messages=1).table("t")
    s = Topic(w, kafka, partitions=2)
    assert w.through()["t"].status == "unchanged"
    for n in range(5):
        s.load("t", (n, "old"), partition=1)
    s.changes("t", *[U(n, "new") for n in range(5)])
    assert w.merged().rows("t") == [(n, "new") for n in range(5)]
