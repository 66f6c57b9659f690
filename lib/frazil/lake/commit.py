"""Exactly once: a batch is written to a branch, and one metadata swap makes it main together with its position."""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.dms.position import Position
from frazil.errors import FrazilError
from frazil.lake import jvm
from frazil.lake.tables import BATCH, BRANCH_PREFIX, POSITION, TAG, Base, load, read_base

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = 5


class PositionMovedError(FrazilError):
    """Another run of Frazil moved the table's position meanwhile: this one skips the table."""


class BusyError(PositionMovedError):
    """Others committed each time that a batch was about to be; it was given up, and the position stands."""

    def __init__(self, name: str):
        super().__init__(
            f"{name}: others committed to it {ATTEMPTS} times in a row while a batch was written",
            "nothing of the batch was applied: the next pass, or run, begins with it; have them commit less often",
        )


@dataclass(frozen=True)
class Commit:
    """What one commit did; `committed_at` in epoch milliseconds, `summary` as Iceberg and Frazil wrote it."""

    snapshot: int
    batch: str
    committed_at: int
    summary: dict[str, str]

    def count(self, name: str) -> int:
        """Return a count of the summary, 0 where it says nothing."""
        return int(self.summary.get(name, 0))


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def new_batch() -> str:
    """Return a batch id that names its writer, so that its branch can be told from one that a dead writer left behind."""
    return f"{time.strftime('%Y%m%dt%H%M%S', time.gmtime())}_{_host()}_{os.getpid()}_{secrets.token_hex(3)}"


def is_abandoned(branch: str) -> bool:
    """Tell whether a branch's writer ran on this host and is dead, or it is a day old."""
    parts = re.fullmatch(re.escape(BRANCH_PREFIX) + r"(\d{8}[tT]\d{6})_([0-9a-f]{8})_(\d+)_[0-9a-f]{6}", branch)
    if not parts:
        return False
    if parts[2] == _host():
        return not os.path.exists(f"/proc/{parts[3]}") if os.path.isdir("/proc") else int(parts[3]) != os.getpid()
    return parts[1].lower() < time.strftime("%Y%m%dt%H%M%S", time.gmtime(time.time() - 86_400))


def remove_abandoned_branches(spark: SparkSession, name: str) -> list[str]:
    """Remove the branches that killed runs left behind and return their names."""
    table = load(spark, name)
    left = [r for r in jvm.branches(spark, table, BRANCH_PREFIX) if is_abandoned(r)]
    for branch in left:
        jvm.drop_branch(spark, name, branch)
    return left


def commit_batch(
    spark: SparkSession,
    name: str,
    base: Base,
    position: Position,
    write: Callable[[str, dict[str, str]], None],
    summary: dict[str, str],
    properties: dict[str, str] | None = None,
) -> Commit:
    """Let `write(branch table, summary)` write a batch to a branch of main, then publish it with its position.

    Data, deletes, tag, position and further `properties` change in one swap, or not at all. If main moved meanwhile (a
    compaction), the batch is written again on the new main. Raises PositionMovedError if the position moved: then another run is at work;
    BusyError if main moved each time.
    """
    branch = BRANCH_PREFIX + position.batch
    summary = {**summary, BATCH: position.batch, POSITION: position.to_json()}
    for attempt in range(1, ATTEMPTS + 1):
        try:
            jvm.fork(spark, name, branch, base.snapshot)
            write(f"{name}.branch_{branch}", summary)
            return _publish(spark, name, base, branch, position, summary, properties or {})
        except FrazilError:
            jvm.drop_branch(spark, name, branch)
            raise
        except Exception as error:
            if done := find(spark, name, position.batch):
                return done
            jvm.drop_branch(spark, name, branch)
            if not jvm.is_known_failure(error):
                raise
            moved = read_base(spark, name)
            if moved.stored != base.stored:
                raise PositionMovedError(
                    f"{name}: its position moved while a batch was written", "run again"
                ) from error
            if attempt == ATTEMPTS:
                raise (BusyError(name) if moved.snapshot != base.snapshot else error) from error
            base = moved
            time.sleep(0.1 * 2**attempt)
    raise AssertionError("unreachable")


def _publish(
    spark: SparkSession, name: str, base: Base, branch: str, position: Position, summary: dict[str, str],
    properties: dict[str, str],
) -> Commit:  # fmt: skip
    """Make the branch main, move the tag, set position and properties: one Transaction, compared with and set against `base`."""
    table = jvm.load_table(spark, name)
    if table.properties().get(POSITION) != base.stored:
        raise PositionMovedError(f"{name}: its position moved while a batch was written", "run again")
    head = jvm.publish(table, branch, base.snapshot, TAG, POSITION, position.to_json, summary, properties)
    return commit_of(spark, head, position.batch)


def commit_of(spark: SparkSession, snapshot: jvm.JavaSnapshot, batch: str) -> Commit:
    """Return what a snapshot tells of the commit that made it."""
    return Commit(snapshot.snapshotId(), batch, snapshot.timestampMillis(), jvm.summary_of(spark, snapshot))


def find(spark: SparkSession, name: str, batch: str) -> Commit | None:
    """Look for a batch in main's history: how a commit of unknown outcome is resolved, never by trying again blind."""
    for snapshot in jvm.ancestors(jvm.load_table(spark, name)):
        if snapshot.summary().get(BATCH) == batch:
            return commit_of(spark, snapshot, batch)
    return None
