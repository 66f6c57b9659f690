"""Figures: how long it takes to find what is new on S3, in a table's folder of 100,000 old change files, and in 300 folders."""

from __future__ import annotations

import http.client
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from statistics import median
from unittest.mock import patch

from bench._lake import seconds
from bench._room import both
from frazil.dms.date_partition import DatePartition
from frazil.dms.listing import list_table
from frazil.dms.position import Position
from frazil.dms.storage import Storage
from frazil.engine.work import for_each
from frazil_demo.seaweed import Seaweed
from frazil_old.config.spec import parse_spec
from frazil_old.dms import listing as old_listing
from frazil_old.dms.file_names import name_at, time_of_name
from frazil_old.dms.position import LOOK_BACK
from helpers import spec_of

NEW, TIMES, TABLES = 10, 7, 300
SPEC = parse_spec(spec_of("public.t", "id INT8"))


def _name(number: int) -> str:
    """One file a minute, the default of CdcMaxBatchInterval."""
    return f"{datetime(2026, 1, 1) + timedelta(minutes=number):%Y%m%d-%H%M%S}000.csv"


def _fill(server: Seaweed, keys: list[str], threads: int = 8) -> None:
    """Put the objects past S3's own door, some thousands a second."""
    server.client().create_bucket(Bucket="dms")

    def put(mine: list[str]) -> None:
        door = http.client.HTTPConnection(server.filer.removeprefix("http://"))
        for key in mine:
            door.request("PUT", f"/buckets/dms/public/{key}", b"I,1\n")
            answer = door.getresponse()
            answer.read()
            assert answer.status < 300, f"{key}: {answer.status}"

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, [keys[i::threads] for i in range(threads)]))


def _old(since: str) -> list[str]:
    begin_at = old_listing.Begin(since, name_at(time_of_name(since) - LOOK_BACK)) if since else None
    return [o.name for o in old_listing.list_table("s3://dms", SPEC, begin_at).changes]


def _timed(listed: Callable[[str], list[str]], since: str, expected: int) -> float:
    """Return the seconds of one listing that finds so many files."""
    found: list[str] = []
    took = seconds(lambda: found.extend(name for name in listed(since) if name > since))
    assert len(found) == expected, f"{len(found)} found, {expected} are there"
    return took


def run(quick: bool = False) -> list[dict]:
    """Fill a bucket of an embedded SeaweedFS; list what is new in it by position, all, and what is new of many tables."""
    old = 10_000 if quick else 100_000
    with tempfile.TemporaryDirectory(prefix="frazil-list-") as folder, Seaweed(folder) as server, patch.dict(os.environ, server.environment):  # fmt: skip
        names = [_name(i) for i in range(old + NEW)]
        few = [f"t{n}/{name}" for n in range(TABLES) for name in names[-NEW:]]
        _fill(server, [f"t/{name}" for name in names] + few)
        storage = Storage("s3://dms")

        def new(since: str) -> list[str]:
            there = list_table(storage, "public/t", DatePartition(), Position(last=since) if since else None)
            return [f.name for f in there.changes]

        def poll() -> None:
            at = Position(last=names[-2])
            found = for_each(range(TABLES), lambda n: list_table(storage, f"public/t{n}", DatePartition(), at))
            assert {len(there.changes) for there in found.values()} == {NEW}

        late, all_of_it = (names[old - 1], NEW), ("", old + NEW)
        by_turns = [[_timed(way, *late) for way in (new, _old)] for _ in range(TIMES)]
        whole = [[_timed(way, *all_of_it) for way in (new, _old)] for _ in range(3)]
        polls = [seconds(poll) for _ in range(TIMES)]
    (new_s, old_s), (all_s, old_all_s) = ([median(each) for each in zip(*t, strict=True)] for t in (by_turns, whole))
    where = f"{old:,} old change files, {NEW} new, SeaweedFS on loopback"
    return [
        *both("list_new_s", new_s, old_s, "s", f"{where}; median of {TIMES}, one request each"),
        *both("list_all_s", all_s, old_all_s, "s", f"{where}; a full listing, median of 3"),
        *both("poll_300_tables_s", median(polls), None, "s", f"{TABLES} tables, one request each, at the same time; median of {TIMES}"),
    ]  # fmt: skip
