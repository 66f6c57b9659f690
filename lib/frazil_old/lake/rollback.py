"""A table that somebody rolled back below its position, or forward beyond it, stops: batches would lose or repeat changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil_old.config.sql import literal
from frazil_old.dms.position import POSITION, Position
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm
from frazil_old.lake.jvm import TAG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_kept: set[tuple[int, int]] = set()
"""Snapshots of positions, and of main, that were found to have their files."""


class RolledBackError(FrazilError):
    """A table was rolled back below its position, or forward beyond it: batches would lose or repeat changes silently."""

    decision = True


def require_not_rolled_back(
    spark: SparkSession, table: jvm.JavaTable, name: str, stamp: dict[str, int]
) -> list[jvm.JavaSnapshot]:
    """Walk back from the current snapshot to the position's own; an older one on the way means a rollback.

    So does a newer batch: the position was set back, and its changes would be applied twice.

    If snapshots on the way expired, main must have all files of the position's snapshot, or only rewrites on top. Return
    the snapshots since the position, newest first.
    """
    since: list[jvm.JavaSnapshot] = []
    for snapshot in jvm.ancestors(table):
        if snapshot.snapshotId() == stamp["snapshot"]:
            return since
        since.append(snapshot)
        if snapshot.sequenceNumber() < stamp["sequence"]:
            raise RolledBackError(
                f"{name} was rolled back to snapshot {snapshot.snapshotId()}, below its position",
                _statement_to_go_on(table, name, snapshot),
            )
        if snapshot.summary().get(POSITION):
            raise RolledBackError(
                f"{name} has a batch that is newer than its position: the position was set back, or the table rolled forward again",
                _statement_to_go_on(table, name, snapshot),
            )
    tagged = table.refs().get(TAG)
    is_known = tagged is not None and tagged.snapshotId() == stamp["snapshot"]
    if not is_known or not (_are_rewrites(since) or _has_files(spark, table, stamp["snapshot"])):
        stored = Position.from_json(table.properties()[POSITION])[0]
        stamped = stored.to_json(snapshot=since[-1].snapshotId(), sequence=since[-1].sequenceNumber())
        raise RolledBackError(
            f"{name}: the history of its position is gone: it may have been rolled back",
            "run 01_full_load with on_changed_load=replay, which reads all load and change files again; if change files are gone, "
            f"have DMS load the table again and write reload; if it was not rolled back: ALTER TABLE {name} SET TBLPROPERTIES "
            f"('{POSITION}' = {literal(stamped)})",
        )
    return since


def _are_rewrites(snapshots: list[jvm.JavaSnapshot]) -> bool:
    """Return whether snapshots are compactions and the like, of which an idle table may have many: they replace all files."""
    return all(snapshot.operation() == "replace" for snapshot in snapshots)


def _has_files(spark: SparkSession, table: jvm.JavaTable, snapshot: int) -> bool:
    """Return whether main has all data files and delete files of a snapshot."""
    from frazil_old.lake.jvm_row_delta import live_files

    main = table.currentSnapshot().snapshotId()
    if (snapshot, main) not in _kept:
        then, now = (live_files(spark, table, s) for s in (snapshot, main))
        if not all(path in now and all(d in now[path].deletes for d in file.deletes) for path, file in then.items()):
            return False
        _kept.add((snapshot, main))
    return True


def _statement_to_go_on(table: jvm.JavaTable, name: str, snapshot: jvm.JavaSnapshot) -> str:
    """Return the statement that sets the position to the one of the nearest snapshot at or below this one."""
    while snapshot is not None:
        theirs, parent = snapshot.summary().get(POSITION), snapshot.parentId()
        if theirs or parent is None:
            there = Position.from_json(theirs)[0] if theirs else Position()
            stamped = there.to_json(snapshot=snapshot.snapshotId(), sequence=snapshot.sequenceNumber())
            where = there.last or ("the load" if there.loaded else "the start")
            return f"to continue from {where}: ALTER TABLE {name} SET TBLPROPERTIES ('{POSITION}' = {literal(stamped)})"
        snapshot = table.snapshot(parent)
    return "run 01_full_load with on_changed_load=replay"
