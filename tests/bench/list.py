"""Figure: how long it takes to find what is new in a table's folder on S3 that holds 100,000 old change files."""

from __future__ import annotations

import http.client
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from statistics import median
from unittest.mock import patch

from bench._lake import figure, seconds
from frazil_demo.seaweed import Seaweed
from frazil_old.config.spec import parse_spec
from frazil_old.dms import storage
from frazil_old.dms.file_names import name_at, time_of_name
from frazil_old.dms.listing import Begin, list_table
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
            assert answer.status < 300, f"{name}: {answer.status}"

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, [names[i::threads] for i in range(threads)]))


def _timed(since: str, expected: int) -> tuple[float, int]:
    """Return the seconds of one listing, and the requests it took."""
    calls, found = [], []
    listing, events = "before-parameter-build.s3.ListObjectsV2", storage.client().meta.events
    events.register(listing, note := lambda params, **_: calls.append(params))
    begin_at = Begin(since, name_at(time_of_name(since) - LOOK_BACK)) if since else None
    took = seconds(lambda: found.extend(o for o in list_table("s3://dms", SPEC, begin_at).changes if o.name > since))
    events.unregister(listing, note)
    assert len(found) == expected, f"{len(found)} found, {expected} are there"
    return took, len(calls)


def run(quick: bool = False) -> list[dict]:
    """Fill a bucket of an embedded SeaweedFS, list what is new in it by position, and once all for comparison."""
    old = 10_000 if quick else 100_000
    with (
        tempfile.TemporaryDirectory(prefix="frazil-list-") as folder,
        Seaweed(folder) as server,
        patch.dict(os.environ, server.environment),
    ):
        _fill(server, [_name(i) for i in range(old + NEW)] + ["LOAD00000001.csv"])
        timed = [_timed(_name(old - 1), NEW) for _ in range(TIMES)]
        full, requests = _timed("", old + NEW)
    where, new = f"{old:,} old change files, {NEW} new, SeaweedFS on loopback", [s for s, _ in timed]
    told = f"{where}; median of {TIMES} listings of {timed[0][1]} requests each, {max(new):.3f} s at most"
    return [
        figure("list_new_s", median(new), "s", told, 3),
        figure("list_all_s", full, "s", f"{where}; one full listing of {requests} requests", 3),
    ]
