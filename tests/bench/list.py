"""Figure: how long it takes to find what is new in a table's folder on S3 that holds 100,000 old change files."""

from __future__ import annotations

import http.client
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from statistics import median

from frazil_demo.seaweed import Seaweed
from frazil_old.config.spec import parse_spec
from frazil_old.dms import storage
from frazil_old.dms.file_names import name_at, time_of_name
from frazil_old.dms.listing import Begin, Recorded, list_table
from frazil_old.dms.position import LOOK_BACK
from helpers import spec_of

NEW, TIMES = 10, 7
SPEC = parse_spec(spec_of("public.t", "id INT8"))


def _name(number: int) -> str:
    """One file a minute, the default of CdcMaxBatchInterval."""
    return f"{datetime(2026, 1, 1) + timedelta(minutes=number):%Y%m%d-%H%M%S}000.csv"


def _fill(server: Seaweed, names: list[str], threads: int = 8) -> None:
    """Put the objects past S3's own door, some thousands a second."""
    server.client().create_bucket(Bucket="dms")

    def put(mine: list[str]) -> None:
        door = http.client.HTTPConnection(server.filer.removeprefix("http://"))
        for name in mine:
            door.request("PUT", f"/buckets/dms/public/t/{name}", b"I,1\n")
            answer = door.getresponse()
            answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{name}: {answer.status}")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, [names[i::threads] for i in range(threads)]))


def _timed(since: str, expected: int) -> tuple[float, int]:
    """Return the seconds of one listing, and the requests it took."""
    calls: list[dict] = []
    listing, events = "before-parameter-build.s3.ListObjectsV2", storage.client().meta.events
    events.register(listing, note := lambda params, **_: calls.append(dict(params)))
    began = time.perf_counter()
    begin_at = Begin(since, name_at(time_of_name(since) - LOOK_BACK)) if since else None
    found = [o for o in list_table("s3://dms", SPEC, begin_at).changes if o.name > since]
    seconds = time.perf_counter() - began
    events.unregister(listing, note)
    assert len(found) == expected, f"{len(found)} found, {expected} are there"
    return seconds, len(calls)


def _timed_first(applied: dict[str, str]) -> float:
    """Return the seconds of a process's first listing, which holds all files against the record of the `applied` ones."""
    began = time.perf_counter()
    recorded = Recorded(applied, {})
    found = list_table("s3://dms", SPEC, recorded=recorded).changes
    seconds = time.perf_counter() - began
    assert len(found) == NEW and len(recorded.skipped) == len(applied)
    return seconds


def run(quick: bool = False) -> list[dict]:
    """Fill a bucket of an embedded SeaweedFS, list what is new in it by position and by record, and once all for comparison."""
    kept, old = dict(os.environ), 10_000 if quick else 100_000
    try:
        with tempfile.TemporaryDirectory(prefix="frazil-list-") as folder, Seaweed(folder) as server:
            os.environ.update(server.environment)
            _fill(server, [_name(i) for i in range(old + NEW)] + ["LOAD00000001.csv"])
            timed = [_timed(_name(old - 1), NEW) for _ in range(TIMES)]
            full, requests = _timed("", old + NEW)
            there = list_table("s3://dms", SPEC).changes
            applied = {o.name: o.etag for o in there if o.name < _name(old)}
            first = [_timed_first(applied) for _ in range(3)]
    finally:
        os.environ.clear()
        os.environ.update(kept)
    where = f"{old:,} old change files, {NEW} new, SeaweedFS on loopback"
    return [
        {"name": "list_new_s", "value": round(median(s for s, _ in timed), 3), "unit": "s",
         "conditions": f"{where}; median of {TIMES} listings of {timed[0][1]} requests each, {max(s for s, _ in timed):.3f} s at most"},
        {"name": "list_first_s", "value": round(median(first), 3), "unit": "s",
         "conditions": f"{where}; median of {len(first)} listings that hold every old file against its record, as each process does first"},
        {"name": "list_all_s", "value": round(full, 3), "unit": "s", "conditions": f"{where}; one full listing of {requests} requests"},
    ]  # fmt: skip
