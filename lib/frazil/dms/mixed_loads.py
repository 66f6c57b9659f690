"""Detects load files of different loads in one folder: files of an older load would bring back deleted rows."""

from __future__ import annotations

import time
from datetime import UTC

from frazil.dms.listing import DmsObject, TableObjects
from frazil.errors import FrazilError
from frazil.source.file_names import moment


class MixedLoadError(FrazilError):
    """Some load files were not written with the others."""

    decision = True


def require_one_load(objects: TableObjects, applied: set[str], source: str) -> None:
    """Raise MixedLoadError for load files that seem to belong to an older load than the others.

    These are the files applied by an earlier load, or older than a change file that is itself older than other load
    files. `applied` are the paths of the load files that an earlier load has applied.
    """
    before = [o for o in objects.loads if o.path in applied]
    old = before if len(before) < len(objects.loads) else []
    old = old or _before_a_change(objects)
    if not old:
        return
    shown = "; ".join(f"{o.path} of {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(o.landed))} UTC" for o in old[:3])
    newest = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(max(o.landed for o in objects.loads)))
    raise MixedLoadError(
        f"{source}: {len(old)} of {len(objects.loads)} load files were not written with the others, the newest of {newest} UTC: "
        f"{shown}{' …' if old[3:] else ''}",
        "move files of an older load away: the new load has their rows, and rows deleted since stay deleted; or have DMS load the table into "
        "an empty folder; if all belong to one load, set old_load_files=accept: then rows that were deleted since an older load come back",
    )


ZONES_S = 15 * 3600.0
"""A time in a file name differs from UTC by less than this."""
COPIED_S = 26 * 3600.0
"""A file whose name and arrival differ by more than this was copied."""


def _before_a_change(objects: TableObjects) -> list[DmsObject]:
    """Return load files older than a change file that is itself older than the newest load file.

    They belong to an older load, as DMS ends a load before it writes changes.
    """
    if len(objects.loads) < 2:
        return []
    newest = max(o.landed for o in objects.loads)
    for c in objects.changes:
        written = _utc(c.name)
        # A copied file has the time of the copy: times that are close together then prove nothing.
        slack = 1.0 if abs(c.landed - written) < COPIED_S else 600.0
        for at, margin in ((c.landed, slack), (written, ZONES_S)):
            old = [o for o in objects.loads if o.landed < at - margin]
            if old and newest > at + margin:
                return old
    return []


def _utc(name: str) -> float:
    return moment(name).replace(tzinfo=UTC).timestamp()
