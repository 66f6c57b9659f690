"""A table that somebody rolled back below its position stops, as further batches would lose changes."""

from __future__ import annotations

from frazil.config.sql import literal
from frazil.dms.position import POSITION, Position
from frazil.errors import FrazilError
from frazil.lake import jvm
from frazil.lake.jvm import TAG


class RolledBackError(FrazilError):
    """A table was rolled back below its position: further batches would lose changes silently."""

    decision = True


def require_not_rolled_back(table: jvm.JavaTable, name: str, stamp: dict[str, int]) -> list[jvm.JavaSnapshot]:
    """Walk back from the current snapshot to the position's own; an older one on the way means a rollback.

    Return the snapshots since the position, newest first.
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
    tagged = table.refs().get(TAG)
    if tagged is None or tagged.snapshotId() != stamp["snapshot"]:
        raise RolledBackError(
            f"{name}: the history of its position is gone",
            "run 01_full_load with on_changed_load=replay, which reads all load and change files again; if change files are gone, "
            "have DMS load the table again and write reload",
        )
    return since


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
