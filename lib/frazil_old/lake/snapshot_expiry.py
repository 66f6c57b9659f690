"""The expiry of snapshots: which ones an expiry would remove, and the expiry with the files that only they need."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil_old.lake.jvm import JavaSnapshot, JavaTable


LEAST_SNAPSHOTS, LEAST_PROPERTY = 10, "history.expire.min-snapshots-to-keep"
"""How many of the newest snapshots an expiry keeps, unless the table's property says another number."""


def may_delete(table: JavaTable) -> bool:
    """Return whether Iceberg may delete files of a table: not if others use them too, as after the procedure `snapshot`."""
    return table.properties().get("gc.enabled") != "false"


def _expire(table: JavaTable, keep_hours: float) -> JavaTable:
    """Build the expiry: by age, but never the newest `LEAST_SNAPSHOTS`. Iceberg keeps what a tag or a branch needs."""
    older_than = round((time.time() - keep_hours * 3600) * 1000)
    least = table.properties().getOrDefault(LEAST_PROPERTY, str(LEAST_SNAPSHOTS))
    return table.expireSnapshots().expireOlderThan(older_than).retainLast(int(least))


def expirable(table: JavaTable, keep_hours: float) -> list[JavaSnapshot]:
    """Return the snapshots that an expiry would remove, oldest first (`apply()` only computes)."""
    may_expire = table.snapshots().size() and may_delete(table)
    found = _expire(table, keep_hours).apply() if may_expire else ()
    return sorted(found, key=lambda snapshot: snapshot.timestampMillis())


def expire_snapshots(table: JavaTable, keep_hours: float) -> int:
    """Expire snapshots on the driver, with the files that only they need, and return how many were removed.

    If history is linear, Iceberg deletes each file that an expired snapshot removed. It deletes even a Puffin file of
    which only one deletion vector was replaced while others are live (`IncrementalFileCleanup`, apache/iceberg#17456).
    An expiry that names a snapshot compares reachable files instead, path by path. So one is named; if none expires, no
    file is deleted.
    """
    before = table.snapshots().size()
    expiry = _expire(table, keep_hours)
    gone = expiry.apply()
    if gone.isEmpty():
        expiry.cleanExpiredFiles(False).commit()  # tags may have expired anyway
    else:
        expiry.expireSnapshotId(gone.get(0).snapshotId()).commit()
    table.refresh()
    return before - table.snapshots().size()
