"""The ids of batches, and the branches they are written to: whose writer is dead, and which are dropped."""

from __future__ import annotations

import calendar
import json
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from frazil_old.config.processes import host, is_running
from frazil_old.dms.position import POSITION, Position
from frazil_old.lake import jvm
from frazil_old.lake.tables import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BATCH, BRANCH_PREFIX = "frazil.batch", "frazil_"
SILENT_S, SILENT_BATCHES, UNKNOWN_S = 60.0, 10, 60.0
"""How long a writer on another host may show nothing: in seconds, and as a multiple of a usual batch."""
LATELY = 20
"""The number of newest snapshots that show how long a usual batch takes."""
_under_way: Counter[str] = Counter()
"""The batches that this process is writing, each with the number of steps that are not finished."""


def new_batch(load: bool = False) -> str:
    """Return a batch id that names its writer, so that a dead writer's branch can be recognised."""
    began, kind = time.strftime("%Y%m%dt%H%M%S", time.gmtime()), "_load" if load else ""
    batch = f"{began}_{host()}_{os.getpid()}_{secrets.token_hex(3)}{kind}"
    _under_way[batch] += 1  # until `commit_exactly_once` ends
    return batch


@contextmanager
def kept_under_way(batch: str) -> Iterator[None]:
    """Keep this process from treating a batch's branches as abandoned during the block, even after its commit ends."""
    _under_way[batch] += 1
    try:
        yield
    finally:
        _is_over(batch)


def _is_over(batch: str) -> None:
    _under_way[batch] -= 1
    if _under_way[batch] <= 0:
        del _under_way[batch]


_NAME = re.compile(re.escape(BRANCH_PREFIX) + r"(\d{8}[tT]\d{6})_([0-9a-f]{8})_(\d+)_[0-9a-f]{6}(_load)?")


def is_dead(branch: str) -> bool:
    """Return whether a branch's writer is certainly dead: it ran on this host and has ended, or the branch is a day old."""
    if not (parts := _NAME.fullmatch(branch)):
        return False
    on, pid = parts[2], int(parts[3])
    if (on, pid) == (host(), os.getpid()):
        return branch.removeprefix(BRANCH_PREFIX) not in _under_way
    return not is_running(on, pid, _began(parts[1]))


def _began(text: str) -> float:
    return calendar.timegm(time.strptime(text.lower(), "%Y%m%dt%H%M%S"))


def is_abandoned(table: jvm.JavaTable, branch: str) -> bool:
    """Return whether nobody works on a branch any more. If wrong, nothing is lost: a living writer writes its batch again.

    A writer on another host counts as dead once the table's position has passed its base. It also does if it has shown
    nothing for ten times as long as batches take here. A load may take hours: it gets a day.
    """
    if is_dead(branch) or not (parts := _NAME.fullmatch(branch)) or parts[2] == host():
        return is_dead(branch)
    silent = time.time() - _began(parts[1]) > max(SILENT_S, SILENT_BATCHES * _usual_s(table)) and not parts[4]
    return silent or _is_passed(table, branch)


def _is_passed(table: jvm.JavaTable, branch: str) -> bool:
    """Return whether the position moved after the branch was made, so that its batch can no longer be published."""
    stored, head = table.properties().get(POSITION), table.snapshot(branch)
    if stored is None or head is None:
        return False
    base = (
        int(head.parentId() or 0)
        if head.summary().get(BATCH) == branch.removeprefix(BRANCH_PREFIX)
        else head.snapshotId()
    )
    passed = False
    for snapshot in jvm.ancestors(table):
        if snapshot.snapshotId() == base:
            return passed
        passed = passed or snapshot.snapshotId() == Position.from_json(stored)[1]["snapshot"]
    return False


def _usual_s(table: jvm.JavaTable) -> float:
    """Return the longest duration among the newest batches, in seconds; a default if none is known."""
    took = []
    for snapshot in islice(jvm.ancestors(table), LATELY):
        if picked_up := json.loads(snapshot.summary().get("frazil.latency") or "{}").get("picked_up"):
            took.append((snapshot.timestampMillis() - picked_up) / 1000)
    return max(took, default=UNKNOWN_S)


def remove_abandoned_branches(spark: SparkSession, name: str) -> list[str]:
    """Remove the branches of killed runs and return their names."""
    table = load(spark, name)
    left = [r for r in jvm.branches(spark, table, BRANCH_PREFIX) if is_abandoned(table, r)]
    for branch in left:
        jvm.drop_branch(spark, name, branch)
    return left
