"""What keeps a table fast and small beside compaction: tags of past states, expiry, manifests, orphans. No step touches what lies above the tag."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from frazil.iceberg.java import causes
from frazil.iceberg.snapshot_summary import POSITION, Snapshot
from frazil.iceberg.soundness import require_sound
from frazil.iceberg.sql_text import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.iceberg.table import LakeTable

MOST_METADATA = 1 << 20
"""Bytes of metadata above which ingestion expires: some catalogs refuse 20 MB, one 1 MB, and each commit writes them anew."""
HOURLY = timedelta(days=1)
"""How long the tag of the last state of an hour is kept."""
MANY_MANIFESTS = 64


def missing_tags(table: LakeTable, now: datetime, daily: timedelta) -> Iterator[tuple[str, Snapshot, timedelta]]:
    """Yield the tags that past states should have and lack: name, snapshot, and how long it is kept.

    The last own snapshot of each past hour and day has one, of a day so long as `daily` says; nothing is tagged that is still to change.
    """
    there = {*table.tags}
    for snapshot in (s for s in table.ancestors() if POSITION in s.summary):
        at = datetime.fromtimestamp(snapshot.committed_ms / 1000, UTC)
        for form, age in (("hour_%Y%m%d_%H", HOURLY), ("day_%Y%m%d", daily)):
            name = at.strftime(form)
            if now - at < age and name != now.strftime(form) and name not in there:
                there.add(name)
                yield name, snapshot, age


def keep_states(table: LakeTable, daily: timedelta) -> list[str]:
    """Tag the last states of past hours and days; return the new tags."""
    missing = [*missing_tags(table, datetime.now(UTC), daily)]
    for name, snapshot, age in missing:
        refs = table.handle.manageSnapshots().createTag(name, snapshot.id)
        refs.setMaxRefAgeMs(name, int(age.total_seconds() * 1000)).commit()
    table.refresh()
    return [name for name, _, _ in missing]


def expirable(table: LakeTable, keep_hours: float) -> int:
    """Return how many snapshots are older than some hours, and no tag or branch names them; 0 if others need the files."""
    if table.others_need_files:
        return 0
    since, named = _kept_since_ms(keep_hours), {*table.tags.values()}
    return sum(s.committed_ms < since and s.id not in named for s in table.snapshots)


def expire(table: LakeTable, keep_hours: float) -> int:
    """Let the snapshots expire that `expirable` counts; return how many are gone.

    Snapshots that others made since the last own one stay: they link it to the rows.
    """
    if not expirable(table, keep_hours):
        return 0
    least = 1 + len(require_sound(table))
    gone = json.loads(table.bridge.expire(table.handle, _kept_since_ms(keep_hours), least))
    table.refresh()
    return len(gone)


def wants_expiry(table: LakeTable, keep_hours: float) -> bool:
    """Return whether ingestion expires: the metadata are large, and a quarter of the snapshots is old."""
    return table.metadata_bytes > MOST_METADATA and 4 * expirable(table, keep_hours) >= len(table.snapshots)


def _kept_since_ms(keep_hours: float) -> int:
    return int((time.time() - keep_hours * 3600) * 1000)


def remove_orphans(table: LakeTable, after_days: float) -> list[str]:
    """Delete files in a table's own folders that no snapshot has had for days; return their paths."""
    if table.others_need_files:
        return []
    before, gone = f"{datetime.now(UTC) - timedelta(after_days):%Y-%m-%d %H:%M:%S}", list[str]()
    for folder in ("data", "metadata"):
        place = table.metadata.properties.get(f"write.{folder}.path", f"{table.metadata.location}/{folder}")
        more = f", older_than => timestamp '{before}', location => {literal(place)}"
        try:
            gone += [row[0] for row in _call(table, "remove_orphan_files", more)]
        except Exception as error:
            if "FileNotFoundException" not in dict(causes(error)):  # there is no file yet
                raise
    return gone


def _call(table: LakeTable, procedure: str, more: str = "") -> list[Any]:
    """Call one of Iceberg's procedures on a table."""
    name = literal(quoted(table.name))
    return table.session().sql(f"CALL {quoted(table.catalog.name)}.system.{procedure}(table => {name}{more})").collect()


def rewrite_manifests(table: LakeTable) -> bool:
    """Rewrite the manifests of a table that has many; return whether it had."""
    if table.manifests <= MANY_MANIFESTS:
        return False
    _call(table, "rewrite_manifests")
    table.refresh()
    return True
